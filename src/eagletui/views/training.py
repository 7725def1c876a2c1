"""What the screen of a training shows, worked out: which run, its curves, what it predicts, how fresh it is. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from eagletui.records import JobState
from eagletui.runs import Course, Run
from eagletui.speculation import gain, predicted_length
from eagletui.store import Store

LIVE = frozenset(("launching", "running", "stopping"))
MOST_OVERLAID = 3
SMOOTH = 0.02
"""The share of what is drawn that a smoothed value mainly rests on."""
STARVED = 0.3
"""The share of a step spent on waiting for data from which on data is the bottleneck."""
LEAST_SILENCE, SILENT_STEPS = 30.0, 10.0
"""A training is silent when no step came for so many seconds, and for so many steps' time."""


class Points(NamedTuple):
    """A line: its x and y values."""

    x: list[float]
    y: list[float]


class BreakEvenLine(NamedTuple):
    """The length a drafter needs here, where that was measured, and how many tokens a step were drafted there."""

    length: float
    cost: float | None
    basis: str
    k: int | None = None


class Best(NamedTuple):
    """The validation with the least loss: at which step, after which epoch."""

    step: float
    epoch: int
    loss: float


# ---------------------------------------------------------------------------------------------------------- which run


def trainings(jobs: Iterable[JobState]) -> list[JobState]:
    """The training jobs: those that run, then those that ended; the newest first."""
    return sorted((job for job in jobs if job.kind == "train"), key=lambda job: (job.state not in LIVE, -job.started))


def current_run(store: Store) -> JobState | None:
    """The training to show: the one that was chosen while it is there, else the newest that runs, else the newest."""
    order = trainings(store.jobs.values())
    return next((job for job in order if job.id == store.run), order[0] if order else None)


def choose_run(store: Store, job: str | None) -> None:
    """Show this training from now on."""
    store.run = job
    store.overlaid = tuple(one for one in store.overlaid if one != job)
    store.changed("training")


def neighbour_run(store: Store, step: int) -> str | None:
    """The training ``step`` further in the list, round the end."""
    ids = [job.id for job in trainings(store.jobs.values())]
    shown = current_run(store)
    return ids[(ids.index(shown.id) + step) % len(ids)] if shown is not None else None


def overlaid(store: Store) -> list[JobState]:
    """The trainings that are drawn beside the one that is shown."""
    shown = current_run(store)
    found = (store.jobs.get(id_) for id_ in store.overlaid)
    return [job for job in found if job is not None and (shown is None or job.id != shown.id)]


def toggle_overlay(store: Store, job: str) -> bool:
    """Draw a training beside the one that is shown, or no longer. At most `MOST_OVERLAID`: the longest there goes."""
    on = job not in store.overlaid
    rest = tuple(one for one in store.overlaid if one != job)
    store.overlaid = (*rest, job)[-MOST_OVERLAID:] if on else rest
    store.changed("training")
    return on


# ------------------------------------------------------------------------------------------------------------- curves


def numbered(course: Course, stem: str) -> list[str]:
    """``stem_0``, ``stem_1`` ... as far as there are columns without a hole."""
    out: list[str] = []
    while f"{stem}_{len(out)}" in course.columns:
        out.append(f"{stem}_{len(out)}")
    return out


def positions(run: Run) -> int:
    """How many positions the drafter is trained for."""
    return max(len(numbered(run.train, "full_acc")), len(numbered(run.train, "loss")), len(numbered(run.val, "full_acc")))


def xs(course: Course, by_time: bool, start: float | None = None) -> list[float]:
    """Where the cells lie: their last step, or hours since ``start`` (the run's first line)."""
    if not by_time:
        return list(course.last)
    begun = start if start is not None else (course.walls[0] if course.walls else 0.0)
    return [(wall - begun) / 3600.0 for wall in course.walls]


def began(run: Run) -> float | None:
    """The wall time of the first line."""
    firsts = [course.walls[0] for course in (run.train, run.val) if course.walls]
    return min(firsts) if firsts else None


def raw(course: Course, name: str, x: Sequence[float]) -> Points:
    """Every value that is kept: of a cell of many lines the least and the largest."""
    column = course.columns.get(name)
    if column is None:
        return Points([], [])
    out = Points([], [])
    for at, low, high in zip(x, column.low, column.high, strict=True):
        for value in (low,) if low == high else (low, high):
            if value == value:
                out.x.append(at)
                out.y.append(value)
    return out


def means(course: Course, name: str, x: Sequence[float]) -> Points:
    """The mean of each cell, the gaps left out."""
    column = course.columns.get(name)
    if column is None:
        return Points([], [])
    known = [(at, value) for at, value in zip(x, column.mean, strict=True) if value == value]
    return Points([at for at, _ in known], [value for _, value in known])


def smooth(points: Points, share: float = SMOOTH) -> Points:
    """The exponential moving average, over a length of ``share`` of the points; unbiased from the first one on."""
    if len(points.y) < 3:
        return points
    keep = math.exp(-1.0 / max(1.0, share * len(points.y)))
    total, weight = 0.0, 0.0
    out: list[float] = []
    for value in points.y:
        total, weight = keep * total + (1 - keep) * value, keep * weight + (1 - keep)
        out.append(total / weight)
    return Points(points.x, out)


def lengths(course: Course, x: Sequence[float], k: int | None = None) -> Points:
    """The predicted acceptance length at each cell, from the joint accuracies; with ``k`` as if so many tokens were drafted."""
    names = numbered(course, "full_acc")
    columns = [course.columns[name].mean for name in names]
    out = Points([], [])
    for at, joint in zip(x, zip(*columns, strict=True), strict=False):
        if columns and all(value == value for value in joint):
            out.x.append(at)
            out.y.append(predicted_length(joint, k))
    return out


def epoch_marks(course: Course, x: Sequence[float]) -> list[tuple[float, int]]:
    """Where each epoch but the first begins: (x, its number from 0)."""
    out = []
    for at in range(1, len(course)):
        if course.epochs[at] > course.epochs[at - 1]:
            out.append((x[at], course.epochs[at]))
    return out


def axis(low: float, high: float, steps: int = 4) -> tuple[float, float, list[float]]:
    """An axis with round numbers that holds ``low`` to ``high``: its ends, and where its ticks are."""
    if not (math.isfinite(low) and math.isfinite(high)):
        low, high = 0.0, 1.0
    if high <= low:
        pad = abs(low) * 0.1 or 1.0
        low, high = low - pad, high + pad
    rough = (high - low) / steps
    power = 10.0 ** math.floor(math.log10(rough))
    size = next(power * unit for unit in (1.0, 2.0, 2.5, 5.0, 10.0) if power * unit >= rough * 0.999)
    first, last = math.floor(low / size + 1e-9), math.ceil(high / size - 1e-9)
    ticks = [size * n for n in range(first, last + 1)]
    return ticks[0], ticks[-1], ticks


def log_axis(low: float, high: float) -> tuple[float, float, list[float]]:
    """A logarithmic axis: its ends and ticks as powers of ten, the ticks at round values; positive numbers only."""
    low, high = max(low, 1e-12), max(high, 1e-12)
    bottom, top = math.log10(low), math.log10(high)
    if top - bottom < 0.1:
        bottom, top = bottom - 0.05, top + 0.05
    units = (1.0, 2.0, 3.0, 5.0) if top - bottom < 1.6 else (1.0, 3.0) if top - bottom < 3 else (1.0,)
    powers = range(math.floor(bottom) - 1, math.ceil(top) + 1)
    ticks = [n + math.log10(unit) for n in powers for unit in units]
    fine = sorted({n + math.log10(unit / 10) for n in powers for unit in range(10, 100)})
    inside = [tick for tick in ticks if bottom - 1e-9 <= tick <= top + 1e-9]
    if len(inside) < 3:
        inside = [tick for tick in fine if bottom <= tick <= top]
        inside = inside[:: max(1, len(inside) // 5)]
    return bottom, top, inside


# ------------------------------------------------------------------------------------------- what is known of the run


def best(run: Run) -> Best | None:
    """The validation with the least loss; None while there was none."""
    column = run.val.columns.get("loss")
    known = [(value, at) for at, value in enumerate(column.mean if column is not None else ()) if value == value]
    if not known:
        return None
    loss, at = min(known)
    return Best(run.val.last[at], run.val.epochs[at], loss)


def silent(store: Store, job: JobState, run: Run, wall: float) -> float | None:
    """Seconds since the last step came, ``wall`` by this machine's clock; None when it has ended or clocks are not compared."""
    if job.state not in LIVE or run.newest is None or store.clock_offset is None:
        return None
    return max(0.0, wall + store.clock_offset - run.newest.wall)


def too_silent(run: Run, seconds: float | None) -> bool:
    """Whether no step came for longer than steps take. A validation or a checkpoint may do that; the stage then says so."""
    if seconds is None or run.newest is None:
        return False
    step = run.newest.values.get("step_ms")
    return seconds > max(LEAST_SILENCE, SILENT_STEPS * step / 1000.0 if step else 10 * LEAST_SILENCE)


def newest_lengths(run: Run, k: int | None = None) -> tuple[float | None, float | None]:
    """The predicted length of the newest validation, and of the newest steps (smoothed), when ``k`` tokens are drafted."""
    val = lengths(run.val, run.val.last, k)
    steps = smooth(lengths(run.train, run.train.last, k))
    return (val.y[-1] if val.y else None), (steps.y[-1] if steps.y else None)


def length_basis(run: Run, line: BreakEvenLine | None) -> str:
    """How many drafted tokens the predicted length is for, in words."""
    trained, k = positions(run), line.k if line is not None else None
    if k is None:
        return f"k {trained}, all that are trained"
    return f"k {k}" if k <= trained else f"k {trained}, all that are trained; {k} are drafted here"


def joint_of(run: Run) -> tuple[float, ...]:
    """The joint accuracy per position of the newest validation; empty while there was none."""
    columns = [run.val.columns[name].mean for name in numbered(run.val, "full_acc")]
    found = tuple(column[-1] for column in columns if len(column))
    return found if all(value == value for value in found) else ()


def foreseen(run: Run, line: BreakEvenLine | None) -> float | None:
    """The gain that the newest validation and the known step cost give, both of as many drafted tokens.

    None also where more were drafted than the drafter is trained for: nothing is known of the positions beyond.
    """
    if line is None or line.cost is None or line.cost <= 0 or (line.k is not None and line.k > positions(run)):
        return None
    length, _ = newest_lengths(run, line.k)
    if length is None:
        return None
    return gain(length, line.cost)
