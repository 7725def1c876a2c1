"""Running the dashboard headless, and reading what it shows as text."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from textual.geometry import Region
from textual.pilot import Pilot

from eagletui.app import EagleApp
from eagletui.store import Store
from tests.screens.demo import DeskDouble

Opener = Callable[..., AbstractAsyncContextManager[Pilot[int]]]


def screen_text(app: EagleApp) -> str:
    """The whole screen as plain text, one line per row."""
    width, height = app.size
    rows = app.screen._compositor.render_strips(app.size)  # Textual has no public way to read the screen back
    assert Region(0, 0, width, height).area == width * height
    return "\n".join(row.text.rstrip() for row in rows)


def app_of(pilot: Pilot[int]) -> EagleApp:
    assert isinstance(pilot.app, EagleApp)
    return pilot.app


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Logs go to the test's own folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("TZ", "UTC")
    return tmp_path


@pytest.fixture
def dashboard() -> Opener:
    """``async with dashboard(store, size=(160, 50)) as pilot``: the app with its first screen drawn."""

    @asynccontextmanager
    async def open_(
        store: Store,
        size: tuple[int, int] = (160, 50),
        desk: DeskDouble | None = None,
        keys: dict[str, str] | None = None,
        toasts: bool = False,
    ) -> AsyncIterator[Pilot[int]]:
        desk = desk or DeskDouble()
        desk.deeds.store = store
        app = EagleApp(store, desk, keys=keys)
        async with app.run_test(size=size, notifications=toasts) as pilot:
            await pilot.pause()
            yield pilot

    return open_
