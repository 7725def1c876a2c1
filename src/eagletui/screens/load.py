"""Screen 3: is it hanging or working, how long yet, and what then."""

from __future__ import annotations

from typing import cast

from textual.app import ComposeResult
from textual.geometry import Size

from eagletui.records import JobState
from eagletui.screens.base import Desk, set_height
from eagletui.screens.load_words import (
    cause_lines,
    ended_lines,
    eta_line,
    failed_lines,
    left_lines,
    liveness_lines,
    log_lines,
    memory_lines,
    orphan_lines,
    phase_lines,
    ready_lines,
    sign_parts,
    silence_line,
    stopping_lines,
)
from eagletui.screens.serving import Head, ServerPart, ServingPage
from eagletui.views.loading import eta_of, fold_lines, job_cards, silence_of, squeezed, steps_of, work_of
from eagletui.views.serving import LEFTOVER, LIVE, current, has_failed, is_alive, is_loading, is_stopping
from eagletui.widgets.paint import Line, wrapped

LEAST_TAIL = 3
LOAD_TOPICS = frozenset({"jobs", "selected", "clock", "gpus"})


class Outcome(ServerPart):
    """What is left and how long it has been silent; once it is over, how it ended."""

    topics = frozenset({"jobs", "selected", "clock", "gpus", "logs"})

    def about(self, job: JobState, width: int) -> list[Line]:
        if has_failed(job):
            out = failed_lines(job, self.store.tails.get(job.id, ()), self.frame.keys, width)
        elif not is_alive(job):
            out = ended_lines(job, width)
        elif job.state == LEFTOVER:
            out = left_lines(self.store, job, width)
        elif job.state == "lost_supervisor":
            out = orphan_lines(job, width)
        elif is_stopping(job):
            out = stopping_lines(job, width)
        elif is_loading(job):
            silence = silence_of(self.store, job, self.now)
            work = work_of(self.store, job)
            found = self.store.liveness.get(job.id)
            stuck = found is not None and found.verdict in ("stuck", "suspect")
            stuck = stuck or (silence is not None and silence.too_long and work.still)
            out = cause_lines(job.causes, width)
            out += [eta_line(eta_of(self.store, job, self.now), width, stuck)]
            out += liveness_lines(found, self.frame.keys, width) or [silence_line(silence, work, width, not job.log_size)]
        else:
            out = liveness_lines(self.store.liveness.get(job.id), self.frame.keys, width)
            out += ready_lines(self.store, job, job_cards(self.store, job), width)
        return [*out, []]


class Phases(ServerPart):
    """The phases of the load in at most ``most`` rows."""

    topics = LOAD_TOPICS
    most = 20

    def about(self, job: JobState, width: int) -> list[Line]:
        steps = steps_of(self.store, job, self.now)
        if not steps:
            return [[(" no phase in its log yet" if is_loading(job) else " its log shows no phases", "dim")], []]
        return [*phase_lines(squeezed(steps, self.most), job, work_of(self.store, job), width), []]


class Signs(ServerPart):
    """What moves besides the log, and the memory of the cards."""

    topics = LOAD_TOPICS

    def about(self, job: JobState, width: int) -> list[Line]:
        if job.state not in LIVE:
            return []
        work = work_of(self.store, job)
        parts = sign_parts(job, work)
        out: list[Line] = [[(" ", ""), *line] for line in wrapped(parts, width - 1, most=2)] if parts else []
        out += memory_lines(job, self.store.gpus.cards if self.store.gpus is not None else (), work, width)
        return [*out, []] if out else []


class Tail(ServerPart):
    """The newest lines of the log, without noise."""

    topics = frozenset({"logs", "selected", "jobs"})

    def about(self, job: JobState, width: int) -> list[Line]:
        height = self.size.height
        return log_lines(fold_lines(self.store.tails.get(job.id, ()), height), width, height)


class Load(ServingPage):
    """Outcome, phases, signs of work, and the log in what room is left."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._followed: str | None = None

    @property
    def looks(self) -> tuple[str, ...]:
        return (f"log:{self._followed}",) if self._followed is not None else ()

    def compose(self) -> ComposeResult:
        yield Head()
        yield Outcome(id="outcome")
        yield Phases(id="phases")
        yield Signs(id="signs")
        yield Tail(id="tail")

    def share_out(self, size: Size) -> None:
        job = current(self.store)
        phases = self.query_one("#phases", Phases)
        used = 3 + sum(len(self.query_one(name, ServerPart).lines(size.width)) for name in ("#outcome", "#signs"))
        room = size.height - used - LEAST_TAIL
        phases.most = max(3, room - 2)
        left = size.height - used - len(phases.lines(size.width))
        set_height(self.query_one("#tail", Tail), max(1, left) if job is not None else 0)

    def refresh_topics(self, topics: frozenset[str]) -> None:
        self._follow_log()
        super().refresh_topics(topics)

    def redraw(self) -> None:
        self._follow_log()
        super().redraw()

    def _follow_log(self) -> None:
        """Have the log of the job that is shown read, and no other's. Called only while this screen is shown."""
        wanted = self.store.selected
        if wanted == self._followed:
            return
        watch = cast(Desk, self.app.desk).watch  # type: ignore[attr-defined]
        if self._followed is not None:
            watch.look(f"log:{self._followed}", False)
        self._followed = wanted
        if wanted is not None:
            watch.look(f"log:{wanted}", True)
