"""Charts with axes, drawn by plotext: the one place that knows it. Imported in a thread when the first chart is looked at.

plotext has one figure for the whole process, so one chart is drawn at a time; it is drawn in a thread, only while the chart
is on the screen, and from data thinned to the chart's columns (the largest and smallest value of each are kept).
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Sequence
from typing import ClassVar, NamedTuple
from weakref import WeakKeyDictionary

from eagletui.text import clean
from eagletui.widgets.bars import thin_pairs
from eagletui.widgets.paint import Line
from eagletui.widgets.panel import Panel, log

LOCK = threading.Lock()
"""Whoever draws with plotext holds it."""
_SGR = re.compile(r"\x1b\[([0-9;]*)m")
_COLOUR = re.compile(r"38;5;(\d+)")


class Curve(NamedTuple):
    """One line of a chart: times in seconds, values (NaN is a gap), and the style it is drawn in.

    With ``mark`` it is drawn with that sign: at every point, or ``joined``, along the line as well.
    """

    times: Sequence[float]
    values: Sequence[float]
    style: str = "good"
    mark: str = ""
    joined: bool = False


Ticks = Sequence[tuple[float, str]]
"""Where an axis is marked, and with what."""


def plot(
    curves: Sequence[Curve],
    width: int,
    height: int,
    low: float,
    high: float,
    span: tuple[float, float] | None = None,
    ticks: tuple[Ticks, Ticks] | None = None,
) -> list[Line]:
    """A chart of exactly ``height`` lines of at most ``width`` cells, the y axis from ``low`` to ``high``. Blocks: 5-15 ms.

    The x axis goes over ``span``, else over the data. ``ticks`` are those of the x and of the y axis, else even ones.
    """
    styles = list(dict.fromkeys(curve.style for curve in curves))
    with LOCK:
        import plotext

        plotext.terminal.limit(False, False)
        figure = plotext.figure
        figure.clear()
        figure.plot_size(width, height)
        figure.theme("colorless")
        for curve in curves:
            times, values = thin_pairs(curve.times, curve.values, max(1, width - 6))
            if times:
                sign = plotext.marker(curve.mark or "braille", 1 + styles.index(curve.style))
                signal = figure.signal(times, values, marker=sign)
                signal.lines(not curve.mark or curve.joined)
                figure.draw(signal)
        figure.ruler("y", "left").lim(low, high)
        if span is not None:
            figure.ruler("x", "lower").lim(*span)
        for ruler, marks in zip((("x", "lower"), ("y", "left")), ticks or (), strict=False):
            figure.ruler(*ruler).ticks([at for at, _ in marks], [label for _, label in marks])
        figure.axes(False, axis="x", side="upper")
        figure.axes(False, axis="y", side="right")
        drawn = str(figure.build())
    return [_line(text, styles) for text in drawn.split("\n")[:height]]


def _line(text: str, styles: Sequence[str]) -> Line:
    """plotext's colours are numbers of styles: each becomes that style, everything else is axis."""
    out: Line = []
    style = "dim"
    at = 0
    for found in _SGR.finditer(text):
        if found.start() > at:
            out.append((clean(text[at : found.start()]), style))
        colour = _COLOUR.search(found.group(1))
        number = int(colour.group(1)) if colour else 0
        style = styles[number - 1] if 1 <= number <= len(styles) else "dim"
        at = found.end()
    if text[at:]:
        out.append((clean(text[at:]), style))
    return out


class Chart(Panel):
    """Subclasses give `curves` and `title` (which names both axes and the window); drawn only while visible."""

    low, high = 0.0, 100.0
    span: tuple[float, float] | None = None
    ticks: tuple[Ticks, Ticks] | None = None
    _turns: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]] = WeakKeyDictionary()

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._drawn: list[Line] = []
        self._drawing: asyncio.Task[None] | None = None
        self._again = False

    def curves(self) -> Sequence[Curve]:
        raise NotImplementedError

    def title(self) -> Line:
        raise NotImplementedError

    def lines(self, width: int) -> list[Line]:
        return [self.title(), *self._drawn]

    def redraw(self) -> None:
        super().redraw()
        if not self.display or self.size.width < 20 or self.size.height < 5:
            return
        if self._drawing is not None:
            self._again = True
            return
        self._drawing = asyncio.ensure_future(self._draw(self.curves(), self.size.width, self.size.height - 1))

    async def _draw(self, curves: Sequence[Curve], width: int, height: int) -> None:
        """One chart after the other, with a turn of the loop between two."""
        try:
            async with self._turns.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
                await asyncio.sleep(0)
                self._drawn = await asyncio.to_thread(plot, curves, width, height, self.low, self.high, self.span, self.ticks)
        except Exception as error:  # noqa: BLE001 - a chart is not worth the dashboard; it says so in its place
            log.exception("the chart could not be drawn")
            self._drawn = [[("! ", "bad"), (clean(f"no chart: {type(error).__name__}: {error}", 200), "bad")]]
        finally:
            self._drawing = None
        if self.is_attached:
            super().redraw()
            if self._again:
                self._again = False
                self.redraw()

    def on_unmount(self) -> None:
        if self._drawing is not None:
            self._drawing.cancel()
