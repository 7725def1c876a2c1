"""What every screen is: a column of panels and lists, told which topics of the store have changed while it is shown."""

from __future__ import annotations

import contextlib
from typing import Any, ClassVar, Protocol

from textual.containers import Vertical
from textual.css.query import NoMatches
from textual.geometry import Size
from textual.screen import Screen

from eagletui.store import Store
from eagletui.widgets.panel import Panel
from eagletui.widgets.table import Table


class Watcher(Protocol):
    """Learns what is being looked at, so that it is sampled more often."""

    def look(self, topic: str, on: bool) -> None: ...


class Desk(Protocol):
    """What the screens may ask for besides reading the store; `eagletui.commands.Desk` is one, a test's double another."""

    readonly: bool

    @property
    def watch(self) -> Watcher: ...


class Page(Vertical):
    """One screen. ``looks`` names the topics to be sampled more often while it is shown, ``scopes`` further scopes of actions."""

    scopes: ClassVar[tuple[str, ...]] = ()

    @property
    def looks(self) -> tuple[str, ...]:
        return ()

    @property
    def store(self) -> Store:
        return self.app.store  # type: ignore[attr-defined, no-any-return]

    def refresh_topics(self, topics: frozenset[str]) -> None:
        """Redraw the parts that show one of ``topics``; the layout may change with what there is."""
        self._share_out()
        for panel in self.query(Panel):
            if panel.display and panel.touched(topics):
                panel.redraw()

    def redraw(self) -> None:
        """Redraw all of it: it has just come into view, and knows nothing of what went on."""
        self._share_out()
        for panel in self.query(Panel):
            if panel.display:
                panel.redraw()

    def on_resize(self) -> None:
        self._share_out()

    def _share_out(self) -> None:
        # before its parts are made, and while they are taken down as the app leaves, there is nothing to give room to
        with contextlib.suppress(NoMatches):
            self.share_out(self.size)

    def share_out(self, size: Size) -> None:
        """Give the room to what matters most; called on resize and before each redraw, so it must be cheap."""

    def opened(self, table: Table, key: str) -> None:
        """The row ``key`` of one of its lists was opened."""

    def focus_first(self, screen: Screen[Any]) -> None:
        """Put the focus on the first list, unless one of them has it."""
        tables = [table for table in self.query(Table) if table.display]
        if tables and screen.focused not in tables:
            screen.set_focus(tables[0], scroll_visible=False)


def set_height(panel: Panel, height: int) -> None:
    """Give a panel this many lines, none to hide it; does nothing when it has them already."""
    if panel.display != (height > 0):
        panel.display = height > 0
    if height > 0:
        now = panel.styles.height
        if now is None or now.is_auto or now.is_fraction or now.value != height:
            panel.styles.height = height
