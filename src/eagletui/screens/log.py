"""The log of a job: its end at once, followed; folded, searched, and paged through however large it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.geometry import Size

from eagletui.commands.logs import HostError
from eagletui.records import JobState
from eagletui.screens.base import Page
from eagletui.screens.deeds import deeds_of
from eagletui.screens.details import folded_text, job_lines, job_reader
from eagletui.screens.serving import bindings
from eagletui.screens.words import job_state
from eagletui.text import clean, duration, size
from eagletui.widgets.dialog import Reader
from eagletui.widgets.log_view import LogView, whole_line
from eagletui.widgets.paint import Line, joined
from eagletui.widgets.panel import Panel

if TYPE_CHECKING:
    from eagletui.commands.logs import LogWindow

WAIT = 20.0
PACE = 0.15
"""Seconds between two reads of a log that is followed: when it floods, its end is read this often."""
RETRY = 1.0
WIDE = 132
FACTS = 44


class LogHead(Panel):
    """Which log this is: the job's state, the size, the place, and how long it has been silent."""

    DEFAULT_CSS = "LogHead { height: 1; }"
    topics = frozenset({"jobs", "clock"})
    fades = True

    def __init__(self, page: Log) -> None:
        super().__init__()
        self._page = page

    def lines(self, width: int) -> list[Line]:
        job, window, view = self._page.job, self._page.window, self._page.view
        if job is None:
            return [[(" no job has been chosen", "dim"), ("   7 shows the jobs, enter opens a log", "dim")]]
        parts: list[Line] = [[(" ", ""), (clean(job.name, 40), "strong"), ("  ", ""), job_state(job)]]
        if self._page.busy:
            parts.append([("~ " + self._page.busy, "work")])
        elif self._page.problem:
            parts.append([("! ", "warn"), (clean(self._page.problem, 200), "warn")])
        elif self._page.found:
            parts.append([(self._page.found, "dim")])
        if window is not None and window.opened:
            if view.following:
                parts.append([("following", "work")])
            else:
                share = 100.0 * view.key / window.size if window.size else 100.0
                parts.append([("at ", "dim"), (f"{share:3.0f} %", "")])
            parts.append([(f"{size(max(window.size, job.log_size or 0)):>8}", ""), (" log", "dim")])
            if window.floor:
                parts.append([(f"first {size(window.floor)} given back", "dim")])
        silent = job.silent if job.silent is not None else job.log_age
        if silent is not None and job.state == "running":
            words = f"no line yet for {duration(silent)}" if job.log_size == 0 else f"last line {duration(silent)} ago"
            parts.append([(words, "warn" if silent >= 60 and job.health == "loading" else "dim")])
        elif job.log and not parts[1:]:
            parts.append([(clean(job.log, 120), "dim")])
        return [joined(parts, width)]


class LogFacts(Panel):
    """State, phases and facts of the job, beside its log where there is room."""

    DEFAULT_CSS = f"LogFacts {{ width: {FACTS}; height: 1fr; margin-left: 2; }}"
    topics = frozenset({"jobs", "clock"})
    fades = True

    def __init__(self, page: Log) -> None:
        super().__init__()
        self._page = page

    def lines(self, width: int) -> list[Line]:
        shown = self._page.shown
        return job_lines(self.store, shown, width)[: max(1, self.size.height)] if shown is not None else []


class Log(Page):
    """The log of the job that is selected."""

    scopes = ("log",)
    BINDINGS: ClassVar = bindings("log")

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self.view = LogView(id="log-lines")
        self.window: LogWindow | None = None
        self.busy = self.problem = self.found = ""
        self.shown: str | None = None
        self._backward = True
        self._reading = False

    def compose(self) -> ComposeResult:
        yield LogHead(self)
        with Horizontal():
            yield self.view
            yield LogFacts(self)

    @property
    def job(self) -> JobState | None:
        """The job whose log is shown."""
        return self.store.jobs.get(self.shown) if self.shown is not None else None

    def share_out(self, size: Size) -> None:
        for facts in self.query(LogFacts):
            facts.display = size.width >= WIDE

    def redraw(self) -> None:
        """It has come into view: open the log of the job that is selected now, or go on with it."""
        wanted = self._wanted()
        if wanted != self.shown:
            self.shown, self.window = wanted, None
            self.busy = self.problem = self.found = ""
            self.view.set_window(None)
            if wanted is not None:
                try:
                    self.window = deeds_of(self.app).log_of(wanted)
                except HostError as error:
                    self.problem = f"{error.why}"
                self.view.set_window(self.window)
        if self.window is not None and self.display:
            self._follow()
        super().redraw()

    def _wanted(self) -> str | None:
        """The job that was asked for, else the selected one, else one that runs, else the newest."""
        jobs = self.store.jobs
        for asked in (self.app.log_job, self.store.selected):  # type: ignore[attr-defined]
            if asked in jobs:
                return str(asked)
        newest = sorted(jobs, key=lambda id_: (jobs[id_].state not in ("launching", "running", "stopping"), -jobs[id_].started))
        return newest[0] if newest else None

    def refresh_topics(self, topics: frozenset[str]) -> None:
        job = self.job
        if "jobs" in topics and self.window is None and self._wanted() is not None:
            self.shown = None  # its log may be known by now
            self.redraw()
        elif "jobs" in topics and self.window is not None and job is not None and job.log:
            self.window.go_on_at(job.log)
        super().refresh_topics(topics)

    def on_hide(self) -> None:
        self.workers.cancel_group(self, "follow")

    def _changed(self) -> None:
        self.view.redraw()
        self.query_one(LogHead).redraw()

    # -------------------------------------------------------------------------------------------------------- reading on

    def _follow(self) -> None:
        if self.view.following and not any(worker.group == "follow" and worker.is_running for worker in self.workers):
            self.run_worker(self._following(), group="follow", exclusive=True)

    async def _following(self) -> None:
        """Read what comes, while the end is shown."""
        while self.view.following and self.window is not None:
            window = self.window
            try:
                await window.follow(WAIT)
                self.problem = ""
            except HostError as error:
                if not error.retry:  # while the link is down the banner says so
                    self.problem = error.why
                self._changed()
                await asyncio.sleep(RETRY)
                continue
            if window is self.window:
                self._changed()
            await asyncio.sleep(PACE)

    def on_log_view_moved(self, message: LogView.Moved) -> None:
        message.stop()
        self.query_one(LogHead).redraw()

    def on_log_view_near(self, message: LogView.Near) -> None:
        message.stop()
        self.workers.cancel_group(self, "follow")
        window = self.window
        if window is not None and not self._reading and (window.start > window.floor if message.back else not window.at_end):
            self._reading = True
            self.run_worker(self._read_on(window, message.back), group="page")

    async def _read_on(self, window: LogWindow, back: bool) -> None:
        try:
            await (window.back() if back else window.forward())
        except HostError as error:
            self.problem = error.why
        finally:
            self._reading = False
        if window is self.window:
            self._changed()

    # --------------------------------------------------------------------------------------------------------- the keys

    def on_log_view_wanted(self, message: LogView.Wanted) -> None:
        message.stop()
        if message.what == "leave":
            self._leave()
        elif message.what == "open":
            self._whole_line()
        elif message.what == "end":
            self.action_follow()
        elif message.what == "start":
            self._go(self._to_start)
        elif message.what == "search":
            self._backward = self.view.following
            self._go(partial(self._search, self._backward))
        elif message.what == "again":
            self._go(partial(self._search, self._backward))

    def _go(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do one thing at a time with the window; what was under way is given up."""
        self.workers.cancel_group(self, "follow")
        self.run_worker(self._guarded(work), group="go", exclusive=True)

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        self.problem = self.found = ""
        try:
            await work()
        except HostError as error:
            self.problem = f"{error.step}: {error.why}"
        finally:
            self.busy = ""
            if self.is_attached:
                self._changed()

    def _leave(self) -> None:
        if self.busy:
            self.workers.cancel_group(self, "go")
        elif self.view.find_text:
            self.view.find_text = ""
            self.view.redraw()
        else:
            self.app.call_later(self.app.show_page, "jobs")  # type: ignore[attr-defined]

    def _whole_line(self) -> None:
        line = self.view.current_line
        if line is None:
            return
        facts = whole_line(line)

        def make(width: int) -> list[Line]:
            out: list[Line] = [[(f"{name:<10}", "dim"), (text, "")] for name, text in facts[:-1]]
            return [*out, [], *folded_text("", facts[-1][1], width, "")]

        self.app.push_screen(Reader("line", make))

    def action_follow(self) -> None:
        """Show the end and stay there."""
        self.view.following = True
        self._go(self._to_end)

    async def _to_end(self) -> None:
        if self.window is not None:
            if not self.window.at_end or not self.window.opened:
                await self.window.open_end()
            self.view.following = True
            self.call_later(self._follow)

    async def _to_start(self) -> None:
        if self.window is not None:
            await self.window.open_start()
            first = self.window.shown()
            self.view.go_to(first[0].offset if first else 0)

    def action_facts(self) -> None:
        if self.shown is not None:
            self.app.push_screen(job_reader(self.store, self.shown))

    def action_fold(self) -> None:
        self.view.toggle_fold()

    def action_wrap(self) -> None:
        self.view.toggle_wrap()

    def action_left(self) -> None:
        self.view.shift(-1)

    def action_right(self) -> None:
        self.view.shift(1)

    def action_find_previous(self) -> None:
        """The next match the other way than `/` went."""
        if self.view.find_text:
            self._go(partial(self._search, not self._backward))
        else:
            self.view.action_table_find()

    async def _search(self, backward: bool) -> None:
        window, wanted = self.window, self.view.find_text
        if window is None:
            return
        line = self.view.current_line
        here = 0 if line is None else line.offset if backward else line.end
        way = "up" if backward else "down"

        def told(at: int) -> None:
            self.busy = f"searching {way}: {size(at)} of {size(window.size)}   esc stops"
            self.query_one(LogHead).redraw()

        told(here)
        match = await window.find(wanted, here, backward=backward, told=told)
        round_ = match is None
        if match is None:
            match = await window.find(wanted, -1 if backward else 0, backward=backward, told=told)
        if match is None:
            self.found = f"nothing holds {clean(wanted, 60)!r}"
            return
        at = await window.show(match.at)
        if at is not None:
            self.view.go_to(at)
        self.found = f"found {way}" + (", round the end" if round_ else "") + "   n N"

    def action_first_error(self) -> None:
        self._go(self._first_error)

    async def _first_error(self) -> None:
        window, job = self.window, self.job
        if window is None or job is None:
            return
        self.busy = "looking for the first error   esc stops"
        self.query_one(LogHead).redraw()
        match = await deeds_of(self.app).first_error(window, job.first_error)
        if match is None:
            self.found = "no error in this log"
            return
        at = await window.show(match.at)
        if at is not None:
            self.view.go_to(at)
        self.found = "the first error"
