"""A new job by key: the list, the form with its checks, what would run, the start."""

from __future__ import annotations

from pathlib import Path

from eagletui.hosts.base import HostError
from eagletui.jobfiles import JobFile, parse_job_file
from eagletui.screens.base import Page
from eagletui.screens.new_job import JobForm, NewJobSheet
from eagletui.widgets.sheet import Field
from tests.screens.conftest import Opener, app_of, screen_text
from tests.screens.demo import HOSTILE, DeskDouble, idle_store
from tests.screens.test_training import until
from tests.test_text import is_safe


def a_file(text: str = 'kind = "command"\nargv = ["echo", "hello"]\ndescription = "says hello"\n') -> JobFile:
    file, notices = parse_job_file(text, Path("hello.toml"))
    assert file is not None, notices
    return file


def desk_with(*files: JobFile, readonly: bool = False) -> DeskDouble:
    desk = DeskDouble(readonly=readonly)
    desk.deeds.files = {file.name: file for file in files}
    return desk


async def test_a_job_file_is_chosen_changed_and_started(dashboard: Opener) -> None:
    desk = desk_with(a_file())
    async with dashboard(idle_store(), (120, 40), desk) as pilot:
        app = app_of(pilot)
        await pilot.press("b")
        await until(pilot, lambda: isinstance(app.screen, NewJobSheet))
        text = screen_text(app)
        assert "says hello" in text
        assert "new synthesise" in text
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, JobForm) and app.screen.plan is not None)
        assert "echo hello" in screen_text(app)
        app.screen.query_one("#field-argv", Field).value = "echo 'good bye'"
        await until(pilot, lambda: "echo 'good bye'" in screen_text(app).split("command and environment")[-1])
        app.screen.query_one("#field-port", Field).value = "many"
        await until(pilot, lambda: "port: 'port' is 'many'" in screen_text(app))
        await pilot.press("ctrl+l")
        await until(pilot, lambda: "nothing was started" in screen_text(app))
        app.screen.query_one("#field-port", Field).value = ""
        await pilot.press("ctrl+l")
        await until(pilot, lambda: any(done[0] == "run" for done in desk.deeds.done))
        (_, file, secrets) = next(done for done in desk.deeds.done if done[0] == "run")
        assert (list(file.values["argv"]), secrets) == (["echo", "good bye"], {})
        await until(pilot, lambda: app.page_name == "jobs" and "job-2" in app.store.jobs)


async def test_a_kind_is_filled_in_with_help_for_each_field(dashboard: Opener) -> None:
    desk = desk_with()
    async with dashboard(idle_store(), (120, 40), desk) as pilot:
        app = app_of(pilot)
        await pilot.press("b")
        await until(pilot, lambda: isinstance(app.screen, NewJobSheet))
        app.screen.query_one("FileTable").find("new download")  # type: ignore[attr-defined]
        await pilot.press("enter")
        await until(pilot, lambda: "'output' is missing" in screen_text(app))
        await pilot.press("down")
        await until(pilot, lambda: "the directory that it goes to - an absolute path" in screen_text(app))
        assert "output *" in screen_text(app)


async def test_what_the_host_or_the_plan_refuses_is_told(dashboard: Opener) -> None:
    desk = desk_with(a_file())
    desk.deeds.warnings, desk.deeds.busy = ("card 0 is used by others",), ("card 0 is used by others",)
    async with dashboard(idle_store(), (120, 40), desk) as pilot:
        app = app_of(pilot)
        await pilot.press("b")
        await until(pilot, lambda: isinstance(app.screen, NewJobSheet))
        await pilot.press("enter")
        await until(pilot, lambda: "! card 0 is used by others" in screen_text(app))
        await pilot.press("ctrl+l")
        await until(pilot, lambda: "once more starts it all the same" in screen_text(app))
        assert not [done for done in desk.deeds.done if done[0] == "run"]
        await pilot.press("ctrl+l")
        await until(pilot, lambda: any(done[0] == "run" for done in desk.deeds.done))
        desk.deeds.refusal = HostError("job file", "output: it was made from other inputs", "choose another", kind="config")
        await pilot.press("b")
        await until(pilot, lambda: isinstance(app.screen, NewJobSheet))
        await pilot.press("enter")
        await until(pilot, lambda: "it was made from other inputs - choose another" in screen_text(app))


async def test_a_training_that_was_started_is_shown_alone(dashboard: Opener) -> None:
    text = 'kind = "train"\npython = "/p"\ntarget = "/t"\ndata = "/d"\noutput = "/o"\n'
    async with dashboard(idle_store(), (120, 40), desk_with(a_file(text))) as pilot:
        app = app_of(pilot)
        await pilot.press("b")
        await until(pilot, lambda: isinstance(app.screen, NewJobSheet))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, JobForm) and app.screen.plan is not None)
        await pilot.press("ctrl+l")
        await until(pilot, lambda: app.page_name == "training" and len(app.screen_stack) == 1)
        assert [page.id for page in app.query(Page) if page.display] == ["page-training"]


async def test_nothing_is_started_in_a_read_only_session(dashboard: Opener) -> None:
    async with dashboard(idle_store(), (120, 40), desk_with(a_file(), readonly=True), toasts=True) as pilot:
        app = app_of(pilot)
        await pilot.press("b")
        await until(pilot, lambda: "read-only" in screen_text(app))
        assert len(app.screen_stack) == 1
        assert "new job" not in screen_text(app).split("\n")[-1]


async def test_no_word_of_a_file_takes_the_terminal_over(dashboard: Opener) -> None:
    file = JobFile(
        "x", "command", {"argv": ("echo", HOSTILE), "description": HOSTILE}, Path(HOSTILE.replace("\0", "")), "kind='command'"
    )
    async with dashboard(idle_store(), (80, 24), desk_with(file)) as pilot:
        app = app_of(pilot)
        await pilot.press("b")
        await until(pilot, lambda: isinstance(app.screen, NewJobSheet))
        assert all(is_safe(row) for row in screen_text(app).split("\n"))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, JobForm))
        assert all(is_safe(row) for row in screen_text(app).split("\n"))
