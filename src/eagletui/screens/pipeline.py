"""A pipeline: its steps with what each does or did, where it stopped and why, and the servers that it starts and stops."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.geometry import Size

from eagletui.records import JobState
from eagletui.screens.base import set_height
from eagletui.screens.following import FollowingPage
from eagletui.screens.serving import bindings
from eagletui.screens.serving_words import warned
from eagletui.screens.words import job_state
from eagletui.screens.work_words import outcome_line, work_line
from eagletui.store import Store
from eagletui.text import MISSING, clean, duration
from eagletui.views.pipeline import PipelineServer, Step, pipeline_job, servers_of, steps_of, waits_for
from eagletui.views.serving import elapsed, tensor_parallel
from eagletui.views.work import figure, left_words
from eagletui.widgets.paint import Line, folded, wrapped
from eagletui.widgets.panel import Panel
from eagletui.widgets.table import Column, Row, Table

TOPICS = frozenset({"jobs", "pipeline", "clock"})
_STATES = {
    "waiting": ("· waiting", "dim"),
    "running": ("● running", "good"),
    "done": ("✓ done", "good"),
    "failed": ("✗ failed", "bad"),
    "ended": ("- ended", "dim"),
}
_SERVERS = {"starting": ("~ loading", "work"), "ready": ("● ready", "good"), "stopped": ("- stopped", "dim")}


def step_state(step: Step) -> tuple[str, str]:
    if step.state == "failed" and step.gate_failed:
        return ("✗ gate", "bad")
    if step.state == "running" and step.now is not None and step.now.troubles:
        return ("! running", "warn")
    return _STATES[step.state]


def step_words(step: Step, steps: Sequence[Step]) -> Line:
    """What a step does, how it ended, or what it waits for."""
    if step.state == "running":
        work = step.now.work if step.now is not None else None
        if work is not None:
            return work_line(work)
        return [(clean((step.now.detail if step.now is not None else "") or "starts", 200), "dim")]
    if step.state in ("failed", "ended"):
        return [(clean(step.why, 400) or MISSING, "bad" if step.state == "failed" else "")]
    if step.state == "done":
        kept = ", ".join(f"{clean(name, 30)} {figure(value)}" for name, value in step.figures)
        return [(clean(step.why, 300), ""), (f"   gate passed: {kept}" if kept else "", "dim")]
    bounds = ", ".join(clean(bound, 60) for bound in step.gates)
    return [(clean(waits_for(step, steps), 60), "dim"), (f"   gate: {bounds}" if bounds else "", "dim")]


def head_lines(job: JobState, steps: Sequence[Step], spent: float | None, width: int) -> list[Line]:
    """Name, state, how many steps are done; all that needs a person."""
    word, style = job_state(job)
    state: Line = [(word, style)]
    if spent is not None:
        state.append((f" {'after ' if job.ended is not None else ''}{duration(spent)}", ""))
    done = sum(1 for step in steps if step.state == "done")
    parts: list[Line] = [[(clean(job.name, 40), "strong")], state]
    if steps:
        parts.append([(f"{done} of {len(steps)} steps done", "")])
    if job.work is not None and job.ended is None:
        left = left_words(job.work)
        if left:
            parts.append([(left, "")])
        if job.work.stage:
            parts.append([(clean(job.work.stage, 120), "work")])
    out = [[(" ", ""), *line] for line in wrapped(parts, width - 1)]
    for line in [outcome_line(job)] if job.ended is not None else []:
        if line:
            sign, (text, tone) = line[0], line[1]
            pieces = folded(text, max(10, width - 4))[:4]
            out += [[(" ", ""), sign if at == 0 else ("  ", ""), (piece, tone)] for at, piece in enumerate(pieces)]
    for trouble in job.troubles if job.ended is None else ():
        out += warned(trouble, width)
    return out


def row_key(step: Step, store: Store) -> str:
    """The id of its job, where it has one."""
    return step.job if step.job is not None and step.job in store.jobs else f"step:{step.id}"


class StepTable(Table):
    """The steps in their order. A row's key is its job's id, where it has one."""

    topics = TOPICS
    fades = True
    name_of_rows = "step"
    without = frozenset(("sort",))

    def columns(self) -> Sequence[Column]:
        staged = any(step.stage for step in self._steps())
        return (
            Column("", 2, ">", 5),
            Column("step", 16),
            Column("kind", 11, "<", 4),
            Column("stage", 6 if staged else 0, ">", 3),
            Column("server", 10 if any(step.server for step in self._steps()) else 0, "<", 6),
            Column("state", 10),
            Column("for", 9, ">", 2),
            Column("progress or result", 24, "<", 1, grow=True),
        )

    def _steps(self) -> list[Step]:
        job = pipeline_job(self.store)
        return steps_of(self.store.pipelines.get(job.id), self.store.jobs, job.id) if job is not None else []

    def rows(self) -> Sequence[Row]:
        steps = self._steps()
        return [self._row(number, step, steps) for number, step in enumerate(steps, 1)]

    def lines(self, width: int) -> list[Line]:
        if self.cursor_key is None and (now := self._now()) is not None:
            self.cursor_key = now
        return super().lines(width)

    def _now(self) -> str | None:
        """The row to begin at: the step that runs, or the one where it stopped."""
        return next((row_key(step, self.store) for step in self._steps() if step.state in ("running", "failed", "ended")), None)

    def _row(self, number: int, step: Step, steps: Sequence[Step]) -> Row:
        spent = step.seconds
        if step.state == "running" and step.now is not None:
            spent = elapsed(self.store, step.now, time.monotonic())
        again = f" ({step.attempt})" if step.attempt > 1 else ""
        stage = "" if step.stage is None else clean(step.stage, 8)
        return Row(
            row_key(step, self.store),
            (
                [(str(number), "dim")],
                [(clean(step.id, 40), "dim" if step.state == "waiting" else ""), (again, "dim")],
                [(clean(step.kind, 20), "dim")],
                stage,
                [(clean(step.server or "", 20), "dim")],
                [step_state(step)],
                "" if spent is None else duration(spent),
                step_words(step, steps),
            ),
        )

    def empty(self) -> list[Line]:
        job = pipeline_job(self.store)
        if job is None:
            return [[], [(" No pipeline has run on this host.", "")]]
        docs = self.store.pipelines.get(job.id)
        if docs is not None and docs.problem:
            return warned(docs.problem, max(20, self.size.width))
        return [[(" reading its record", "dim")]]


class Head(Panel):
    """The pipeline itself."""

    topics = TOPICS
    fades = True

    def lines(self, width: int) -> list[Line]:
        job = pipeline_job(self.store)
        if job is None:
            return []
        docs = self.store.pipelines.get(job.id)
        steps = steps_of(docs, self.store.jobs, job.id)
        out = head_lines(job, steps, elapsed(self.store, job, time.monotonic()), width)
        if docs is not None:
            place = docs.plan.get("dir")
            if isinstance(place, str):
                out.append([(" in ", "dim"), (clean(place, max(10, width - 5)), "dim")])
            if docs.problem and steps:
                out += warned(docs.problem, width)
        return [*out, []]


class Servers(Panel):
    """Which servers its steps need, and how they are."""

    topics = TOPICS
    fades = True

    def lines(self, width: int) -> list[Line]:
        job = pipeline_job(self.store)
        if job is None:
            return []
        found = servers_of(self.store.pipelines.get(job.id), self.store.jobs, job.id)
        if not found:
            return []
        out: list[Line] = [[], [(" servers", "head")]]
        return out + [self._line(server, width) for server in found]

    def _line(self, server: PipelineServer, width: int) -> Line:
        word, style = _SERVERS.get(server.state, (f"· {clean(server.state, 20)}", "dim"))
        if server.now is not None and server.now.ended is None:
            word, style = job_state(server.now)
        line: Line = [(f" {clean(server.name, 16):<16} ", ""), (f"{word:<14}", style)]
        if server.port is not None:
            line.append((f" :{server.port:<6}", ""))
        if server.now is not None and server.now.model:
            tp = tensor_parallel(server.now)
            line.append((clean(server.now.model, 60) + (f" TP {tp}" if tp else "") + "  ", "dim"))
        if server.why:
            return [*line, (clean(server.why, 200), "bad")]
        return [*line, (f"for {', '.join(clean(step, 20) for step in server.steps)}", "dim")] if server.steps else line


class PipelinePage(FollowingPage):
    """Head, steps, servers; ``enter`` opens what shows a step best."""

    scopes = ("pipeline",)
    followed_topic = "pipeline"
    BINDINGS: ClassVar = bindings("pipeline")

    def compose(self) -> ComposeResult:
        yield Head(id="pipeline-head")
        yield StepTable(id="steps")
        yield Servers(id="pipeline-servers")

    def share_out(self, size: Size) -> None:
        head, below = self.query_one("#pipeline-head", Head), self.query_one("#pipeline-servers", Servers)
        table = self.query_one("#steps", StepTable)
        left = size.height - len(head.lines(size.width)) - len(below.lines(size.width))
        set_height(table, max(3, min(len(table.rows()) + 1 if table.rows() else 4, left)))

    def opened(self, table: Table, key: str) -> None:
        if key in self.store.jobs:
            self.app.call_later(self.app.open_job, key)  # type: ignore[attr-defined]
        else:
            self.app.notify("this step has not been started yet", markup=False)

    def action_step_log(self) -> None:
        job = pipeline_job(self.store)
        if job is not None:
            self.app.call_later(self.app.show_log, job.id)  # type: ignore[attr-defined]

    def wanted(self) -> tuple[str, ...]:
        """The pipeline that is shown."""
        job = pipeline_job(self.store)
        return () if job is None else (job.id,)
