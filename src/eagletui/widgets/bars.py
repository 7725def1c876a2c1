"""Bars and strips as text: eighth blocks along, eight heights up. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from eagletui.widgets.paint import Line

_ALONG = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
_UP = "▁▂▃▄▅▆▇█"
GAP = "·"


def gauge(value: float | None, width: int, style: str = "fill", top: float = 100.0) -> Line:
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


def spark(columns: Sequence[float], width: int, low: float, high: float) -> str:
    """A strip of exactly ``width`` cells, one per value, the newest at the right, on the scale ``low`` to ``high``.

    A gap (NaN) is a dot and the time before the first value blank, never a zero.
    """
    if width <= 0:
        return ""
    columns = columns[-width:]
    span = high - low
    out: list[str] = []
    for value in columns:
        if value != value:
            out.append(GAP)
        elif span <= 0:
            out.append(_UP[0])
        else:
            out.append(_UP[min(7, int((min(max(value, low), high) - low) / span * 8))])
    return " " * (width - len(out)) + "".join(out)


def time_step(width: int, seconds: float) -> float:
    """Whole seconds per cell, so that ``width`` cells reach back at least ``seconds``."""
    return float(max(1, math.ceil(seconds / max(1, width))))


def columns(times: Sequence[float], values: Sequence[float], width: int, step: float, now: float) -> list[float]:
    """The largest value in each ``step`` seconds up to ``now``, at most ``width`` of them, oldest first; NaN where there is none.

    The steps begin at fixed times, so a drawn column stays as it is while newer ones come. What is before the first value
    is left out.
    """
    last = math.floor(now / step)
    out = [math.nan] * width
    first = width
    for time, value in zip(times, values, strict=True):
        at = math.floor(time / step) - last + width - 1
        if 0 <= at < width:
            first = min(first, at)
            if value == value and not out[at] >= value:
                out[at] = value
    return out[first:]


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
