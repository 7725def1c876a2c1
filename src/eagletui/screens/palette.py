"""The command palette's entries: what the keys can do here, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

from eagletui.actions import SCREENS, Action
from eagletui.widgets.panel import Frame


class Commands(Provider):
    """Every live action of the table, and every screen."""

    def _entries(self) -> list[tuple[Action, Callable[[], Any]]]:
        frame = cast(Frame, self.app)
        actions = [*SCREENS, *(action for action in frame.live_actions() if action.palette)]
        return [(action, partial(frame.run_action_id, action.id)) for action in actions]

    async def discover(self) -> Hits:
        for action, run in self._entries():
            yield DiscoveryHit(_name(action), run, help=action.help)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for action, run in self._entries():
            score = max(matcher.match(_name(action)), matcher.match(action.help) / 2)
            if score > 0:
                yield Hit(score, matcher.highlight(_name(action)), run, help=action.help)


def _name(action: Action) -> str:
    return f"Screen {action.label}" if action.screen else action.label.capitalize()
