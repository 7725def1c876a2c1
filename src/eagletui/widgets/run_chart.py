"""Charts of a training: several runs on the same axes, raw values faint under smoothed ones, validations as marks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from eagletui.text import number
from eagletui.views.training import axis, log_axis
from eagletui.widgets.chart import Chart, Curve, Ticks
from eagletui.widgets.paint import Line, fit, joined

LABEL = 7
"""Cells of the labels of the y axis: constant, so that nothing moves when the values do."""
LEAST_X = 10.0


class Legend(NamedTuple):
    """What one colour or sign of a chart stands for."""

    sign: str
    style: str
    text: str


class Drawing(NamedTuple):
    """All that a chart shows. ``about`` is its title: what the y axis is; ``x`` what the x axis is.

    ``level`` is a horizontal line, with its name in the legend. ``floor`` and ``ceiling`` bound the y axis, where they are known.
    ``x_ticks`` are those of the x axis, where even ones will not do.
    """

    about: str
    x: str
    curves: Sequence[Curve]
    legend: Sequence[Legend] = ()
    log: bool = False
    floor: float | None = None
    ceiling: float | None = None
    level: float | None = None
    empty: str = ""
    x_ticks: Ticks | None = None


class RunChart(Chart):
    """Draws what ``make`` gives; anew when ``known`` (all that it depends on) is another."""

    DEFAULT_CSS = "RunChart { height: 1fr; width: 1fr; }"
    topics = frozenset({"training", "jobs"})
    fades = True

    def __init__(
        self,
        make: Callable[[int], Drawing],
        known: Callable[[], object],
        *,
        id: str | None = None,  # noqa: A002 - Textual's name for it
    ) -> None:
        super().__init__(id=id)
        self._make, self._depends = make, known
        self._title: Line = []
        self._shown: object = None

    def title(self) -> Line:
        return fit(self._title, self.size.width)

    def curves(self) -> list[Curve]:
        drawing = self._make(self.size.width)
        self._title = title_of(drawing, self.size.width)
        curves, self.low, self.high, self.span, self.ticks = laid_out(drawing, self.size.width, self.size.height)
        return curves

    def redraw(self) -> None:
        known = (self.size, self._depends())
        if known == self._shown and self._drawing is None and self.store.connection.state == "online":
            return
        # one that is being drawn is drawn again after it, whatever has been drawn by then
        self._shown = known if self._drawing is None else None
        super().redraw()


def title_of(drawing: Drawing, width: int) -> Line:
    """``loss over steps   ━ smoothed  ┄ raw  ◆ validation``; why it is empty where it is."""
    parts: list[Line] = [[(drawing.about, "strong"), (f" over {drawing.x}" + (", log" if drawing.log else ""), "dim")]]
    if not any(len(curve.times) for curve in drawing.curves) and drawing.empty:
        parts.append([(drawing.empty, "dim")])
    else:
        parts += [[(f"{one.sign} ", one.style), (one.text, "dim")] for one in drawing.legend]
    return joined(parts, width, "  ")


def laid_out(
    drawing: Drawing, width: int, height: int
) -> tuple[list[Curve], float, float, tuple[float, float], tuple[Ticks, Ticks]]:
    """The curves on their axes: (curves, low, high, span of x, ticks of both axes)."""
    curves = [_logged(curve) for curve in drawing.curves] if drawing.log else list(drawing.curves)
    x_low, x_high = _span([curve.times for curve in curves])
    values = [value for curve in curves for value in curve.values if value == value and math.isfinite(value)]
    level = drawing.level
    if level is not None and drawing.log:
        level = math.log10(level) if level > 0 else None
    if level is not None:
        values.append(level)
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if drawing.log:
        low, high, marks = log_axis(10**low if values else 1.0, 10**high if values else 10.0)
        y_ticks = [(at, tick_label(10**at)) for at in marks]
    else:
        low = low if drawing.floor is None else min(low, drawing.floor)
        high = high if drawing.ceiling is None else max(high, drawing.ceiling)
        low, high, marks = axis(low, high, 4 if height > 8 else 2)
        y_ticks = [(at, tick_label(at, marks)) for at in marks]
    bottom, _, x_marks = axis(x_low, x_high, 6 if width >= 90 else 4 if width >= 50 else 2)
    x_ticks = drawing.x_ticks or [(at, tick_label(at, x_marks).strip()) for at in x_marks if bottom <= at <= x_high]
    if level is not None:
        curves.append(Curve([x_low, x_high], [level, level], "warn", "╌", True))
    return curves, low, high, (x_low, x_high), (x_ticks, y_ticks)


def _logged(curve: Curve) -> Curve:
    kept = [(at, math.log10(value)) for at, value in zip(curve.times, curve.values, strict=True) if value > 0]
    return curve._replace(times=[at for at, _ in kept], values=[value for _, value in kept])


def _span(times: Sequence[Sequence[float]]) -> tuple[float, float]:
    ends = [(min(one), max(one)) for one in times if len(one)]
    if not ends:
        return 0.0, LEAST_X
    low, high = min(first for first, _ in ends), max(last for _, last in ends)
    return (low, high) if high > low else (low, low + 1.0)


def tick_label(value: float, marks: Sequence[float] = ()) -> str:
    """A tick's label, always `LABEL` cells wide: as many digits as tell it from the next."""
    size = min((b - a for a, b in pairwise(marks)), default=abs(value) or 1.0)
    if abs(value) < size * 1e-6:
        value = 0.0
    digits = max(0, -math.floor(math.log10(size) + 1e-9)) if size > 0 else 0
    if size > 0 and digits < 6 and abs(round(size, digits) - size) > size * 1e-3:
        digits += 1  # steps of 2.5
    text = f"{value / 1e6:.{1 if size < 1e6 else 0}f} M" if abs(value) >= 1e6 else number(value, min(digits, 5))
    return (text if len(text) <= LABEL else f"{value:.0e}").rjust(LABEL)
