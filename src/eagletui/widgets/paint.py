"""Lines of styled text, and the few styles there are. Everything that draws goes through here.

A line is a list of ``(text, style name)``; the names say what something means, the theme says how that looks. All text must
be safe already (`eagletui.text.clean`), and no markup is read anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.color import Color as RichColor
from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.color import Color, ColorParseError
from textual.strip import Strip
from textual.widget import Widget

Span = tuple[str, str]
Line = list[Span]


class Look(NamedTuple):
    """The styles of one theme on one background; ``faded`` is the same for data that is old.

    ``fill`` and ``fill2`` are for bars and strips: large areas are quieter than words.
    """

    styles: dict[str, Style]
    faded: dict[str, Style]

    def style(self, name: str, faded: bool = False) -> Style:
        table = self.faded if faded else self.styles
        found = table.get(name)
        if found is None:  # "bad cursor": the meanings of both
            found = Style.combine([table[part] for part in name.split()])
            table[name] = found
        return found


_looks: dict[tuple[object, ...], Look] = {}


def look_of(widget: Widget) -> Look:
    """The styles for a widget, made once per theme and background."""
    app: App[object] = widget.app
    background = widget.background_colors[1]
    key = (app.theme, app.no_color, app.native_ansi_color, background)
    look = _looks.get(key)
    if look is None:
        look = _looks[key] = _make_look(app, background)
    return look


def _make_look(app: App[object], background: Color) -> Look:
    variables = app.theme_variables

    def pick(*names: str) -> Color | None:
        for name in names:
            try:
                return Color.parse(variables[name])
            except (KeyError, ColorParseError):
                continue  # the theme lacks it, or gives a rule instead of a colour: the next name
        return None

    base = pick("foreground") or Color.parse("white")
    plain = app.no_color or app.native_ansi_color or base.ansi is not None or background.ansi is not None

    def ink(color: Color | None, bold: bool | None = None) -> Style:
        return Style(color=None if app.no_color else _rich(color), bold=bold)

    def quiet(name: str) -> Style:
        color = pick(name, "primary")
        return ink(color) if plain or color is None else Style(color=color.blend(background, 0.25).rich_color)

    ground = Style(color=_rich(base), bgcolor=_rich(background))
    dim = Style(dim=True) if plain else Style(color=base.blend(background, 0.42).rich_color)
    track = Style(dim=True) if plain else Style(color=base.blend(background, 0.82).rich_color)
    cursor = Style(reverse=True) if plain else Style(bgcolor=background.blend(pick("primary") or base, 0.30).rich_color)
    tab = (
        Style(reverse=True, bold=True)
        if plain
        else Style(bgcolor=background.blend(pick("primary") or base, 0.45).rich_color, bold=True)
    )
    styles = {
        "": Style(),
        "dim": dim,
        "strong": Style(bold=True),
        "good": ink(pick("success")),
        "work": ink(pick("accent", "primary")),
        "warn": ink(pick("warning")),
        "bad": ink(pick("error"), bold=True),
        "key": ink(pick("accent", "primary"), bold=True),
        "head": dim,
        "fill": quiet("success"),
        "fill2": quiet("accent"),
        "track": track,
        "cursor": cursor,
        "tab": tab,
    }
    styles = {name: ground + style for name, style in styles.items()}
    faded = {name: style + (dim if name != "track" else track) for name, style in styles.items()}
    styles["cursor"] = cursor
    faded["cursor"] = cursor
    return Look(styles, faded)


def _rich(color: Color | None) -> RichColor | None:
    return None if color is None else color.rich_color


def strip(line: Iterable[Span], width: int, look: Look, faded: bool = False, over: str = "") -> Strip:
    """A line as a strip of exactly ``width`` cells; ``over`` names a style laid over all of it (the cursor)."""
    segments: list[Segment] = []
    used = 0
    top = look.style(over, faded) if over else None
    for text, name in line:
        size = cell_len(text)
        if used + size > width:
            text = set_cell_size(text, width - used)
            size = width - used
        if size <= 0 and not text:
            continue
        style = look.style(name, faded)
        segments.append(Segment(text, style + top if top is not None else style))
        used += size
        if used >= width:
            break
    if used < width:
        style = look.style("", faded)
        segments.append(Segment(" " * (width - used), style + top if top is not None else style))
    return Strip(segments, width)


def width_of(line: Iterable[Span]) -> int:
    return sum(cell_len(text) for text, _ in line)


def fit(line: Line, width: int) -> Line:
    """The line cut to ``width`` cells, the last one a fold mark when something was cut."""
    if width_of(line) <= width:
        return line
    out: Line = []
    room = width - 1
    for text, name in line:
        size = cell_len(text)
        if size >= room:
            out.append((set_cell_size(text, room) if room > 0 else "", name))
            out.append(("…" if width > 0 else "", "dim"))
            return out
        out.append((text, name))
        room -= size
    return out


def folded(text: str, width: int) -> list[str]:
    """Text broken into pieces of at most ``width`` cells, between words where it can be."""
    pieces: list[str] = []
    rest = text
    while cell_len(rest) > width:
        most = chop_cells(rest, max(1, width))[0]
        cut = len(most) if rest[len(most) : len(most) + 1] == " " else most.rfind(" ", 1)
        cut = cut if cut > 0 else max(1, len(most))
        pieces.append(rest[:cut].rstrip())
        rest = rest[cut:].lstrip()
    return [*pieces, rest]


def padded(line: Line, width: int, align: str = "<") -> Line:
    """The line at exactly ``width`` cells."""
    line = fit(line, width)
    gap = width - width_of(line)
    if gap <= 0:
        return line
    return [(" " * gap, ""), *line] if align == ">" else [*line, (" " * gap, "")]


def spread(left: Line, right: Line, width: int) -> Line:
    """Left part and right part of one line; the left one gives way."""
    room = width - width_of(right)
    if room <= 0:
        return fit(right, width)
    return [*padded(left, room - 1), (" ", ""), *right]


def joined(parts: Sequence[Line], width: int, gap: str = "   ") -> Line:
    """As many parts, in order, as fit whole; the first is cut rather than left out."""
    out: Line = []
    used = 0
    for part in parts:
        size = width_of(part) + (len(gap) if out else 0)
        if out and used + size > width:
            break
        if out:
            out.append((gap, ""))
        out.extend(part)
        used += size
    return fit(out, width)


def wrapped(parts: Sequence[Line], width: int, gap: str = "   ", most: int = 3) -> list[Line]:
    """Parts on as many lines as they need, at most ``most``; a part is never broken over two."""
    rows: list[list[Line]] = [[]]
    used = 0
    for part in parts:
        length = width_of(part)
        if rows[-1] and used + len(gap) + length > width:
            rows.append([])
            used = 0
        used += length + (len(gap) if rows[-1] else 0)
        rows[-1].append(part)
    return [joined(row, width, gap) for row in rows[:most]]


def plain(lines: Iterable[Iterable[Span]]) -> str:
    """Lines as plain text, for the clipboard and for tests."""
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)
