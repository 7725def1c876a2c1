"""Leaving the dashboard: what was under way when its screens were taken down does no harm."""

from __future__ import annotations

from tests.screens.conftest import Opener, app_of
from tests.screens.serving_demo import ready_store


async def test_a_tick_after_the_screens_are_gone_is_harmless(dashboard: Opener) -> None:
    async with dashboard(ready_store()) as pilot:
        app = app_of(pilot)
    assert app.screen_stack == []
    app._tick()
    assert app.failure is None
