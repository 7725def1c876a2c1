"""Screen 8: what was measured on this host, with the verdict on every drafter; two results against each other."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.geometry import Size
from textual.screen import Screen

from eagletui.commands.logs import HostError
from eagletui.records.bench import BenchResult, Comparison, LoadVerdict
from eagletui.screens.base import Page, set_height
from eagletui.screens.bench_words import (
    cells_word,
    difference_lines,
    gain_cell,
    head_lines,
    heat_lines,
    load_lines,
    matrix_lines,
    nothing_lines,
    result_lines,
    share,
)
from eagletui.screens.deeds import deeds_of
from eagletui.screens.serving import bindings
from eagletui.screens.serving_words import ENGINES
from eagletui.text import MISSING, clean, number
from eagletui.views.bench import (
    MOST_MARKED,
    Judged,
    arms_of,
    choose_verdict,
    compared,
    contexts,
    current_verdict,
    curve,
    gains,
    measured,
    neighbour_verdict,
)
from eagletui.widgets.chart import LOCK, Curve
from eagletui.widgets.dialog import Reader
from eagletui.widgets.paint import Line
from eagletui.widgets.panel import Panel
from eagletui.widgets.run_chart import Drawing, Legend, RunChart
from eagletui.widgets.table import Column, Row, Table

TOPICS = frozenset({"bench", "jobs"})
STYLES = ("good", "work", "warn", "strong", "fill2", "fill", "dim")
LEAST_CHART = 9


class Head(Panel):
    """The verdict in a sentence, what runs, what cannot be read; what to do where there is nothing."""

    topics = TOPICS
    fades = True

    def lines(self, width: int) -> list[Line]:
        out = head_lines(self.store, width)
        if not self.store.verdicts and not self.store.bench:
            out += nothing_lines(self.store, self.frame.keys.shown("new_job"), width)
        return out


class LoadTable(Table):
    """Every load of every drafter's arm."""

    topics = TOPICS
    fades = True
    name_of_rows = "load"

    def columns(self) -> Sequence[Column]:
        judged = current_verdict(self.store)
        several = judged is not None and len(contexts(judged.verdict)) > 1
        return (
            Column("arm", 14),
            Column("load", 5, ">"),
            Column("context", 12 if several else 0, "<", 4),
            Column("without", 9, ">", 3),
            Column("with tok/s", 10, ">", 3),
            Column("speed, 95 %", 19, "<"),
            Column("length", 6, ">", 2),
            Column("C", 5, ">", 2),
            Column("accepts", 7, ">", 1),
            Column("needs", 6, ">", 1),
            Column("", 4, "<", 6, True),
        )

    def _moved(self) -> None:
        super()._moved()
        if self.is_attached:
            _page(self).redraw_lower()

    def found(self) -> list[tuple[str, Comparison, LoadVerdict]]:
        """(key, comparison, load) of each row."""
        judged = current_verdict(self.store)
        if judged is None:
            return []
        every = [(one, load) for one in judged.verdict.comparisons for load in one.loads]
        return [(str(at), one, load) for at, (one, load) in enumerate(every)]

    def at_cursor(self) -> tuple[Comparison, LoadVerdict] | None:
        rows = self.found()
        return next(((one, load) for key, one, load in rows if key == self.cursor_key), rows[0][1:] if rows else None)

    def rows(self) -> Sequence[Row]:
        return [self._row(key, one, load) for key, one, load in self.found()]

    def _row(self, key: str, one: Comparison, load: LoadVerdict) -> Row:
        problem = [(clean(load.problems[0], 200), "warn")] if load.problems else []
        return Row(
            key,
            (
                clean(one.other, 40),
                f"c{load.concurrency}",
                clean(load.context, 30),
                number(load.base_tokens_per_s, 1),
                number(load.tokens_per_s, 1),
                gain_cell(load, True),
                number(load.length, 2),
                number(load.cost, 2),
                share(load.acceptance),
                share(load.needed),
                problem,
            ),
            (one.other, load.concurrency, load.context, load.base_tokens_per_s, load.tokens_per_s, load.gain, load.length,
             load.cost, load.acceptance, load.needed, ""),
        )  # fmt: skip

    def empty(self) -> list[Line]:
        return [[(" this verdict has no load to compare", "dim")]]


class ResultTable(Table):
    """Every arm that was measured on this host, the newest first."""

    topics = TOPICS
    fades = True
    name_of_rows = "result"

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self.marked: tuple[str, ...] = ()

    def columns(self) -> Sequence[Column]:
        return (
            Column("", 1),
            Column("arm", 16),
            Column("measured", 11, "<", 3),
            Column("engine", 14, "<", 4),
            Column("k", 2, ">", 2),
            Column("loads", 14, "<", 1),
            Column("tok/s at the least load", 23, ">", 5),
            Column("model, drafter", 20, "<", 6, grow=True),
        )

    def rows(self) -> Sequence[Row]:
        out = []
        for job, result in measured(self.store):
            server = result.server
            least = min((cell for cell in result.cells if cell.tokens_per_s), key=lambda cell: cell.concurrency, default=None)
            at = time.strftime("%m-%d %H:%M", time.localtime(result.wall)) if result.wall is not None else MISSING
            speed = MISSING if least is None else f"{number(least.tokens_per_s, 1)} at c{least.concurrency}"
            models = clean(server.model, 100) + (f" + {clean(server.drafter, 100)}" if server.drafter else "")
            engine = f"{ENGINES.get(server.engine, clean(server.engine, 12))} {clean(server.version or '', 12)}".strip()
            sort = (
                None,
                result.arm,
                result.wall,
                engine,
                server.k,
                None,
                least.tokens_per_s if least is not None else None,
                models,
            )
            out.append(
                Row(
                    job,
                    (
                        [("●" if job in self.marked else " ", "work")],
                        clean(result.arm, 40),
                        [(at, "dim")],
                        [(engine, "dim")],
                        MISSING if server.k is None else str(server.k),
                        cells_word(result),
                        speed,
                        models,
                    ),
                    sort,
                )
            )
        return out

    def empty(self) -> list[Line]:
        return [[(" no arm was measured on this host", "dim")]]


class Matrix(Panel):
    """Arms x concurrency in the context of the row under the cursor."""

    DEFAULT_CSS = "Matrix { margin-top: 1; }"
    topics = TOPICS
    fades = True

    def lines(self, width: int) -> list[Line]:
        judged = current_verdict(self.store)
        at = _page(self).loads.at_cursor()
        return matrix_lines(judged.verdict, at[1].context, width) if judged is not None and at is not None else []


class HeatMap(Panel):
    """Context x concurrency of the arm under the cursor."""

    DEFAULT_CSS = "HeatMap { width: 1fr; }"
    topics = TOPICS
    fades = True

    def lines(self, width: int) -> list[Line]:
        judged = current_verdict(self.store)
        at = _page(self).loads.at_cursor()
        return heat_lines(at[0], judged.verdict, width) if judged is not None and at is not None else []


def _page(panel: Panel) -> Bench:
    page = next(one for one in panel.ancestors if isinstance(one, Bench))
    return page


class Bench(Page, can_focus=True):
    """The verdict with its loads, crossover and heat map; or all results, two of which can be put against each other."""

    scopes = ("bench",)
    BINDINGS: ClassVar = bindings("bench")
    DEFAULT_CSS = """
    Bench #bench-loads, Bench #bench-results { margin-top: 1; }
    Bench #bench-lower { height: 1fr; margin-top: 1; }
    Bench #bench-crossover { margin-right: 2; }
    """

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self.loads, self.results = LoadTable(id="bench-loads"), ResultTable(id="bench-results")
        self.view: str | None = None
        """verdict or results as a person chose; None: the verdict where there is one."""
        self.curve = False

    @property
    def looks(self) -> tuple[str, ...]:
        return ("results",)

    def compose(self) -> ComposeResult:
        yield Head(id="bench-head")
        yield Matrix(id="bench-matrix")
        yield self.loads
        yield self.results
        with Horizontal(id="bench-lower"):
            chart = RunChart(lambda _width: self._drawing(), self._known, id="bench-crossover")
            chart.topics = TOPICS
            yield chart
            yield HeatMap(id="bench-heat")

    @property
    def shows_results(self) -> bool:
        return current_verdict(self.store) is None or self.view == "results"

    # -------------------------------------------------------------------------------------------------------- drawing

    def _known(self) -> object:
        at = self.loads.at_cursor()
        return current_verdict(self.store), at[1].context if at is not None else None, self._shows_curve()

    def _shows_curve(self) -> bool:
        judged = current_verdict(self.store)
        return judged is not None and bool(judged.verdict.break_even) and (self.curve or not judged.verdict.comparisons)

    def _drawing(self) -> Drawing:
        judged = current_verdict(self.store)
        if judged is None:
            return Drawing("", "", [])
        return curve_drawing(judged) if self._shows_curve() else self._crossover(judged)

    def _crossover(self, judged: Judged) -> Drawing:
        at = self.loads.at_cursor()
        return crossover_drawing(judged, at[1].context if at is not None else "as given")

    def share_out(self, size: Size) -> None:
        judged = current_verdict(self.store)
        some = bool(self.store.verdicts or self.store.bench)
        results = some and self.shows_results
        verdict = some and not results and judged is not None and bool(judged.verdict.comparisons)
        head, matrix = self.query_one("#bench-head", Head), self.query_one("#bench-matrix", Matrix)
        heat, lower = self.query_one("#bench-heat", HeatMap), self.query_one("#bench-lower")
        matrix.display = verdict
        left = size.height - len(head.lines(size.width)) - (len(matrix.lines(size.width)) + 1 if verdict else 0)
        count = len(self.loads.found())
        drawn = some and not results and judged is not None and (count > 1 or bool(judged.verdict.break_even))
        tall = left - 1 - (min(count + 1, max(4, left // 3)) if count else 0) if drawn else 0
        charts = drawn and tall >= LEAST_CHART + 1
        set_height(self.loads, (min(count + 1, max(4, left // 3)) if charts else max(3, left - 1)) if verdict else 0)
        set_height(self.results, max(3, left - 1) if results else 0)
        lower.display = charts
        wide = judged is not None and len(contexts(judged.verdict)) > 1
        heat.display = charts and verdict and size.width >= 100 and (wide or size.width >= 120)

    def redraw(self) -> None:
        super().redraw()
        self._keep_focus()

    def refresh_topics(self, topics: frozenset[str]) -> None:
        super().refresh_topics(topics)
        self._keep_focus()

    def _keep_focus(self) -> None:
        """The list that is shown has the keys, else the page."""
        if getattr(self.app, "page", None) is self:
            self.focus_first(self.app.screen_stack[0])

    def focus_first(self, screen: Screen[Any]) -> None:
        table = self.results if self.shows_results else self.loads
        wanted = table if table.display else self
        if screen.focused is not wanted:
            screen.set_focus(wanted, scroll_visible=False)

    # ----------------------------------------------------------------------------------------------------------- keys

    def opened(self, table: Table, key: str) -> None:
        if table is self.results and key in self.store.bench:
            result, job = self.store.bench[key], self.store.jobs.get(key)
            self.app.push_screen(Reader(clean(result.arm, 60), lambda width: result_lines(result, job, width)))
        elif table is self.loads:
            at = self.loads.at_cursor()
            if at is not None:
                one, load = at
                title = f"{clean(one.other, 40)} at concurrency {load.concurrency}, {clean(load.context, 30)}"
                self.app.push_screen(Reader(title, lambda width: load_lines(one, load, width)))

    def redraw_lower(self) -> None:
        """The row under the cursor is another: what follows it is drawn anew."""
        for panel in self.query(Panel):
            if panel.display and isinstance(panel, Matrix | HeatMap | RunChart):
                panel.redraw()

    def action_bench_view(self) -> None:
        self.view = "verdict" if self.shows_results else "results"
        if current_verdict(self.store) is None:
            self.app.notify("there is no verdict on this host: a plan of several arms makes one", markup=False)
        self.redraw()

    def action_bench_curve(self) -> None:
        judged = current_verdict(self.store)
        if judged is None or not judged.verdict.break_even:
            self.app.notify("nothing was measured here with a synthetic acceptance", markup=False)
            return
        self.curve = not self.curve
        self.redraw()

    def action_next_verdict(self) -> None:
        self._move(1)

    def action_previous_verdict(self) -> None:
        self._move(-1)

    def _move(self, step: int) -> None:
        found = neighbour_verdict(self.store, step)
        if found is not None:
            choose_verdict(self.store, found)
            self.redraw()

    def action_bench_mark(self) -> None:
        """Mark the result under the cursor, or no longer; of three the first goes."""
        if not self.shows_results:
            self.view = "results"
            self.redraw()
            return
        key = self.results.cursor_key
        if key is None:
            return
        rest = tuple(one for one in self.results.marked if one != key)
        self.results.marked = rest if key in self.results.marked else (*rest, key)[-MOST_MARKED:]
        self.results.redraw()

    def action_bench_differences(self) -> None:
        found = compared(self.store, self.results.marked)
        if found is None:
            key = self.app.keys.shown("bench_mark")  # type: ignore[attr-defined]
            self.app.notify(f"mark two results first ({key})", markup=False)
            self.view = "results"
            self.redraw()
            return
        base, other, comparison = found
        self.app.push_screen(Reader("two results", lambda width: difference_lines(base, other, comparison, width)))

    def action_bench_export(self) -> None:
        if not self.store.verdicts and not self.store.bench:
            self.app.notify("there is nothing to export yet", markup=False)
            return
        self.run_worker(self._export(), group="export", exclusive=True)

    async def _export(self) -> None:
        judged = None if self.shows_results else current_verdict(self.store)
        results = arms_of(self.store, judged) if judged is not None else self._chosen_results()
        name = judged.verdict.name if judged is not None else "results"

        def write() -> list[str]:
            with LOCK:  # its plots are drawn by the same library as the charts here
                return deeds_of(self.app).export_bench(name, judged.verdict if judged is not None else None, results)

        try:
            paths = await asyncio.to_thread(write)
        except HostError as error:
            self.app.notify(clean(str(error), 300), severity="error", timeout=15, markup=False)
            return
        self.app.notify("written: " + "  ".join(paths), timeout=15, markup=False)

    def _chosen_results(self) -> list[BenchResult]:
        every = measured(self.store)
        return [one.result for one in every if one.job in self.results.marked] or [one.result for one in every]


def crossover_drawing(judged: Judged, context: str) -> Drawing:
    """Speed over concurrency in one context, the bounds of its interval faint; the line at 1 is where a drafter neither gains nor
    loses."""
    curves: list[Curve] = []
    legend: list[Legend] = []
    places: set[int] = set()
    for one, style in zip(judged.verdict.comparisons, STYLES, strict=False):
        found = gains(one, context)
        x = [math.log2(load.concurrency) for load in found]
        places |= {load.concurrency for load in found}
        bounded = [load for load in found if load.low is not None and load.high is not None]
        at = [math.log2(load.concurrency) for load in bounded]
        curves = [
            Curve(at, [load.low for load in bounded if load.low is not None], "track"),
            Curve(at, [load.high for load in bounded if load.high is not None], "track"),
            *curves,
            Curve(x, [load.gain for load in found if load.gain is not None], style),
            Curve(x, [load.gain for load in found if load.gain is not None], style, "●"),
        ]
        legend.append(Legend("█", style, clean(one.other, 24)))
    ticks = [(math.log2(place), f"{place:,}") for place in sorted(places)]
    legend.append(Legend("╌", "warn", "no gain"))
    return Drawing("speed-up", "concurrency", curves, legend, level=1.0, x_ticks=ticks, empty="no load of it has a number")


def curve_drawing(judged: Judged) -> Drawing:
    """Speed over acceptance length at each load whose step cost is known, with what was measured on it."""
    curves: list[Curve] = []
    legend: list[Legend] = []
    for one, style in zip(judged.verdict.break_even, STYLES, strict=False):
        points = curve(one)
        curves.append(Curve([x for x, _ in points], [y for _, y in points], style))
        seen = [(point.length or point.set_length, point.gain) for point in one.points if point.gain is not None]
        curves.append(Curve([x for x, _ in seen], [y for _, y in seen], style, "●"))
        legend.append(Legend("█", style, f"c{one.concurrency}"))
    legend.append(Legend("╌", "warn", "no gain"))
    return Drawing("speed-up", "acceptance length", curves, legend, level=1.0, empty="no step cost is known")
