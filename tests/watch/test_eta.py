"""The estimate of a load's rest: from earlier loads here, else from shards; never without a basis, never negative."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagletui.records import JobState, Phase
from eagletui.watch.eta import earlier_loads, estimate, temperature


def job(
    phases: list[Phase], *, name: str = "now", ready: float | None = None, started: float = 100.0, profile: str = "p"
) -> JobState:
    return JobState(
        name, "serve", profile, "running", started, engine="vllm", profile=profile, phases=tuple(phases), ready_seconds=ready
    )


def load(seconds: dict[str, float], name: str, started: float) -> JobState:
    phases, at = [], 0.0
    for phase, span in seconds.items():
        phases.append(Phase(phase, "target" if phase == "weights" else None, at, span))
        at += span
    return job(phases, name=name, ready=at, started=started)


def test_history_gives_what_is_left_of_each_phase() -> None:
    earlier = [load({"config": 10, "weights": 100, "compile": 40}, f"e{i}", i) for i in range(5)]
    now = job([Phase("config", None, 0, 10), Phase("weights", "target", 10, None, 25, 100, "shards")])
    eta = estimate(now, elapsed=35.0, jobs=[now, *earlier])
    assert eta is not None
    assert eta.seconds == 75 + 40  # a quarter of the shards in 25 s, then the usual compile
    assert eta.low < eta.seconds < eta.high
    assert eta.basis == "5 earlier loads here, 2 min to 2 min"


def test_a_running_phase_without_a_count_uses_its_usual_length() -> None:
    earlier = [load({"config": 10, "compile": 40}, "e", 1)]
    now = job([Phase("config", None, 0, 10), Phase("compile", None, 10)])
    eta = estimate(now, elapsed=20.0, jobs=[now, *earlier])
    assert eta is not None
    assert eta.seconds == 30
    assert eta.basis == "1 earlier load here, 50 s"


def test_how_long_an_earlier_server_served_is_no_part_of_its_load() -> None:
    earlier = load({"config": 10, "compile": 40}, "e", 1)
    served = earlier._replace(phases=(*earlier.phases, Phase("ready", None, 50, 3600)), ended=3650.0)
    now = job([Phase("config", None, 0)])
    eta = estimate(now, elapsed=4.0, jobs=[now, served])
    assert eta is not None
    assert eta.seconds == 6 + 40


def test_loads_of_another_profile_say_nothing() -> None:
    other = load({"config": 10}, "e", 1)._replace(profile="other")
    now = job([Phase("config", None, 0)])
    assert earlier_loads(now, [other, now]) == []
    assert estimate(now, 5.0, [other, now]) is None


def test_the_first_load_has_a_wide_range_and_says_why() -> None:
    now = job([Phase("weights", "target", 20, None, 13, 64, "shards")])
    eta = estimate(now, elapsed=20 + 242, jobs=[now])
    assert eta is not None
    left = 242 * (64 - 13) / 13
    assert eta.low > left
    assert eta.high > 2 * eta.low
    assert "first load of this profile here" in eta.basis


@pytest.mark.parametrize(("weights", "tail"), [(1.0, 65.0), (45.0, 211.0), (70.0, 288.0), (799.0, 360.0)])
def test_the_range_of_a_first_load_holds_what_loads_took(weights: float, tail: float) -> None:
    """Seconds after the target's weights: a tiny model with graphs on one card, and models of 450 to 550 GB on eight."""
    now = job([Phase("weights", "target", 20, weights, 64, 64, "shards"), Phase("compile", None, 20 + weights)])
    eta = estimate(now, elapsed=20 + weights, jobs=[now])
    assert eta is not None
    assert eta.low < tail <= eta.high
    assert eta.high <= max(360.0, 3 * weights)
    if weights < 5:
        assert eta.high < 150  # not minutes for a small one
    late = estimate(now, elapsed=20 + weights + 3000, jobs=[now])
    assert late is not None
    assert (late.seconds, late.low, late.high) == (0, 0, 0)


def test_ready_or_silent_jobs_have_no_estimate() -> None:
    assert estimate(job([]), 5.0, []) is None
    assert estimate(load({"config": 10}, "e", 1), 5.0, []) is None


@given(
    spans=st.lists(st.floats(0, 1e4), min_size=2, max_size=6),
    elapsed=st.floats(0, 1e5),
    done=st.integers(0, 64),
)
def test_never_negative_and_always_in_its_range(spans: list[float], elapsed: float, done: int) -> None:
    earlier = [load({f"p{i}": s for i, s in enumerate(spans)}, "e", 1)]
    now = job([Phase("p0", None, 0, None, done, 64, "shards")])
    eta = estimate(now, elapsed, [now, *earlier])
    assert eta is not None
    assert 0 <= eta.low <= eta.seconds <= eta.high


@pytest.mark.parametrize(
    ("read", "disk", "expected"),
    [
        (10 << 30, 9 << 30, "cold"),
        (10 << 30, 1 << 30, "warm"),
        (10 << 30, None, None),
        (100 << 20, 100 << 20, None),
        (None, 5, None),
    ],
)
def test_cold_and_warm(read: int | None, disk: int | None, expected: str | None) -> None:
    assert temperature(job([])._replace(bytes_read=read, disk_read=disk)) == expected


def test_a_cold_load_is_measured_by_cold_ones() -> None:
    warm = [
        load({"config": 10, "weights": 40, "compile": 40}, f"w{i}", i)._replace(bytes_read=10 << 30, disk_read=0)
        for i in range(5)
    ]
    cold = load({"config": 30, "weights": 200, "compile": 60}, "c", 9)._replace(bytes_read=10 << 30, disk_read=10 << 30)
    now = job([Phase("config", None, 0)])._replace(bytes_read=1 << 30, disk_read=1 << 30)
    eta = estimate(now, elapsed=5.0, jobs=[now, *warm, cold])
    assert eta is not None
    assert (eta.seconds, eta.basis) == (285, "1 earlier cold load here, 5 min")
    eta = estimate(now._replace(disk_read=0), elapsed=5.0, jobs=[now, *warm, cold])
    assert eta is not None
    assert (eta.seconds, eta.basis) == (85, "5 earlier warm loads here, 2 min to 2 min")
    eta = estimate(now._replace(bytes_read=None), elapsed=5.0, jobs=[now, *warm, cold])
    assert eta is not None
    assert eta.basis.startswith("6 earlier loads here"), "not known yet: both count"
    assert eta.high >= 285


def test_a_cold_load_without_one_before_says_so_and_is_wide() -> None:
    warm = [load({"config": 10, "weights": 40}, f"w{i}", i)._replace(bytes_read=10 << 30, disk_read=0) for i in range(3)]
    now = job([Phase("config", None, 0)])._replace(bytes_read=1 << 30, disk_read=1 << 30)
    eta = estimate(now, elapsed=5.0, jobs=[now, *warm])
    assert eta is not None
    assert eta.basis.endswith("; this one reads from the disk")
    assert eta.high > 3 * eta.seconds


NAMES = ("spawn", "config", "workers", "weights", "process", "kv", "api")
LOADS = (
    (23.7, 13.0, 14.5, 1.0, 4.0, 1.0, 5.0),
    (17.7, 18.1, 16.6, 1.0, 4.2, 0.5, 5.4),
    (27.3, 20.1, 18.1, 1.5, 3.5, 1.0, 6.8),
    (34.5, 24.1, 23.1, 1.5, 5.5, 1.5, 7.4),
    (20.2, 14.5, 15.0, 1.5, 4.5, 1.0, 5.5),
)
"""Loads of one profile by the real vLLM 0.32, one after the other, on two cores that others used as well."""


@pytest.mark.parametrize("number", range(1, len(LOADS)))
def test_loads_of_a_busy_machine_are_told_from_a_third_on(number: int) -> None:
    loads = [load(dict(zip(NAMES, spans, strict=True)), f"l{i}", i) for i, spans in enumerate(LOADS)]
    total = loads[number].ready_seconds or 0.0
    covered = []
    for second in range(int(total / 3) + 1, int(total)):
        begun = [phase for phase in loads[number].phases if phase.start <= second]
        seen = [phase if phase.start + (phase.seconds or 0) <= second else phase._replace(seconds=None) for phase in begun]
        eta = estimate(job(seen, started=100), float(second), loads[:number])
        assert eta is not None
        assert abs(second + eta.seconds - total) <= max(10.0, 0.15 * total), (second, eta)
        covered.append(eta.low <= total - second <= eta.high)
    assert sum(covered) >= 0.8 * len(covered)


def test_a_slower_load_is_told_as_one_and_its_range_is_wider() -> None:
    earlier = [load({"spawn": 40, "config": 20, "api": 40}, f"e{i}", i) for i in range(3)]
    usual = job([Phase("spawn", None, 0, 40), Phase("config", None, 40)])
    slower = job([Phase("spawn", None, 0, 80), Phase("config", None, 80)])
    one, other = estimate(usual, 41.0, earlier), estimate(slower, 81.0, earlier)
    assert one is not None
    assert other is not None
    assert one.seconds == pytest.approx(59)
    assert other.seconds == pytest.approx(1.5 * 60 - 1), "twice as slow over 40 s: half of that is expected to go on"
    assert other.high - other.low > 2 * (one.high - one.low)
    assert "slower so far" in other.basis
    assert "slower" not in one.basis
    fast = job([Phase("spawn", None, 0, 20), Phase("config", None, 20)])
    faster, first = estimate(fast, 21.0, earlier), estimate(fast, 21.0, earlier[:1])
    assert faster is not None
    assert first is not None
    assert faster.seconds == pytest.approx(0.875 * 60 - 1), "that it is faster counts half"
    assert first.seconds == pytest.approx(59), "and says nothing against one load"


def test_an_overdue_phase_is_not_taken_to_end_at_once() -> None:
    earlier = [load({"spawn": 10, "workers": 20, "api": 5}, f"e{i}", i) for i in range(3)]
    late = estimate(job([Phase("spawn", None, 0, 10), Phase("workers", None, 10)]), 70.0, earlier)
    assert late is not None
    assert late.seconds == pytest.approx(0.5 * 40 + 5)


def test_no_range_is_narrower_than_loads_of_one_profile_scatter() -> None:
    """Six loads on an idle machine took 53 to 56 s; towards their end, 15 % of what was left did not hold the truth."""
    earlier = [load({"spawn": 20, "workers": 30, "api": seconds}, f"e{i}", i) for i, seconds in enumerate((4, 5, 5))]
    eta = estimate(job([Phase("spawn", None, 0, 20), Phase("workers", None, 20, 30), Phase("api", None, 50)]), 51.0, earlier)
    assert eta is not None
    assert eta.seconds == pytest.approx(4)
    assert eta.low == pytest.approx(4 - 0.06 * 55)
    assert eta.high == pytest.approx(4 + 0.06 * 55)
