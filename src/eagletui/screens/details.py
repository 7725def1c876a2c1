"""What ``enter`` shows of an alert and of a job: all that is known of it, one fact per line."""

from __future__ import annotations

import time

from eagletui.records import JobState
from eagletui.screens.words import alert_line, job_progress, job_state
from eagletui.store import Store
from eagletui.text import MISSING, clean, duration, number, plural, size
from eagletui.views.runners import runs_as
from eagletui.widgets.dialog import Reader
from eagletui.widgets.paint import Line, folded


def at_time(wall: float | None) -> str:
    """A moment by the host's clock, shown in this machine's time zone."""
    return MISSING if wall is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(wall))


def alert_reader(store: Store, key: str) -> Reader:
    """A dialog on the alert ``key``."""
    return Reader("alert", lambda width: alert_lines(store, key, width), frozenset({"alerts"}))


def alert_lines(store: Store, key: str, width: int) -> list[Line]:
    alert = store.alerts.get(key)
    if alert is None:
        return [[("✓ ", "good"), ("this is over: the alert has ended", "")]]
    out = folded_text("", clean(alert.text), width, "bad" if alert.severity == "bad" else "warn")
    out[0] = [alert_line(alert)[0], *out[0]]
    out.append([])
    if alert.remedy:
        out += [[("what to do", "dim")], *folded_text("  ", clean(alert.remedy), width, ""), []]
    out.append([(f"since {at_time(alert.wall)}", "dim"), (f"   from {clean(alert.source, 40)}" if alert.source else "", "dim")])
    if alert.acknowledged:
        out.append([("acknowledged", "dim")])
    return out


def folded_text(indent: str, text: str, width: int, style: str) -> list[Line]:
    """Text broken between words where it can be."""
    return [[(indent, ""), (line, style)] for line in folded(text, max(10, width - len(indent) - 2))]


def job_reader(store: Store, id_: str) -> Reader:
    """A dialog on the job ``id_``."""
    job = store.jobs.get(id_)
    title = clean(job.name, 60) if job is not None else "job"
    return Reader(title, lambda width: job_lines(store, id_, width), frozenset({"jobs"}))


def job_lines(store: Store, id_: str, width: int) -> list[Line]:
    job = store.jobs.get(id_)
    if job is None:
        return [[("! ", "warn"), ("this job is not on the host any more", "")]]
    word, style = job_state(job)
    out: list[Line] = [[(word, style), ("   ", ""), *job_progress(job, store)], []]
    for name, text in _facts(job):
        lines = folded_text("", text, width - 16, "dim" if text == MISSING else "")
        out += [[(f"{name if at == 0 else '':<14}  ", "dim"), *line] for at, line in enumerate(lines)]
    if job.phases:
        out += [[], [(f"{'phase':<24}{'spent':>10}   done", "head")]]
    for phase in job.phases:
        spent = duration(phase.seconds) if phase.seconds is not None else "running"
        done = "" if phase.done is None else f"{number(phase.done)}/{number(phase.total)} {clean(phase.unit or '', 16)}"
        name = clean(" ".join(filter(None, (phase.id, phase.role))), 24)
        out.append([(f"{name:<24}", ""), (f"{spent:>10}", "work" if phase.seconds is None else ""), (f"   {done}", "dim")])
    return out


def _facts(job: JobState) -> list[tuple[str, str]]:
    engine = " ".join(filter(None, (job.engine, job.engine_version)))
    facts: list[tuple[str, str | None]] = [
        ("id", job.id),
        ("kind", job.kind),
        ("engine", engine),
        ("model", job.model),
        (
            "drafter",
            None if job.drafter is None else f"{job.drafter}" + (f", {plural(job.k, 'draft token')} per step" if job.k else ""),
        ),
        ("port", None if job.port is None else str(job.port)),
        ("started", at_time(job.started)),
        ("ended", None if job.ended is None else at_time(job.ended)),
        ("exit status", None if job.rc is None else str(job.rc)),
        ("first error", job.first_error),
        ("detail", job.detail),
        ("ready after", None if job.ready_seconds is None else duration(job.ready_seconds)),
        ("runs as", runs_as(job)),
        ("could end it", job.survival),
        ("processes", None if job.members is None else number(job.members)),
        ("memory", None if job.rss is None else size(job.rss)),
        ("log", None if job.log is None else f"{job.log} ({size(job.log_size)})"),
        ("folder", job.cwd),
        ("command", " ".join(job.command) or None),
    ]
    return [(name, clean(text)) for name, text in facts if text]
