"""From the form to the proof on this machine: a fake server is launched, its log read, and it is ended and removed."""

from __future__ import annotations

from collections.abc import Callable

from textual.pilot import Pilot

from eagletui.app import EagleApp
from eagletui.commands import Desk
from eagletui.profiles import save_profile
from eagletui.widgets.table import Table
from tests.commands.conftest import desk, fake, places
from tests.screens.conftest import screen_text
from tests.screens.test_acting import press

__all__ = ["desk", "places"]


async def until(pilot: Pilot[int], app: EagleApp, true: Callable[[], bool]) -> None:
    """What the host does takes its time; the test's own time limit bounds it."""
    for _ in range(4000):
        if true():
            return
        await pilot.pause(0.02)
    raise AssertionError(screen_text(app))


async def test_launch_log_kill_remove(desk: Desk) -> None:
    save_profile(fake(), "local")
    app = EagleApp(desk.store, desk)
    async with app.run_test(size=(150, 45)) as pilot:
        await press(pilot, "7", "l")
        await until(pilot, app, lambda: "this host" in screen_text(app))
        names = [row.key for row in app.screen._table.shown]  # type: ignore[attr-defined]
        await press(pilot, *["down"] * names.index("fake"), "enter")
        await until(pilot, app, lambda: "fake_server.py" in screen_text(app))
        await press(pilot, "ctrl+l")
        await until(pilot, app, lambda: app.page_name == "load")
        job = desk.store.selected
        assert job is not None
        await until(pilot, app, lambda: desk.store.jobs[job].health == "ready")
        await press(pilot, "o")
        await until(pilot, app, lambda: "Application startup complete" in screen_text(app))
        await press(pilot, "k")
        await until(pilot, app, lambda: "processes end" in screen_text(app))
        await press(pilot, "K")
        await until(pilot, app, lambda: "✓ gone" in screen_text(app))
        await press(pilot, "escape", "7")
        await until(pilot, app, lambda: desk.store.jobs[job].state == "exited")
        table = app.screen_stack[0].focused
        assert isinstance(table, Table)
        table.move([row.key for row in table.shown].index(job))
        await press(pilot, "x")
        await until(pilot, app, lambda: "remove fake?" in screen_text(app))
        await press(pilot, "K")
        await until(pilot, app, lambda: job not in desk.store.jobs)
        await until(pilot, app, lambda: job not in {row.key for row in table.shown})
