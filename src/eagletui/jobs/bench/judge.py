"""All arms of a plan to one verdict: which drafter pays where, whom to suspect, what a drafter would need. Pure functions."""

from __future__ import annotations

from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from eagletui import speculation
from eagletui.jobs.bench import words
from eagletui.jobs.bench.compare import CostKey, compare, step_cost
from eagletui.records.bench import ArmFiles, BenchResult, BenchVerdict, BreakEven, Comparison, CurvePoint, LoadVerdict

ALIKE = 0.05
"""Acceptances that differ by less are alike: two drafters of different origin do not come that close by their own merit."""
POOR_LENGTH = 1.6
FALLEN = 0.5
"""Served acceptance below this share of the validation's is another drafter than the one that was trained."""
_WIRING = "check the auxiliary layers read against those trained with, the norm, the chat template and the attention backend"


class Arm(NamedTuple):
    """One measured arm, its drafter's validation (joint accuracy per position) where that is known, and its blocks' files."""

    result: BenchResult
    validation: Tuple[float, ...] = ()
    paths: Tuple[str, ...] = ()


def verdict(
    arms: Sequence[Arm], name: str = "", known_costs: Optional[Mapping[CostKey, float]] = None, wall: Optional[float] = None
) -> BenchVerdict:
    """Every arm with a drafter against the first arm without one. Without such an arm there is no verdict, and that is said.

    ``known_costs``: C from earlier verdicts; None where there are none.
    """
    names = tuple(arm.result.arm for arm in arms)
    bases = [arm.result for arm in arms if _plain(arm.result)]
    if not bases:
        why = "no arm ran without a drafter: there is nothing to compare with"
        return BenchVerdict("No verdict: %s." % why, notes=(why,), arms=names, name=name, wall=wall)
    base = bases[0]
    curves: List[BreakEven] = []
    for group in _of_a_kind([arm.result for arm in arms if arm.result.server.role == "synthetic"]):
        curves += break_even(next((one for one in bases if one.server.engine == group[0].server.engine), base), group)
    costs: Dict[CostKey, float] = dict(known_costs or {})
    # what this very plan measured before any trained drafter was served counts more than an earlier day's
    costs.update(_costs(curves))
    comparisons = []
    for arm in arms:
        if arm.result is base or arm.result.server.role == "synthetic":
            continue
        # a drafter is judged against the same engine without one; an engine without one against the first
        same = [one for one in bases if one.server.engine == arm.result.server.engine and one is not arm.result]
        comparisons.append(compare(base if _plain(arm.result) or not same else same[0], arm.result, arm.validation, costs))
    suspicion = suspects(comparisons)
    notes = [note for comparison in comparisons for note in _advice(comparison)]
    if known_costs is not None:
        notes += [_unknown(one) for one in comparisons if one.validation and all(load.foreseen is None for load in one.loads)]
    return BenchVerdict(
        _headline(comparisons, curves, suspicion),
        tuple(comparisons),
        tuple(curves),
        tuple(suspicion),
        tuple(dict.fromkeys(notes)),
        names,
        name,
        wall,
        tuple(ArmFiles(arm.result.arm, arm.paths) for arm in arms if arm.paths),
    )


def _of_a_kind(arms: Sequence[BenchResult]) -> List[List[BenchResult]]:
    """The arms by engine, model and k: a step cost is of these three alone."""
    groups: Dict[Tuple[str, str, Optional[int]], List[BenchResult]] = {}
    for arm in arms:
        groups.setdefault((arm.server.engine, arm.server.model, arm.server.k), []).append(arm)
    return list(groups.values())


def _unknown(one: Comparison) -> str:
    text = "%s: no earlier verdict has the step cost of %s with %s and k = %s at these loads: nothing was foreseen"
    return text % (one.other, one.engine, one.model, one.k)


def _plain(result: BenchResult) -> bool:
    return result.server.role == "none" or (result.server.role is None and not result.server.drafter)


# ------------------------------------------------------------------------------------------------- before any training


def break_even(base: BenchResult, synthetic: Sequence[BenchResult]) -> List[BreakEven]:
    """The step cost at each load, from arms whose acceptance was set and not earned, and where their gain crosses 1.

    The arms of ``synthetic`` are of one engine, model and k.
    """
    out = []
    for cell in base.cells:
        points, costs, k = [], [], None
        for arm in synthetic:
            other = next((c for c in arm.cells if (c.concurrency, c.context) == (cell.concurrency, cell.context)), None)
            if other is None or other.problems or cell.problems:
                continue
            cost, _ = step_cost(cell, other)
            gain = other.tokens_per_s / cell.tokens_per_s if other.tokens_per_s and cell.tokens_per_s else None
            k = arm.server.k
            points.append(CurvePoint(arm.server.synthetic_length or other.length or 0.0, other.length, cost, gain))
            if cost is not None:
                costs.append(cost)
        if not costs or not k:
            continue
        cost = sum(costs) / len(costs)
        found = BreakEven(
            cell.concurrency,
            cell.context,
            k,
            cost,
            speculation.break_even_length(cost),
            speculation.break_even_acceptance(cost, k),
            cost <= k + 1,
            speculation.gain(k + 1, cost),
            tuple(sorted(points)),
            engine=synthetic[0].server.engine,
            model=synthetic[0].server.model,
        )
        out.append(found._replace(sentence=words.break_even_sentence(found)))
    return out


# ------------------------------------------------------------------------------------------------------------- suspicion


def suspects(comparisons: Sequence[Comparison]) -> List[str]:
    """Signs that the engine or its wiring is at fault, and not the training; each a sentence with what to check."""
    out: List[str] = []
    for one in comparisons:
        out += _fallen(one)
    for at, one in enumerate(comparisons):
        for two in comparisons[at + 1 :]:
            alike = _alike(one, two)
            if alike:
                out.append(alike)
    return list(dict.fromkeys(out))


def _fallen(one: Comparison) -> List[str]:
    """Served positions against the validation's, and a first position that nothing but wiring explains."""
    for load in one.loads:
        if not load.per_position or load.problems:
            continue
        served = load.per_position[0]
        if one.validation:
            wanted = sum(one.validation[: len(load.per_position)])
            if served < FALLEN * one.validation[0] or sum(load.per_position) < FALLEN * wanted:
                text = "%s: position 1 is accepted in %s of the steps, and training's validation had %s: the engine or its wiring"
                return [
                    (text + " is suspect, not the training - %s")
                    % (one.other, words.percent(served), words.percent(one.validation[0]), _WIRING)
                ]
        if speculation.first_position_word(served) == "wiring":
            text = (
                "%s: position 1 is accepted in %s of the steps; reports of under 10 %% came from wiring, not from training - %s"
            )
            return [text % (one.other, words.percent(served), _WIRING)]
    return []


def _alike(one: Comparison, two: Comparison) -> Optional[str]:
    """Two drafters of different origin that do equally badly."""
    if _drafter(one) == _drafter(two):
        return None  # one drafter, launched in two ways or converted: of course they are alike
    others = {(load.concurrency, load.context): load for load in two.loads}
    for load in one.loads:
        other = others.get((load.concurrency, load.context))
        if other is None or not (_poor(load) and _poor(other)):
            continue
        assert load.acceptance is not None
        assert other.acceptance is not None
        if abs(load.acceptance - other.acceptance) < ALIKE:
            text = "%s and %s do equally badly (%s and %s acceptance %s): two drafters of different origin would not - the engine"
            return (text + " or its wiring is suspect, not the training; %s") % (
                one.other,
                two.other,
                words.percent(load.acceptance),
                words.percent(other.acceptance),
                words.at_load(load.concurrency, load.context),
                _WIRING,
            )
    return None


def _drafter(one: Comparison) -> Optional[str]:
    """The drafter that its own was made from; in older verdicts its path, as the difference to an arm that has none tells it."""
    return one.origin or next((difference.other for difference in one.launch if difference.what == "drafter"), None)


def _poor(load: LoadVerdict) -> bool:
    return (
        load.pays == "no"
        and load.acceptance is not None
        and load.length is not None
        and load.length < POOR_LENGTH
        and not load.problems
    )


# --------------------------------------------------------------------------------------------------------------- advice


def _advice(one: Comparison) -> List[str]:
    """What a comparison suggests beyond its figures."""
    out: List[str] = []
    judged = [load for load in one.loads if load.gain is not None and not load.problems]
    for load in judged:
        if load.foreseen is not None and load.gain:
            apart = load.foreseen / load.gain - 1.0
            how = "agree" if abs(apart) <= 0.1 else "do not agree"
            text = "%s %s: %.2f was foreseen from validation, %.2f came out: they %s (%+.0f %%)"
            out.append(
                text % (one.other, words.at_load(load.concurrency, load.context), load.foreseen, load.gain, how, 100 * apart)
            )
        shorter = shorter_draft(load, one.k)
        if shorter is not None:
            text = (
                "%s %s: %d draft %s a step instead of %s would give about %.2f (an estimate: the cost is taken as linear in it)"
            )
            k, gain = shorter
            where = words.at_load(load.concurrency, load.context)
            out.append(text % (one.other, where, k, "token" if k == 1 else "tokens", one.k, gain))
    if any(load.pays == "yes" for load in judged) and any(load.pays == "no" for load in judged):
        out.append(
            "%s pays at some loads and not at others: vLLM's num_speculative_tokens_per_batch_size drafts less, or nothing, "
            "when many requests run" % one.other
        )
    return out


def shorter_draft(load: LoadVerdict, k: Optional[int]) -> Optional[Tuple[int, float]]:
    """A smaller k that would do better by more than 3 %, and its gain, by the served positions and a cost linear in k."""
    if not k or k < 2 or load.cost is None or load.gain is None or len(load.per_position) < k:
        return None
    costs = [1.0 + (load.cost - 1.0) * n / k for n in range(1, k + 1)]
    gains = [speculation.gain(speculation.predicted_length(load.per_position, n), cost) for n, cost in enumerate(costs, 1)]
    best = max(range(k), key=lambda at: gains[at])
    return (best + 1, gains[best]) if best + 1 < k and gains[best] > 1.03 * gains[k - 1] else None


def _headline(comparisons: Sequence[Comparison], curves: Sequence[BreakEven], suspicion: Sequence[str]) -> str:
    """The one sentence to read."""
    judged = [(one, load) for one in comparisons for load in one.loads if load.pays is not None]
    if not judged:
        if curves:
            return curves[0].sentence
        reasons = [problem for one in comparisons for load in one.loads for problem in load.problems]
        return "No verdict: %s." % (reasons[0] if reasons else "nothing was compared")
    paying = [(one, load) for one, load in judged if load.pays == "yes"]
    if suspicion and not paying:
        return "No drafter pays here, and the engine or its wiring is to be looked at before the training: %s." % suspicion[0]
    if not paying:
        unclear = [load for _, load in judged if load.pays == "unclear"]
        if len(judged) == 1:
            return judged[0][1].sentence
        least = max(judged, key=lambda pair: pair[1].gain or 0.0)
        word = "clearly pays" if unclear else "pays"
        return "No drafter %s at any of the loads measured; the best case: %s" % (word, _lower(least[1].sentence))
    one, load = max(paying, key=lambda pair: pair[1].gain or 0.0)
    rest = _losing(one)
    text = load.sentence.rstrip(".")
    return text + ("; it does not pay %s." % words.joined(rest) if rest else ".")


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def _losing(one: Comparison) -> List[str]:
    return [words.at_load(load.concurrency, load.context) for load in one.loads if load.pays == "no"]


def known_costs(earlier: BenchVerdict) -> Dict[CostKey, float]:
    """C from an earlier verdict on the same host: measured with synthetic acceptance, else with a drafter served.

    What a verdict does not tell the engine, model and k of is left out: it could be of any.
    """
    out: Dict[CostKey, float] = {}
    for one in earlier.comparisons:
        if not (one.engine and one.model and one.k):
            continue
        for load in one.loads:
            # that of a drafter: between two engines without one C is something else
            if load.needed is not None and load.cost and not load.problems:
                out[CostKey(one.engine, one.model, one.k, load.concurrency, load.context)] = load.cost
    out.update(_costs(earlier.break_even))
    return out


def _costs(curves: Sequence[BreakEven]) -> Dict[CostKey, float]:
    return {
        CostKey(one.engine, one.model, one.k, one.concurrency, one.context): one.cost
        for one in curves
        if one.cost and one.engine and one.model and one.k
    }
