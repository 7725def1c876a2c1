"""Screen 7: everything that runs and has run on the host."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult

from eagletui.records import JobState
from eagletui.screens.base import Page
from eagletui.screens.serving import bindings
from eagletui.screens.words import LIVE_STATES, job_progress, job_state
from eagletui.text import MISSING, clean, duration
from eagletui.views.jobs import grouped
from eagletui.widgets.paint import Line
from eagletui.widgets.table import Column, Row, Table


class JobTable(Table):
    """Running jobs on top, then by time, the newest first."""

    topics = frozenset({"jobs", "host", "clock"})
    fades = True
    name_of_rows = "job"

    def columns(self) -> Sequence[Column]:
        return (
            Column("job", 18),
            Column("kind", 11, "<", 3),
            Column("state", 18),
            Column("started", 11, "<", 4),
            Column("for", 9, ">", 2),
            Column("progress or result", 20, "<", 1, grow=True),
        )

    def rows(self) -> Sequence[Row]:
        return [self._row(id_, job, depth) for id_, job, depth in grouped(self.store.jobs)]

    def _row(self, id_: str, job: JobState, depth: int = 0) -> Row:
        name, kind, state = "  " * depth + clean(job.name, 60), clean(job.kind, 20), job_state(job)
        spent = self._spent(job)
        began = time.strftime("%m-%d %H:%M", time.localtime(job.started))
        progress = job_progress(job, self.store)
        return Row(
            id_,
            (name, [(kind, "dim")], [state], [(began, "dim")], duration(spent), progress or [(MISSING, "dim")]),
            (name, kind, state[0], job.started, spent, "".join(text for text, _ in progress)),
        )

    def _spent(self, job: JobState) -> float | None:
        if job.ended is not None:
            return job.ended - job.started
        if job.state not in LIVE_STATES:
            return None
        if job.started_boot is not None and self.store.host is not None:
            return self.store.host.boot - job.started_boot  # both by the host's clock
        if self.store.clock_offset is not None:
            return time.time() + self.store.clock_offset - job.started
        return None

    def empty(self) -> list[Line]:
        return [
            [],
            [(" No job has run on this host.", "")],
            [],
            [(" l launches a server from a profile; a job goes on when you leave. From the command line:", "dim")],
            [("   eagletui launch HOST PROFILE", ""), ("    an engine from a profile of the configuration", "dim")],
            [("   eagletui run HOST JOBFILE", ""), ("       any other job, or a pipeline of several", "dim")],
        ]


class Jobs(Page):
    """The table of jobs; ``enter`` opens what shows one best: pipelines, trainings and benchmarks have a screen."""

    scopes = ("jobs",)
    BINDINGS: ClassVar = bindings("jobs")

    def compose(self) -> ComposeResult:
        yield JobTable(id="jobs-table")

    def opened(self, table: Table, key: str) -> None:
        self.app.call_later(self.app.open_job, key)  # type: ignore[attr-defined]

    def action_remove(self) -> None:
        self.app.action_remove()  # type: ignore[attr-defined]
