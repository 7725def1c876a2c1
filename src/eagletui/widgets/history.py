"""Charts of a serving job's series over time: gaps stay gaps, the axes are named, and nothing is drawn twice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from eagletui.text import duration
from eagletui.widgets.bars import columns
from eagletui.widgets.chart import Chart, Curve
from eagletui.widgets.paint import Line

SPAN = 600.0
"""Seconds that a chart reaches back, unless everything is asked for."""
MOST_RUNS = 24
"""Pieces of one line between its gaps; with more the line is first brought to one value per column."""
LONGEST_STEP = 30.0
"""Seconds between two points from which on there is a gap between them."""


class Drawn(NamedTuple):
    """One line of a chart: the series' name, the style, what it is, and the factor to the unit of the chart."""

    series: str
    style: str
    label: str
    scale: float = 1.0


def runs(times: Sequence[float], values: Sequence[float], width: int) -> list[tuple[list[float], list[float]]]:
    """The pieces of a line between its gaps: a NaN, or a time without any point. At most `MOST_RUNS` of them, or as many as
    ``width`` columns can tell apart."""
    found = _split(times, values)
    if len(found) <= MOST_RUNS or not times:
        return found
    first, last = times[0], times[-1]
    step = max((last - first) / max(1, width // 2), 1e-9)
    binned = columns(times, values, width // 2 + 1, step, last)
    starts = [last - (len(binned) - 1 - i) * step for i in range(len(binned))]
    return _split(starts, binned, step * 1.5)


def _split(times: Sequence[float], values: Sequence[float], gap: float = LONGEST_STEP) -> list[tuple[list[float], list[float]]]:
    out: list[tuple[list[float], list[float]]] = []
    open_ = False
    for time, value in zip(times, values, strict=True):
        if value != value:
            open_ = False
            continue
        if not open_ or time - out[-1][0][-1] > gap:
            out.append(([], []))
            open_ = True
        out[-1][0].append(time)
        out[-1][1].append(value)
    return out


def nice_top(value: float, least: float) -> float:
    """The end of an axis that holds ``value`` and has four even steps: 1, 2, 4, 6 or 8 times a power of ten."""
    value = max(value, least)
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1.0, 2.0, 4.0, 6.0, 8.0, 10.0) if step * power >= value * 0.999)


class SeriesChart(Chart):
    """Some series of the serving job that is shown. ``bottom`` is where the y axis begins, ``least`` its end at least."""

    DEFAULT_CSS = "SeriesChart { height: 1fr; margin-top: 1; }"
    topics = frozenset({"servers", "selected"})
    fades = True

    def __init__(
        self,
        unit: str,
        drawn: Sequence[Drawn],
        *,
        bottom: float = 0.0,
        least: float = 1.0,
        id: str | None = None,  # noqa: A002 - Textual's name for it
    ) -> None:
        super().__init__(id=id)
        self._unit, self._lines_drawn, self.low, self._least = unit, tuple(drawn), bottom, least
        self._known: tuple[object, ...] | None = None
        self._window = SPAN

    def _now(self) -> float | None:
        view = self.store.servers.get(self.store.selected or "")
        return view.boot if view is not None else None

    def title(self) -> Line:
        line: Line = []
        for one in self._lines_drawn:
            line += [("█ ", one.style), (f"{one.label}   ", "dim")]
        back = "10 min (s)" if self._window <= SPAN else f"{duration(self._window)} (min)"
        line.append((f"{self._unit}, last {back}", "head"))
        return line

    def curves(self) -> list[Curve]:
        now, job = self._now(), self.store.selected or ""
        if now is None:
            return []
        everything = self.store.window == "all"
        found = []
        earliest = now - SPAN
        for one in self._lines_drawn:
            series = self.store.series.get(("server", job, one.series))
            if series is None:
                continue
            times, values = series.window(-math.inf if everything else now - SPAN)
            if everything and len(times):
                earliest = min(earliest, times[0])
            found.append((one, times, values))
        self._window = now - earliest
        scale = 60.0 if self._window > SPAN else 1.0
        self.span = (-self._window / scale, 0.0)
        out: list[Curve] = []
        for one, times, values in found:
            for some_times, some in runs(times, values, max(20, self.size.width)):
                out.append(Curve([(t - now) / scale for t in some_times], [v * one.scale for v in some], one.style))
        self.high = nice_top(max((max(curve.values) for curve in out), default=0.0), self._least)
        return out

    def redraw(self) -> None:
        """Drawn anew only when there is a new point, another size, job or window."""
        job = self.store.selected or ""
        first = self.store.series.get(("server", job, self._lines_drawn[0].series))
        known = (job, self.store.window, self.size, self._now(), first.last() if first is not None else None, len(first or ()))
        if known == self._known and self._drawing is None and self.store.connection.state == "online":
            return
        # one that is being drawn is drawn again after it, whatever has been drawn by then
        self._known = known if self._drawing is None else None
        super().redraw()
