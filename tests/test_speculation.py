from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagletui import speculation as sp


def test_the_lab_numbers_concurrency_one() -> None:
    cost = sp.step_cost(26.57, 13.82)
    assert cost == pytest.approx(1.92, abs=0.005)
    assert sp.gain(1.298, cost) == pytest.approx(0.675, abs=0.001)
    assert sp.break_even_acceptance(cost, 3) == pytest.approx(0.31, abs=0.005)
    assert sp.predicted_length((0.219, 0.048, 0.010)) == pytest.approx(1.277, abs=0.0015)
    assert sp.length_from_acceptance(0.099, 3) == pytest.approx(1.298, abs=0.002)


@pytest.mark.parametrize(
    ("length", "with_", "without", "expected"),
    [(1.614, 6.04, 1.72, 0.459), (1.580, 5.81, 2.10, 0.571), (2.501, 5.56, 1.72, 0.773), (2.486, 7.83, 2.10, 0.666)],
)
def test_the_gpu_table(length: float, with_: float, without: float, expected: float) -> None:
    assert sp.gain(length, sp.step_cost(with_, without)) == pytest.approx(expected, abs=0.002)


@pytest.mark.parametrize(("k", "cost"), [(3, 2.20), (4, 2.42), (5, 2.65)])
def test_a_drafter_at_two_thirds_of_the_speed(k: int, cost: float) -> None:
    length = sp.length_from_acceptance(0.15, k)
    assert sp.cost_from_gain(length, 0.66) == pytest.approx(cost, abs=0.01)


def test_the_verdict_on_it() -> None:
    v = sp.verdict(1.45, 2.20, 3)
    assert (v.pays, v.possible, v.suspect_baseline) == (False, True, False)
    assert v.gain == pytest.approx(0.66, abs=0.002)
    assert v.break_even_acceptance == pytest.approx(0.40)
    assert v.break_even_length == 2.20
    assert not sp.verdict(3.9, 4.5, 3).possible
    assert sp.verdict(2.0, 0.9, 3).suspect_baseline


def test_joint_and_conditional() -> None:
    assert sp.joint_from_conditional((0.5, 0.5, 0.2)) == pytest.approx((0.5, 0.25, 0.05))
    assert sp.conditional_from_joint((0.5, 0.25, 0.0)) == pytest.approx((0.5, 0.5, 0.0))
    assert sp.conditional_from_joint((0.0, 0.0)) == (0.0, None)
    assert sp.predicted_length_conditional((0.5, 0.5, 0.2), 2) == pytest.approx(1.75)


@given(st.floats(0, 1), st.integers(1, 8))
def test_acceptance_and_length_are_inverse(a: float, k: int) -> None:
    length = sp.length_from_acceptance(a, k)
    assert 1 <= length <= k + 1
    assert sp.acceptance_from_length(length, k) == pytest.approx(a, abs=1e-9)


@given(st.floats(0, 0.99), st.integers(1, 8))
def test_a_constant_conditional_probability_has_a_closed_form(alpha: float, k: int) -> None:
    assert sp.length_if_constant(alpha, k) == pytest.approx((1 - alpha ** (k + 1)) / (1 - alpha))


def test_the_best_k() -> None:
    assert sp.best_k((0.7, 0.5, 0.1), (1.2, 1.5, 2.0)) == (2, pytest.approx(2.2 / 1.5))
    assert sp.best_k((0.1,), (1.5, 1.9)) == (0, 1.0)


def test_words_for_lengths_and_first_positions() -> None:
    assert [sp.length_band(x) for x in (1.04, 1.7, 2.3, 2.9)] == [
        "broken or off-policy",
        "undertrained, likely loses",
        "near break-even to a mild gain",
        "good",
    ]
    assert [sp.first_position_word(x) for x in (0.036, 0.31, 0.65)] == ["wiring", "mismatch", "healthy"]


def test_impossible_inputs_are_refused_in_words() -> None:
    with pytest.raises(ValueError, match="no draft tokens"):
        sp.acceptance_from_length(2.0, 0)
    with pytest.raises(ValueError, match="must be positive"):
        sp.step_cost(1.0, 0.0)
    assert sp.pooled_length(3, 0) is None
