"""Logs as they are looked at: a window of lines anywhere in a file of any size, and the newest lines of a watched job.

Everything is read by offset, at most 64 KiB at a time, so memory stays flat and a reconnect neither loses nor doubles a line. A
log that is written faster than it can be read is followed at its end: what was skipped lies in the file; paging back finds it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from eagletui.engines.bars import parse_bar
from eagletui.engines.stream import Line, LineSplitter, records_of
from eagletui.hosts.base import Chunk, Doc, FileMark, HostError
from eagletui.records import LogLine
from eagletui.store import Store
from eagletui.watch.follow import Reader
from eagletui.watch.regathered import find_place, is_gathered

PIECE = 65536
KEPT = 4000
"""Lines that a window holds, unless one piece has more; it gives up those at the other end of where it is read on."""
JOINT = 500
"""Lines that stay beside a piece just read, so that the place from which it was asked for does not go."""
TAIL = 200
BEHIND = 4 * PIECE
"""Bytes between a follower and the end of the file from which on it jumps to the end."""
LONGEST = 1 << 20
"""How far back the start of a line is looked for; a longer one is cut there."""
_MARK = 64
"""Bytes before the end of the window by which a file that was written anew is told from one that grew."""
_LINE_END = re.compile(rb"[\r\n]")


class LogReader(Reader, Protocol):
    """The part of a session that an open log needs."""

    async def search(self, path: str, pattern: str, start: int = 0, **params: object) -> Doc: ...


class Match(NamedTuple):
    """A place in the log: ``at`` is the first byte of the match, ``length`` its bytes."""

    at: int
    length: int


def lines_of(raw: Line) -> list[LogLine]:
    """The records of one physical line, ready for the view."""
    offset, data, cut = raw
    found = list(records_of(raw))
    ends = [*(record.offset for record in found[1:]), offset + len(data) + cut][: len(found)]
    out = []
    for record, end in zip(found, ends, strict=True):
        text = record.text
        bar = "%" in text and "|" in text and parse_bar(text.lstrip().encode()) is not None
        noise = record.severity in ("debug", "info", "warning") and not bar and record.noise
        out.append(
            LogLine(
                record.offset, max(end, record.offset + 1), text, record.severity, record.process, record.stamp, noise, bar, cut
            )
        )
    return out


def note(offset: int, text: str) -> LogLine:
    """A line that is not in the log: what happened to it. It takes no bytes, so ``end`` is ``offset``."""
    return LogLine(offset, offset, text, "warning")


def _first_line(data: bytes) -> int | None:
    """Where the first line begins that lies whole in ``data``, which may start within one."""
    cut = _LINE_END.search(data)
    return cut.end() if cut is not None and cut.end() < len(data) else None


class LogWindow:
    """The lines of a log around one place. `lines` are whole and in order, from byte ``start`` to byte ``end`` of the file.

    `open_end` or `open_at` first; then `back` and `forward` read on, `follow` waits for what comes. All raise `HostError`.
    Reading back and following may overlap: what comes for a window that has been moved meanwhile is dropped.
    """

    def __init__(self, reader: LogReader | Reader, path: str, kept: int = KEPT) -> None:
        self._reader, self.path, self._kept = reader, path, kept
        self.lines: list[LogLine] = []
        self._starts: list[int] = []
        self.start = self.end = self.size = self.floor = 0
        self.mtime: float | None = None
        self.opened = False
        self.revision = 0
        self._identity: tuple[int, int] | None = None
        self._last = b""
        self._splitter = LineSplitter()
        self._epoch = 0

    @property
    def at_end(self) -> bool:
        """Whether the window reaches to the end of the file, as it was when it was last read."""
        return self.end >= self.size

    @property
    def pending(self) -> list[LogLine]:
        """The line at the end of the file that has no line end yet: the bar that tqdm shows now."""
        return [line for raw in self._splitter.unfinished for line in lines_of(raw)]

    def shown(self) -> list[LogLine]:
        """All lines of the window, with the unfinished one."""
        return self.lines + self.pending

    def holds(self, at: int) -> bool:
        """Whether the byte ``at`` lies in the window."""
        return self.opened and self.start <= at < self.end

    # ------------------------------------------------------------------------------------------------------ moving it

    async def open_end(self) -> None:
        """Show the end of the log, as it is now."""
        await self._open(-PIECE)

    async def open_at(self, at: int) -> None:
        """Show the log around the byte ``at``."""
        await self._open(max(0, at - PIECE // 2))

    async def open_start(self) -> None:
        """Show the first lines that the log still holds."""
        await self.open_at(0)

    async def _open(self, offset: int) -> None:
        epoch = self._move()
        try:
            chunk = await self._read(offset)
            if chunk.offset > chunk.size:  # it has been truncated: there is nothing where we wanted to look
                chunk = await self._read(-PIECE)
            data, at = chunk.data, chunk.offset
            while at > chunk.floor and _first_line(data) is None and len(data) < LONGEST:
                before = await self._read(max(chunk.floor, at - PIECE), min(PIECE, at - chunk.floor))
                data, at = before.data[: max(0, at - before.offset)] + data, min(at, before.offset)
        except _Moved:
            return  # the window shows the start of the new file
        if epoch == self._epoch:
            self._begin(chunk, data, at)

    def _move(self) -> int:
        self._epoch += 1
        return self._epoch

    async def _read(self, offset: int, limit: int = PIECE, wait: float = 0.0, before: bytes = b"") -> Chunk:
        identity = None if self._identity is None else FileMark(*self._identity, before)
        try:
            return await self._reader.read(self.path, offset, limit, wait, identity)
        except HostError as error:
            if is_gathered(self.path) and self.opened and error.kind in ("replaced", "absent"):
                if await self._go_on_in_another():
                    return await self._reader.read(self.path, offset, limit, wait, self._identity)
                raise _Moved from None
            if error.kind != "replaced":
                raise
            was, self._identity = self._identity, None
            chunk = await self._reader.read(self.path, 0, PIECE)
            same = was == (chunk.dev, chunk.inode)
            what = "was truncated and written anew" if same else "was replaced by another file"
            self._restart(chunk, f"the log {what}; this is its start")
            raise _Moved from None

    async def _go_on_in_another(self) -> bool:
        """Another agent has gathered this log once more. True when all of it stands where it stood; else the window has moved."""
        epoch = self._epoch
        place = await find_place(self._reader, self.path, self.end, self._last)
        if epoch != self._epoch:
            return False  # somebody has moved the window meanwhile
        if place.offset == self.end:
            self._seen(place.chunk)
            return True
        self._move()
        if place.offset is not None:
            self._seen(place.chunk)
            self._shift(place.offset - self.end)
            return False
        chunk = await self._reader.read(self.path, -PIECE, PIECE)
        self._begin(chunk, chunk.data, chunk.offset)
        why = "lines are missing before this: the log was gathered anew, and what was shown last is not kept any more"
        self.lines.insert(0, note(self.start, why))
        self._starts.insert(0, self.start)
        return False

    def _shift(self, by: int) -> None:
        """The same lines stand ``by`` bytes further on now; those that are not kept any more go."""
        moved = [
            (at + by, line._replace(offset=line.offset + by, end=line.end + by))
            for at, line in zip(self._starts, self.lines, strict=True)
        ]
        kept = [(at, line) for at, line in moved if at >= self.floor]
        self._starts, self.lines = [at for at, _ in kept], [line for _, line in kept]
        pending = self._splitter.pending
        self.end += by
        self.start = max(self.start + by, self._starts[0] if self._starts else self.end - len(pending), self.floor)
        self._splitter = LineSplitter(self.end - len(pending))
        self._splitter.feed(pending)
        self.revision += 1

    def go_on_at(self, path: str) -> None:
        """The log has another name now: the same file was moved, or has only a descriptor's name any more."""
        self.path = path

    def _seen(self, chunk: Chunk) -> None:
        self._identity = (chunk.dev, chunk.inode)
        self.size, self.floor, self.mtime = chunk.size, chunk.floor, chunk.mtime

    def _begin(self, chunk: Chunk, data: bytes, at: int) -> None:
        self._seen(chunk)
        if at > chunk.floor:
            cut = _first_line(data) or 0
            data, at = data[cut:], at + cut
        self._clear(at)
        if chunk.floor and at <= chunk.floor:
            self._add([(at, note(at, "what was before this has been given back to the disk"))])
        self._feed(data)
        self.opened = True

    def _restart(self, chunk: Chunk, why: str) -> None:
        self._move()
        self._seen(chunk)
        self._clear(chunk.offset)
        self._add([(chunk.offset, note(chunk.offset, why))])
        self._feed(chunk.data)
        self.opened = True

    def _clear(self, at: int) -> None:
        self.lines, self._starts = [], []
        self.start = self.end = at
        self._last = b""
        self._splitter = LineSplitter(at)
        self.revision += 1

    def _feed(self, data: bytes) -> int:
        added = self._add((raw[0], line) for raw in self._splitter.feed(data) for line in lines_of(raw))
        self.end = self._splitter.offset
        self._last = (self._last + data[-_MARK:])[-_MARK:]
        self.revision += 1 if data else 0
        return added

    def _add(self, entries: Iterable[tuple[int, LogLine]]) -> int:
        before = len(self.lines)
        for start, line in entries:
            self._starts.append(start)
            self.lines.append(line)
        return len(self.lines) - before

    # ------------------------------------------------------------------------------------------------------ reading on

    async def back(self) -> int:
        """Read on before the window until lines come; returns how many, 0 at the start of the log.

        A piece may hold empty lines only: it moves ``start`` and gives none.
        """
        while self.opened and self.start > self.floor:
            epoch, start = self._epoch, self.start
            came = await self._piece_back()
            if came or epoch != self._epoch or self.start >= start:
                return came
        return 0

    async def _piece_back(self) -> int:
        epoch, data, at = self._epoch, b"", self.start
        while True:
            low = max(self.floor, at - PIECE)
            try:
                chunk = await self._read(low, at - low)
            except _Moved:
                return 0
            if epoch != self._epoch:
                return 0
            self._seen(chunk)
            if chunk.size < at:
                await self._truncated()
                return 0
            data = chunk.data[: max(0, at - chunk.offset)] + data
            at = min(at, chunk.offset)
            if at <= chunk.floor or len(data) >= LONGEST or not chunk.data:
                break
            cut = _first_line(data)
            if cut is not None:
                at, data = at + cut, data[cut:]
                break
        splitter = LineSplitter(at)
        raws = [*splitter.feed(data), *splitter.finish()]
        found = [(raw[0], line) for raw in raws for line in lines_of(raw)]
        self._starts[:0] = [start for start, _ in found]
        self.lines[:0] = [line for _, line in found]
        self.start = at
        self.revision += 1
        self._give_up_end(len(found))
        return len(found)

    async def forward(self, wait: float = 0.0) -> int:
        """Read one more piece after the window, waiting up to ``wait`` seconds for it; the number of lines that ended in it.

        0 is not the end of the log: a piece may lie within one line. `at_end` tells.
        """
        epoch = self._epoch
        try:
            chunk = await self._read(self.end, PIECE, wait, self._last)
        except _Moved:
            return len(self.lines)
        if epoch != self._epoch:
            return 0
        self._seen(chunk)
        if chunk.size < self.end:
            return await self._truncated()
        if chunk.offset > self.end:
            lost, self._last = chunk.offset - self.end, b""
            self._add((raw[0], line) for raw in self._splitter.finish() for line in lines_of(raw))
            self._splitter = LineSplitter(chunk.offset)
            self._add([(chunk.offset, note(chunk.offset, f"{lost:,} bytes before this have been given back to the disk"))])
        added = self._feed(chunk.data)
        self._give_up_start(added)
        return added

    async def follow(self, wait: float) -> int:
        """What has come at the end, or the end itself when it has run away; waits up to ``wait`` seconds for something."""
        if not self.opened or self.size - self.end > BEHIND:
            # a flood: half a piece is several screenfuls, and the keys must not wait until more of it has been read
            await self._open(-PIECE // 2 if self.opened else -PIECE)
            return len(self.lines)
        return await self.forward(wait)

    async def _truncated(self) -> int:
        self._move()
        chunk = await self._reader.read(self.path, 0, PIECE)
        self._restart(chunk, "the log was truncated; it begins anew")
        return len(self.lines)

    def _give_up_start(self, fresh: int) -> None:
        """Drop whole physical lines at the start beyond what is kept; ``fresh`` have just come at the other end."""
        extra = len(self.lines) - max(self._kept, fresh + JOINT)
        if extra <= 0:
            return
        while extra < len(self.lines) and self._starts[extra] == self._starts[extra - 1]:
            extra += 1
        if extra < len(self.lines):
            del self.lines[:extra], self._starts[:extra]
            self.start = self._starts[0]

    def _give_up_end(self, fresh: int) -> None:
        keep = max(self._kept, fresh + JOINT)
        if len(self.lines) <= keep:
            return
        while keep > 1 and self._starts[keep] == self._starts[keep - 1]:
            keep -= 1
        at = self._starts[keep]
        del self.lines[keep:], self._starts[keep:]
        self.end, self._last = at, b""
        self._splitter = LineSplitter(at)
        self._move()  # a piece on its way belongs behind what was just given up

    # ------------------------------------------------------------------------------------------------------ searching

    async def find(
        self,
        pattern: str,
        start: int,
        *,
        backward: bool = False,
        regex: bool = False,
        told: Callable[[int], None] | None = None,
    ) -> Match | None:
        """The next place that holds ``pattern`` from the byte ``start`` on (backward: before it), searched on the host.

        Case counts only when the pattern has a capital. ``told(byte)`` hears how far it has come, after each slice.
        """
        search = getattr(self._reader, "search", None)
        if search is None:
            raise HostError("search", "this host cannot search in files", kind="agent")
        small = pattern == pattern.lower()
        at = start
        while True:
            answer = await search(self.path, pattern, at, backward=backward, regex=regex, ignore_case=small, limit=1)
            if answer["matches"]:
                first = answer["matches"][0]
                return Match(int(first["at"]), int(first["length"]))
            if answer["done"]:
                return None
            at = int(answer["next"])
            if told is not None:
                told(at)

    async def show(self, at: int) -> int | None:
        """Have the byte ``at`` in the window; the offset of the line it lies in, None when the log holds no such line."""
        if not self.holds(at):
            await self.open_at(at)
        return next((line.offset for line in reversed(self.shown()) if line.offset <= at and line.end > line.offset), None)


class _Moved(Exception):
    """The file under the path is another one, and the window shows its start now."""


_ERRORS = r"(?:^|\) )(?:ERROR|CRITICAL) \d\d-\d\d|^Traceback \(most recent|^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): "


async def first_error(window: LogWindow, text: str | None) -> Match | None:
    """Where the first error stands: the line ``text`` when the supervisor named one, else what looks like one."""
    if text:
        found = await window.find(text[:200], 0)
        if found is not None:
            return found
    return await window.find(_ERRORS, 0, regex=True)


class LogTails:
    """Keeps ``store.tails[job]`` at the newest `TAIL` lines of the logs that are looked at. Topic: ``logs``.

    ``pace`` is the time between two reads at least: a log that floods is read at its end only. `stop` before the session closes.
    """

    def __init__(self, reader: Reader, store: Store, *, pace: float = 0.15, retry: float = 1.0, wait: float = 20.0) -> None:
        self._reader, self._store = reader, store
        self._pace, self._retry, self._wait = pace, retry, wait
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._lookers: dict[str, int] = {}

    def look(self, job: str, on: bool) -> None:
        """A screen begins or ends to show the end of a job's log. Lookers are counted."""
        self._lookers[job] = max(0, self._lookers.get(job, 0) + (1 if on else -1))
        if self._lookers[job] and job not in self._tasks:
            self._tasks[job] = asyncio.ensure_future(self._follow(job))
        elif not self._lookers[job]:
            del self._lookers[job]
            task = self._tasks.pop(job, None)
            if task is not None:
                task.cancel()

    async def stop(self) -> None:
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, job: str) -> None:
        window = LogWindow(self._reader, await self._path(job), TAIL)
        while True:
            state = self._store.jobs.get(job)
            if state is not None and state.log:
                window.go_on_at(state.log)
            try:
                await window.follow(self._wait)
                self._publish(job, window.shown())
                await asyncio.sleep(self._pace)
            except HostError as error:
                # while the link is down the header says so; anything else stands where the lines would be
                if not error.retry and not window.lines:
                    self._publish(job, [note(0, f"the log cannot be read: {error.why}")])
                await asyncio.sleep(self._retry)

    async def _path(self, job: str) -> str:
        """Where the job writes its log, once the table of jobs says so."""
        changed = asyncio.Event()
        unlisten = self._store.listen(lambda topic: changed.set() if topic == "jobs" else None)
        try:
            while True:
                state = self._store.jobs.get(job)
                if state is not None and state.log:
                    return state.log
                changed.clear()
                await changed.wait()
        finally:
            unlisten()

    def _publish(self, job: str, lines: Sequence[LogLine]) -> None:
        tail = tuple(lines[-TAIL:])
        if self._store.tails.get(job) != tail:
            self._store.tails[job] = tail
            self._store.changed("logs")
