"""The one line for a text: what to find in a list, or what to show only."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.widgets import Input

from eagletui.widgets.dialog import Lines
from eagletui.widgets.table import Table


class Field(Input):
    """The field; ``escape`` leaves it."""

    BINDINGS: ClassVar = [Binding("escape", "leave", show=False)]

    def action_leave(self) -> None:
        if isinstance(self.parent, Prompt):
            self.parent.close(keep=False)


class Prompt(Horizontal):
    """Hidden until a list asks; a filter acts while it is typed, ``escape`` brings back what was before."""

    def __init__(self) -> None:
        super().__init__(id="prompt")
        self._table: Table | None = None
        self._purpose = ""
        self._before = ""

    def compose(self) -> ComposeResult:
        yield Lines(lambda _width: [[(" find: " if self._purpose == "find" else " show only: ", "key")]])
        yield Field(compact=True, select_on_focus=True)

    def open(self, table: Table, purpose: str) -> None:
        self._table, self._purpose = table, purpose
        self._before = table.find_text if purpose == "find" else table.filter_text
        self.add_class("open")
        label, field = self.query_one(Lines), self.query_one(Field)
        label.styles.width = 7 if purpose == "find" else 12
        label.redraw()
        with self.prevent(Input.Changed):
            field.value = self._before
        field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self._table is not None and self._purpose == "filter":
            self._table.set_filter(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        table = self._table
        self.close(keep=True)
        if table is not None and self._purpose == "find" and event.value and not table.find(event.value):
            self.app.notify(f"no {table.name_of_rows} holds {event.value!r}", markup=False)

    def close(self, *, keep: bool) -> None:
        table, self._table = self._table, None
        self.remove_class("open")
        if table is not None:
            if not keep and self._purpose == "filter":
                table.set_filter(self._before)
            table.focus(scroll_visible=False)
