"""A job's log as bytes, for a pipe or a plain terminal: its last lines, then what comes, without a byte lost or doubled."""

from __future__ import annotations

from collections.abc import AsyncIterator

from eagletui.commands.desk import Desk
from eagletui.commands.find import is_live
from eagletui.hosts.base import Chunk, HostError
from eagletui.records import JobState

PIECE = 65536
MOST_BACK = 64 << 20
WAIT = 20.0


async def last_lines(desk: Desk, job: JobState, lines: int) -> tuple[bytes, Chunk]:
    """The last ``lines`` lines of a log, and the chunk at its end: reading goes on behind it. Raises `HostError`."""
    if job.log is None:
        raise HostError("logs", f"{job.name} has no log", kind="absent")
    last = await desk.session.read(job.log, -PIECE, PIECE)
    pieces, at, ends, size = [last.data], last.offset, last.data.count(b"\n"), len(last.data)
    while at > last.floor and ends <= lines and size < MOST_BACK:
        start = max(last.floor, at - PIECE)
        before = await desk.session.read(job.log, start, at - start, identity=(last.dev, last.inode))
        piece, at = before.data[: at - before.offset], before.offset
        pieces.append(piece)
        ends, size = ends + piece.count(b"\n"), size + len(piece)
    data = b"".join(reversed(pieces))
    cut = len(data) - data.endswith(b"\n")
    for _ in range(lines):
        if cut < 0:
            break
        cut = data.rfind(b"\n", 0, cut)
    return data[cut + 1 :] if lines else b"", last


async def from_there_on(desk: Desk, job: JobState, last: Chunk) -> AsyncIterator[bytes]:
    """What is written behind ``last``, as it comes; ends when the job has ended and all of it has been read.

    A lost connection is waited for; what was given back to the disk meanwhile is told in a line of its own.
    """
    assert job.log is not None
    offset, identity = last.offset + len(last.data), (last.dev, last.inode)
    while True:
        state = desk.store.jobs.get(job.id)
        over = state is None or not is_live(state)
        try:
            chunk = await desk.session.read(job.log, offset, PIECE, 0.0 if over else WAIT, identity)
        except HostError as error:
            if error.kind in ("absent", "replaced"):
                return  # the job's record was removed, and its log with it
            if not error.retry:
                raise
            await desk.session.wait_online(3600.0)
            continue
        if chunk.offset > offset:
            yield b"\n... %d bytes were given back to the disk before they were read ...\n" % (chunk.offset - offset)
        offset = chunk.offset + len(chunk.data)
        if chunk.data:
            yield chunk.data
        elif over:
            return
