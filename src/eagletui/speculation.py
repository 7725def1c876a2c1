"""The arithmetic of speculative decoding with a chain of draft tokens. Pure; every number's unit and source is said.

Notation, common to both engines: ``k`` draft tokens per verify step; ``joint[i]`` the share of verify steps whose draft
token i was accepted (so all before it were, too); acceptance ``a`` = accepted / proposed draft tokens, 0 to 1; length
``tau`` = mean tokens emitted per verify step, the bonus token included, 1 to k + 1.

The gain of a drafter at a given load is ``tau / C``: C is the mean step time with the drafter over the mean step time
without it, both at that load (mean inter-token latency: an engine step sends one chunk, so the mean over chunks is the
mean step; medians mislead, they skip the steps that carry a prefill).
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence, Tuple


def length_from_acceptance(acceptance: float, k: int) -> float:
    """tau = 1 + k a, for ``acceptance`` in 0..1."""
    return 1.0 + k * acceptance


def acceptance_from_length(length: float, k: int) -> float:
    """a = (tau - 1) / k. Raises ValueError when nothing is drafted (k < 1)."""
    if k < 1:
        raise ValueError("no draft tokens per step (k = %d): there is no acceptance" % k)
    return (length - 1.0) / k


def joint_from_conditional(conditional: Sequence[float]) -> Tuple[float, ...]:
    """Joint acceptance per position from the conditional one (given that all positions before were accepted)."""
    out = []
    product = 1.0
    for p in conditional:
        product *= p
        out.append(product)
    return tuple(out)


def conditional_from_joint(joint: Sequence[float]) -> Tuple[Optional[float], ...]:
    """Conditional acceptance per position; None where no step got that far."""
    out = []
    before = 1.0
    for p in joint:
        out.append(p / before if before > 0 else None)
        before = p
    return tuple(out)


def predicted_length(joint: Sequence[float], k: Optional[int] = None) -> float:
    """tau from joint accuracies per position, as training validates them (speculators' ``full_acc_i``): 1 + sum.

    With ``k`` smaller than their number only the first k count. Training's accuracy is of the drafter's argmax on the
    training distribution: it flatters when the draft vocabulary is cut or the data are not on-policy. (Lab: predicted
    1.278, served 1.298.)
    """
    return 1.0 + sum(joint if k is None else joint[:k])


def predicted_length_conditional(conditional: Sequence[float], k: Optional[int] = None) -> float:
    """tau from conditional accuracies per position (speculators' ``cond_acc_i``)."""
    return predicted_length(joint_from_conditional(conditional), k)


def length_if_constant(alpha: float, k: int) -> float:
    """tau when each draft token is accepted with the same conditional probability: (1 - alpha^(k+1)) / (1 - alpha)."""
    return 1.0 + sum(alpha**i for i in range(1, k + 1))


def step_cost(step_with: float, step_without: float) -> float:
    """C from two mean step times in the same unit, at the same load. Raises ValueError when one is not positive."""
    if step_with <= 0 or step_without <= 0:
        raise ValueError("mean step times must be positive, got %g with and %g without a drafter" % (step_with, step_without))
    return step_with / step_without


def gain(length: float, cost: float) -> float:
    """Speed with the drafter over speed without, tau / C, at the load C was measured at; above 1 it pays."""
    if cost <= 0:
        raise ValueError("the step cost must be positive, got %g" % cost)
    return length / cost


def cost_from_gain(length: float, speed_ratio: float) -> float:
    """C from a measured speed ratio (throughput with over without) and the length: tau / S."""
    if speed_ratio <= 0:
        raise ValueError("the speed ratio must be positive, got %g" % speed_ratio)
    return length / speed_ratio


def break_even_length(cost: float) -> float:
    """The length at which a drafter neither gains nor loses: tau* = C, and never below 1."""
    return max(1.0, cost)


def break_even_acceptance(cost: float, k: int) -> float:
    """The acceptance (0..1) at which it does: a* = (C - 1) / k. Above 1 no drafter with this k can pay here."""
    return max(0.0, acceptance_from_length(cost, k))


class Verdict(NamedTuple):
    """Whether a drafter pays at the load ``cost`` was measured at. ``possible`` is False when no length up to k + 1 would."""

    gain: float
    pays: bool
    length: float
    cost: float
    break_even_length: float
    break_even_acceptance: float
    possible: bool
    suspect_baseline: bool


def verdict(length: float, cost: float, k: int) -> Verdict:
    """Judge a drafter. ``suspect_baseline`` when C < 1: a step with a drafter cannot be cheaper than one without."""
    g = gain(length, cost)
    return Verdict(
        g,
        g > 1.0,
        length,
        cost,
        break_even_length(cost),
        break_even_acceptance(cost, k),
        break_even_length(cost) <= k + 1,
        cost < 1.0,
    )


def best_k(joint: Sequence[float], costs: Sequence[float]) -> Tuple[int, float]:
    """The number of draft tokens with the highest gain, and that gain; (0, 1.0) when none pays.

    ``costs[i]`` is C for k = i + 1; ``joint`` needs as many positions.
    """
    best = (0, 1.0)
    for k, cost in enumerate(costs, 1):
        if k > len(joint):
            break
        g = gain(predicted_length(joint, k), cost)
        if g > best[1]:
            best = (k, g)
    return best


def pooled_length(emitted_beyond_bonus: float, verify_steps: float) -> Optional[float]:
    """tau from pooled counts (accepted draft tokens, verify steps); None without a step."""
    return 1.0 + emitted_beyond_bonus / verify_steps if verify_steps > 0 else None


# What lengths mean for a large mixture-of-experts target with k = 3, on chat-templated traffic: our reading of published
# results for Kimi-K2 and K2.5 drafters (2.26 to 2.95 by category) and of broken set-ups (1.04 with wrong aux layers).
_BANDS = (
    (1.6, "broken or off-policy"),
    (2.2, "undertrained, likely loses"),
    (2.8, "near break-even to a mild gain"),
    (float("inf"), "good"),
)
# a first position below 10 % was always a wiring fault in the reports, 10 to 40 % a partial mismatch or other traffic
POSITION_BROKEN, POSITION_LOW = 0.10, 0.40


def length_band(length: float, k: int = 3) -> str:
    """A word for a length at k = 3; other k are scaled by the acceptance."""
    scaled = length if k == 3 or k < 1 else length_from_acceptance(acceptance_from_length(length, k), 3)
    return next(word for bound, word in _BANDS if scaled < bound)


def first_position_word(share: float) -> str:
    """What the first position's acceptance points at: ``wiring``, ``mismatch`` or ``healthy``."""
    if share < POSITION_BROKEN:
        return "wiring"
    return "mismatch" if share < POSITION_LOW else "healthy"
