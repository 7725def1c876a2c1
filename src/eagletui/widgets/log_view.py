"""The lines of a log on the line API: only what is visible is cleaned and drawn, so a flood costs no more than a screenful."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from textual import events
from textual.message import Message

from eagletui.records import LogLine
from eagletui.text import MISSING, clean, plural
from eagletui.widgets.paint import Line, Span
from eagletui.widgets.table import Column, Row, Table

_BAR_NAME = re.compile(r"^(.*?):? *\d+%")
_SIGNS = {"error": ("✗ ", "bad"), "warning": ("! ", "warn")}
_STEP = 16
"""Cells of one step to the side."""
MARK = "tab key"
"""The style of what was looked for: told from the cursor's row by its colour, from other rows by its ground."""
NEAR = 60
"""Rows before the edge of the window at which more is asked for."""


class Window(Protocol):
    """What is drawn: whole lines in order, a part of the file."""

    revision: int

    def shown(self) -> list[LogLine]: ...


class LogRow(NamedTuple):
    """One row: a line, or what stands for several. ``key`` is the offset of the first line in it.

    ``folded`` counts the lines of noise that it stands for, ``ticks`` the older ticks of the bar that ``line`` is the newest of.
    """

    key: int
    line: LogLine
    folded: int = 0
    ticks: int = 0


def rows_of(lines: Sequence[LogLine], fold: bool) -> list[LogRow]:
    """The rows of these lines. Folding hides known noise behind a count and old ticks of a bar behind the newest one.

    Errors and progress are never hidden: a bar has a row as long as nothing else was printed between its ticks.
    """
    if not fold:
        return [LogRow(line.offset, line) for line in lines]
    out: list[LogRow] = []
    bars: dict[tuple[str | None, str], int] = {}
    for line in lines:
        if line.progress:
            match = _BAR_NAME.match(line.text)
            name = (line.process, match[1] if match else "")
            at = bars.get(name)
            if at is not None:
                out[at] = out[at]._replace(line=line, ticks=out[at].ticks + 1)
                continue
            bars[name] = len(out)
        elif line.noise:
            if out and out[-1].folded:
                out[-1] = out[-1]._replace(folded=out[-1].folded + 1)
            else:
                out.append(LogRow(line.offset, line, 1))
            continue
        else:
            bars.clear()
        out.append(LogRow(line.offset, line))
    return out


def short_stamp(stamp: str | None) -> str:
    """The time of day of a stamp as the engines print it; the day is in the header's clock and the job's facts."""
    return "" if not stamp else clean(stamp, 40).rpartition(" ")[2][:8]


def highlighted(text: str, style: str, wanted: str) -> Line:
    """The text with every place marked that holds ``wanted``; case counts only when that has a capital."""
    if not wanted:
        return [(text, style)]
    flags = 0 if wanted != wanted.lower() else re.IGNORECASE
    out: Line = []
    at = 0
    for match in re.finditer(re.escape(wanted), text, flags):
        out += [(text[at : match.start()], style), (match[0], MARK)]
        at = match.end()
    return [*out, (text[at:], style)]


class LogView(Table):
    """Shows a `Window`; a cursor, folding, wrapping, sideways scrolling. While ``following`` the newest line stays in sight."""

    DEFAULT_CSS = "LogView { height: 1fr; width: 1fr; }"
    topics = frozenset()
    name_of_rows = "line"
    without = frozenset(("sort", "filter"))

    class Near(Message):
        """The cursor comes near an edge of the window: ``back`` is the older one."""

        def __init__(self, back: bool) -> None:
            self.back = back
            super().__init__()

    class Moved(Message):
        """The cursor has been moved by a key or the mouse."""

    class Wanted(Message):
        """Something that needs more than the window: ``what`` is start, end, search, again, leave."""

        def __init__(self, what: str, text: str = "") -> None:
            self.what, self.text = what, text
            super().__init__()

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self.window: Window | None = None
        self.note: Line = []
        self.following = True
        self.folding = True
        self.wrapping = False
        self.sideways = 0
        self.key = self._top_key = 0
        self._rows: list[LogRow] = []
        self._made_of: tuple[object, ...] = ()
        self._drawn: list[int] = []
        self._process_width = 0

    def columns(self) -> Sequence[Column]:
        return ()

    def rows(self) -> Sequence[Row]:
        return ()

    def set_window(self, window: Window | None) -> None:
        """Show another log, from its end."""
        self.window, self.following, self.sideways, self.key = window, True, 0, 0
        self._process_width, self._made_of = 0, ()
        self.redraw()

    # ------------------------------------------------------------------------------------------------------- drawing

    def _take_rows(self) -> None:
        """The rows anew, when the window or the way it is shown has changed; the cursor stays on its line."""
        made_of = (id(self.window), self.window.revision if self.window is not None else -1, self.folding)
        if made_of == self._made_of:
            return
        self._made_of = made_of
        self._rows = rows_of(self.window.shown(), self.folding) if self.window is not None else []
        longest = max((len(row.line.process) for row in self._rows if row.line.process), default=0)
        self._process_width = max(self._process_width, min(14, longest))
        if self.following:
            self._cursor = max(0, len(self._rows) - 1)
        else:
            self._cursor = self._row_at(self.key)
            self._top = self._row_at(self._top_key)
        self.key = self._rows[self._cursor].key if self._rows else 0

    def _row_at(self, offset: int) -> int:
        """The row that the byte ``offset`` lies in, or the nearest."""
        low, high = 0, len(self._rows)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._rows[middle].key <= offset else (low, middle)
        return max(0, low - 1)

    def lines(self, width: int) -> list[Line]:
        self._take_rows()
        height = max(1, self.size.height)
        if not self._rows:
            self._drawn = []
            return [self.note] if self.note else []
        self._cursor = max(0, min(self._cursor, len(self._rows) - 1))

        def heights(row: LogRow) -> int:
            return len(self._row_lines(row, width)) if self.wrapping else 1

        self._top = max(0, min(self._top, self._cursor))
        if self.following:
            self._top = len(self._rows) - 1
        used, first = heights(self._rows[self._cursor]), self._cursor
        while first > 0 and used + (more := heights(self._rows[first - 1])) <= height:
            used, first = used + more, first - 1
        self._top = first if self.following else max(self._top, first)
        used = 0
        for row in self._rows[self._top : self._top + height]:
            used += heights(row)
            if used >= height:
                break
        while used < height and self._top > 0:  # no blank rows at the end while there are lines above
            self._top -= 1
            used += heights(self._rows[self._top])
        self._top_key = self._rows[self._top].key
        out: list[Line] = []
        self._drawn = []
        for at in range(self._top, len(self._rows)):
            made = self._row_lines(self._rows[at], width)
            out += made
            self._drawn += [at] * len(made)
            if len(out) >= height:
                break
        return out[:height]

    def _row_lines(self, row: LogRow, width: int) -> list[Line]:
        line = row.line
        if row.folded:
            return [[("  ", ""), (f"{plural(row.folded, 'line')} of noise folded - z shows them", "dim")]]
        if line.end == line.offset:
            return [[("· ", "warn"), (clean(line.text, 200), "warn")]]
        sign, style = _SIGNS.get(line.severity, ("~ ", "work") if line.progress else ("  ", ""))
        head: Line = [(sign, style or "dim"), (f"{short_stamp(line.stamp):<9}", "dim")]
        left = 11
        if self._process_width and width >= 60:
            name = clean(line.process or "", self._process_width)
            head.append((f"{name:<{self._process_width + 1}}", "dim"))
            left += self._process_width + 1
        text = clean(line.text)
        if row.ticks:
            text += f"   (+{row.ticks} older)"
        if line.cut:
            text += f"   (+{line.cut:,} bytes)"
        quiet = "dim" if line.noise or line.severity == "debug" else style
        room = max(10, width - left)
        if not self.wrapping:
            return [[*head, *highlighted(text[self.sideways :], quiet, self.find_text)]]
        parts = [text[at : at + room] for at in range(0, max(1, len(text)), room)]
        blank: Span = (" " * left, "")
        return [[*(head if at == 0 else [blank]), *highlighted(part, quiet, self.find_text)] for at, part in enumerate(parts)]

    def line_style(self, y: int) -> str:
        on = self.has_focus and not self.following and y < len(self._drawn) and self._drawn[y] == self._cursor
        return "cursor" if on else ""

    # --------------------------------------------------------------------------------------------------- keys and mouse

    @property
    def current_line(self) -> LogLine | None:
        """The line under the cursor."""
        self._take_rows()
        return self._rows[self._cursor].line if 0 <= self._cursor < len(self._rows) else None

    def move(self, to: int) -> None:
        if not self._rows:
            return
        last = len(self._rows) - 1
        self.following = False
        self._cursor = max(0, min(to, last))
        self.key = self._rows[self._cursor].key
        self._moved()
        self.post_message(self.Moved())
        if self._cursor < NEAR:
            self.post_message(self.Near(True))
        if self._cursor > last - NEAR:
            self.post_message(self.Near(False))

    def go_to(self, offset: int) -> None:
        """Put the cursor on the line at this offset, which the window holds; folded noise is shown for it."""
        self.following, self.key = False, offset
        self._made_of = ()
        self._take_rows()
        if self._rows and self._rows[self._cursor].folded:
            self.folding = False
            self._take_rows()
        self._top = max(0, self._cursor - max(1, self.size.height) // 3)
        self._top_key = self._rows[self._top].key if self._rows else 0
        self._moved()

    def action_table_page_up(self) -> None:
        self._page(-1)

    def action_table_page_down(self) -> None:
        self._page(1)

    def _page(self, way: int) -> None:
        """Scroll by a screenful, less one row to hold on to; the cursor goes to the edge that was moved towards."""
        if not self._rows:
            return
        step = max(1, self.size.height - 1)
        self._top = max(0, min(self._top + way * step, len(self._rows) - 1))
        self._top_key = self._rows[self._top].key
        self.move(self._top if way < 0 else self._top + step)

    def action_table_first(self) -> None:
        self.post_message(self.Wanted("start"))

    def action_table_last(self) -> None:
        self.post_message(self.Wanted("end"))

    def action_table_open(self) -> None:
        self.post_message(self.Wanted("open"))

    def action_table_find_next(self) -> None:
        if self.find_text:
            self.post_message(self.Wanted("again"))
        else:
            self.action_table_find()

    def action_table_show_all(self) -> None:
        self.post_message(self.Wanted("leave"))

    def action_table_copy(self) -> None:
        line = self.current_line
        if line is not None:
            words = (line.stamp, f"({line.process})" if line.process else None, line.text)
            self.app.copy_to_clipboard(clean(" ".join(word for word in words if word), 20_000))
            self.app.notify("copied one line; a terminal without OSC 52 ignores it", markup=False)

    def find(self, text: str, *, after: bool = False) -> bool:
        """Begin to look for a text in the whole log; what comes of it is shown later."""
        self.find_text = text
        self.post_message(self.Wanted("search", text))
        return True

    def shift(self, cells: int) -> None:
        """Scroll sideways, by steps of `_STEP` cells."""
        self.sideways = max(0, self.sideways + cells * _STEP)
        self._moved()

    def toggle_fold(self) -> None:
        self.folding = not self.folding
        self._moved()

    def toggle_wrap(self) -> None:
        self.wrapping, self.sideways = not self.wrapping, 0
        self._moved()

    def on_click(self, event: events.Click) -> None:
        if event.y < len(self._drawn):
            self.move(self._drawn[event.y])

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self.move(self._cursor + 3)
        event.stop()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.move(self._cursor - 3)
        event.stop()


def whole_line(line: LogLine) -> list[tuple[str, str]]:
    """What is known of a line, for a dialog: (name, value), all of it safe to draw."""
    return [
        ("time", clean(line.stamp or MISSING, 40)),
        ("process", clean(line.process or MISSING, 80)),
        ("severity", line.severity),
        ("byte", f"{line.offset:,}"),
        ("text", clean(line.text, 20_000)),
    ]
