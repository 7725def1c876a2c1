"""Bars and strips as text: eighth blocks along, eight heights up. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from eagletui.widgets.paint import Line

_ALONG = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
_UP = "▁▂▃▄▅▆▇█"
GAP = "·"


def gauge(value: float | None, width: int, style: str = "good", top: float = 100.0) -> Line:
    """A bar of exactly ``width`` cells, ``value`` of ``top``; an unknown value is a dotted track."""
    if width <= 0:
        return []
    if value is None or value != value or top <= 0:
        return [(GAP * width, "track")]
    eighths = round(min(max(value / top, 0.0), 1.0) * width * 8)
    if eighths == 0 and value > 0:
        eighths = 1
    full, part = divmod(eighths, 8)
    bar = "█" * full + _ALONG[part]
    rest = width - len(bar)
    line: Line = [(bar, style)] if bar else []
    if rest:
        line.append(("─" * rest, "track"))
    return line


def spark(values: Sequence[float], width: int, low: float, high: float) -> str:
    """A strip of exactly ``width`` cells with the newest value at the right, on the scale ``low`` to ``high``.

    Where there are more values than cells, each cell shows the largest of its values, so that no peak is lost. A gap
    (NaN) and the time before the first value are blank or dotted, never a zero.
    """
    if width <= 0:
        return ""
    columns = thin(values, width)
    span = high - low
    out: list[str] = []
    for value in columns:
        if value != value:
            out.append(GAP)
        elif span <= 0:
            out.append(_UP[0])
        else:
            out.append(_UP[min(7, max(0, int((value - low) / span * 8)))])
    return " " * (width - len(out)) + "".join(out)


def thin(values: Sequence[float], width: int) -> list[float]:
    """At most ``width`` values, each the largest of the ones it stands for; NaN only where all of them are."""
    count = len(values)
    if count <= width:
        return list(values)
    out: list[float] = []
    for column in range(width):
        best = float("nan")
        for value in values[column * count // width : (column + 1) * count // width]:
            if value == value and not best >= value:
                best = value
        out.append(best)
    return out


def thin_pairs(times: Sequence[float], values: Sequence[float], columns: int) -> tuple[list[float], list[float]]:
    """A line thinned to its least and largest point per column, in their order in time; gaps are left out."""
    points = [(t, v) for t, v in zip(times, values, strict=True) if v == v]
    if len(points) <= 2 * columns:
        return [t for t, _ in points], [v for _, v in points]
    first, last = points[0][0], points[-1][0]
    step = (last - first) / columns or 1.0
    kept: list[tuple[float, float]] = []
    start = 0
    for column in range(columns):
        end = start
        limit = first + (column + 1) * step
        while end < len(points) and (points[end][0] < limit or column == columns - 1):
            end += 1
        if end > start:
            group = points[start:end]
            kept.extend(sorted({min(group, key=lambda p: p[1]), max(group, key=lambda p: p[1])}))
        start = end
    return [t for t, _ in kept], [v for _, v in kept]
