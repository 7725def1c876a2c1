"""How long until a load is ready, and why we think so: from earlier loads of the same profile here, else from its shards.

Pure: job states in, an `Eta` out. tqdm's own estimate is never used: it knows one phase of about ten.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

from eagletui.records import Eta, JobState, Phase

# After the weights of a large checkpoint come compile, profiling and capture. Without history here only a wide range is
# honest: on 8-card hosts that tail took from 0.6 to 3 times the weights on warm disks, and 3 to 6 minutes on slow ones.
TAIL_OF_WEIGHTS = (0.25, 3.0)
TAIL_SECONDS = (5.0, 360.0)
# A small model has a shorter tail: about a minute, for compile and capture, after weights of a second
SMALL_TAIL, SMALL_OF_WEIGHTS = 120.0, 4.0

COLD_SHARE, COLD_LEAST = 0.5, 256 << 20
"""A load is cold when at least this share of what it read came from a disk; judged from so many bytes on."""

OVERDUE = 0.5
"""What a phase that takes longer than expected is thought to go on, as a share of the time that it is overdue."""
SLOWEST = 4.0
PACE_SECONDS = 40.0
"""After so many seconds of phases that are over, half of what this load is slower is expected to go on."""
SCATTER = 0.06
"""Loads of one profile on an idle machine lie up to so much of their total apart (measured: 53 to 56 s); no range is narrower."""
TOLD = 0.1
"""From this share on, that a load is slower than the earlier ones is told."""

Key = tuple[str, str | None]


def same_load(a: JobState, b: JobState) -> bool:
    """Whether two jobs load the same thing the same way, so that one's durations say something about the other's."""
    return (a.engine, a.profile, a.model, a.drafter, a.k) == (b.engine, b.profile, b.model, b.drafter, b.k)


def earlier_loads(job: JobState, jobs: Iterable[JobState]) -> list[JobState]:
    """The ended or ready loads of the same profile that reached ready, newest first, at most ten."""
    found = [j for j in jobs if j.id != job.id and j.ready_seconds is not None and j.phases and same_load(job, j)]
    return sorted(found, key=lambda j: j.started, reverse=True)[:10]


def temperature(job: JobState) -> str | None:
    """``cold`` when the disk gave what the load reads, ``warm`` when the page cache did; None when that is not known (yet)."""
    if job.disk_read is None or job.bytes_read is None or job.bytes_read < COLD_LEAST:
        return None
    return "cold" if job.disk_read >= COLD_SHARE * job.bytes_read else "warm"


def usual(job: JobState, jobs: Iterable[JobState]) -> dict[Key, float]:
    """What each (phase, role) took in the earlier loads of the profile here, their median, in the newest one's order.

    A phase that fewer than half of them had is left out.
    """
    spans = [_spans(load.phases, load.ready_seconds) for load in earlier_loads(job, jobs)]
    out: dict[Key, float] = {}
    for key in dict.fromkeys(key for span in spans for key in span):
        seconds = [span[key] for span in spans if key in span]
        if 2 * len(seconds) >= len(spans):
            out[key] = statistics.median(seconds)
    return out


def estimate(job: JobState, elapsed: float, jobs: Iterable[JobState]) -> Eta | None:
    """Seconds left until ready, with a range and the basis; None when nothing is known yet.

    ``elapsed`` is the time since the first line of the log, the clock that `Phase.start` uses. An estimate of nothing but zeros
    is one that the load has outlasted.
    """
    if job.ready_seconds is not None or not job.phases or job.phases[-1].id == "ready":
        return None  # nothing to go on with, or only its first answer is awaited
    earlier = earlier_loads(job, jobs)
    if earlier:
        return _from_alike(job, elapsed, earlier)
    return _from_shards(job.phases, elapsed)


def _from_alike(job: JobState, elapsed: float, earlier: Sequence[JobState]) -> Eta:
    """From the earlier loads that were as cold or warm as this one; without any, from all, with a range that says so."""
    own = temperature(job)
    alike = [load for load in earlier if own is None or temperature(load) in (own, None)]
    if alike:
        known = own if own is not None and any(temperature(load) == own for load in alike) else None
        return _from_history(job.phases, elapsed, alike, f"{known} " if known else "")
    other = "warm" if own == "cold" else "cold"
    found = _from_history(job.phases, elapsed, earlier, f"{other} ")
    # all but the weights shifts as well when nothing is cached: imports, compile cache, kernels
    low, high = (found.low, 3 * found.high) if own == "cold" else (found.low / 3, found.high)
    why = "this one reads from the disk" if own == "cold" else "this one finds its files in memory"
    return Eta(found.seconds, low, high, f"{found.basis}; {why}")


def _spans(phases: Sequence[Phase], end: float | None) -> dict[Key, float]:
    """Seconds spent in each (phase, role) up to ``end``; repeated phases add up. Being ready is no part of a load."""
    spans: dict[Key, float] = {}
    for phase in phases:
        if phase.id == "ready":
            continue
        seconds = phase.seconds
        if seconds is None:
            if end is None:
                continue
            seconds = max(0.0, end - phase.start)
        spans[phase.id, phase.role] = spans.get((phase.id, phase.role), 0.0) + seconds
    return spans


def _from_history(phases: Sequence[Phase], elapsed: float, earlier: Sequence[JobState], kind: str = "") -> Eta:
    spent = _spans(phases, elapsed)
    running = phases[-1]
    current = (running.id, running.role)
    each = [_spans(load.phases, load.ready_seconds) for load in earlier]
    pace = _pace(phases, each)
    remaining = []
    for usual in each:
        left = pace * sum(max(0.0, seconds) for key, seconds in usual.items() if key not in spent)
        here = 0.0
        if running.seconds is None:
            expected, so_far = pace * usual.get(current, 0.0), spent.get(current, 0.0)
            here = expected - so_far if so_far < expected else OVERDUE * (so_far - expected)
        fraction = _fraction(running)
        if fraction is not None and running.seconds is None:
            here = (elapsed - running.start) * (1 - fraction) / fraction
        remaining.append(left + here)
    totals = [load.ready_seconds for load in earlier if load.ready_seconds is not None]
    basis = (
        f"1 earlier {kind}load here, {_span(totals[0])}"
        if len(totals) == 1
        else f"{len(totals)} earlier {kind}loads here, {_span(min(totals))} to {_span(max(totals))}"
    )
    if pace - 1 >= TOLD:
        basis += ", this one is slower so far"
    middle = statistics.median(remaining)
    spread = middle * (0.5 if len(remaining) == 1 else 0.15)
    if middle > 0:
        spread = max(spread, SCATTER * statistics.median(totals))
    low, high = max(0.0, min(min(remaining), middle - spread)), max(max(remaining), middle + spread)
    # as far as it is ahead or behind now, it may come to be once more
    return Eta(middle, low * min(pace, 1 / pace) ** 2, high * max(1.0, pace) ** 2, basis)


def _pace(phases: Sequence[Phase], earlier: Sequence[Mapping[Key, float]]) -> float:
    """How many times as long as in the earlier loads this one takes, by the phases that are over; 1 when that is not known.

    The host shares its processors with others. The weights say nothing of the rest: they depend on what the page cache holds. A
    short time says little, so it counts less; that it is faster counts half, and nothing against a single earlier load.
    """
    spent = expected = 0.0
    for key, seconds in _spans(phases, None).items():
        known = [usual[key] for usual in earlier if key in usual]
        if key[0] != "weights" and known:
            spent += seconds
            expected += statistics.median(known)
    if expected <= 0 or (spent < expected and len(earlier) < 2):
        return 1.0
    ratio = min(spent / expected, SLOWEST)
    trust = 1.0 if ratio > 1 and len(earlier) > 1 else 0.5
    return 1 + trust * (ratio - 1) * expected / (expected + PACE_SECONDS)


def _fraction(phase: Phase) -> float | None:
    """The finished part of a counted phase, once it is enough to judge by (a tenth and two steps)."""
    if not phase.total or phase.done is None:
        return None
    fraction = phase.done / phase.total
    return fraction if 0.1 <= fraction <= 1 and phase.done >= 2 else None


def _from_shards(phases: Sequence[Phase], elapsed: float) -> Eta | None:
    weights = [p for p in phases if p.id == "weights" and p.role != "drafter"]
    if not weights:
        return None
    target = weights[-1]
    if target.seconds is None:
        fraction = _fraction(target)
        if fraction is None:
            return None
        spent = elapsed - target.start
        left, whole = spent * (1 - fraction) / fraction, spent / fraction
        after = 0.0
    else:
        left, whole = 0.0, target.seconds
        after = elapsed - target.start - target.seconds
    low = max(TAIL_SECONDS[0], TAIL_OF_WEIGHTS[0] * whole) - after
    longest = max(TAIL_SECONDS[1], TAIL_OF_WEIGHTS[1] * whole)
    high = min(longest, SMALL_TAIL + SMALL_OF_WEIGHTS * whole) - after
    low, high = left + max(0.0, low), left + max(0.0, high)
    what = "shards so far" if target.seconds is None else "the weights took " + _span(whole)
    return Eta(
        (low * high) ** 0.5 if low > 0 else high / 2, low, high, f"first load of this profile here: {what}, then a typical tail"
    )


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
