"""A screen that has the records of the jobs it shows read while it is shown, and no others."""

from __future__ import annotations

from typing import ClassVar, cast

from eagletui.screens.base import Desk, Page


class FollowingPage(Page):
    """Subclasses give ``followed_topic`` and `wanted`; what is followed is among `looks`, so it ends as the screen is left."""

    followed_topic: ClassVar[str]
    """The topic of one job's record, before its colon."""
    _followed: tuple[str, ...] = ()

    def wanted(self) -> tuple[str, ...]:
        """The ids of the jobs whose records are shown now."""
        raise NotImplementedError

    @property
    def looks(self) -> tuple[str, ...]:
        return tuple(f"{self.followed_topic}:{job}" for job in self._followed)

    def refresh_topics(self, topics: frozenset[str]) -> None:
        self._follow()
        super().refresh_topics(topics)

    def redraw(self) -> None:
        self._follow()
        super().redraw()

    def _follow(self) -> None:
        """Have what is wanted read, then let go of what was. Called only while this screen is shown."""
        wanted = self.wanted()
        if wanted == self._followed:
            return
        watch = cast(Desk, self.app.desk).watch  # type: ignore[attr-defined]
        before, self._followed = self._followed, wanted
        for job in wanted:
            watch.look(f"{self.followed_topic}:{job}", True)
        for job in before:
            watch.look(f"{self.followed_topic}:{job}", False)
