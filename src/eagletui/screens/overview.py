"""Screen 1: is it well, what does it do, what is wrong, what next - answered in two seconds."""

from __future__ import annotations

import time
from collections.abc import Sequence

from textual.app import ComposeResult
from textual.geometry import Size

from eagletui.records import JobState
from eagletui.screens.base import Page, set_height
from eagletui.screens.details import alert_reader
from eagletui.screens.serving_words import server_lines
from eagletui.screens.words import (
    LIVE_STATES,
    alert_line,
    board_problem,
    card_trouble,
    gpu_summary_parts,
    job_progress,
    job_state,
    sorted_alerts,
)
from eagletui.text import clean, number, percent, rate, size
from eagletui.views.jobs import grouped
from eagletui.views.serving import worth_showing
from eagletui.widgets.bars import gauge
from eagletui.widgets.paint import Line, fit, padded, wrapped
from eagletui.widgets.panel import Panel
from eagletui.widgets.table import Column, Row, Table

LABEL = 10
MANY_CARDS = 32


def labelled(label: str, lines: Sequence[Line], width: int) -> list[Line]:
    """Lines beside their label; only the first carries it."""
    out: list[Line] = []
    for position, line in enumerate(lines):
        head = label if position == 0 else ""
        out.append([(f" {head:<{LABEL - 1}}", "strong"), *fit(line, width - LABEL)])
    return out


class GpuPanel(Panel):
    """The summary of all cards, and a small bar for each."""

    DEFAULT_CSS = "GpuPanel { margin-top: 1; }"
    topics = frozenset({"gpus", "host", "connection"})
    fades = True

    def faded(self) -> bool:
        board = self.store.gpus
        return super().faded() or (board is not None and board.stale_since is not None)

    def lines(self, width: int) -> list[Line]:
        room = width - LABEL
        parts = gpu_summary_parts(self.store)
        out: list[Line] = wrapped(parts, room, most=2) if parts else []
        problem = board_problem(self.store)
        if problem is not None:
            out.append(problem)
        out += self._bars(room)
        return labelled("GPUs", out, width)

    def _bars(self, room: int) -> list[Line]:
        board = self.store.gpus
        cards = board.cards if board is not None else ()
        if not cards:
            return []
        per_row = next((n for n in (16, 8, 4, 2) if room // n >= 13 and n <= max(2, len(cards))), 1)
        cell = min(20, room // per_row)
        bar = max(1, cell - 9)
        lines: list[Line] = []
        for start in range(0, min(len(cards), MANY_CARDS), per_row):
            line: Line = []
            for card in cards[start : start + per_row]:
                found = card_trouble(card, self.store)
                style = found[0][1] if found and found[0][1] in ("bad", "warn") else ""
                mark = {"bad": "✗", "warn": "!"}.get(style, " ")
                line += [(f"{card.number:>2} ", "dim")]
                if card.lost is not None:
                    line += padded([("LOST", "bad")], bar + 4)
                else:
                    line += [*gauge(card.util, bar, style or "fill"), (f"{number(card.util):>4}", style)]
                line += [(mark, style), (" ", "")]
            lines.append(line)
        if len(cards) > MANY_CARDS:
            lines.append([(f"and {len(cards) - MANY_CARDS} more on the screen GPUs", "dim")])
        return lines


class ServerPanel(Panel):
    """The servers that run, and those that failed and have not been started again: how they are and what they do."""

    DEFAULT_CSS = "ServerPanel { margin-top: 1; }"
    topics = frozenset({"jobs", "servers", "clock"})
    fades = True

    def lines(self, width: int) -> list[Line]:
        room = width - LABEL
        now = time.monotonic()
        out = [line for job in worth_showing(self.store.jobs.values()) for line in server_lines(self.store, job, room, now)]
        return labelled("Servers", out or [[("none runs", "dim")]], width)


class JobPanel(Panel):
    """The other jobs that run, and the last one that ended."""

    DEFAULT_CSS = "JobPanel { margin-top: 1; }"
    topics = frozenset({"jobs"})
    fades = True

    def lines(self, width: int) -> list[Line]:
        jobs = self.store.jobs.values()
        order = [(job, depth) for _, job, depth in grouped(self.store.jobs) if job.kind != "serve"]
        running = [(job, depth) for job, depth in order if job.state in LIVE_STATES]
        told = {job.id for job in worth_showing(jobs)}
        over = [job for job in jobs if job.state not in LIVE_STATES and job.id not in told and job.parent not in self.store.jobs]
        ended = sorted(over, key=lambda job: -(job.ended or job.started))[:1]
        room = width - LABEL
        out = [self._job(job, room, depth) for job, depth in [*running, *((job, 0) for job in ended)]]
        if not out:
            out = [[("none has run here", "dim")]]
        return labelled("Jobs", out, width)

    def _job(self, job: JobState, room: int, depth: int = 0) -> Line:
        word, style = job_state(job)
        line: Line = [
            *padded([("  " * depth, ""), (clean(job.name, 40), "" if depth else "strong")], 16),
            ("  ", ""),
            *padded([(clean(job.kind, 12), "dim")], 11),
            (" ", ""),
        ]
        return fit([*line, *padded([(word, style)], 16), ("  ", ""), *job_progress(job, self.store)], room)


class HostPanel(Panel):
    """Processor, memory, disks and network of the host."""

    DEFAULT_CSS = "HostPanel { margin-top: 1; }"
    topics = frozenset({"host", "info"})
    fades = True

    def lines(self, width: int) -> list[Line]:
        host = self.store.host
        if host is None:
            return labelled("Host", [[("no data yet", "dim")]], width)
        parts: list[Line] = [[("cpu ", "dim"), (f"{percent(host.cpu):>5}", "")]]
        if host.mem_total is not None and host.mem_available is not None:
            free = host.mem_available / host.mem_total if host.mem_total else 1.0
            style = "bad" if free < 0.02 else "warn" if free < 0.05 else ""
            parts.append([("ram free ", "dim"), (size(host.mem_available), style), (f" of {size(host.mem_total)}", "dim")])
        for disk in host.disks:
            left = disk.free / disk.total if disk.total else 1.0
            style = "bad" if left < 0.02 else "warn" if left < 0.05 else ""
            sign = "! " if style else ""
            parts.append([(sign, style), (f"{clean(disk.mount, 24)} ", "dim"), (size(disk.free), style), (" free", "dim")])
        if host.shm_used is not None:
            parts.append([("/dev/shm ", "dim"), (size(host.shm_used), "")])
        parts.append([("net ", "dim"), (rate(host.net_rx), ""), (" in ", "dim"), (rate(host.net_tx), ""), (" out", "dim")])
        parts.append([("load ", "dim"), (number(host.load1, 1), "")])
        if host.swap_used:
            parts.append([("swap ", "dim"), (size(host.swap_used), "warn")])
        return labelled("Host", wrapped(parts, width - LABEL), width)


class AlertTable(Table):
    """What needs a person, the worst first."""

    DEFAULT_CSS = "AlertTable { margin-top: 1; }"
    topics = frozenset({"alerts"})
    name_of_rows = "alert"

    def columns(self) -> Sequence[Column]:
        return (Column("Alerts", LABEL - 2), Column("", 50, grow=True), Column("what to do", 60, priority=1))

    def rows(self) -> Sequence[Row]:
        out: list[Row] = []
        for alert in sorted_alerts(self.store.alerts):
            at = time.strftime("%H:%M", time.localtime(alert.wall))
            remedy = [(clean(alert.remedy or "", 200), "dim")]
            out.append(Row(alert.key, ([(at, "dim")], alert_line(alert), remedy), (alert.wall, alert.text, alert.remedy)))
        return out

    def empty(self) -> list[Line]:
        return [[(" " * LABEL, ""), ("none", "dim")]]


class Overview(Page):
    """Cards from top to bottom: GPUs, servers, jobs, host, alerts."""

    def compose(self) -> ComposeResult:
        yield GpuPanel()
        yield ServerPanel()
        yield JobPanel()
        yield HostPanel()
        yield AlertTable(id="alerts")

    def share_out(self, size: Size) -> None:
        tight = size.height < 20
        if self.has_class("tight") != tight:
            self.set_class(tight, "tight")
        set_height(self.query_one("#alerts", Panel), max(3, min(len(self.store.alerts) + 1, size.height // 3)))

    def opened(self, table: Table, key: str) -> None:
        if key in self.store.alerts:
            self.app.push_screen(alert_reader(self.store, key))
