"""What a server's numbers must be, from the raw text of ``/metrics`` and from recorded scrapes: none of the product's code.

A window's expected values come from two `Counts` and the seconds between them. `texts` writes them as the screens should.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

WINDOWS: tuple[tuple[str, float | None], ...] = (("10 s", 10), ("1 m", 60), ("10 m", 600), ("all", None))
_LINE = re.compile(r"^(vllm:\w+)\{([^}]*)\} (\S+)$", re.M)

Histogram = tuple[tuple[float, float], ...]


class Counts(NamedTuple):
    """All that a server has counted at one moment. Histograms: (upper bound, observations up to it)."""

    prompt: float
    generated: float
    finished: float
    queries: float
    hits: float
    steps: float
    drafted: float
    accepted: float
    positions: tuple[float, ...]
    ttft: Histogram
    ttft_sum: float
    itl: Histogram
    itl_sum: float


def of_page(page: str) -> Counts:
    """From the text of ``/metrics``: every family summed over its label sets."""
    found: dict[str, dict[str, float]] = {}
    for name, labels, value in _LINE.findall(page):
        one = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        key = one.get("position") or one.get("le") or ""
        family = found.setdefault(name.removeprefix("vllm:"), {})
        family[key] = family.get(key, 0.0) + float(value)

    def total(name: str) -> float:
        return found[name + "_total"][""]

    def histogram(name: str) -> Histogram:
        return tuple(sorted((float(bound), count) for bound, count in found[name + "_bucket"].items()))

    places = found["spec_decode_num_accepted_tokens_per_pos_total"]
    return Counts(
        total("prompt_tokens"),
        total("generation_tokens"),
        total("request_success"),
        total("prefix_cache_queries"),
        total("prefix_cache_hits"),
        total("spec_decode_num_drafts"),
        total("spec_decode_num_draft_tokens"),
        total("spec_decode_num_accepted_tokens"),
        tuple(places[str(place)] for place in range(len(places))),
        histogram("time_to_first_token_seconds"),
        found["time_to_first_token_seconds_sum"][""],
        histogram("inter_token_latency_seconds"),
        found["inter_token_latency_seconds_sum"][""],
    )


def of_line(line: Mapping[str, Any]) -> Counts:
    """From one line of ``samples.jsonl``."""

    def histogram(name: str) -> Histogram:
        return tuple((float("inf") if bound is None else float(bound), float(count)) for bound, count in line[name])

    names = (
        "prompt_tokens",
        "generated_tokens",
        "finished",
        "prefix_queries",
        "prefix_hits",
        "verify_steps",
        "drafted",
        "accepted",
    )
    return Counts(
        *(float(line[name]) for name in names),
        tuple(map(float, line["per_position"])),
        histogram("ttft"),
        float(line["ttft_sum"]),
        histogram("itl"),
        float(line["itl_sum"]),
    )  # type: ignore[call-arg]


class Waits(NamedTuple):
    """Seconds at 50, 90 and 99 % of the observations of a window, and their mean."""

    observations: float
    p50: float
    p90: float
    p99: float
    mean: float


class Expected(NamedTuple):
    """What a window must say. Tokens and requests per second; shares 0 to 1; what cannot be told is None."""

    seconds: float
    prompt: float
    generated: float
    finished: float
    hits: float | None
    steps: float
    drafted: float
    accepted: float
    rate: float | None
    length: float | None
    positions: tuple[float, ...]
    ttft: Waits | None
    itl: Waits | None


def waits(older: Histogram, newer: Histogram, spent: float) -> Waits | None:
    """The quantiles of the observations between two states of a histogram, straight lines within a bucket."""
    before = dict(older)
    counts = [(bound, count - before.get(bound, 0.0)) for bound, count in newer]
    observations = counts[-1][1]
    if not observations:
        return None

    def quantile(share: float) -> float:
        low = below = 0.0
        for bound, count in counts:
            if count >= share * observations and count > below:
                return low if bound == float("inf") else low + (bound - low) * ((share * observations - below) / (count - below))
            low, below = (low if bound == float("inf") else bound), max(below, count)
        raise AssertionError("the last bucket holds all observations")

    return Waits(observations, quantile(0.5), quantile(0.9), quantile(0.99), spent / observations)


def expected(older: Counts, newer: Counts, seconds: float) -> Expected:
    """What the window between two scrapes ``seconds`` apart must say."""
    steps, drafted, accepted = newer.steps - older.steps, newer.drafted - older.drafted, newer.accepted - older.accepted
    queries = newer.queries - older.queries
    return Expected(
        seconds,
        (newer.prompt - older.prompt) / seconds,
        (newer.generated - older.generated) / seconds,
        (newer.finished - older.finished) / seconds,
        (newer.hits - older.hits) / queries if queries else None,
        steps,
        drafted,
        accepted,
        accepted / drafted if drafted else None,
        1 + accepted / steps if steps else None,
        tuple((now - was) / steps for was, now in zip(older.positions, newer.positions, strict=True)) if steps else (),
        waits(older.ttft, newer.ttft, newer.ttft_sum - older.ttft_sum),
        waits(older.itl, newer.itl, newer.itl_sum - older.itl_sum),
    )


def bounds(lines: Sequence[Mapping[str, Any]], seconds: float | None) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """The two recorded scrapes that bound a window which ends with the last of ``lines``; None when there is only one.

    A window may be a second short of its label: scrapes are two seconds apart. None for ``seconds`` is "since the first".
    """
    newest, first = lines[-1], lines[0]
    if newest is first:
        return None
    if seconds is None:
        return first, newest
    return next((line for line in reversed(lines) if line["boot"] <= newest["boot"] - seconds + 1), first), newest


def worked(before: Mapping[str, Any] | None, line: Mapping[str, Any]) -> bool:
    """Whether the server did something at this scrape or since the one before."""
    if line["running"] or line["waiting"]:
        return True
    names = ("generated_tokens", "prompt_tokens")
    return before is not None and any(line[name] > before[name] for name in names)


def last_worked(lines: Sequence[Mapping[str, Any]]) -> int:
    """The index of the last scrape with work in it."""
    return next(i for i in reversed(range(len(lines))) if worked(lines[i - 1] if i else None, lines[i]))


# ------------------------------------------------------------------------------------------------------------ as text


def seconds_text(value: float) -> str:
    """A latency as the screens write it."""
    if value >= 0.9995:
        return f"{value:.2f} s"
    return f"{value * 1000:.0f} ms" if value >= 0.00995 else f"{value * 1000:.1f} ms"


def acceptance_texts(want: Expected) -> list[str]:
    """What the screen Acceptance must hold, with single spaces."""
    assert want.rate is not None
    assert want.length is not None
    out = [
        f"acceptance {100 * want.rate:.1f} %",
        f"length {want.length:.2f}",
        f"drafted {want.drafted / want.seconds:,.1f} tok/s",
        f"accepted {want.accepted / want.seconds:,.1f} tok/s",
        f"emitted {want.generated:,.1f} tok/s",
        f"over {want.seconds:.1f} s",
    ]
    before = 1.0
    for place, share in enumerate(want.positions, 1):
        given = f"{100 * share / before:,.1f} %" if before else "-"
        out += [f"position {place} ", f"{100 * share:,.1f} % p{place} {given}"]
        before = share
    return out


def throughput_texts(want: Expected) -> list[str]:
    """What the screen Throughput must hold, with single spaces."""
    out = [
        f"generation {want.generated:,.1f} tok/s",
        f"prompt {want.prompt:,.1f} tok/s",
        f"requests {want.finished:,.2f} /s done",
        f"over {want.seconds:.1f} s",
    ]
    if want.hits is not None:
        out.append(f"prefix hits {100 * want.hits:,.1f} %")
    for name, found in (("TTFT", want.ttft), ("ITL", want.itl)):
        if found is not None:
            shown = " ".join(f"{label} {seconds_text(getattr(found, label))}" for label in ("p50", "p90", "p99", "mean"))
            out.append(f"{name} {shown} of {found.observations:,.0f}")
    return out
