"""Which job a person means: by id, by the beginning of an id that no other has, or by name."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from difflib import get_close_matches

from eagletui.hosts.base import HostError
from eagletui.records import JobState

LIVE = ("launching", "running", "stopping")


def is_live(job: JobState) -> bool:
    """Whether something of the job runs, as far as its host knows."""
    return job.state in LIVE or bool(job.members)


def find_job(jobs: Iterable[JobState], word: str, *, strict: bool = False, host: str = "HOST") -> JobState:
    """The job that ``word`` names. Of several of one name the live one is meant, else the newest; not so when ``strict``.
    ``host`` is how the person calls the host, for the command that lists its jobs.

    Raises `HostError` of kind config when there is none, or more than one could be meant.
    """
    table = {job.id: job for job in jobs}
    if word in table:
        return table[word]
    named = sorted((job for job in table.values() if job.name == word), key=lambda job: job.started, reverse=True)
    live = [job for job in named if is_live(job)]
    if len(named) == 1 or (named and not strict and len(live) <= 1):
        return (live or named)[0]
    started = live or named or [job for job in table.values() if job.id.startswith(word)]
    if len(started) == 1 and not named:
        return started[0]
    if started:
        several = ", ".join(sorted(job.id for job in started)[-5:])
        raise HostError("job", f"{word!r} may mean {len(started)} jobs: {several}", "give the id", kind="config")
    near = get_close_matches(word, [*table, *{job.name for job in table.values()}], 1)
    remedy = f"did you mean {near[0]!r}?" if near else f"`eagletui jobs {shlex.quote(host)}` lists them" if table else ""
    why = f"there is no job {word!r} on this host" if table else "there are no jobs on this host"
    raise HostError("job", why, remedy, kind="config")
