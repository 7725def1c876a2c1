"""The one line for a text: what to find in a list, or what to show only."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widgets import Input

from eagletui.widgets.dialog import Lines
from eagletui.widgets.table import Table

NO_SHOW = 2.0
"""Seconds after which keys that wait for a prompt which does not come are let fall: a text must never run as commands."""
_OPEN = ("table_find", "table_filter")
_OPEN_WITHOUT_TEXT = ("table_find_next", "find_previous")


def switches(screen: Screen[object], key: str) -> bool:
    """Whether this key, now, opens or closes the prompt."""
    focused = screen.focused
    if isinstance(focused, Field):
        return key in ("enter", "escape")
    if not isinstance(focused, Table):
        return False
    bound = screen.active_bindings.get(key)
    action = bound.binding.action if bound is not None else ""
    return action in _OPEN or (action in _OPEN_WITHOUT_TEXT and not focused.find_text)


class Held:
    """Keys and pastes that wait, in order: an action takes several messages, and what was typed behind it comes before them."""

    def __init__(self) -> None:
        self._waiting: list[events.Key | events.Paste] | None = None

    @property
    def holds(self) -> bool:
        return self._waiting is not None

    def hold(self) -> list[events.Key | events.Paste]:
        """Keep all that comes from here on; what is returned names this time for `drop`."""
        self._waiting = []
        return self._waiting

    def keeps(self, event: events.Key | events.Paste) -> bool:
        """Keep the event if anything is kept now; False when it is to go on."""
        if self._waiting is None:
            return False
        self._waiting.append(event)
        return True

    def take(self) -> list[events.Key | events.Paste]:
        """What was kept; nothing is kept from here on."""
        waiting, self._waiting = self._waiting or [], None
        return waiting

    def drop(self, waiting: list[events.Key | events.Paste]) -> None:
        """The prompt did not come: forget what waited for it, unless that has gone on already."""
        if self._waiting is waiting:
            self._waiting = None


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
        self.screen.set_focus(field)  # at once, not with a message: the keys that wait come next

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
            self.screen.set_focus(table, scroll_visible=False)
        self.app.call_later(self.app.let_keys_go)  # type: ignore[attr-defined]
