"""The keys that act: each does what the table says, on the job at hand, and none of it in a read-only session."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from textual.pilot import Pilot

from eagletui.actions import ACTIONS, BY_ID
from eagletui.app import EagleApp
from eagletui.profiles import Profile
from eagletui.screens.kill import KillSheet
from eagletui.screens.launch import LaunchForm, LaunchSheet
from eagletui.screens.log import Log
from eagletui.screens.new_job import NewJobSheet
from eagletui.screens.preflight import PreflightSheet
from eagletui.screens.probe import ProbeSheet
from eagletui.screens.remove import RemoveSheet
from eagletui.screens.why import WhySheet
from eagletui.widgets.dialog import Reader
from tests.screens.conftest import Opener, app_of, screen_text
from tests.screens.deeds_double import DeedsDouble
from tests.screens.demo import DeskDouble, board_store, hostile_store

JOB = "k25"
ON_JOB = ["7", "down"]
IN_LOG = [*ON_JOB, "o"]


def deeds(app: EagleApp) -> DeedsDouble:
    assert isinstance(app.desk, DeskDouble)
    return app.desk.deeds


def log(app: EagleApp) -> Log:
    assert isinstance(app.page, Log)
    return app.page


def did(app: EagleApp, *what: object) -> bool:
    return any(done[: len(what)] == what for done in deeds(app).done)


def saved(app: EagleApp) -> list[bool]:
    """Of each profile that was saved, whether for all hosts."""
    return [done[2] for done in deeds(app).done if done[0] == "save"]


def _ready(app: EagleApp) -> None:
    deeds(app).may_end.clear()
    deeds(app).may_answer.clear()
    deeds(app).good = Profile("x", "vllm", "/good")


CASES: dict[str, tuple[list[str], Callable[[EagleApp], bool]]] = {
    "launch": (ON_JOB, lambda app: isinstance(app.screen, LaunchSheet)),
    "new_job": (ON_JOB, lambda app: isinstance(app.screen, NewJobSheet)),
    "kill": (ON_JOB, lambda app: isinstance(app.screen, KillSheet) and app.screen.plan is not None),
    "log": (ON_JOB, lambda app: app.page_name == "log" and log(app).shown == JOB),
    "relaunch": (ON_JOB, lambda app: isinstance(app.screen, LaunchForm)),
    "probe": (ON_JOB, lambda app: isinstance(app.screen, ProbeSheet)),
    "remove": (["7", "end"], lambda app: isinstance(app.screen, RemoveSheet)),
    "follow": ([*IN_LOG, "home", "up"], lambda app: log(app).view.following and log(app).view.window.at_end),  # type: ignore[union-attr]
    "fold": (IN_LOG, lambda app: not log(app).view.folding),
    "first_error": (IN_LOG, lambda app: "error" in log(app).found),
    "facts": (IN_LOG, lambda app: isinstance(app.screen, Reader)),
    "find_previous": (IN_LOG, lambda app: app.query_one("#prompt").has_class("open")),
    "wrap": (IN_LOG, lambda app: log(app).view.wrapping),
    "right": (IN_LOG, lambda app: log(app).view.sideways > 0),
    "left": ([*IN_LOG, "right"], lambda app: log(app).view.sideways == 0),
    "why": (ON_JOB, lambda app: isinstance(app.screen, WhySheet) and app.screen.looked is not None),
    "canary": ([*ON_JOB, "h"], lambda app: isinstance(app.screen, WhySheet) and app.screen.token is not None),
    "confirm": ([*ON_JOB, "k"], lambda app: did(app, "kill", "token-1")),
    "hurry": ([*ON_JOB, "k", "K"], lambda app: did(app, "hurry", JOB)),
    "look_again": ([*ON_JOB, "k"], lambda app: deeds(app).done.count(("kill_plan", JOB)) == 2),
    "form_launch": ([*ON_JOB, "l", "enter"], lambda app: did(app, "launch")),
    "form_preflight": ([*ON_JOB, "l", "enter"], lambda app: isinstance(app.screen, PreflightSheet)),
    "form_save": ([*ON_JOB, "l", "enter"], lambda app: saved(app) == [False]),
    "form_save_all": ([*ON_JOB, "l", "enter"], lambda app: saved(app) == [True]),
    "form_reset": ([*ON_JOB, "l", "enter"], lambda app: isinstance(app.screen, LaunchForm) and app.screen.start.model != "/good"),
    "probe_stop": ([*ON_JOB, "p", "enter"], lambda app: did(app, "stop")),
}
TESTED = frozenset(CASES)


async def settle(pilot: Pilot[int], true: Callable[[], bool], turns: int = 300) -> None:
    """Let the app go on until something is so; the number of turns bounds it, not a clock."""
    for _ in range(turns):
        if true():
            return
        await pilot.pause(0.01)
    raise AssertionError(screen_text(app_of(pilot)))


async def press(pilot: Pilot[int], *keys: str) -> None:
    """Press keys one after the other, each when the one before has had its effect."""
    for key in keys:
        await pilot.press(key)
        for _ in range(4):
            await pilot.pause()


@pytest.mark.parametrize("id_", CASES)
async def test_the_key_acts(id_: str, dashboard: Opener) -> None:
    before, check = CASES[id_]
    async with dashboard(board_store(seconds=3)) as pilot:
        app = app_of(pilot)
        _ready(app)
        if id_ == "relaunch":
            deeds(app).launched[JOB] = deeds(app).profiles()[0]["one-card-vllm"]
        await press(pilot, *before)
        assert not check(app)
        await press(pilot, BY_ID[id_].keys[0])
        await settle(pilot, lambda: check(app))


@pytest.mark.parametrize("id_", [action.id for action in ACTIONS if action.writes and action.scope != "dialog"])
async def test_a_readonly_session_changes_nothing(id_: str, dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3), desk=DeskDouble(readonly=True), toasts=True) as pilot:
        app = app_of(pilot)
        await press(pilot, "7", "end", BY_ID[id_].keys[0])
        await settle(pilot, lambda: "read-only" in "\n".join(screen_text(app).split("\n")[1:]))
        assert len(app.screen_stack) == 1
        assert id_ not in {action.id for action in app.live_actions()}
        assert deeds(app).done == []


@pytest.mark.parametrize("size", [(80, 24), (160, 50), (20, 6)], ids=str)
async def test_hostile_text_of_a_host_stays_text(size: tuple[int, int], dashboard: Opener) -> None:
    async with dashboard(hostile_store(), size) as pilot:
        app = app_of(pilot)
        for keys in (["o"], ["escape"], ["k"], ["escape"], ["p"], ["escape"], ["x"], ["escape"], ["r"]):
            await press(pilot, "7", *keys)
            shown = screen_text(app)
            assert all(ord(char) >= 32 or char == "\n" for char in shown)
            assert "could not be drawn" not in shown


async def test_without_a_job_the_keys_say_so(dashboard: Opener) -> None:
    from eagletui.store import Store

    async with dashboard(Store(), toasts=True) as pilot:
        await press(pilot, "k")
        await settle(pilot, lambda: "no job to end" in screen_text(app_of(pilot)))
