"""Dialogs: a box over the screen with lines to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen

from eagletui.actions import DIALOG, live
from eagletui.widgets.paint import Line, fit
from eagletui.widgets.panel import Panel

ROOM_FOR_CHART = 44
"""Lines of the terminal from which on a chart leaves enough for the text."""
Maker = Callable[[int], Sequence[Line]]


class Lines(Panel):
    """Lines from a function of the width; drawn anew when the topics it was given change."""

    def __init__(self, make: Maker, topics: frozenset[str] = frozenset()) -> None:
        super().__init__()
        self._make = make
        self.topics = topics

    def lines(self, width: int) -> list[Line]:
        return [fit(line, width) for line in self._make(width)]


class Reader(ModalScreen[None]):
    """Something to read; ``escape`` goes back, the arrows scroll. It is kept current while it is open."""

    BINDINGS: ClassVar = [
        *(Binding(",".join(a.keys), f"dialog_{a.id}", a.label, id=a.id) for a in live([DIALOG]) if a.id == "close"),
        Binding("q", "dialog_close", show=False),
    ]

    def __init__(self, title: str, make: Maker, topics: frozenset[str] = frozenset(), chart: Panel | None = None) -> None:
        super().__init__()
        self.heading, self.body, self.chart = title, Lines(make, topics), chart

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Lines(lambda width: [_heading(self.heading, width)])
            if self.chart is not None and self.app.size.height >= ROOM_FOR_CHART:
                yield self.chart
            with VerticalScroll(classes="scroll"):
                yield self.body
            yield Lines(lambda _width: [[(" esc", "key"), (" back   ", "dim"), ("↑↓", "key"), (" scroll", "dim")]])

    def refresh_topics(self, topics: frozenset[str]) -> None:
        for panel in (self.body, self.chart):
            if panel is not None and panel.is_attached and panel.touched(topics):
                panel.redraw()

    def action_dialog_close(self) -> None:
        self.dismiss(None)

    def on_click(self, event: events.Click) -> None:
        if event.widget is self:  # outside the box
            self.dismiss(None)


def _heading(text: str, width: int) -> Line:
    return [("─ ", "dim"), (text, "strong"), (" " + "─" * max(0, width - len(text) - 3), "dim")]
