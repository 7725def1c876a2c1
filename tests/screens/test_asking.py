"""What SSH asks while the dashboard is open, as keys answer it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from eagletui.screens.asking import AskSheet, ScreenPrompter, TrustSheet
from tests.screens.conftest import Opener, app_of, screen_text
from tests.screens.demo import board_store
from tests.screens.test_acting import deeds, press, settle

CANARY = "k7-canary-T0ken"


def prompter(app: Any) -> ScreenPrompter:
    found = deeds(app).prompter
    assert isinstance(found, ScreenPrompter)
    return found


async def shown(pilot: Any, sheet: type) -> str:
    """Wait until a box of this kind is drawn and takes keys; the screen as text."""
    app = app_of(pilot)
    await settle(pilot, lambda: isinstance(app.screen, sheet) and app.focused is not None and "esc" in screen_text(app))
    return screen_text(app)


async def test_a_password_is_typed_unseen_and_kept_nowhere(
    dashboard: Opener, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    async with dashboard(board_store(seconds=3), (80, 24)) as pilot:
        app = app_of(pilot)
        copied: list[str] = []
        monkeypatch.setattr(app, "copy_to_clipboard", copied.append)
        asked = asyncio.create_task(prompter(app).secret("root@gpu's \x1b]0;x\x07[bold]password[/]"))
        await shown(pilot, AskSheet)
        await press(pilot, *CANARY)
        text = screen_text(app)
        assert CANARY not in text
        assert "root@gpu's" in text
        assert "[bold]password[/]" in text
        await press(pilot, "ctrl+c", "shift+home", "ctrl+c", "ctrl+x")
        assert copied == []
        await press(pilot, "enter")
        assert await asked == CANARY
        await settle(pilot, lambda: len(app.screen_stack) == 1)
        assert CANARY not in screen_text(app)
    assert CANARY not in caplog.text


async def test_several_questions_and_declining(dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3)) as pilot:
        app = app_of(pilot)
        questions = [("Code: ", True), ("PIN: ", False)]
        asked = asyncio.create_task(prompter(app).answer("Two factors", "Look at your telephone.\nThen type.", questions))
        text = await shown(pilot, AskSheet)
        for part in ("Two factors", "Look at your telephone.", "Then type.", "Code:", "PIN:"):
            assert part in text
        await press(pilot, *"123", "enter", *"9", "enter")
        assert await asked == ["123", "9"]
        for way in ("escape", "button"):
            asked = asyncio.create_task(prompter(app).answer("again", "", questions))
            await shown(pilot, AskSheet)
            await press(pilot, *(("escape",) if way == "escape" else ("tab", "tab", "tab", "enter")))
            assert await asked is None


@pytest.mark.parametrize(("keys", "expected"), [(("enter",), False), (("escape",), False), (("right", "enter"), True)])
async def test_an_unknown_host_key_is_trusted_only_by_a_deliberate_move(
    dashboard: Opener, keys: tuple[str, ...], expected: bool
) -> None:
    async with dashboard(board_store(seconds=3)) as pilot:
        app = app_of(pilot)
        asked = asyncio.create_task(
            prompter(app).trust("[gpu]:2222", "10.0.0.9", "ssh-ed25519", "SHA256:abc", "+--[X]--+\n| .o+ |")
        )
        text = await shown(pilot, TrustSheet)
        for part in ("[gpu]:2222", "10.0.0.9", "ssh-ed25519", "SHA256:abc", "+--[X]--+", "ssh-keygen -lf"):
            assert part in text
        await press(pilot, *keys)
        assert await asked is expected


async def test_a_question_that_is_no_longer_wanted_goes_away(dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3)) as pilot:
        app = app_of(pilot)
        asked = asyncio.create_task(prompter(app).secret("password"))
        await shown(pilot, AskSheet)
        asked.cancel()
        await settle(pilot, lambda: len(app.screen_stack) == 1)


async def test_when_the_dashboard_is_left_nobody_is_asked(dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3)) as pilot:
        app = app_of(pilot)
        kept = prompter(app)
    assert deeds(app).prompter is None
    assert await kept.secret("password") is None
