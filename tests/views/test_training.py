"""Curves of a training: smoothing, predicted lengths, axes, which run is shown, how fresh it is."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagletui.records.training import TRAIN, VAL, TrainingPoint
from eagletui.runs import Run
from eagletui.screens.training_words import length_facts
from eagletui.views.training import (
    BreakEvenLine,
    Points,
    axis,
    best,
    choose_run,
    current_run,
    foreseen,
    length_basis,
    lengths,
    log_axis,
    means,
    neighbour_run,
    newest_lengths,
    numbered,
    overlaid,
    raw,
    silent,
    smooth,
    toggle_overlay,
    too_silent,
    trainings,
    xs,
)
from eagletui.widgets.chart import Curve
from eagletui.widgets.paint import plain
from eagletui.widgets.run_chart import LABEL, Drawing, laid_out, tick_label
from tests.screens.training_demo import train, training_store

finite = st.floats(-1e9, 1e9, allow_nan=False)


@given(st.lists(finite, max_size=300), st.floats(0.001, 0.5))
def test_a_smoothed_line_stays_within_the_raw_one_and_begins_with_it(values: list[float], share: float) -> None:
    out = smooth(Points([float(n) for n in range(len(values))], values), share)
    assert len(out.y) == len(values)
    if values:
        slack = 1e-6 * (1 + max(map(abs, values)))
        assert min(values) - slack <= min(out.y)
        assert max(out.y) <= max(values) + slack
        assert out.y[0] == pytest.approx(values[0])


def test_a_constant_is_smooth_already() -> None:
    assert smooth(Points([0.0] * 50, [3.0] * 50)).y == pytest.approx([3.0] * 50)


@given(finite, finite)
def test_an_axis_holds_its_values_between_round_ticks(one: float, other: float) -> None:
    low, high, ticks = axis(min(one, other), max(one, other))
    slack = 1e-6 * (1 + max(abs(one), abs(other)))
    assert low <= min(one, other) + slack
    assert high >= max(one, other) - slack
    assert 2 <= len(ticks) <= 8
    assert ticks == sorted(ticks)


@given(st.floats(1e-9, 1e9), st.floats(1e-9, 1e9))
def test_a_logarithmic_axis_has_ticks_within_it(one: float, other: float) -> None:
    low, high, ticks = log_axis(min(one, other), max(one, other))
    assert low <= math.log10(min(one, other)) + 1e-9
    assert high >= math.log10(max(one, other)) - 1e-9
    assert all(low - 1e-9 <= tick <= high + 1e-9 for tick in ticks)
    assert len(ticks) <= 24


@given(st.floats(-1e12, 1e12, allow_nan=False), st.floats(1e-9, 1e9))
def test_labels_of_an_axis_are_all_as_wide(value: float, step: float) -> None:
    assert len(tick_label(value, (value, value + step))) == LABEL


def test_labels_tell_neighbours_apart() -> None:
    _, _, ticks = axis(1.0, 1.04)
    assert len({tick_label(tick, ticks) for tick in ticks}) == len(ticks)


def a_run(joint: list[tuple[float, ...]], split: str = TRAIN) -> Run:
    run = Run("a")
    for step, values in enumerate(joint):
        named = {f"full_acc_{n}": value for n, value in enumerate(values)}
        run.add(TrainingPoint(float(step), step, step // 2, split, {"loss": 5.0 - step, **named}))
    return run


def test_the_predicted_length_is_one_and_the_joint_accuracies() -> None:
    run = a_run([(0.5, 0.2, 0.1), (0.6, 0.3, 0.2)])
    assert lengths(run.train, xs(run.train, False)).y == pytest.approx([1.8, 2.1])
    assert lengths(run.train, xs(run.train, False), 1).y == pytest.approx([1.5, 1.6])
    assert numbered(run.train, "full_acc") == ["full_acc_0", "full_acc_1", "full_acc_2"]
    assert lengths(Run("b").train, []).y == []


def test_the_foreseen_gain_is_the_validated_length_over_the_cost() -> None:
    run = a_run([(0.5, 0.2)], VAL)
    assert foreseen(run, BreakEvenLine(2.2, 2.2, "")) == pytest.approx(1.7 / 2.2)
    assert foreseen(run, BreakEvenLine(2.2, None, "")) is None
    assert foreseen(run, None) is None
    assert foreseen(Run("b"), BreakEvenLine(2.2, 2.2, "")) is None


def test_the_length_is_that_of_the_tokens_that_are_drafted_here() -> None:
    """A drafter trained for three positions, a step cost measured with two."""
    run = a_run([(0.5, 0.2, 0.1)], VAL)
    line = BreakEvenLine(2.0, 2.0, "", 2)
    assert foreseen(run, line) == pytest.approx(1.7 / 2.0)
    assert newest_lengths(run, 2)[0] == pytest.approx(1.7)
    text = plain([parts for _, parts in length_facts(run, line)])
    assert "~1.70 from validation, k 2" in text
    assert length_basis(run, None) == "k 3, all that are trained"
    assert length_basis(run, line._replace(k=7)) == "k 3, all that are trained; 7 are drafted here"
    assert foreseen(run, line._replace(k=7)) is None


def test_the_best_is_the_validation_with_the_least_loss() -> None:
    run = a_run([(0.1,), (0.2,), (0.3,)], VAL)
    found = best(run)
    assert found is not None
    assert (found.step, found.epoch, found.loss) == (2, 1, 3.0)
    assert best(Run("b")) is None


def test_raw_has_the_extremes_of_a_cell_and_means_leave_gaps_out() -> None:
    run = Run("a", 2)
    for step in range(8):
        run.add(TrainingPoint(float(step), step, 0, TRAIN, {"loss": float(step % 4)} if step != 5 else {}))
    x = xs(run.train, False)
    points = raw(run.train, "loss", x)
    assert (min(points.y), max(points.y)) == (0.0, 3.0)
    assert len(means(run.train, "loss", x).y) == len(run.train)
    assert raw(run.train, "absent", x) == Points([], [])


def test_over_hours_every_run_begins_at_zero() -> None:
    run = Run("a")
    for step in range(3):
        run.add(TrainingPoint(5000.0 + 3600 * step, step, 0, TRAIN, {}))
    assert xs(run.train, True) == [0.0, 1.0, 2.0]


def test_which_run_is_shown_and_which_beside_it() -> None:
    store = training_store(train("a", "a"), train("b", "b", state="exited", started=9e9), train("c", "c"), steps=2)
    assert [job.id for job in trainings(store.jobs.values())][-1] == "b"
    first = current_run(store)
    assert first is not None
    choose_run(store, "b")
    assert current_run(store) is store.jobs["b"]
    assert neighbour_run(store, 1) != "b"
    assert toggle_overlay(store, "a")
    assert toggle_overlay(store, "c")
    assert [job.id for job in overlaid(store)] == ["a", "c"]
    choose_run(store, "a")
    assert [job.id for job in overlaid(store)] == ["c"]
    assert not toggle_overlay(store, "c")
    del store.jobs["a"]
    assert current_run(store) is not None


def test_silence_is_judged_by_the_pace_of_the_steps() -> None:
    store = training_store(steps=5)
    job, run = store.jobs["tr"], store.runs["tr"]
    assert run.newest is not None
    assert silent(store, job, run, run.newest.wall + 7) == pytest.approx(7)
    assert not too_silent(run, 29.0)
    assert too_silent(run, 31.0)  # a step takes 2.4 s
    assert not too_silent(run, None)
    assert silent(store, job._replace(state="exited"), run, 9e9) is None
    store.clock_offset = None
    assert silent(store, job, run, 9e9) is None


def test_a_chart_without_points_and_one_with_what_no_log_has() -> None:
    curves, low, high, _, (x, y) = laid_out(Drawing("a", "steps", []), 80, 20)
    assert curves == []
    assert low < high
    assert x
    assert y
    drawing = Drawing("a", "steps", [Curve([0.0, 1.0, 2.0], [0.0, -1.0, 10.0])], log=True)
    curves, low, high, _, _ = laid_out(drawing, 80, 20)
    assert curves[0].values == [1.0]
    assert low < 1.0 < high
