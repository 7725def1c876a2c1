"""The statistics: intervals that hold what they say, the same for the same seed, and where a curve crosses 1."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagletui.jobs.bench import stats
from tests.bench.making import requests, tokens


def test_quantiles_are_as_numpys() -> None:
    values = [1.0, 2.0, 4.0, 8.0]
    assert stats.quantile(values, 0.5) == 3.0
    assert stats.quantile(values, 0.25) == 1.75
    assert stats.quantile(values, 1.0) == 8.0
    assert stats.quantile([], 0.5) is None
    assert stats.mean([]) is None


def test_the_gain_is_that_of_pooled_requests() -> None:
    base, other = [requests(1, 30, 0.010)], [requests(2, 30, 0.020, 1.3)]
    found = stats.paired_gain(base, other)
    assert found is not None
    assert found.point == pytest.approx(1.3 / 2.0)
    assert found.prompts == 30


def test_an_interval_holds_the_truth_in_most_repetitions() -> None:
    inside = 0
    for seed in range(40):
        base = [requests(1000 + seed, 40, 0.010, noise=0.3)]
        other = [requests(2000 + seed, 40, 0.010, 1.2, noise=0.3)]
        found = stats.paired_gain(base, other, seed, rounds=120)
        assert found is not None
        inside += found.low <= 1.2 <= found.high
    assert inside >= 34, "a 95 % interval"


def test_pairing_takes_out_that_prompts_differ() -> None:
    """Without noise every prompt has the same gain: however the lengths differ, the interval has no width."""
    lengths = tokens(40)
    base, other = [requests(1, 40, 0.01, fixed=lengths)], [requests(2, 40, 0.02, 1.5, fixed=lengths)]
    found = stats.paired_gain(base, other)
    assert found is not None
    assert found.high - found.low < 1e-9


def test_a_machine_that_drifts_between_passes_widens_the_interval() -> None:
    steady = [requests(n, 40, 0.010) for n in range(3)]
    drifting = [requests(n, 40, 0.010 * (1 + 0.1 * n)) for n in range(3)]
    other = [requests(n, 40, 0.010, 1.5) for n in range(3)]
    calm, wild = stats.paired_gain(steady, other), stats.paired_gain(drifting, other)
    assert calm is not None
    assert wild is not None
    assert wild.high - wild.low > 5 * (calm.high - calm.low)


def test_the_same_seed_gives_the_same_interval() -> None:
    base, other = [requests(1, 20, 0.01, noise=0.2)], [requests(2, 20, 0.02, noise=0.2)]
    assert stats.paired_gain(base, other, 7) == stats.paired_gain(base, other, 7)
    assert stats.paired_gain(base, other, 7) != stats.paired_gain(base, other, 8)


def test_a_prompt_that_failed_anywhere_counts_nowhere() -> None:
    base: list[list[stats.Request]] = [list(requests(1, 20, 0.01))]
    other: list[list[stats.Request]] = [list(requests(2, 20, 0.01))]
    other[0][3] = None
    base[0][5] = (0.0, 10.0)
    found = stats.paired_gain(base, other)
    assert found is not None
    assert found.prompts == 18


def test_too_few_prompts_have_no_interval() -> None:
    assert stats.paired_gain([requests(1, 4, 0.01)], [requests(2, 4, 0.01)]) is None
    assert stats.paired_gain([], []) is None


def test_drift_is_last_over_first() -> None:
    assert stats.drift([100.0, 90.0, 110.0]) == pytest.approx(0.10)
    assert stats.drift([100.0]) is None


def test_crossings_between_doubled_loads() -> None:
    (found,) = stats.crossings([(1, 1.5), (4, 1.2), (16, 0.8)])
    assert found.x == pytest.approx(8.0)
    assert found.falls
    assert stats.crossings([(1, 1.5), (16, 1.1)]) == []
    assert [one.falls for one in stats.crossings([(1, 0.8), (4, 1.2), (16, 0.9)])] == [False, True]
    assert stats.crossings([(1, 1.2), (4, 1.0), (16, 1.2)]) == [], "it touches and does not cross"


@given(st.lists(st.tuples(st.integers(1, 64), st.floats(0.1, 3.0)), min_size=2, max_size=8, unique_by=lambda point: point[0]))
def test_a_crossing_lies_between_its_neighbours(points: list[tuple[int, float]]) -> None:
    random.Random(0).shuffle(points)
    found = stats.crossings([(float(x), y) for x, y in points])
    ordered = sorted(points)
    sides = [y >= 1.0 for _, y in ordered]
    assert len(found) == sum(one != two for one, two in pairwise(sides))
    assert all(ordered[0][0] <= one.x <= ordered[-1][0] for one in found)
