"""Logs that an agent gathers in its memory (a unit's from the journal, a container's from its engine), over a lost connection.

The next agent gathers them once more, in another file: mostly the same bytes at the same places, else what is still kept of them.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from eagletui.hosts.base import Chunk, FileMark, HostError
from eagletui.watch.follow import Reader

OF_AGENT = "/proc/self/fd/"
"""Where such a log lies."""
PATIENCE = 20.0
"""Seconds within which an agent has gathered as much as the one before."""
PAUSE = 0.3
_LEAST = 8


class Place(NamedTuple):
    """Where reading goes on in the log that was gathered anew; ``offset`` None: it does not hold what was read last."""

    offset: int | None
    chunk: Chunk


def is_gathered(path: str) -> bool:
    """Whether the log under this path is one of an agent's."""
    return path.startswith(OF_AGENT)


async def find_place(reader: Reader, path: str, offset: int, before: bytes, *, patience: float = PATIENCE) -> Place:
    """Where the bytes ``before``, which ended at ``offset``, end now. Raises `HostError`, when the connection is lost again too.

    Waits until as much has been gathered as before, ``patience`` seconds at most.
    """
    deadline = asyncio.get_running_loop().time() + patience
    while True:
        late = asyncio.get_running_loop().time() >= deadline
        try:
            first = await reader.read(path, 0, 1)
        except HostError as error:
            if error.kind != "absent" or late:
                raise
        else:
            if first.size >= offset or late:
                break
        await asyncio.sleep(PAUSE)
    if first.size >= offset and await _ends_there(reader, path, first, offset, before):
        return Place(offset, first)
    return Place(await _elsewhere(reader, path, first, before), first)


async def _ends_there(reader: Reader, path: str, first: Chunk, offset: int, before: bytes) -> bool:
    try:
        await reader.read(path, offset, 1, 0.0, FileMark(first.dev, first.inode, before))
    except HostError as error:
        if error.kind != "replaced":
            raise
        return False
    return first.floor <= offset - len(before)  # else nobody has compared


async def _elsewhere(reader: Reader, path: str, first: Chunk, before: bytes) -> int | None:
    """The offset behind the newest place where the last line of ``before`` stands, and what was before it as well."""
    search = getattr(reader, "search", None)
    *_, line = before.rstrip(b"\r\n").rsplit(b"\n", 1)
    if search is None or len(line) < _LEAST:
        return None
    answer = await search(path, line.decode("utf-8", "ignore"), -1, backward=True, limit=1)
    if not answer["matches"]:
        return None
    match = answer["matches"][0]
    end = int(match["at"]) + int(match["length"]) + len(before) - len(before.rstrip(b"\r\n"))
    return end if await _ends_there(reader, path, first, end, before) else None
