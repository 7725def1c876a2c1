"""A list with columns on the line API: a cursor, keys and mouse, sorting, find and filter; only visible rows are made.

Columns give way by priority when the screen is narrow, so nothing ever wraps. The cursor stays on its row by key when
rows come, go or move.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from textual import events
from textual.binding import Binding
from textual.message import Message

from eagletui.actions import LIST, live
from eagletui.text import plural
from eagletui.widgets.paint import Line, padded, plain, spread
from eagletui.widgets.panel import Panel

Cell = str | Line


class Column(NamedTuple):
    """One column. Of those that do not fit, the one with the highest ``priority`` goes first; ``grow`` takes what is left.

    A width of 0 hides it.
    """

    title: str
    width: int
    align: str = "<"
    priority: int = 0
    grow: bool = False


class Row(NamedTuple):
    """One row. ``cells`` are safe text or lines, one per column; ``sort`` the values to sort by (None sorts last)."""

    key: str
    cells: tuple[Cell, ...]
    sort: tuple[float | str | None, ...] = ()
    style: str = ""


class Table(Panel, can_focus=True):
    """Subclasses give `columns` and `rows`, and what is shown when there are none (`empty`)."""

    DEFAULT_CSS = "Table { height: 1fr; }"
    BINDINGS: ClassVar = [Binding(",".join(a.keys), f"table_{a.id}", a.label, show=False, id=a.id) for a in live([LIST])]
    name_of_rows = "row"
    without: ClassVar[frozenset[str]] = frozenset()
    """Ids of the list actions that make no sense here."""

    class Opened(Message):
        """The row under the cursor was opened."""

        def __init__(self, table: Table, key: str) -> None:
            self.table, self.key = table, key
            super().__init__()

    class Asked(Message):
        """A text is wanted from the user: to find, or to filter."""

        def __init__(self, table: Table, purpose: str) -> None:
            self.table, self.purpose = table, purpose
            super().__init__()

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self.shown: list[Row] = []
        self.cursor_key: str | None = None
        self._cursor = 0
        self._top = 0
        self._order: tuple[int, bool] | None = None
        self.filter_text = ""
        self.find_text = ""
        self._fitted: list[tuple[int, Column, int]] = []

    def columns(self) -> Sequence[Column]:
        raise NotImplementedError

    def rows(self) -> Sequence[Row]:
        raise NotImplementedError

    def empty(self) -> list[Line]:
        """What to say when there is nothing to list."""
        return [[("nothing here", "dim")]]

    @property
    def current(self) -> Row | None:
        return self.shown[self._cursor] if 0 <= self._cursor < len(self.shown) else None

    # ------------------------------------------------------------------------------------------------------- drawing

    def lines(self, width: int) -> list[Line]:
        columns = self.columns()
        self._fitted = fit_columns(columns, width - 1)
        self._take(self.rows())
        height = max(1, self.size.height - 1)
        self._top = min(max(0, min(self._top, self._cursor)), max(0, len(self.shown) - height))
        if self._cursor >= self._top + height:
            self._top = self._cursor - height + 1
        out = [self._head(width, height)]
        if not self.shown:
            hidden = bool(self.filter_text)
            out += [[(f" no {self.name_of_rows} holds {self.filter_text!r}   esc shows all", "dim")]] if hidden else self.empty()
            return out
        for row in self.shown[self._top : self._top + height]:
            line: Line = [("▸" if self.has_focus and row.key == self.cursor_key else " ", "key")]
            for index, column, size in self._fitted:
                cell = row.cells[index]
                line += padded([(cell, row.style)] if isinstance(cell, str) else cell, size, column.align)
                line.append((" ", ""))
            out.append(line)
        return out

    def _take(self, rows: Sequence[Row]) -> None:
        if self.filter_text:
            wanted = self.filter_text.casefold()
            rows = [row for row in rows if wanted in row_text(row).casefold()]
        if self._order is not None:
            index, down = self._order
            known = [row for row in rows if index < len(row.sort) and row.sort[index] is not None]
            unknown = [row for row in rows if not (index < len(row.sort) and row.sort[index] is not None)]
            numbers = all(not isinstance(row.sort[index], str) for row in known)
            known.sort(key=lambda row: row.sort[index] if numbers else str(row.sort[index]), reverse=down)  # type: ignore[arg-type, return-value]
            rows = known + unknown
        self.shown = list(rows)
        at = next((i for i, row in enumerate(self.shown) if row.key == self.cursor_key), None)
        self._cursor = at if at is not None else max(0, min(self._cursor, len(self.shown) - 1))
        self.cursor_key = self.shown[self._cursor].key if self.shown else None

    def _head(self, width: int, height: int) -> Line:
        line: Line = [(" ", "")]
        style = "head strong" if self.has_focus else "head"
        for index, column, size in self._fitted:
            title = column.title
            if self._order is not None and self._order[0] == index:
                title += "↓" if self._order[1] else "↑"
            line += padded([(title, style)], size, column.align)
            line.append((" ", ""))
        while line and not line[-1][0].strip():
            line.pop()  # so that the notes fold titles only where they need the room
        if line and self._fitted[-1][1].align == "<":
            line[-1] = (line[-1][0].rstrip(), line[-1][1])
        notes = []
        if self.filter_text:
            notes.append(f"only {self.filter_text!r}: {plural(len(self.shown), self.name_of_rows)}")
        if len(self.shown) > height:
            notes.append(f"{self._top + 1}-{min(len(self.shown), self._top + height)} of {len(self.shown)}")
        return spread(line, [("  ".join(notes), "warn" if self.filter_text else "dim")], width) if notes else line

    def line_style(self, y: int) -> str:
        return "cursor" if self.has_focus and self.shown and y - 1 + self._top == self._cursor and y > 0 else ""

    def watch_has_focus(self, focused: bool) -> None:
        super().watch_has_focus(focused)
        self._moved()

    def _moved(self) -> None:
        self.redraw()
        self.refresh()

    # ------------------------------------------------------------------------------------------------- keys and mouse

    def move(self, to: int) -> None:
        """Put the cursor on the row with this number, or the nearest there is."""
        if self.shown:
            self._cursor = max(0, min(to, len(self.shown) - 1))
            self.cursor_key = self.shown[self._cursor].key
            self._moved()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action.removeprefix("table_") not in self.without

    def action_table_up(self) -> None:
        self.move(self._cursor - 1)

    def action_table_down(self) -> None:
        self.move(self._cursor + 1)

    def action_table_page_up(self) -> None:
        self.move(self._cursor - max(1, self.size.height - 2))

    def action_table_page_down(self) -> None:
        self.move(self._cursor + max(1, self.size.height - 2))

    def action_table_first(self) -> None:
        self.move(0)

    def action_table_last(self) -> None:
        self.move(len(self.shown) - 1)

    def action_table_open(self) -> None:
        if self.cursor_key is not None:
            self.post_message(self.Opened(self, self.cursor_key))

    def action_table_find(self) -> None:
        self.post_message(self.Asked(self, "find"))

    def action_table_filter(self) -> None:
        self.post_message(self.Asked(self, "filter"))

    def action_table_show_all(self) -> None:
        self.set_filter("")

    def action_table_find_next(self) -> None:
        if not self.find_text:
            self.post_message(self.Asked(self, "find"))
        elif not self.find(self.find_text, after=True):
            self.app.notify(f"no {self.name_of_rows} holds {self.find_text!r}", markup=False)

    def action_table_sort(self) -> None:
        shown = [index for index, _, _ in self._fitted]
        if not shown:
            return
        if self._order is None:
            self.sort_by(shown[0])
        else:
            at = shown.index(self._order[0]) + 1 if self._order[0] in shown else 0
            self._order = None if at >= len(shown) else (shown[at], _falls(self.columns()[shown[at]]))
            self._moved()

    def action_table_copy(self) -> None:
        row = self.current
        if row is not None:
            self.app.copy_to_clipboard(row_text(row)[:100_000])
            self.app.notify(f"copied one {self.name_of_rows}; a terminal without OSC 52 ignores it", markup=False)

    def sort_by(self, index: int) -> None:
        """Sort by a column; by the same one again turns it round, a third time ends it."""
        first = _falls(self.columns()[index])
        if self._order is None or self._order[0] != index:
            self._order = (index, first)
        else:
            self._order = (index, not first) if self._order[1] == first else None
        self._moved()

    def set_filter(self, text: str) -> None:
        self.filter_text = text
        self._moved()

    def find(self, text: str, *, after: bool = False) -> bool:
        """Move to the next row that holds ``text``, round the end; False when no row does."""
        self.find_text = text
        wanted, count = text.casefold(), len(self.shown)
        for step in range(1 if after else 0, count + 1):
            at = (self._cursor + step) % count
            if wanted in row_text(self.shown[at]).casefold():
                self.move(at)
                return True
        return False

    def on_click(self, event: events.Click) -> None:
        if event.y == 0:
            column = self._column_at(event.x)
            if column is not None:
                self.sort_by(column)
            return
        at = self._top + event.y - 1
        if at < len(self.shown):
            again = at == self._cursor and event.chain > 1
            self.move(at)
            if again:
                self.action_table_open()

    def _column_at(self, x: int) -> int | None:
        left = 1
        for index, _, size in self._fitted:
            if left <= x < left + size + 1:
                return index
            left += size + 1
        return None

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self.move(self._cursor + 1)
        event.stop()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.move(self._cursor - 1)
        event.stop()


def _falls(column: Column) -> bool:
    return column.align == ">"  # of numbers the largest first, of names the first


def row_text(row: Row) -> str:
    """A row as plain text, its cells two blanks apart."""
    return "  ".join(cell.strip() for cell in (c if isinstance(c, str) else plain([c]) for c in row.cells) if cell.strip())


def fit_columns(columns: Sequence[Column], width: int) -> list[tuple[int, Column, int]]:
    """The columns that fit in ``width`` with a blank after each: (index, column, its width), the growing ones widened."""
    chosen = [(index, column) for index, column in enumerate(columns) if column.width]
    while len(chosen) > 1 and sum(column.width + 1 for _, column in chosen) - 1 > width:
        chosen.remove(max(chosen, key=lambda pair: (pair[1].priority, pair[0])))
    spare = max(0, width - (sum(column.width + 1 for _, column in chosen) - 1))
    growing = [index for index, column in chosen if column.grow]
    out: list[tuple[int, Column, int]] = []
    for index, column in chosen:
        extra = spare // len(growing) + (spare % len(growing) if index == growing[-1] else 0) if index in growing else 0
        out.append((index, column, min(column.width + extra, max(1, width))))
    return out
