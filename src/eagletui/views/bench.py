"""What the screen of benchmarks shows, worked out of the results and verdicts that are known. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eagletui.records import JobState
from eagletui.records.bench import BenchCell, BenchResult, BenchVerdict, BreakEven, Comparison, LoadVerdict
from eagletui.store import Store
from eagletui.views.jobs import is_live
from eagletui.views.training import BreakEvenLine

MOST_MARKED = 2
KINDS = ("benchmark", "verdict")


class Measured(NamedTuple):
    """One arm that was measured: the job's id and its result."""

    job: str
    result: BenchResult


class Judged(NamedTuple):
    """One verdict: the id of the job that made it."""

    job: str
    verdict: BenchVerdict


# ------------------------------------------------------------------------------------------------------ what there is


def verdicts(store: Store) -> list[Judged]:
    """The verdicts, the newest first."""
    found = [Judged(job, verdict) for job, verdict in store.verdicts.items()]
    return sorted(found, key=lambda one: -_when(store, one.job, one.verdict.wall))


def measured(store: Store) -> list[Measured]:
    """All arms that were measured, the newest first."""
    found = [Measured(job, result) for job, result in store.bench.items()]
    return sorted(found, key=lambda one: -_when(store, one.job, one.result.wall))


def _when(store: Store, job: str, wall: float | None) -> float:
    known = store.jobs.get(job)
    return wall or (known.started if known is not None else 0.0)


def running(store: Store) -> list[JobState]:
    """The benchmarks that run now."""
    return sorted((job for job in store.jobs.values() if job.kind in KINDS and is_live(job)), key=lambda job: job.started)


def current_verdict(store: Store) -> Judged | None:
    """The verdict to show: the one that was chosen while it is there, else the newest."""
    order = verdicts(store)
    return next((one for one in order if one.job == store.verdict), order[0] if order else None)


def choose_verdict(store: Store, job: str | None) -> None:
    store.verdict = job
    store.changed("bench")


def neighbour_verdict(store: Store, step: int) -> str | None:
    ids = [one.job for one in verdicts(store)]
    shown = current_verdict(store)
    return ids[(ids.index(shown.job) + step) % len(ids)] if shown is not None else None


def arms_of(store: Store, judged: Judged) -> list[BenchResult]:
    """The arms that a verdict rests on, in its order, as far as they are known; the blocks of an arm are pooled to one result.

    They are found by the files that the verdict names. One of an earlier eagletui names none: then by the arms' names in its own
    pipeline, and outside of one there is nothing to go by.
    """
    from eagletui.jobs.bench.cells import merged  # not needed before a verdict is there

    files = judged.verdict.files
    out = []
    for arm, blocks in _blocks(store, judged).items():
        if blocks:
            whole = merged(blocks)
            asked = next((len(one.paths) for one in files if one.arm == arm), len(blocks))
            if len(blocks) < asked:
                whole = whole._replace(notes=(*whole.notes, f"{len(blocks)} of the {asked} blocks of this arm are known here"))
            out.append(whole)
    return out


def _blocks(store: Store, judged: Judged) -> dict[str, list[BenchResult]]:
    """Arm -> its blocks, the oldest first. Of what was measured anew in the same place: the last before the verdict."""
    verdict, job = judged.verdict, store.jobs.get(judged.job)
    parent = job.parent if job is not None else None
    at = _when(store, judged.job, verdict.wall)
    before = [one for one in measured(store) if not at or _when(store, one.job, one.result.wall) <= at]
    if verdict.files:
        by_path: dict[str, BenchResult] = {}
        for one in before:
            if one.result.path is not None:
                by_path.setdefault(one.result.path, one.result)
        return {arm.arm: [by_path[path] for path in arm.paths if path in by_path] for arm in verdict.files}
    found: dict[str, dict[str, BenchResult]] = {arm: {} for arm in verdict.arms}
    for one in before:
        own = store.jobs.get(one.job)
        if one.result.arm in found and parent is not None and own is not None and own.parent == parent:
            found[one.result.arm].setdefault(one.result.path or one.job, one.result)
    return {arm: list(reversed(blocks.values())) for arm, blocks in found.items()}


# ------------------------------------------------------------------------------------------------------------- loads


def contexts(verdict: BenchVerdict) -> list[str]:
    return list(dict.fromkeys(load.context for one in verdict.comparisons for load in one.loads))


def concurrencies(verdict: BenchVerdict) -> list[int]:
    return sorted({load.concurrency for one in verdict.comparisons for load in one.loads})


def load_at(one: Comparison, concurrency: int, context: str) -> LoadVerdict | None:
    return next((load for load in one.loads if load.concurrency == concurrency and load.context == context), None)


def is_hole(load: LoadVerdict | None) -> bool:
    """Whether there is no number: it was not measured, or what was measured may not be used."""
    return load is None or load.gain is None or bool(load.problems)


def gains(one: Comparison, context: str) -> list[LoadVerdict]:
    """The loads of one context that have a gain, by concurrency."""
    found = [load for load in one.loads if load.context == context and not is_hole(load)]
    return sorted(found, key=lambda load: load.concurrency)


def curve(one: BreakEven) -> list[tuple[float, float]]:
    """The gain over the acceptance length, length / C, from 1 to k + 1."""
    if not one.cost or not one.k:
        return []
    return [(1 + at * one.k / 16, (1 + at * one.k / 16) / one.cost) for at in range(17)]


def cell_at(result: BenchResult, concurrency: int, context: str) -> BenchCell | None:
    return next((cell for cell in result.cells if cell.concurrency == concurrency and cell.context == context), None)


class CellPair(NamedTuple):
    """One load in two results; ``ratio`` is the second's speed over the first's."""

    concurrency: int
    context: str
    one: BenchCell | None
    other: BenchCell | None
    ratio: float | None


def pairs(one: BenchResult, other: BenchResult) -> list[CellPair]:
    """Every load that either has, side by side."""
    places = sorted({(cell.concurrency, cell.context) for cell in (*one.cells, *other.cells)}, key=lambda at: (at[1], at[0]))
    out = []
    for concurrency, context in places:
        a, b = cell_at(one, concurrency, context), cell_at(other, concurrency, context)
        speeds = (a.tokens_per_s if a is not None else None, b.tokens_per_s if b is not None else None)
        ratio = speeds[1] / speeds[0] if speeds[0] and speeds[1] else None
        out.append(CellPair(concurrency, context, a, b, ratio))
    return out


def compared(store: Store, marked: Sequence[str]) -> tuple[BenchResult, BenchResult, Comparison] | None:
    """The two marked results and how they differ; the older one is the base, unless only the newer one has no drafter."""
    from eagletui.jobs.bench.compare import compare  # not needed before two results are marked

    found = [(job, store.bench[job]) for job in marked if job in store.bench]
    if len(found) != MOST_MARKED:
        return None
    (_, base), (_, other) = sorted(found, key=lambda one: _when(store, one[0], one[1].wall))
    if base.server.drafter and not other.server.drafter:
        base, other = other, base
    return base, other, compare(base, other)


# -------------------------------------------------------------------------------------------------------- break-even


def break_even_line(store: Store, job: JobState) -> BreakEvenLine | None:
    """The length that a drafter needs on this host: by the newest verdict, at its lowest load. None where nobody measured.

    A verdict over another target than ``job``'s says nothing of this one, where both are known.
    """
    for one in verdicts(store):
        models = {block.server.model for blocks in _blocks(store, one).values() for block in blocks}
        if job.model is not None and models and job.model not in models:
            continue
        verdict = one.verdict
        for known in sorted(verdict.break_even, key=lambda found: found.concurrency):
            if known.needed_length is not None:
                return BreakEvenLine(
                    known.needed_length, known.cost, f"at c{known.concurrency}, {verdict.name}".rstrip(", "), known.k
                )
        # without a drafter there is no break-even, and a load with problems has no cost to go by
        every = [(load, found.k) for found in verdict.comparisons for load in found.loads]
        loads = [(load, k) for load, k in every if load.needed is not None and not load.problems]
        for load, k in sorted(loads, key=lambda found: found[0].concurrency):
            if load.needed_length is not None:
                return BreakEvenLine(load.needed_length, load.cost, f"at c{load.concurrency}, {verdict.name}".rstrip(", "), k)
    return None
