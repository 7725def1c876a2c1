"""Passes pooled to a cell: token-weighted, and only over the passes that nothing speaks against. Pure functions."""

from __future__ import annotations

from typing import List, Optional, Sequence, Tuple

from eagletui.jobs.bench.stats import drift
from eagletui.records.bench import BenchCell, BenchResult, SpecCounts, Timing

EXACT = ("counters", "requests")
DRIFT = 0.05
"""From this difference between first and last pass on it is told."""


def pooled(cell: BenchCell) -> BenchCell:
    """The cell with the pooled values of its good passes; with the reasons instead when there is none."""
    good = [one for one in cell.passes if not one.problems and one.tokens_per_s]
    bad = [one for one in cell.passes if one.problems]
    notes = list(dict.fromkeys(note for one in good for note in one.notes))
    reasons = list(dict.fromkeys(problem for one in bad for problem in one.problems))
    if not good:
        return cell._replace(good=0, problems=tuple(reasons or ["nothing was measured"]), notes=tuple(notes), tokens_per_s=None)
    if bad:
        notes.append("%d of %d passes left out: %s" % (len(bad), len(cell.passes), "; ".join(reasons)))
    tokens = sum(one.output_tokens or 0 for one in good)
    seconds = sum(one.seconds or 0.0 for one in good)
    spec = pool_counts([one.spec for one in good if one.spec is not None])
    moved = drift([one.tokens_per_s or 0.0 for one in good])
    if moved is not None and abs(moved) > DRIFT:
        notes.append("it drifts: the last pass was %d %% %s than the first" % (round(abs(100 * moved)), _word(moved)))
    prompts = sum(one.prompt_tokens or 0 for one in good)
    return cell._replace(
        good=len(good),
        tokens_per_s=tokens / seconds,
        ttft=_pooled([one.ttft for one in good], [one.completed for one in good]),
        tpot=_pooled([one.tpot for one in good], [one.completed for one in good]),
        itl=_pooled([one.itl for one in good], [one.output_tokens or 1 for one in good]),
        engine_itl=_weighted([(one.engine_itl, one.output_tokens or 1) for one in good]),
        spec=spec,
        length=1.0 + spec.accepted / spec.steps if spec else None,
        acceptance=spec.accepted / spec.drafted if spec and spec.drafted else None,
        drift=moved,
        context_tokens=prompts / sum(one.completed for one in good) if prompts else cell.context_tokens,
        problems=(),
        notes=tuple(notes),
    )


def _word(moved: float) -> str:
    return "faster" if moved > 0 else "slower"


def pool_counts(counts: Sequence[SpecCounts]) -> Optional[SpecCounts]:
    """Counts added up (a mean of rates would weigh short passes as much as long ones); None of none.

    Where some are exact and others derived, only the exact ones count.
    """
    exact = [one for one in counts if one.basis in EXACT]
    counts = exact or counts
    steps = sum(one.steps for one in counts)
    if steps <= 0:
        return None
    places = max(len(one.per_position) for one in counts)
    whole = all(len(one.per_position) == places for one in counts)
    positions = tuple(sum(one.per_position[i] for one in counts) for i in range(places)) if whole else ()
    return SpecCounts(steps, sum(one.drafted for one in counts), sum(one.accepted for one in counts), positions, counts[0].basis)


def _pooled(timings: Sequence[Optional[Timing]], weights: Sequence[float]) -> Optional[float]:
    return _weighted([(one.mean, one.observations or weight) for one, weight in zip(timings, weights) if one is not None])


def _weighted(values: Sequence[Tuple[Optional[float], float]]) -> Optional[float]:
    known = [(value, weight) for value, weight in values if value is not None]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if total else None


def merged(blocks: Sequence[BenchResult]) -> BenchResult:
    """The blocks of one arm (its server started anew for each) as one result: their passes numbered on, cells pooled again.

    Settings and server are the first block's; where another block's differ, it is noted.
    """
    first = blocks[0]
    cells: List[BenchCell] = []
    notes = list(first.notes)
    for block in blocks[1:]:
        notes += [note for note in block.notes if note not in notes]
        if block.settings != first.settings:
            notes.append("a later block of this arm ran with other settings")
        if block.server.version != first.server.version:
            notes.append("a later block of this arm ran another version: %s" % block.server.version)
    loads = dict.fromkeys((cell.concurrency, cell.context) for block in blocks for cell in block.cells)
    for concurrency, context in loads:
        same = [c for block in blocks for c in block.cells if (c.concurrency, c.context) == (concurrency, context)]
        passes = [one for cell in same for one in cell.passes]
        hashes = {cell.prompts_hash for cell in same}
        cell = same[0]._replace(passes=tuple(one._replace(number=n) for n, one in enumerate(passes, 1)))
        cell = pooled(cell)
        if len(hashes) > 1:
            cell = cell._replace(problems=("the blocks of this arm had different prompts",), tokens_per_s=None)
        cells.append(cell)
    return first._replace(cells=tuple(cells), notes=tuple(notes))
