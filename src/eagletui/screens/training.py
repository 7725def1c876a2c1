"""Screen 6: how a drafter learns, and whether it would pay here, before it is served."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.geometry import Size
from textual.screen import Screen

from eagletui.screens.base import set_height
from eagletui.screens.following import FollowingPage
from eagletui.screens.serving import bindings
from eagletui.screens.training_charts import (
    OVERLAY_STYLES,
    Look,
    Shown,
    accuracy_drawing,
    length_drawing,
    loss_drawing,
    shown_runs,
)
from eagletui.screens.training_words import (
    fact_column,
    fact_lines,
    fact_list,
    head_lines,
    no_training_lines,
    shown_run,
    trouble_lines,
    waiting_lines,
)
from eagletui.screens.words import job_state
from eagletui.store import Store
from eagletui.text import clean, duration
from eagletui.views.bench import break_even_line
from eagletui.views.serving import elapsed
from eagletui.views.training import (
    choose_run,
    current_run,
    neighbour_run,
    overlaid,
    silent,
    toggle_overlay,
    trainings,
)
from eagletui.widgets.paint import Line
from eagletui.widgets.panel import Panel
from eagletui.widgets.run_chart import Drawing, RunChart
from eagletui.widgets.sheet import Sheet
from eagletui.widgets.table import Column, Row, Table

CHARTS = ("loss", "joint", "conditional", "length")
SIDE = 40
"""Cells of the column of figures, where there is room for one."""


class Head(Panel):
    """Name, state, progress; what needs a person; the figures where there is no column for them."""

    topics = frozenset({"training", "jobs", "clock"})
    fades = True
    column = False

    def lines(self, width: int) -> list[Line]:
        job, run = shown_run(self.store)
        if job is None:
            return no_training_lines(self.store, self.frame.keys.shown("new_job"))
        now = time.time()
        quiet = silent(self.store, job, run, now) if run is not None else None
        out = head_lines(self.store, job, width, time.monotonic())
        out += trouble_lines(job, run, quiet, width)
        waiting = waiting_lines(self.store, job, run)
        if waiting:
            return out + waiting
        if run is not None and not self.column:
            out += fact_lines(fact_list(self.store, job, run, break_even_line(self.store, job), now), width)
        return out


class Facts(Panel):
    """The figures in a column beside the charts."""

    DEFAULT_CSS = f"Facts {{ width: {SIDE}; height: 1fr; margin-top: 1; }}"
    topics = frozenset({"training", "jobs", "clock"})
    fades = True

    def lines(self, width: int) -> list[Line]:
        job, run = shown_run(self.store)
        if job is None or run is None or waiting_lines(self.store, job, run):
            return []
        out = fact_column(fact_list(self.store, job, run, break_even_line(self.store, job), time.time()))
        beside = overlaid(self.store)
        if beside:
            out += [[], [(" drawn beside it", "dim")]]
            drawn = [one for one in beside if one.id in self.store.runs]
            styles = dict(zip((one.id for one in drawn), OVERLAY_STYLES, strict=False))
            out += [[(" █ ", styles.get(one.id, "track")), (clean(one.name, SIDE - 4), "")] for one in beside]
        return out


class Training(FollowingPage, can_focus=True):
    """Head on top; below it the charts, as many as there is room for; figures in a column on a wide screen."""

    scopes = ("training",)
    followed_topic = "training"
    BINDINGS: ClassVar = bindings("training")
    DEFAULT_CSS = """
    Training #charts { height: 1fr; width: 1fr; margin-top: 1; }
    Training #charts Horizontal { height: 1fr; }
    Training .apart { margin-right: 2; }
    Training #room { height: 1fr; }
    """

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self.look = Look()
        self.single: str | None = None
        """The one chart that has all the room; None while all are shown that fit."""

    @property
    def looks(self) -> tuple[str, ...]:
        return ("results", *super().looks)

    def compose(self) -> ComposeResult:
        yield Head(id="training-head")
        with Horizontal(id="room"):
            with Vertical(id="charts"):
                with Horizontal(id="upper"):
                    yield self._chart("loss", "apart")
                    yield self._chart("joint")
                with Horizontal(id="lower"):
                    yield self._chart("length", "apart")
                    yield self._chart("conditional")
            yield Facts(id="training-facts")

    def _chart(self, name: str, classes: str = "") -> RunChart:
        chart = RunChart(lambda _width: self._drawing(name), self._known, id=f"chart-{name}")
        chart.set_classes(classes)
        return chart

    # -------------------------------------------------------------------------------------------------------- drawing

    def _shown(self) -> list[Shown]:
        job, run = shown_run(self.store)
        if job is None or run is None:
            return []
        return shown_runs(job, run, overlaid(self.store), self.store.runs)

    def _drawing(self, name: str) -> Drawing:
        shown = self._shown()
        if not shown:
            return Drawing("", "steps", [])
        if name == "loss":
            return loss_drawing(shown, self.look)
        if name == "length":
            return length_drawing(shown, self.look, break_even_line(self.store, self.store.jobs[shown[0].run.job]))
        if name == "joint":
            return accuracy_drawing(shown, self.look, "full_acc", "joint accuracy %")
        return accuracy_drawing(shown, self.look, "cond_acc", "conditional accuracy %")

    def _known(self) -> object:
        """All that the charts depend on."""
        runs = tuple((one.run.job, one.run.train.lines, one.run.val.lines, id(one.run)) for one in self._shown())
        job = current_run(self.store)
        return runs, self.look, break_even_line(self.store, job) if job is not None else None

    def share_out(self, size: Size) -> None:
        job, run = shown_run(self.store)
        head = self.query_one("#training-head", Head)
        drawn = run is not None and job is not None and not waiting_lines(self.store, job, run)
        head.column = drawn and size.width >= 140
        left = size.height - len(head.lines(size.width)) - 1
        room = self.query_one("#room")
        room.display = drawn and left >= 6
        self.query_one("#training-facts").display = head.column
        many = self.single is None and left >= 22 and size.width >= 96
        names = CHARTS if many else (self.single or "loss",)
        for name in CHARTS:
            chart = self.query_one(f"#chart-{name}", RunChart)
            if chart.display != (name in names):
                chart.display = name in names
        self.query_one("#upper").display = many or names[0] in ("loss", "joint")
        self.query_one("#lower").display = many or names[0] in ("length", "conditional")
        self.many = many

    # ------------------------------------------------------------------------------------------- what is read for it

    def wanted(self) -> tuple[str, ...]:
        """The runs that are drawn."""
        job = current_run(self.store)
        return () if job is None else (job.id, *(one.id for one in overlaid(self.store)))

    # ----------------------------------------------------------------------------------------------------------- keys

    def focus_first(self, screen: Screen[object]) -> None:
        if screen.focused is not self:
            screen.set_focus(self, scroll_visible=False)

    def action_next_run(self) -> None:
        self._move(1)

    def action_previous_run(self) -> None:
        self._move(-1)

    def _move(self, step: int) -> None:
        found = neighbour_run(self.store, step)
        if found is not None:
            choose_run(self.store, found)
            self.redraw()

    def action_overlay(self) -> None:
        job = current_run(self.store)
        others = [one for one in trainings(self.store.jobs.values()) if job is not None and one.id != job.id]
        if not others:
            self.app.notify("there is no other training on this host to draw beside it", markup=False)
            return
        self.app.push_screen(OverlaySheet(self.store))

    def action_log_axis(self) -> None:
        self._see(self.look._replace(log=not self.look.log))

    def action_loss_parts(self) -> None:
        self._see(self.look._replace(per_step=not self.look.per_step))

    def action_x_axis(self) -> None:
        self._see(self.look._replace(by_time=not self.look.by_time))

    def _see(self, look: Look) -> None:
        self.look = look
        self.redraw()

    def action_next_chart(self) -> None:
        """All of them, then each alone; where there is no room for all, from one to the next."""
        order: Sequence[str | None] = (None, *CHARTS) if self.many or (self.single is not None and self._roomy()) else CHARTS
        at = self.single if self.single in order else order[0]
        self.single = order[(order.index(at) + 1) % len(order)]
        self.redraw()

    def _roomy(self) -> bool:
        return self.size.height >= 30 and self.size.width >= 96


class RunTable(Table):
    """The other trainings, with a sign before those that are drawn."""

    name_of_rows = "training"
    topics = frozenset({"jobs", "training"})
    without = frozenset(("find", "find_next", "filter", "sort", "copy", "show_all"))

    def columns(self) -> Sequence[Column]:
        return (
            Column("", 1),
            Column("training", 24, grow=True),
            Column("state", 18),
            Column("for", 10, ">", 1),
            Column("result", 30, "<", 2, True),
        )

    def rows(self) -> Sequence[Row]:
        shown = current_run(self.store)
        out = []
        for job in trainings(self.store.jobs.values()):
            if shown is not None and job.id == shown.id:
                continue
            sign: Line = [("●" if job.id in self.store.overlaid else " ", "good")]
            spent = elapsed(self.store, job, time.monotonic())
            result = clean(job.outcome or "", 200)
            out.append(Row(job.id, (sign, clean(job.name, 60), [job_state(job)], duration(spent), [(result, "dim")])))
        return out


class OverlaySheet(Sheet[None]):
    """Which trainings are drawn beside the one that is shown: enter puts one there, and takes it away."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store
        self._table = RunTable()

    def heading(self) -> str:
        return "draw other trainings on the same axes"

    def body(self) -> Sequence[Table]:
        return [self._table]

    def on_mount(self) -> None:
        set_height(self._table, max(3, min(len(trainings(self._store.jobs.values())) + 1, self.app.size.height - 10)))
        self._table.focus()
        key = self.app.keys.shown("open")  # type: ignore[attr-defined]
        self.say([(key, "key"), (" draws the one under the cursor, or no longer", "dim")])

    def on_table_opened(self, message: Table.Opened) -> None:
        message.stop()
        toggle_overlay(self._store, message.key)
        self._table.redraw()
