"""A job's log as bytes, for a pipe or a plain terminal: its last lines, then what comes, without a byte lost or doubled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from eagletui.commands.desk import Desk
from eagletui.commands.find import is_live
from eagletui.hosts.base import Chunk, FileMark, HostError
from eagletui.records import JobState

PIECE = 65536
MOST_BACK = 64 << 20
WAIT = 20.0
FETCHED = 20.0
"""Seconds within which an agent has gathered the log of a server that was only found."""
OF_AGENT = "/proc/self/fd/"
"""Where a log lies that the agent itself gathers: in its memory."""
MOVED = 3.0
"""Seconds within which a job's supervisor has told that its log was moved."""
_MARK = 64


async def last_lines(desk: Desk, job: JobState, lines: int) -> tuple[bytes, Chunk]:
    """The last ``lines`` lines of a log, and the chunk at its end: reading goes on behind it. Raises `HostError`."""
    if job.log is None and job.adopted is not None and job.log_problem is None:
        job = await _fetched(desk, job)
    if job.log is None:
        raise HostError("logs", job.log_problem or f"{job.name} has no log", kind="absent")
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


async def _fetched(desk: Desk, job: JobState) -> JobState:
    """The state of a server that was only found, once the agent has its log (from the journal, from its container's engine)."""
    changed = asyncio.Event()
    unlisten = desk.store.listen(lambda topic: changed.set() if topic == "jobs" else None)
    try:
        async with asyncio.timeout(FETCHED):
            while not job.log and not job.log_problem:
                changed.clear()
                await changed.wait()
                job = desk.store.jobs.get(job.id, job)
    except TimeoutError:
        raise HostError("logs", f"the log of {job.name} has not come within {FETCHED:.0f} s", "try again", kind="agent") from None
    finally:
        unlisten()
    return job


async def from_there_on(desk: Desk, job: JobState, last: Chunk) -> AsyncIterator[bytes]:
    """What is written behind ``last``, as it comes; ends when the job has ended and all of it has been read.

    A lost connection is waited for. What happened to the log meanwhile - given back to the disk, truncated, replaced, moved - is
    told in a line of its own.
    """
    assert job.log is not None
    path, offset, identity, before = job.log, last.offset + len(last.data), (last.dev, last.inode), last.data[-_MARK:]
    while True:
        state = desk.store.jobs.get(job.id)
        over = state is None or not is_live(state)
        if state is not None and state.log:
            path = state.log  # it has been moved: the same file under another name
        try:
            chunk = await desk.session.read(path, offset, PIECE, 0.0 if over else WAIT, FileMark(*identity, before))
        except HostError as error:
            if error.kind not in ("absent", "replaced"):
                if not error.retry:
                    raise
                await desk.session.wait_online(3600.0)
                continue
            if state is None:
                return  # the job's record was removed, and its log with it
            gathered = await _gathered_anew(desk, job.id, path, offset, before)
            if gathered is not None:
                identity = gathered
                continue
            if await _has_moved(desk, job.id, path):
                continue
            if error.kind == "absent":
                yield b"\n... the log is gone ...\n"
                return
            first = await desk.session.read(path, 0, 1)
            what = b"truncated and written anew" if (first.dev, first.inode) == identity else b"replaced by another file"
            yield b"\n... the log was %s; this is its start ...\n" % what
            offset, identity, before = 0, (first.dev, first.inode), b""
            continue
        if chunk.size < offset:
            yield b"\n... the log was truncated; it begins anew ...\n"
            offset, before = 0, b""
            continue
        if chunk.offset > offset:
            yield b"\n... %d bytes were given back to the disk before they were read ...\n" % (chunk.offset - offset)
            before = b""
        offset = chunk.offset + len(chunk.data)
        if chunk.data:
            before = (before + chunk.data)[-_MARK:]
            yield chunk.data
        elif over:
            return


async def _has_moved(desk: Desk, job: str, path: str) -> bool:
    """Whether the job's supervisor tells, in a moment, that the log has another name now."""
    changed = asyncio.Event()
    unlisten = desk.store.listen(lambda topic: changed.set() if topic == "jobs" else None)
    try:
        async with asyncio.timeout(MOVED):
            while (state := desk.store.jobs.get(job)) is not None and is_live(state) and state.log == path:
                changed.clear()
                await changed.wait()
    except TimeoutError:
        return False  # it lies where it lay, and is another file
    finally:
        unlisten()
    return state is not None and state.log is not None and state.log != path


async def _gathered_anew(desk: Desk, job: str, path: str, offset: int, before: bytes) -> tuple[int, int] | None:
    """The identity of a log that another agent has gathered once more, when it holds what was read already at the same place.

    Then nothing is told twice. None for a log of any other kind, and when it begins elsewhere now.
    """
    if not path.startswith(OF_AGENT):
        return None
    deadline = asyncio.get_running_loop().time() + FETCHED
    while asyncio.get_running_loop().time() < deadline:
        state = desk.store.jobs.get(job)
        if state is None or not is_live(state):
            return None
        try:
            if state.log:
                first = await desk.session.read(state.log, 0, 1)
                if first.size >= offset:
                    await desk.session.read(state.log, offset, 1, 0.0, FileMark(first.dev, first.inode, before))
                    return first.dev, first.inode
        except HostError as error:
            if error.kind == "replaced":
                return None
            if error.kind != "absent" and not error.retry:
                raise
        await asyncio.sleep(0.3)  # until it has gathered as much as the one before
    return None
