"""The probe: reasoning and answer apart as they come, the numbers at the end, stopping, the key, and the port that is closed."""

from __future__ import annotations

import pytest

from eagletui.commands.probe import Answered, Piece, Sent
from eagletui.hosts.base import HostError
from eagletui.screens.probe import ProbeSheet
from tests.screens.conftest import Opener, app_of, screen_text
from tests.screens.demo import HOSTILE, board_store
from tests.screens.test_acting import JOB, ON_JOB, deeds, did, press, settle


@pytest.mark.parametrize("size", [(80, 24), (160, 50)], ids=str)
async def test_what_comes_is_shown_apart_and_the_numbers_at_the_end(size: tuple[int, int], dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3), size) as pilot:
        app = app_of(pilot)
        deeds(app).may_answer.clear()
        await press(pilot, *ON_JOB, "p")
        assert "Write three sentences" in screen_text(app)
        await press(pilot, "enter")
        await settle(pilot, lambda: "26 tokens so far" in screen_text(app))
        await settle(pilot, lambda: "It moves all day." in screen_text(app))
        rows = [row.strip() for row in screen_text(app).split("\n")]
        assert rows.index("reasoning") < rows.index("The user wants three sentences. Keep them short.") < rows.index("answer")
        deeds(app).may_answer.set()
        await settle(pilot, lambda: "61.2 tok/s" in screen_text(app))
        text = screen_text(app)
        for part in (
            "first token 410 ms",
            "end: stop",
            "acceptance 31.7 %",
            "length 1.95",
            "of this request alone",
            "60 %, 25 %",
        ):
            assert part in text, part
        assert deeds(app).done == [("ask", "Write three sentences about the sea.", None)]
        await press(pilot, "escape")
        await settle(pilot, lambda: deeds(app).done[-1] == ("close",))


async def test_it_is_stopped_by_its_key_and_other_traffic_is_told(dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3)) as pilot:
        app = app_of(pilot)
        deeds(app).may_answer.clear()
        done = deeds(app).events[-1]
        assert isinstance(done, Answered)
        deeds(app).events[-1] = done._replace(alone=False)
        await press(pilot, *ON_JOB, "p", "enter", "enter", "ctrl+g")
        await settle(pilot, lambda: "stopped by you" in screen_text(app))
        assert "! other traffic in the window" in screen_text(app)
        assert len([event for event in deeds(app).done if event[0] == "ask"]) == 1


async def test_a_wanted_key_is_asked_for_and_sent(dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3)) as pilot:
        app = app_of(pilot)
        deeds(app).refusal = HostError("probe", "the server wants an API key", "type the key", kind="auth")
        await press(pilot, *ON_JOB, "p", "enter")
        await settle(pilot, lambda: "wants an API key" in screen_text(app))
        deeds(app).refusal = None
        await press(pilot, *"sesame")
        assert "sesame" not in screen_text(app)
        await press(pilot, "enter")
        await settle(pilot, lambda: "61.2 tok/s" in screen_text(app))
        assert deeds(app).done[-1][2] == "sesame"
        assert "wants an API key" not in screen_text(app)


async def test_a_hostile_answer_stays_text_and_an_empty_one_is_told(dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3)) as pilot:
        app = app_of(pilot)
        deeds(app).events = [Sent(HOSTILE, HOSTILE), Piece(HOSTILE * 20, True), Answered(1.0)]
        await press(pilot, *ON_JOB, "p", "enter")
        await settle(pilot, lambda: "only reasoning" in screen_text(app))
        assert all(ord(char) >= 32 or char == "\n" for char in screen_text(app))
        assert "no drafter, or no counters" in screen_text(app)
        assert isinstance(app.screen, ProbeSheet)


async def test_only_a_ready_server_can_be_asked(dashboard: Opener) -> None:
    store = board_store(seconds=3)
    store.jobs[JOB] = store.jobs[JOB]._replace(health="loading")
    async with dashboard(store, toasts=True) as pilot:
        app = app_of(pilot)
        await press(pilot, *ON_JOB, "p")
        await settle(pilot, lambda: "it is not ready" in screen_text(app))
        await press(pilot, "up", "p")
        await settle(pilot, lambda: "it serves on no port" in screen_text(app))
        assert not did(app, "ask")
