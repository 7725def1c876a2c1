"""A job's state and what is left of its load, in words that are the same in every verb."""

from __future__ import annotations

from eagletui import text
from eagletui.commands.find import LIVE
from eagletui.records import Eta, JobState
from eagletui.views.causes import why_failed
from eagletui.views.work import outcome_words, work_words


def eta_words(eta: Eta) -> str:
    """``~1:20 to 6:10 left``; what is over already is no number."""
    if eta.high < 1:
        return "takes longer than expected"
    return f"~{text.clock(eta.low)} to {text.clock(eta.high)} left" if eta.low >= 1 else f"up to {text.clock(eta.high)} left"


def doing_words(job: JobState) -> str:
    """What a job does, how it ended, or what is the matter with it: in one line, empty where nothing is known."""
    if job.kind != "serve" and job.state not in LIVE and job.outcome:
        return outcome_words(job)
    work = "  ".join(work_words(job.work)) if job.work is not None and job.state in LIVE else ""
    return work or why_failed(job) or job.detail or ""


def job_words(job: JobState) -> str:
    """The state of a job in a few words."""
    state = job.health or job.state
    if job.state == "exited" and job.kind != "serve" and job.ok is not None:
        return "done" if job.ok else f"failed ({job.rc})" if job.rc else "failed"
    if job.state in ("exited", "failed_to_exec", "oom"):
        state = "failed" if job.health == "failed" else job.state.replace("_", " ")
        if job.rc:
            state += f" ({job.rc})"
    elif job.state == "leftover":
        state = f"leftover: {job.members or 0} of a dead server"
    elif job.state.startswith("lost_"):
        state = job.state.replace("_", ": ")
    return state
