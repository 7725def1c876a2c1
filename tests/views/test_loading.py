"""A load as the screens show it: phases against earlier loads, the stall rule, what still moves, which log lines stay."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagletui.records import GpuProcess, GpuSample, JobState, LogLine, Phase
from eagletui.store import Series
from eagletui.views.loading import (
    Step,
    Work,
    cards_of,
    fold_lines,
    growth,
    headroom,
    held,
    last_step,
    silence,
    squeezed,
    stall_after,
    timeline,
    who_failed,
)
from eagletui.watch.eta import usual

GIB = 1 << 30


def job(*phases: Phase, **more: object) -> JobState:
    state = JobState("j", "serve", "k25", "running", 100.0, health="loading", engine="vllm", profile="p", phases=phases)
    return state._replace(**more)  # type: ignore[arg-type]


def series(*points: tuple[float, float]) -> Series:
    out = Series(100)
    for time, value in points:
        out.push(time, value)
    return out


def test_the_phases_of_the_log_then_those_of_earlier_loads() -> None:
    now = job(Phase("spawn", None, 0, 9.0), Phase("weights", "target", 9.0, None, 13, 64, "shards"))
    steps = timeline(now, 100.0, {("spawn", None): 8.0, ("weights", "target"): 60.0, ("kv", None): 2.0, ("ready", None): 0.0})
    assert [(s.id, s.state, s.spent, s.usual) for s in steps] == [
        ("spawn", "done", 9.0, 8.0),
        ("weights", "running", 91.0, 60.0),
        ("kv", "ahead", None, 2.0),
    ]
    assert (steps[1].done, steps[1].total, steps[1].unit) == (13, 64, "shards")


def test_without_history_only_what_always_comes_is_told_as_ahead() -> None:
    steps = timeline(job(Phase("config", None, 0), drafter="/d"), 4.0, {})
    assert [(s.id, s.role) for s in steps if s.state == "ahead"] == [
        ("weights", "target"),
        ("weights", "drafter"),
        ("kv", None),
        ("api", None),
    ]
    late = timeline(job(Phase("capture", "target", 0)), 4.0, {})
    assert [s.id for s in late] == ["capture", "api"]


def test_a_failed_load_is_broken_where_it_ended_and_has_nothing_ahead() -> None:
    dead = job(Phase("spawn", None, 0, 9.0), Phase("weights", "target", 9.0, 2.0), health="failed", state="exited", ended=120.0)
    steps = timeline(dead, 20.0, {("kv", None): 2.0})
    assert [(s.id, s.state, s.spent) for s in steps] == [("spawn", "done", 9.0), ("weights", "broken", 2.0)]


def test_usual_is_the_median_of_the_loads_that_had_the_phase() -> None:
    loads = [
        job(Phase("config", None, 0, s), Phase("capture", "target", s, 5.0 * s), id=f"e{s}", ready_seconds=6 * s, started=s)
        for s in (10.0, 12.0, 30.0)
    ]
    odd = loads[0]._replace(id="odd", phases=(*loads[0].phases, Phase("warmup", None, 60.0, 4.0)))
    now = job(Phase("config", None, 0))
    assert usual(now, [now, *loads]) == {("config", None): 12.0, ("capture", "target"): 60.0}
    assert ("warmup", None) not in usual(now, [now, *loads, odd])
    assert usual(now, [now, *(one._replace(profile="other") for one in loads)]) == {}


@given(st.lists(st.sampled_from(["done", "running", "ahead"]), max_size=16), st.integers(3, 20))
def test_squeezed_keeps_the_running_phase_and_the_sums(states: list[str], most: int) -> None:
    states.sort(key=["done", "running", "ahead"].index)
    steps = [Step(f"p{i}", None, state, 2.0 if state != "ahead" else None, 3.0) for i, state in enumerate(states)]
    out = squeezed(steps, most)
    running = [step for step in steps if step.state == "running"]
    assert [step for step in out if step.state == "running"] == running
    assert sum(step.usual or 0 for step in out) == 3.0 * len(steps)
    assert sum(step.spent or 0 for step in out) == 2.0 * sum(state != "ahead" for state in states)
    if len(running) <= 1:
        assert len(out) <= max(most, len(running) + 2)


@pytest.mark.parametrize(
    ("phase", "step", "limit"),
    [
        (Phase("weights", "target"), None, 120.0),
        (Phase("weights", "target"), 18.6, 120.0),
        (Phase("weights", "target"), 40.0, 200.0),
        (Phase("process", "target"), 40.0, 300.0),
        (Phase("compile", "target"), None, 600.0),
        (Phase("profile", None), None, 600.0),
        (Phase("capture", "target"), None, 180.0),
        (None, None, 180.0),
    ],
)
def test_the_stall_rule(phase: Phase | None, step: float | None, limit: float) -> None:
    assert stall_after(phase, step) == limit


def test_silence_goes_on_between_two_states_and_is_loud_only_past_the_rule() -> None:
    now = job(Phase("weights", "target", 0.0), log_age=118.0)
    calm, loud = silence(now, 1.0), silence(now, 3.0)
    assert calm is not None
    assert loud is not None
    assert (calm.seconds, calm.too_long, calm.limit, calm.phase) == (119.0, False, 120.0, "weights")
    assert loud.too_long
    assert silence(job(silent=4.0), 0.0).seconds == 4.0  # type: ignore[union-attr]
    assert silence(job(), 5.0) is None


def test_the_last_step_is_between_the_last_two_that_counted() -> None:
    assert last_step(series((0, 1), (2, 1), (4, 2), (10, 2), (22, 3), (24, 3))) == 18.0
    assert last_step(series((0, 1), (4, 2))) is None
    assert last_step(None) is None


def test_growth_over_a_time_and_without_gaps() -> None:
    nan = float("nan")
    assert growth(series((0, 0), (80, 100), (90, nan), (100, 300)), 100.0) == 10.0
    assert growth(series((100, 5)), 100.0) is None
    assert growth(series((90, 5), (100, 2)), 100.0) == 0.0


def card(number: int, used: int | None, *processes: GpuProcess) -> GpuSample:
    return GpuSample(f"u{number}", number, mem_used=used, mem_total=96 * GIB, processes=processes)


def test_a_card_that_stands_out_is_named_and_level_ones_are_not() -> None:
    one = job(gpus=("u0", "u1", "u2", "u3"))
    level = held(one, [card(n, 14 * GIB + n * 1000) for n in range(5)])
    assert [h.card.number for h in level] == [0, 1, 2, 3]
    assert not any(h.apart for h in level)
    odd = held(one, [card(n, 14 * GIB if n != 2 else 4 * GIB) for n in range(4)])
    assert [h.apart for h in odd] == [None, None, -10 * GIB, None]


def test_what_a_job_holds_is_its_own_processes_where_the_driver_tells() -> None:
    mine, other = GpuProcess(1, "C", 9 * GIB, job="j"), GpuProcess(2, "C", 50 * GIB, job="x")
    cards = [card(0, 60 * GIB, mine, other), card(1, 2 * GIB, other)]
    assert [c.number for c in cards_of(job(), cards)] == [0]
    assert held(job(), cards)[0].used == 9 * GIB
    assert held(job(gpus=("u1",)), cards)[0].used == 2 * GIB
    assert headroom([*cards, card(3, None)]) == [(0, 36 * GIB), (1, 94 * GIB)]


def test_signs_of_work() -> None:
    assert (Work().moving, Work().computing, Work().still) == (None, False, False)
    assert Work(cpu=0.4, read=0.0).still
    assert Work(cpu=0.4, read=4e8).moving
    spinning = Work(cpu=800.0, read=0.0, filled=0.0)
    assert (spinning.moving, spinning.computing, spinning.still) == (False, True, False)


def log(text: str, **more: object) -> LogLine:
    return LogLine(0, 1, text)._replace(**more)  # type: ignore[arg-type]


def test_noise_is_folded_bars_keep_their_newest_and_errors_stay() -> None:
    lines = [
        log("an error in noisy words", noise=True, severity="error"),
        log("noise", noise=True),
        *(log(f"Loading shards: {n}% | {n}/9", progress=True, noise=n == 2) for n in range(1, 4)),
        log("noise", noise=True),
        log("Capturing: 1% | 1/4", progress=True),
    ]
    found = fold_lines(lines, 10)
    assert [line.text[:18] for line in found.lines] == ["an error in noisy ", "Loading shards: 3%", "Capturing: 1% | 1/"]
    assert found.folded == 2
    assert [line.text for line in fold_lines(lines, 1).lines] == ["Capturing: 1% | 1/4"]


def test_who_printed_the_first_error() -> None:
    lines = [log("ready soon", process="APIServer"), log("(x) ValueError: no image_token_index", process="Worker_TP3")]
    assert who_failed(job(first_error="ValueError: no image_token_index"), lines) == "Worker_TP3"
    assert who_failed(job(first_error="another"), lines) is None
    assert who_failed(job(), lines) is None
