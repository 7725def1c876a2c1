"""Follow a file of JSON lines on the host that its writer only appends to: the newest part first, then the past, then on.

Offsets never change within one inode; when the inode changes the writer has begun a new file under the name (the old lines,
thinned, lie in ``NAME.old``). Nothing is lost or doubled over a reconnect: reading goes on at the byte where it stopped.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

from eagletui.hosts.base import Chunk, HostError

PIECE = 65536


class Reader(Protocol):
    """The part of a session that following needs."""

    async def read(
        self, path: str, offset: int, limit: int = PIECE, wait: float = 0.0, identity: tuple[int, int] | None = None
    ) -> Chunk: ...


def whole_lines(data: bytes) -> tuple[list[Any], bytes, int]:
    """The JSON values of the whole lines in ``data``, the unfinished rest, and the number of lines that were no JSON."""
    *lines, rest = data.split(b"\n")
    values, bad = [], 0
    for line in lines:
        if not line:
            continue
        try:
            values.append(json.loads(line))
        except ValueError:
            bad += 1
    return values, rest, bad


class LineFile:
    """One such file. `tail` and `past` fetch what is there, `follow` yields what comes; ``on_bad(n)`` hears of bad lines."""

    def __init__(self, reader: Reader, path: str, on_bad: Callable[[int], None] = lambda n: None) -> None:
        self._reader, self.path, self._on_bad = reader, path, on_bad
        self._offset: int | None = None
        self._tail_start = 0
        self._identity: tuple[int, int] | None = None
        self._rest = b""

    async def tail(self, size: int) -> list[Any]:
        """The lines within the last ``size`` bytes; `follow` goes on behind them, `past` ends before them."""
        first = await self._reader.read(self.path, -size, PIECE)
        self._identity = (first.dev, first.inode)
        data, end = first.data, first.offset + len(first.data)
        while end < first.size:
            chunk = await self._reader.read(self.path, end, PIECE, identity=self._identity)
            if not chunk.data:
                break
            data, end = data + chunk.data, chunk.offset + len(chunk.data)
        start = first.offset
        if start > 0:
            cut = data.find(b"\n") + 1
            data, start = data[cut:], start + cut
        values, self._rest, bad = whole_lines(data)
        self._tail_start, self._offset = start, end
        self._report(bad)
        return values

    async def past(self) -> AsyncIterator[list[Any]]:
        """The lines before the tail, oldest first: those of ``NAME.old``, then of this file. A rotation meanwhile ends it."""
        async for values in self._span(self.path + ".old", 0, None, None):
            yield values
        async for values in self._span(self.path, 0, self._tail_start, self._identity):
            yield values

    async def _span(self, path: str, start: int, end: int | None, identity: tuple[int, int] | None) -> AsyncIterator[list[Any]]:
        rest, offset = b"", start
        while end is None or offset < end:
            try:
                chunk = await self._reader.read(
                    path, offset, PIECE if end is None else min(PIECE, end - offset), identity=identity
                )
            except HostError as error:
                if error.kind in ("absent", "replaced"):
                    return  # never rotated, or rotated just now: those lines are in the other file
                raise
            if not chunk.data:
                return
            identity = (chunk.dev, chunk.inode)
            offset = chunk.offset + len(chunk.data)
            values, rest, bad = whole_lines(rest + chunk.data)
            self._report(bad)
            yield values

    async def follow(self, wait: float) -> list[Any]:
        """What has come since; waits up to ``wait`` seconds for something. Call it again and again.

        After a rotation the end of the old file comes (again): the caller drops the lines that it has by their time.
        """
        try:
            chunk = await self._reader.read(self.path, self._offset or 0, PIECE, wait, self._identity)
        except HostError as error:
            if error.kind != "replaced":
                raise
            self._offset, self._identity, self._rest = 0, None, b""
            return await LineFile(self._reader, self.path + ".old", self._on_bad).tail(PIECE)
        self._identity = (chunk.dev, chunk.inode)
        self._offset = chunk.offset + len(chunk.data)
        values, self._rest, bad = whole_lines(self._rest + chunk.data)
        self._report(bad)
        return values

    def _report(self, bad: int) -> None:
        if bad:
            self._on_bad(bad)
