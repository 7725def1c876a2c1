"""The table of jobs in the order in which it is shown: what runs on top, steps below their pipeline. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping

from eagletui.records import JobState

LIVE = frozenset(("launching", "running", "stopping"))


def is_live(job: JobState) -> bool:
    return job.state in LIVE


def grouped(jobs: Mapping[str, JobState]) -> list[tuple[str, JobState, int]]:
    """(key, job, depth): the live ones first, then by time, the newest first; the steps of a pipeline right below it, in their
    order in time. A step whose pipeline is gone stands for itself."""
    ids = {job.id: key for key, job in jobs.items()}
    below: dict[str, list[tuple[str, JobState]]] = {}
    tops: list[tuple[str, JobState]] = []
    for key, job in jobs.items():
        above = ids.get(job.parent) if job.parent is not None else None
        if above is None or above == key:
            tops.append((key, job))
        else:
            below.setdefault(above, []).append((key, job))
    out: list[tuple[str, JobState, int]] = []
    for key, job in sorted(tops, key=lambda item: (not is_live(item[1]), -item[1].started)):
        out.append((key, job, 0))
        out += [(one, step, 1) for one, step in sorted(below.pop(key, ()), key=lambda item: item[1].started)]
    # a circle of parents, which no supervisor writes: they are shown all the same
    out += [(key, job, 0) for rest in below.values() for key, job in rest]
    return out
