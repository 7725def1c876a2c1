"""A job's state in words, the same in every verb."""

from __future__ import annotations

from eagletui.records import JobState


def job_words(job: JobState) -> str:
    """The state of a job in a few words."""
    state = job.health or job.state
    if job.state in ("exited", "failed_to_exec", "oom"):
        state = "failed" if job.health == "failed" else job.state.replace("_", " ")
        if job.rc:
            state += f" ({job.rc})"
    elif job.state.startswith("lost_"):
        state = job.state.replace("_", ": ")
    return state
