"""Two arms, load by load: the gain with its interval, the step cost, the break-even, and every reason to doubt them. Pure."""

from __future__ import annotations

from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from eagletui import speculation
from eagletui.jobs.bench import words
from eagletui.jobs.bench.launch_diff import differences
from eagletui.jobs.bench.stats import Interval, Pass, Request, crossings, paired_gain, shifted
from eagletui.records.bench import BenchCell, BenchPass, BenchResult, Comparison, Crossover, LoadVerdict


class CostKey(NamedTuple):
    """What a step cost C was measured of. Of another engine, model, k or load it says nothing."""

    engine: str
    model: str
    k: int
    concurrency: int
    context: str


LENGTH_MARK, LENGTH_VOID = 0.02, 0.05
"""Answers that differ in length by more than the first share are told, by more than the second they are not compared."""
CHEAPER = 0.97
"""A step with a drafter below this share of one without is no cost, it is a wrong baseline."""
APART = 0.05
MERGED = 0.05
UNSURE = 0.03


def compare(
    base: BenchResult,
    other: BenchResult,
    validation: Sequence[float] = (),
    known_costs: Optional[Mapping[CostKey, float]] = None,
    seed: int = 0,
) -> Comparison:
    """What ``other`` (a drafter) does to speed against ``base`` (none).

    ``validation`` is the training's joint accuracy per position, ``known_costs`` C from before this measurement (a run with
    synthetic acceptance, an earlier result), of which those of this engine, model, k and load count: together they give what
    was to be expected before anything was served.
    """
    k = other.server.k
    cells = {(cell.concurrency, cell.context): cell for cell in base.cells}
    expected = speculation.predicted_length(validation, k) if validation else None
    loads = []
    for cell in other.cells:
        against = cells.get((cell.concurrency, cell.context))
        load = LoadVerdict(cell.concurrency, cell.context)
        if against is None:
            loads.append(load._replace(problems=("%s was not measured at this load" % base.arm,)))
            continue
        load = _load(load, against, cell, base, other, seed)
        known = None
        if known_costs and k is not None:
            known = known_costs.get(CostKey(other.server.engine, other.server.model, k, cell.concurrency, cell.context))
        if known and expected is not None:
            load = load._replace(foreseen=speculation.gain(expected, known))
        loads.append(load._replace(sentence=words.load_sentence(load, base, other, k)))
    return Comparison(
        base.arm,
        other.arm,
        k,
        other.server.role,
        tuple(loads),
        tuple(crossovers(loads)),
        tuple(differences(base.server, other.server)),
        tuple(validation),
        expected,
        tuple(_common(base, other)),
        other.server.engine,
        other.server.model,
        other.server.origin or other.server.drafter,
    )


def _common(base: BenchResult, other: BenchResult) -> List[str]:
    """What both arms should have in common and have not."""
    notes: List[str] = []
    if base.server.engine != other.server.engine:
        notes.append("two engines are compared: %s and %s" % (base.server.engine, other.server.engine))
    elif base.server.version != other.server.version:
        notes.append("two versions are compared: %s and %s" % (base.server.version, other.server.version))
    if base.server.prefix_cache != other.server.prefix_cache:
        notes.append("the prefix cache was %s in one arm and %s in the other"
                     % (base.server.prefix_cache or "unknown", other.server.prefix_cache or "unknown"))  # fmt: skip
    return notes


def _unlike(base: BenchResult, other: BenchResult, a: BenchCell, b: BenchCell) -> List[str]:
    """Why these two cells must not be compared."""
    out = ["%s: %s" % (arm, problem) for arm, cell in ((base.arm, a), (other.arm, b)) for problem in cell.problems]
    if a.prompts_hash != b.prompts_hash:
        out.append("the arms had different prompts")
    for field, what in (("max_tokens", "answer lengths"), ("temperature", "temperatures"), ("ignore_eos", "ends of answers")):
        if getattr(base.settings, field) != getattr(other.settings, field):
            out.append("the arms asked for different %s" % what)
    one, two = base.server.template_hash, other.server.template_hash
    if one and two and one != two:
        out.append("the arms had different chat templates")
    return out


def _load(load: LoadVerdict, a: BenchCell, b: BenchCell, base: BenchResult, other: BenchResult, seed: int) -> LoadVerdict:
    problems, notes = _unlike(base, other, a, b), [*_noted(base.arm, a), *_noted(other.arm, b)]
    if problems or not a.tokens_per_s or not b.tokens_per_s:
        return load._replace(problems=tuple(problems or ["nothing was measured"]), notes=tuple(notes))
    synthetic = other.server.role == "synthetic"
    shift = _length_shift(a, b)
    if shift is not None and abs(shift) > LENGTH_MARK and not synthetic:
        told = "answers of %s are %.1f %% %s" % (other.arm, abs(100 * shift), "longer" if shift > 0 else "shorter")
        (problems if abs(shift) > LENGTH_VOID else notes).append(told)
    k, gain = other.server.k, b.tokens_per_s / a.tokens_per_s
    interval = None if synthetic else _interval(a, b, gain, notes, seed)
    cost, why = step_cost(a, b)
    notes += why
    # against another drafter C is of its steps, and they give more than a token each
    before = a.length if base.server.drafter else 1.0
    predicted = b.length / before / cost if cost and b.length and before else None
    gained = bool(other.server.drafter and not base.server.drafter)
    if cost is not None and cost < 1.0 and gained:
        told = "a step with the drafter is cheaper than one without (C %.2f): the baseline is slow or was disturbed" % cost
        (problems if cost < CHEAPER else notes).append(told)
    if predicted is not None and abs(predicted / gain - 1.0) > 0.1:
        notes.append("length over cost gives %.2f where %.2f was measured: prefill or waiting weighs in" % (predicted, gain))
    return load._replace(
        gain=gain,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        tpot_gain=a.tpot / b.tpot if a.tpot and b.tpot else None,
        ttft_ratio=b.ttft / a.ttft if a.ttft and b.ttft else None,
        cost=cost,
        predicted=predicted,
        length=b.length,
        acceptance=b.acceptance,
        per_position=shares(b),
        needed=speculation.break_even_acceptance(cost, k) if cost and k and gained else None,
        needed_length=speculation.break_even_length(cost) if cost and gained else None,
        base_tokens_per_s=a.tokens_per_s,
        tokens_per_s=b.tokens_per_s,
        same_outputs=None if synthetic else same_outputs(a, b) if base.settings.temperature == 0 else None,
        pays=None if problems else _pays(gain, interval),
        problems=tuple(problems),
        notes=tuple(notes),
    )


def _noted(arm: str, cell: BenchCell) -> List[str]:
    return ["%s: %s" % (arm, note) for note in cell.notes]


def step_cost(a: BenchCell, b: BenchCell) -> Tuple[Optional[float], List[str]]:
    """C, mean step time of ``b`` over that of ``a``, and what to know of it.

    By the clients' mean time between chunks, unless the engine's own counters show that chunks were merged on their way.
    """
    client = speculation.step_cost(b.itl, a.itl) if a.itl and b.itl else None
    engine = speculation.step_cost(b.engine_itl, a.engine_itl) if a.engine_itl and b.engine_itl else None
    if client is not None and engine is not None:
        late = [arm for arm, cell in (("base", a), ("drafter", b)) if (cell.itl or 0) > (1 + MERGED) * (cell.engine_itl or 1)]
        if late and abs(client / engine - 1.0) > MERGED:
            return engine, ["chunks were merged on their way to the client: the cost is by the engine's own step times"]
    return (client if client is not None else engine), []


def shares(cell: BenchCell) -> Tuple[float, ...]:
    """The joint acceptance per position."""
    return tuple(count / cell.spec.steps for count in cell.spec.per_position) if cell.spec and cell.spec.steps else ()


def _good(cell: BenchCell) -> List[BenchPass]:
    return [one for one in cell.passes if not one.problems]


def _length_shift(a: BenchCell, b: BenchCell) -> Optional[float]:
    lengths = []
    for cell in (a, b):
        requests = sum(one.completed for one in _good(cell))
        tokens = sum(one.output_tokens or 0 for one in _good(cell))
        if not requests or not tokens:
            return None
        lengths.append(tokens / requests)
    return lengths[1] / lengths[0] - 1.0


def _interval(a: BenchCell, b: BenchCell, gain: float, notes: List[str], seed: int) -> Optional[Interval]:
    found = paired_gain(_requests(a), _requests(b), seed)
    if found is None:
        return None
    if not found.low <= gain <= found.high and abs(found.point / gain - 1.0) > APART:
        what = "a request's own speed changed by %.2f, all together by %.2f: the run's end, with fewer under way, weighs in"
        notes.append(what % (found.point, gain))
    return shifted(found, gain)


def _requests(cell: BenchCell) -> List[Pass]:
    out: List[Pass] = []
    for one in _good(cell):
        if one.requests is not None and one.requests.tokens:
            requests: List[Request] = []
            for latency, tokens in zip(one.requests.latency, one.requests.tokens):
                requests.append((latency, float(tokens)) if latency and tokens else None)
            out.append(requests)
    return out


def _pays(gain: float, interval: Optional[Interval]) -> str:
    low, high = (interval.low, interval.high) if interval else (gain - UNSURE, gain + UNSURE)
    return "yes" if low > 1.0 else "no" if high < 1.0 else "unclear"


def same_outputs(a: BenchCell, b: BenchCell) -> Optional[float]:
    """The share of prompts whose texts are alike in the first good pass of both; None where no texts were kept."""
    texts = [next((one.requests.texts for one in _good(cell) if one.requests), ()) for cell in (a, b)]
    both = [(one, two) for one, two in zip(*texts) if one is not None and two is not None]
    return sum(one == two for one, two in both) / len(both) if both else None


# ---------------------------------------------------------------------------------------------------------- over the loads


def crossovers(loads: Sequence[LoadVerdict]) -> List[Crossover]:
    """In each context with at least two measured loads: where the gain goes through 1."""
    by_context: Dict[str, List[LoadVerdict]] = {}
    for load in loads:
        if load.gain is not None and not load.problems:
            by_context.setdefault(load.context, []).append(load)
    return [_crossover(context, found) for context, found in by_context.items() if len(found) > 1]


def _crossover(context: str, loads: Sequence[LoadVerdict]) -> Crossover:
    points = [(float(load.concurrency), load.gain or 0.0) for load in loads]
    found = crossings(points)
    first, last = min(x for x, _ in points), max(x for x, _ in points)
    if not found:
        word = "pays" if points[0][1] >= 1 else "loses"
        return Crossover(context, words=words.never(word, first, last))
    if len(found) > 1:
        return Crossover(context, words=words.often([one.x for one in found]))
    bounds = []
    for bound in ("low", "high"):
        curve = [(float(load.concurrency), getattr(load, bound)) for load in loads if getattr(load, bound) is not None]
        same = [one.x for one in crossings(curve) if one.falls == found[0].falls] if len(curve) == len(loads) else []
        bounds.append(same[0] if len(same) == 1 else None)
    low, high = bounds if found[0].falls else bounds[::-1]
    return Crossover(context, found[0].x, low, high, words.crossing(found[0].x, low, high, found[0].falls))
