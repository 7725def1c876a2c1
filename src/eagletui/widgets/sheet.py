"""A box over the screen that asks or shows something while work goes on; its keys stand at its foot."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, TypeVar

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Button, Input

from eagletui.actions import BY_ID, DIALOG, glyph, live
from eagletui.text import clean, fold
from eagletui.widgets.dialog import Lines
from eagletui.widgets.paint import Line, folded, wrapped

R = TypeVar("R")


def bindings(*ids: str) -> list[BindingType]:
    """The table's keys for these actions of a dialog."""
    return [Binding(",".join(a.keys), f"dialog_{a.id}", a.label, show=False, id=a.id) for a in live([DIALOG]) if a.id in ids]


class Field(Input):
    """One line to type into, without a frame; what it takes is never markup."""

    DEFAULT_CSS = "Field { height: 1; border: none; padding: 0 1; background: $panel; } Field:focus { border: none; }"

    def __init__(self, value: str = "", *, id: str | None = None, hidden: bool = False, hint: str = "") -> None:  # noqa: A002 - Textual's name
        super().__init__(value, id=id, compact=True, password=hidden, placeholder=hint, select_on_focus=False)

    def action_copy(self) -> None:
        """What is hidden on the screen does not go to the clipboard either."""
        if not self.password:
            super().action_copy()

    def action_cut(self) -> None:
        if not self.password:
            super().action_cut()


class Choice(Button):
    """A button one line high."""

    DEFAULT_CSS = "Choice { height: 1; min-width: 10; margin-right: 2; border: none; }"

    def __init__(self, label: str, *, id: str, danger: bool = False) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(label, id=id, variant="error" if danger else "default", compact=True)


class Sheet(ModalScreen[R]):
    """Subclasses give `heading`, `body` (widgets) and ``hints`` (ids of actions); `say` shows a line at the foot."""

    DEFAULT_CSS = """
    Sheet { align: center middle; background: $background 70%; }
    Sheet > .sheet { width: 94%; max-width: 140; height: auto; max-height: 94%; background: $surface; padding: 0 2; }
    Sheet .buttons { height: 1; margin-top: 1; }
    """
    BINDINGS: ClassVar = bindings("close")
    hints: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        super().__init__()
        self.said: Line = []

    def heading(self) -> str:
        raise NotImplementedError

    def body(self) -> Iterable[Widget]:
        raise NotImplementedError

    def buttons(self) -> Iterable[Choice]:
        """The buttons under the body."""
        return ()

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet"):
            yield Lines(self._head)
            yield from self.body()
            buttons = list(self.buttons())
            if buttons:
                with Horizontal(classes="buttons"):
                    yield from buttons
            self._foot = Lines(self._foot_lines)
            yield self._foot

    def _head(self, width: int) -> list[Line]:
        title = fold(clean(self.heading(), 200), max(4, width - 4))
        return [[("─ ", "dim"), (title, "strong"), (" " + "─" * max(0, width - len(title) - 3), "dim")]]

    def _foot_lines(self, width: int) -> list[Line]:
        keys: list[Line] = []
        for id_ in (*self.hints, "close"):
            action = BY_ID[id_]
            shown = " ".join(glyph(key) for key in self.app.keys.keys.get(id_, action.keys)[:1])  # type: ignore[attr-defined]
            keys.append([(f"{shown}", "key"), (f" {action.label}", "dim")])
        return [*_folded(self.said, width), *wrapped(keys, width)]

    def say(self, line: Line) -> None:
        """Show something above the keys, folded into lines where it is long; an empty line takes it away."""
        self.said = line
        if self.is_mounted:
            self._foot.redraw()

    def fail(self, error: Exception) -> None:
        """Show what failed, in the error's own words."""
        self.say([("✗ ", "bad"), (clean(str(error), 600), "bad")])

    def refresh_topics(self, topics: frozenset[str]) -> None:
        """Redraw the lines that show one of these topics."""
        for panel in self.query(Lines):
            if panel.touched(topics):
                panel.redraw()

    def on_key(self, event: events.Key) -> None:
        """The arrows go from button to button."""
        if event.key in ("left", "right") and isinstance(self.focused, Choice):
            self.focus_next(Choice) if event.key == "right" else self.focus_previous(Choice)
            event.stop()

    def action_dialog_close(self) -> None:
        self.dismiss(None)


def _folded(said: Line, width: int) -> list[Line]:
    """What is said in as many lines as it needs: the remedy at its end is what a person looks for."""
    text = "".join(piece for piece, _ in said)
    if len(said) < 2 or cell_len(text) <= width:
        return [said] if said else []
    (sign, sign_style), (_, style) = said[0], said[1]
    pieces = folded(text[len(sign) :], max(10, width - len(sign)))
    return [[(sign if at == 0 else " " * len(sign), sign_style), (piece, style)] for at, piece in enumerate(pieces)]
