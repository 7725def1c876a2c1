"""The statistics of a benchmark: quantiles, a paired bootstrap over prompts and passes, where a curve crosses 1. Pure.

A request is ``(latency in seconds, output tokens)``, or None where it failed. A pass is a list of requests in the order of the
prompts, so that the same place in two passes is the same prompt.
"""

from __future__ import annotations

import math
import random
from typing import List, NamedTuple, Optional, Sequence, Tuple

Request = Optional[Tuple[float, float]]
Pass = Sequence[Request]

ROUNDS = 1000
FEWEST_PROMPTS = 5
"""Below this an interval would say more about luck than about the servers: there is none."""


class Interval(NamedTuple):
    """A 95 % interval around ``point``; ``prompts`` and ``passes`` (of the two arms) say what it rests on."""

    point: float
    low: float
    high: float
    prompts: int
    passes: Tuple[int, int]


def mean(values: Sequence[float]) -> Optional[float]:
    """The arithmetic mean; None of nothing."""
    return math.fsum(values) / len(values) if values else None


def quantile(ordered: Sequence[float], q: float) -> Optional[float]:
    """The ``q`` quantile (0 to 1) of sorted values, linear between neighbours (as numpy's); None of nothing."""
    if not ordered:
        return None
    place = q * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def usable(*arms: Sequence[Pass]) -> List[int]:
    """The prompts that were answered in every pass of every arm (their places)."""
    passes = [one for arm in arms for one in arm]
    if not passes:
        return []
    return [i for i in range(min(len(one) for one in passes)) if all(_answered(one[i]) for one in passes)]


def _answered(request: Request) -> bool:
    return request is not None and request[0] > 0 and request[1] > 0


def paired_gain(base: Sequence[Pass], other: Sequence[Pass], seed: int = 0, rounds: int = ROUNDS) -> Optional[Interval]:
    """How much faster the other arm's requests are (tokens a second of a request's time), with a 95 % interval.

    Paired: both arms are resampled with the same prompts, which takes out that prompts differ in length and ease. Each arm's
    passes are resampled too, so that the machine's own drift between passes widens the interval. None with fewer than
    `FEWEST_PROMPTS` prompts answered everywhere. The same ``seed`` gives the same interval.
    """
    prompts = usable(base, other)
    if len(prompts) < FEWEST_PROMPTS:
        return None
    sides = [[[one[i] for i in prompts] for one in arm] for arm in (base, other)]
    chance = random.Random(seed)  # noqa: S311 - a resampling that can be repeated, nothing secret
    count = len(prompts)
    everything = [1] * count
    point = _ratio(sides, everything, [range(len(side)) for side in sides])
    found = []
    for _ in range(rounds):
        times = [0] * count
        for _ in range(count):
            times[int(chance.random() * count)] += 1
        picks = [[int(chance.random() * len(side)) for _ in side] for side in sides]
        found.append(_ratio(sides, times, picks))
    found.sort()
    low, high = quantile(found, 0.025) or 0.0, quantile(found, 0.975) or 0.0
    return Interval(point, low, high, count, (len(base), len(other)))


def _ratio(sides: Sequence[Sequence[Sequence[Request]]], times: Sequence[int], picks: Sequence[Sequence[int]]) -> float:
    speeds = []
    for side, chosen in zip(sides, picks):
        seconds = tokens = 0.0
        for at in chosen:
            for request, weight in zip(side[at], times):
                if weight and request is not None:
                    seconds += weight * request[0]
                    tokens += weight * request[1]
        speeds.append(tokens / seconds)
    return speeds[1] / speeds[0]


def shifted(interval: Interval, point: float) -> Interval:
    """The interval moved onto another estimate of the same ratio (it keeps its relative width)."""
    by = point / interval.point
    return interval._replace(point=point, low=interval.low * by, high=interval.high * by)


def drift(speeds: Sequence[float]) -> Optional[float]:
    """The last pass's speed over the first's, less one; None with fewer than two passes."""
    return speeds[-1] / speeds[0] - 1.0 if len(speeds) > 1 and speeds[0] > 0 else None


# --------------------------------------------------------------------------------------------------------- a curve and 1


class Crossing(NamedTuple):
    """Where a curve goes through 1: at ``x``; ``falls`` when it comes from above."""

    x: float
    falls: bool


def crossings(points: Sequence[Tuple[float, float]], level: float = 1.0) -> List[Crossing]:
    """Where the curve through ``(x, y)`` crosses ``level``, by interpolation: linear in y, and in the logarithm of x, for
    concurrencies are chosen by doubling. Points need x > 0 and are sorted here.
    """
    out: List[Crossing] = []
    ordered = sorted(points)
    for at in range(1, len(ordered)):
        (x0, y0), (x1, y1) = ordered[at - 1], ordered[at]
        if (y0 >= level) == (y1 >= level):
            continue
        share = (y0 - level) / (y0 - y1)
        x = math.exp(math.log(x0) + share * (math.log(x1) - math.log(x0)))
        out.append(Crossing(min(max(x, x0), x1), y1 < y0))  # rounding may lead a little beyond
    return out
