"""The course of a training in bounded memory: what a resume left behind is gone, extremes stay, nothing counts twice."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagletui.records.training import TRAIN, VAL, TrainingPoint
from eagletui.runs import MOST_NAMES, Course, Run

values = st.floats(-1e6, 1e6, allow_nan=False)


def point(step: int, wall: float, split: str = TRAIN, epoch: int = 0, **named: float) -> TrainingPoint:
    return TrainingPoint(wall, step, epoch, split, named)


@st.composite
def attempts(draw: st.DrawFn) -> list[TrainingPoint]:
    """What a training and its resumes wrote, in their order in time: each begins at or before where the one before had come."""
    lines: list[TrainingPoint] = []
    wall, reached = 0.0, 0
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, reached))
        for step in range(begin, begin + draw(st.integers(1, 12))):
            wall += draw(st.floats(0.01, 5))
            lines.append(point(step, wall, loss=draw(values)))
            reached = step + 1
    return lines


def kept(course: Course) -> list[tuple[float, float, float]]:
    column = course.columns["loss"]
    return list(zip(course.last, course.walls, column.mean, strict=True))


@given(attempts())
def test_the_last_by_wall_of_each_step_is_kept_and_nothing_that_was_given_up(lines: list[TrainingPoint]) -> None:
    course = Course(1000)
    for line in lines:
        course.add(line)
    wanted: list[TrainingPoint] = []
    for line in lines:  # a step that comes again takes all behind it away
        wanted = [one for one in wanted if one.step < line.step] + [line]
    assert kept(course) == [(one.step, one.wall, one.values["loss"]) for one in wanted]
    by_step = {line.step: line for line in lines}
    assert all(by_step[int(step)].wall == wall for step, wall, _ in kept(course))


@given(attempts(), st.data())
def test_lines_that_come_a_second_time_change_nothing(lines: list[TrainingPoint], data: st.DataObject) -> None:
    once, twice = Course(1000), Course(1000)
    for line in lines:
        once.add(line)
    for line in lines:
        twice.add(line)
    back = data.draw(st.integers(0, len(lines)))
    last = max(line.wall for line in lines)
    for line in lines[back:]:
        assert line.wall <= last
        twice.add(line)
    assert kept(once) == kept(twice)
    assert once.lines == twice.lines


@given(st.lists(values, min_size=1, max_size=400), st.integers(2, 16))
def test_thinning_bounds_the_memory_and_keeps_extremes_means_and_the_end(losses: list[float], cells: int) -> None:
    course = Course(cells)
    for step, loss in enumerate(losses):
        course.add(point(step, float(step), loss=loss))
        assert len(course) <= 2 * cells
    column = course.columns["loss"]
    assert min(column.low) == min(losses)
    assert max(column.high) == max(losses)
    assert course.last[-1] == len(losses) - 1
    assert course.first[0] == 0
    assert sum(course.counts) == len(losses) == course.lines
    total = sum(mean * count for mean, count in zip(column.mean, course.counts, strict=True))
    assert total == pytest.approx(sum(losses), abs=1e-6 * (1 + sum(map(abs, losses))))
    assert all(
        low <= mean + 1e-6 and mean <= high + 1e-6 for low, mean, high in zip(column.low, column.mean, column.high, strict=True)
    )


def test_a_million_steps_take_no_more_than_a_few_thousand_cells() -> None:
    course = Course(64)
    for step in range(0, 1_000_000, 50):
        course.add(point(step, float(step), loss=3.0, lr=1e-3))
    assert len(course) <= 128
    assert course.per == 2 ** math.ceil(math.log2(20_000 / 128))


def test_a_resume_within_a_thinned_cell_drops_the_whole_cell() -> None:
    course = Course(4)
    for step in range(16):
        course.add(point(step, float(step), loss=1.0))
    assert course.per == 4
    course.add(point(10, 100.0, loss=2.0))
    assert list(course.last) == [3, 7, 10]
    assert course.lines == 9
    assert course.columns["loss"].mean[-1] == 2.0


def test_what_is_no_number_is_a_gap_and_names_come_and_go() -> None:
    course = Course(8)
    course.add(point(0, 0.0, loss=1.0))
    odd = {"loss": float("inf"), "late": 5.0, "bad": "x", "flag": True}
    course.add(TrainingPoint(1.0, 1, 0, TRAIN, odd))  # type: ignore[arg-type]
    assert set(course.columns) == {"loss", "late"}
    assert math.isnan(course.columns["late"].mean[0])
    assert math.isnan(course.columns["loss"].mean[1])
    course.add(TrainingPoint(2.0, 2, 0, TRAIN, {f"n{n}": 1.0 for n in range(1000)}))
    assert len(course.columns) == MOST_NAMES


def test_gaps_are_no_values_when_cells_are_joined() -> None:
    course = Course(2)
    for step in range(8):
        named = {"loss": float(step)} if step % 2 else {}
        course.add(point(step, float(step), **named))
    column = course.columns["loss"]
    assert min(column.low) == 1.0
    assert max(column.high) == 7.0


def test_a_validation_of_steps_that_were_given_up_goes_with_them() -> None:
    run = Run("a")
    for step in range(10):
        run.add(point(step, float(step), loss=1.0))
    run.add(point(9, 9.5, VAL, loss=3.0))
    run.add(point(4, 20.0, loss=1.0))
    assert len(run.val) == 0
    assert run.newest is not None
    assert run.newest.step == 4
    run.add(point(4, 21.0, VAL, loss=2.0))
    assert not run.add(point(4, 21.0, VAL, loss=2.0))
    assert list(run.val.last) == [4.0]
