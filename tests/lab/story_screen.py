"""The dashboard at a desk of the story: keys go in, and only what is drawn is read."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from textual.pilot import Pilot

from eagletui.app import EagleApp
from eagletui.commands import Desk
from tests.lab.story import STEP_SECONDS, Story
from tests.screens.conftest import screen_text

SIZE = (160, 50)


class Dashboard:
    """One dashboard. ``seen`` keeps every screen that was read while something was awaited."""

    def __init__(self, story: Story, desk: Desk, pilot: Pilot[int]) -> None:
        self.story, self.desk, self.pilot = story, desk, pilot
        assert isinstance(pilot.app, EagleApp)
        self.app: EagleApp = pilot.app
        self.seen: list[str] = []

    def raw(self) -> str:
        """What is drawn, row by row."""
        return screen_text(self.app)

    def text(self) -> str:
        """What is drawn, with single spaces, row by row."""
        return "\n".join(re.sub(r"\s+", " ", row).strip() for row in self.raw().split("\n"))

    async def press(self, *keys: str) -> str:
        """Press keys one after the other; what is drawn then."""
        await self.pilot.press(*keys)
        await self.pilot.pause()
        return self.text()

    async def type(self, text: str) -> str:
        return await self.press(*("space" if char == " " else char for char in text))

    async def until(self, true: Callable[[str], bool], what: str, seconds: float = STEP_SECONDS) -> str:
        """Wait until what is drawn is as it should be; that text. Fails with the screen, the job and its log."""
        found: list[str] = []

        async def look() -> bool:
            await self.pilot.pause()
            text = self.text()
            if not self.seen or self.seen[-1] != text:
                self.seen.append(text)
            found[:] = [text]
            return true(text)

        job = self.desk.store.selected or next(iter(self.desk.store.jobs), "")
        await self.story.until(self.desk, job, look, what, seconds, also=lambda: "the screen:\n" + self.raw())
        return found[0]

    def holds(self, *wanted: str) -> None:
        """Every text is drawn now."""
        shown = self.text()
        missing = [text for text in wanted if text not in shown]
        assert not missing, f"not drawn: {missing}\n{self.raw()}"


@asynccontextmanager
async def dashboard(story: Story, desk: Desk) -> AsyncIterator[Dashboard]:
    """The dashboard over a desk, without a terminal."""
    app = EagleApp(desk.store, desk)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        yield Dashboard(story, desk, pilot)
