"""Why a job failed: what its supervisor found out, else what its log says when it is read from here."""

from __future__ import annotations

from typing import NamedTuple

from eagletui.commands.desk import Desk
from eagletui.engines.diagnosis.judge import End
from eagletui.engines.reader import LogReader
from eagletui.hosts.base import HostError
from eagletui.records import Cause, JobState

PIECE = 64 * 1024
HEAD, TAIL = 8 << 20, 4 << 20
"""Of a log that is larger, only its beginning (the load) and its end (how it died) are read."""
OVER = frozenset(("exited", "oom", "failed_to_exec", "lost_supervisor", "lost_reboot", "lost_container"))


class Diagnosis(NamedTuple):
    """``outcome`` is one of loading, ready, failed, stopped; causes come with the likeliest first."""

    engine: str | None
    outcome: str
    causes: tuple[Cause, ...]


def end_of(job: JobState) -> End:
    """How the job's process ended, as far as its state tells."""
    return End(job.rc, job.state == "oom", job.state in OVER, job.ended_by is not None)


async def diagnose_job(desk: Desk, job: JobState) -> Diagnosis:
    """The diagnosis of a job. Raises `HostError` when its log has to be read and cannot be."""
    if job.causes:
        return Diagnosis(job.engine, "failed", job.causes)
    if not job.log:
        raise HostError("diagnose", f"{job.name} has no log that can be read", "give the log's file instead", kind="config")
    end = end_of(job)
    reader, size = await _read(desk, job.log, 0, HEAD)
    if size > HEAD:
        rest, _ = await _read(desk, job.log, max(HEAD, size - TAIL), size)
        outcome, causes = rest.diagnosis(end)
        if outcome in ("failed", "stopped") and reader.outcome != "failed":
            # lines were left out before these: only their place in bytes is known
            placed = tuple(cause._replace(evidence=tuple(e._replace(line=0) for e in cause.evidence)) for cause in causes)
            return Diagnosis(reader.engine or job.engine, outcome, placed)
    outcome, causes = reader.diagnosis(end)
    return Diagnosis(reader.engine or job.engine, outcome, causes)


async def _read(desk: Desk, path: str, start: int, end: int) -> tuple[LogReader, int]:
    """What the log says from ``start`` to ``end`` (or its end), and its size."""
    chunk = await desk.session.read(path, start, PIECE)
    reader = LogReader(chunk.offset)
    at = chunk.offset
    while chunk.data and at < end:
        reader.feed(chunk.data)
        at += len(chunk.data)
        chunk = await desk.session.read(path, at, PIECE)
    reader.finish()
    return reader, chunk.size
