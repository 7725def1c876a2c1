"""Jobs that are no servers, on Overview and Jobs; pipelines with their steps."""

from __future__ import annotations

import pytest

from eagletui.records import JobState
from eagletui.records.work import Counter, Work
from eagletui.screens.words import job_state
from eagletui.screens.work_words import work_line
from eagletui.views.work import counter_text, done_words, figure, left_words
from eagletui.widgets.paint import plain
from tests.screens.conftest import Opener, app_of, screen_text
from tests.screens.demo import DeskDouble
from tests.screens.test_training import until
from tests.screens.work_demo import SYNTH, WORK_STORES, pipeline_failed_store, pipeline_store, work_store
from tests.test_text import is_safe

SIZES = ((160, 50), (20, 5))


def words(work: Work) -> str:
    return plain([work_line(work)])


def test_the_work_in_one_line() -> None:
    one = SYNTH._replace(stage=None, unit="")
    assert words(one) == "9,412 / 25,000  37 %  ~3 h 10 m left (rate of last 10 min)  0 failed  214 truncated  812 tok/s".replace(
        "812 tok/s", "812.4 tok/s"
    )


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (Work(), ""),
        (Work("loading"), ""),
        (Work(done=3, unit="rows"), "3 rows"),
        (Work(done=0, total=10, unit="rows"), "0 / 10 rows  0 %"),
        (Work(done=1, total=25_000), "1 / 25,000  0.0 %"),
        (Work(done=24_999, total=25_000), "24,999 / 25,000  99 %"),
        (Work(done=25_000, total=25_000), "25,000 / 25,000  100 %"),
        (Work(done=1 << 30, total=4 << 30, unit="bytes"), "1.00 GiB / 4.00 GiB  25 %"),
    ],
)
def test_how_far_it_is(work: Work, said: str) -> None:
    assert done_words(work) == said


def test_an_end_that_is_not_known_is_not_made_up() -> None:
    assert left_words(Work(done=1, total=2)) == ""
    assert left_words(Work(done=1, total=2, remaining=float("inf"))) == ""
    assert figure(float("nan")) == "not finite"


def test_what_should_be_none_is_loud_and_comes_first() -> None:
    line = work_line(Work(counters=(Counter("truncated", 3), Counter("failed", 2, "", True), Counter("lost", 0, "", True))))
    assert plain([line]) == "! 2 failed  3 truncated  0 lost"
    assert ("2 failed", "warn") in line
    assert ("0 lost", "dim") in line
    assert words(Work(counters=(Counter("accuracy 1", 62.31, "%"), Counter("loss", 7.604)))) == "accuracy 1: 62.3 %  loss 7.60"


def test_counted_bytes_can_be_read() -> None:
    written = Counter("written", 57_352_000_000, "B")
    assert words(Work(counters=(written,))) == "written 53 GiB"
    assert counter_text(written) == "written 53 GiB"
    assert counter_text(Counter("speed", 3165, "tok/s")) == "speed 3,165 tok/s"


def test_the_state_of_a_job_that_ended_is_its_judged_result_not_its_status() -> None:
    def state(**more: object) -> str:
        return job_state(JobState("a", "synthesise", "a", "exited", 0.0, **more))[0]  # type: ignore[arg-type]

    assert state(rc=0, ok=False) == "✗ failed"
    assert state(rc=0, ok=True) == "✓ done"
    assert state(rc=0, ok=None, outcome="stopped on request") == "- ended"
    assert state(rc=-15, ok=None, ended_by="root") == "- ended by signal 15"
    assert state(rc=1, ok=None) == "✗ failed (1)"


@pytest.mark.parametrize("name", WORK_STORES)
async def test_every_state_at_every_size(name: str, dashboard: Opener) -> None:
    async with dashboard(WORK_STORES[name](), (80, 24)) as pilot:
        for size in SIZES:
            for keys in ("1", "7", "enter"):
                await pilot.press(keys)
                await pilot.pause()
                rows = screen_text(app_of(pilot)).split("\n")
                assert "could not be drawn" not in "\n".join(rows)
                assert all(is_safe(row) for row in rows), rows
            await pilot.resize_terminal(*size)


async def test_overview_and_jobs_tell_the_work_and_the_steps_below_their_pipeline(dashboard: Opener) -> None:
    async with dashboard(work_store()) as pilot:
        app = app_of(pilot)
        await pilot.press("1")
        await pilot.pause()
        text = screen_text(app)
        assert "9,412 / 25,000 rows  37 %  ~3 h 10 m left (rate of last 10 min)  0 failed  214" in text
        assert "3 / 9 steps" in text
        await pilot.press("7")
        await pilot.pause()
        rows = screen_text(app).split("\n")
        at = next(n for n, row in enumerate(rows) if "loop-k25" in row)
        assert [row[1:20].rstrip() for row in rows[at + 1 : at + 6]] == [
            "  synth-10",
            "  prepare-10",
            "  extract-10",
            "  target",
            "  synth",
        ]
        failed = next(row for row in rows if "synth-test" in row)
        assert "✗ failed" in failed
        assert "every request failed" in failed


async def test_a_pipeline_is_opened_with_its_steps_and_a_step_with_its_screen(dashboard: Opener) -> None:
    desk = DeskDouble()
    store = pipeline_store()
    async with dashboard(store, desk=desk) as pilot:
        app = app_of(pilot)
        await pilot.press("7")
        await pilot.pause()
        app.screen_stack[0].focused.find("loop-k25")  # type: ignore[union-attr]
        await pilot.press("enter")
        await until(pilot, lambda: "gate passed: truncated_share 0.100" in screen_text(app))
        assert ("pipeline:loop", True) in desk.watch.looked
        text = screen_text(app)
        assert "for synth   gate: predicted_length at least 1.3" in text
        assert "for synth-10, extract-10, synth" in text
        assert "3 of 9 steps done" in text
        await pilot.press("enter")  # the step that runs
        await until(pilot, lambda: app.page_name == "log")
        assert app.log_job == "loop-synth-2"
        assert ("pipeline:loop", False) in desk.watch.looked


async def test_a_gate_that_stopped_a_pipeline_is_told_in_its_words(dashboard: Opener) -> None:
    async with dashboard(pipeline_failed_store()) as pilot:
        await pilot.press("7", "enter")
        await until(pilot, lambda: "✗ gate" in screen_text(app_of(pilot)))
        text = screen_text(app_of(pilot))
        assert text.count("truncated_share is 0.42, at most 0.2 allowed") == 2
        assert "raise max_tokens" in text
        assert "behind synth" in text


async def test_the_log_of_the_pipeline_itself(dashboard: Opener) -> None:
    async with dashboard(pipeline_store()) as pilot:
        app = app_of(pilot)
        await pilot.press("7")
        await pilot.pause()
        app.screen_stack[0].focused.find("loop-k25")  # type: ignore[union-attr]
        await pilot.press("enter")
        await until(pilot, lambda: app.page_name == "pipeline")
        await pilot.press("i")
        await until(pilot, lambda: app.page_name == "log")
        assert app.log_job == "loop"
