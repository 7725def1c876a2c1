"""What a screen of a server says, as text."""

from __future__ import annotations

import re
import time

import pytest

from eagletui.store import Store
from tests.screens.conftest import Opener, app_of, screen_text

SIZES = pytest.mark.parametrize("size", [(80, 24), (160, 50)], ids=str)


async def shown(dashboard: Opener, store: Store, key: str, size: tuple[int, int] = (160, 50)) -> str:
    if store.jobs_seen is not None and store.connection.state == "online":
        store.jobs_seen = time.monotonic() + 3600  # the host's clocks stand still, however slow this machine is
    async with dashboard(store, size) as pilot:
        for one in key.split(","):
            await pilot.press(one)
            await pilot.pause()
        await pilot.pause()
        text = screen_text(app_of(pilot))
        assert "could not be drawn" not in text
        return text


def says(text: str, *wanted: str) -> None:
    flat = re.sub(r"\s+", " ", text)
    for one in wanted:
        assert one in flat, f"{one!r} is not in\n{text}"


def hides(text: str, *unwanted: str) -> None:
    for one in unwanted:
        assert one not in text, f"{one!r} is in\n{text}"
