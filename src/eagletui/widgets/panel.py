"""A widget that draws lines made from the store, and repaints only the rows that changed."""

from __future__ import annotations

import logging
from typing import ClassVar, Protocol, cast

from rich.segment import Segment
from textual import events
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from eagletui.actions import Action, Keymap
from eagletui.store import Store
from eagletui.text import clean
from eagletui.widgets.paint import Line, look_of, strip

log = logging.getLogger("eagletui.screen")


class Frame(Protocol):
    """What a panel may know of the app around it."""

    store: Store
    keys: Keymap
    readonly: bool
    page_name: str

    def live_actions(self) -> list[Action]: ...

    async def run_action_id(self, id_: str) -> None: ...


class Panel(Widget, can_focus=False):
    """Subclasses give `lines`; ``topics`` are the store's topics that change them (``clock`` ticks once a second)."""

    DEFAULT_CSS = "Panel { height: auto; }"
    topics: frozenset[str] = frozenset()
    fades: ClassVar[bool] = False
    """Whether it is dimmed while the link is down and until fresh data has come, because it shows the last that is known."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._lines: list[Line] = []
        self._faded = False
        self._width = 0

    @property
    def frame(self) -> Frame:
        return cast(Frame, self.app)

    @property
    def store(self) -> Store:
        return self.frame.store

    def lines(self, width: int) -> list[Line]:
        """What to show, at most ``width`` cells wide."""
        raise NotImplementedError

    def faded(self) -> bool:
        return self.fades and (self.store.connection.state != "online" or not self.topics.isdisjoint(self.store.old))

    def touched(self, topics: frozenset[str]) -> bool:
        """Whether a change of these topics may change what it shows."""
        return bool(self.topics & topics) or (self.fades and "connection" in topics)

    def line_style(self, y: int) -> str:
        """A style over the whole of row ``y``: the cursor's, for instance."""
        return ""

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        self._lines = self._made(width)
        return len(self._lines)

    def on_resize(self, event: events.Resize) -> None:
        self.redraw()

    def redraw(self) -> None:
        """Make the lines anew and repaint those that differ. A failure to draw is shown as one line and logged."""
        width = self.size.width
        if width <= 0 or not self.is_attached:
            return
        lines = self._made(width)
        faded = self.faded()
        before, self._lines = self._lines, lines
        whole = faded != self._faded or width != self._width
        self._faded, self._width = faded, width
        if len(before) != len(lines) and self.styles.height is not None and self.styles.height.is_auto:
            self.refresh(layout=True)
        elif whole or len(before) != len(lines):
            self.refresh()
        else:
            changed = [Region(0, y, width, 1) for y, line in enumerate(lines) if line != before[y]]
            if changed:
                self.refresh(*changed)

    def _made(self, width: int) -> list[Line]:
        try:
            return self.lines(width)
        except Exception as error:  # one panel's failure must not end the others
            log.exception("%s could not draw", type(self).__name__)
            why = clean(f"{type(error).__name__}: {error}", 200)
            return [[("! ", "bad"), (f"this part could not be drawn: {why}", "bad"), ("   details are in the log file", "dim")]]

    def render_line(self, y: int) -> Strip:
        look = look_of(self)
        width = self.size.width
        if 0 <= y < len(self._lines):
            return strip(self._lines[y], width, look, self._faded, self.line_style(y))
        return Strip([Segment(" " * width, look.style("", self._faded))], width)
