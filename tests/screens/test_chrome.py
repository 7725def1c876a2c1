"""The lines around the screens: a link that is down is told whole, and the way to help and out is always there."""

from __future__ import annotations

import re
import time

import pytest
from rich.cells import cell_len

from eagletui.widgets.paint import folded
from eagletui.widgets.panel import Panel
from tests.screens.conftest import Opener, app_of, screen_text
from tests.screens.demo import DeskDouble, board_store

OLD, NEW = "SHA256:zU6kBIyNANE+m0HhvYu+CufrIj8VJIxpGsszj4KflZQ", "SHA256:hDpXrC8Vj/f+7jsQGJWA5x+Ygc9Vriw2olYbnHcffVA"
COMMAND = "ssh-keygen -f '/root/.ssh/known_hosts' -R '[gpu-host]:2222'"


@pytest.mark.parametrize("size", [(80, 24), (160, 50)], ids=str)
async def test_a_changed_key_is_shown_whole(size: tuple[int, int], dashboard: Opener) -> None:
    store = board_store(seconds=3)
    store.connection = store.connection._replace(
        state="blocked",
        step="host key",
        why=f"THE KEY OF gpu-host HAS CHANGED: ssh-ed25519 {NEW}, but {OLD} is known (/root/.ssh/known_hosts:1)",
        remedy=f"somebody may be listening, or the host was reinstalled: compare it; if it is right: {COMMAND}",
    )
    async with dashboard(store, size) as pilot:
        words = re.sub(r"\s+", " ", screen_text(app_of(pilot)))
        for wanted in (OLD, NEW, COMMAND, "host key: THE KEY OF gpu-host HAS CHANGED"):
            assert wanted in words
        assert "8 of 8" in words  # the last data is still there
        store.connection = store.connection._replace(state="online", why="", remedy="", step="")
        store.changed("connection")
        app_of(pilot)._redraw_dirty()
        await pilot.pause()
        assert "KEY OF" not in screen_text(app_of(pilot))


@pytest.mark.parametrize(
    ("text", "width", "pieces"),
    [
        ("aaa bbb ccc", 7, ["aaa bbb", "ccc"]),
        ("aaa bbb ccc", 5, ["aaa", "bbb", "ccc"]),
        ("abcdefghij", 4, ["abcd", "efgh", "ij"]),
        ("日本語 テキスト", 6, ["日本語", "テキス", "ト"]),
        ("", 4, [""]),
    ],
)
def test_text_is_folded_by_cells_between_words(text: str, width: int, pieces: list[str]) -> None:
    assert folded(text, width) == pieces
    assert all(cell_len(piece) <= width for piece in pieces)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
async def test_help_and_quit_are_in_every_footer_and_the_screen_among_the_tabs(width: int, dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3), (width, 24)) as pilot:
        await pilot.press("7")
        await pilot.pause()
        lines = screen_text(app_of(pilot)).split("\n")
        assert "? help" in lines[-1]
        assert "q quit" in lines[-1]
        assert "7 Jobs" in lines[1]
        await pilot.click("Footer", offset=(lines[-1].index("help"), 0))
        await pilot.pause()
        assert "Keys" in screen_text(app_of(pilot))


async def test_after_a_reconnect_old_values_stay_dimmed_until_their_stream_sends(dashboard: Opener) -> None:
    store = board_store(seconds=3)
    async with dashboard(store, (160, 50)) as pilot:
        app = app_of(pilot)
        await pilot.press("2")
        cards = app.query_one("#cards", Panel)
        processes = app.query_one("#host-processes", Panel)
        for old, faded in (({"gpus", "processes"}, (True, True)), ({"processes"}, (False, True)), (set(), (False, False))):
            store.old = old
            for topic in ("connection", "gpus", "processes"):
                store.changed(topic)
            app._redraw_dirty()
            assert (cards._faded, processes._faded) == faded


@pytest.mark.parametrize(("state", "words"), [("blocked", "R: try again"), ("reconnecting", "try 4 in 1 m 38 s (R: now)")])
async def test_a_key_tries_again_when_the_link_is_down(state: str, words: str, dashboard: Opener) -> None:
    store = board_store(seconds=3)
    desk = DeskDouble()
    async with dashboard(store, (80, 24), desk=desk) as pilot:
        app = app_of(pilot)
        assert "try again" not in screen_text(app)
        await pilot.press("R")
        assert desk.deeds.done == []  # there is nothing to try
        # counted from now, not from before the dashboard was open: that takes a second on a busy machine
        next_try = time.monotonic() + 99.5 if state == "reconnecting" else None
        store.connection = store.connection._replace(state=state, why="no route to gpu", attempts=3, next_try=next_try)
        store.changed("connection")
        app._redraw_dirty()
        await pilot.pause()
        shown = screen_text(app)
        assert words.rpartition("8 s")[0] in shown  # "try 4 in 1 m 3": its seconds run on
        assert words.rpartition("(")[2] in shown
        assert "R try again" in shown.split("\n")[-1]
        await pilot.press("R")
        assert desk.deeds.done == [("retry",)]
