"""Why a job failed, in words, as its supervisor judged it. Pure."""

from __future__ import annotations

from eagletui.records import Cause, JobState


def known_cause(job: JobState) -> Cause | None:
    """The likeliest cause, when it is known; None when nothing failed or the catalogue does not know it."""
    return next((cause for cause in job.causes[:1] if cause.id != "unknown"), None)


def why_failed(job: JobState) -> str | None:
    """The cause in a few words with what to do, in one line; else the first error; None when there is neither."""
    cause = known_cause(job)
    return f"{cause.title} - {cause.remedy}" if cause is not None else job.first_error
