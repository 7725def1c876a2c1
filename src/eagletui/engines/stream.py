"""Raw bytes of an engine's log -> lines and records: incremental, in bounded memory, the same for any chunking.

Both engines let nine or more processes share one file descriptor, so a physical line may hold two prefixes, none, or a
progress tick glued to the next process's record. Ticks end in a carriage return, so both CR and LF end a line here.

Header forms (the file name and line number in it change with every release and are never looked at):
vLLM ``(Worker_TP3 pid=423) INFO 05-15 03:15:46 [pynccl.py:113] text``, SGLang ``[2026-11-29 16:19:18 TP3] text``.
"""

from __future__ import annotations

import re
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from eagletui.engines import noise as _noise

LINE_CAP = 32768
"""Bytes kept of one line (SGLang prints its arguments in one line of 19 kB); the rest is counted and dropped."""

_HEADER = re.compile(
    rb"(?:\(([A-Za-z][\w-]*(?: [\w=]+)?) pid=\d+\) ?)*"
    rb"(?:(DEBUG|INFO|WARNING|ERROR|CRITICAL) (\d\d-\d\d \d\d:\d\d:\d\d) \[?[^\]\[\s]+:\d+\] ?"
    rb"|\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?)((?: [A-Z_]+\d+)*)\] ?)?"
)
_GLUED = re.compile(
    rb"(?:\([A-Za-z][\w-]*(?: [\w=]+)? pid=\d+\) ?)+"
    rb"|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[?[^\]\[\s]+:\d+\]"
    rb"|\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?(?: [A-Z_]+\d+)*\] "
)
_ANSI = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_TORCH_RANK = re.compile(rb"\[rank(\d+)\]: ?")
_RANK = re.compile(r"(?:TP|rank=|rank|Worker-)(\d+)")
HEADER_START = frozenset(b"([DIWEC")

# (offset, line without its end, bytes dropped beyond LINE_CAP)
Line = Tuple[int, bytes, int]
# (process, level, stamp, body start); stamp as printed
Header = Tuple[Optional[bytes], Optional[bytes], Optional[bytes], int]


class Record(NamedTuple):
    """One record of a log, for people: what `records` yields.

    ``offset`` is the byte offset of the physical line, ``process`` the name in the prefix (``Worker_TP3``, ``TP3``) or None,
    ``rank`` the tensor-parallel rank when the process tells it, ``severity`` one of debug, info, warning, error,
    ``stamp`` the time as printed, ``text`` the message, ``cut`` the bytes dropped from an overlong line.
    """

    offset: int
    process: Optional[str]
    rank: Optional[int]
    severity: str
    stamp: Optional[str]
    text: str
    cut: int = 0

    @property
    def noise(self) -> bool:
        """Whether the record is known to be harmless chatter; never true for progress or errors."""
        return self.severity != "error" and _noise.is_noise(self.text)


class LineSplitter:
    """Splits a byte stream at CR and LF. Empty lines are not reported; what is kept of one line is at most `LINE_CAP`."""

    __slots__ = ("_dropped", "_pending", "_start", "offset")

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset
        self._start = offset
        self._pending = b""
        self._dropped = 0

    def feed(self, data: bytes) -> List[Line]:
        """The lines that end within ``data``."""
        if not data:
            return []
        parts = (data.replace(b"\r", b"\n") if b"\r" in data else data).split(b"\n")
        last = parts.pop()
        out: List[Line] = []
        at = self.offset
        self.offset += len(data)
        if parts:
            first = parts[0]
            size = len(first)
            self._add(first)
            if self._pending:
                out.append((self._start, self._pending, self._dropped))
            self._pending, self._dropped = b"", 0
            at += size + 1
            for part in parts[1:]:
                size = len(part)
                if size:
                    if size > LINE_CAP:
                        out.append((at, part[:LINE_CAP], size - LINE_CAP))
                    else:
                        out.append((at, part, 0))
                at += size + 1
            self._start = at
        self._add(last)
        return out

    def _add(self, part: bytes) -> None:
        room = LINE_CAP - len(self._pending)
        if len(part) <= room:
            self._pending += part
        else:
            self._pending += part[:room]
            self._dropped += len(part) - room

    @property
    def pending(self) -> bytes:
        """The line that has not ended yet."""
        return self._pending

    @property
    def unfinished(self) -> List[Line]:
        """The line that has not ended yet, if there is one, with where it starts and what was dropped of it so far."""
        return [(self._start, self._pending, self._dropped)] if self._pending else []

    def finish(self) -> List[Line]:
        """The unfinished last line, if there is one; the stream is over."""
        out = self.unfinished
        self._pending, self._dropped, self._start = b"", 0, self.offset
        return out


def clean(line: bytes) -> bytes:
    """A line without terminal escapes and NULs (a punched hole in a file reads as NULs)."""
    if b"\x1b" in line:
        line = _ANSI.sub(b"", line)
    return line.replace(b"\0", b"") if b"\0" in line else line


def split_header(line: bytes) -> Header:
    """The header of a cleaned line; without one, three Nones and 0. With two process prefixes the last one counts."""
    if not line or line[0] not in HEADER_START:
        return None, None, None, 0
    match = _HEADER.match(line)
    if match is None:
        return None, None, None, 0
    process, level, stamp, full, ranks = match.groups()
    end = match.end()
    if full is not None:
        process, stamp = (ranks.strip() or None) if ranks else process, full
    if line.startswith(b"[rank", end):
        # torch's own hook puts "[rank3]: " before each line of an uncaught exception
        torch = _TORCH_RANK.match(line, end)
        if torch is not None:
            process, end = b"rank" + torch.group(1), torch.end()
    return process, level, stamp, end


def split_glued(line: bytes, body: int) -> int:
    """Where a second record starts inside the line, after its own header's end ``body``; -1 when it is one record."""
    if line.find(b"pid=", body) >= 0 or line.find(b"] ", body) >= 0:
        match = _GLUED.search(line, max(body, 1))
        if match is not None:
            return match.start()
    return -1


def pieces(line: bytes, offset: int) -> Iterator[Tuple[int, bytes, Header]]:
    """The records in one cleaned line: (offset, bytes, header)."""
    while True:
        header = split_header(line)
        # a record with a stamp is one write of the logger: text in it that looks like a header is a quotation
        at = -1 if header[2] is not None else split_glued(line, header[3])
        if at < 0:
            yield offset, line, header
            return
        if line[:at].strip():
            yield offset, line[:at], header
        line, offset = line[at:], offset + at


_processes: Dict[bytes, Tuple[str, Optional[int]]] = {}


def process_name(process: Optional[bytes]) -> Tuple[Optional[str], Optional[int]]:
    """A process prefix as text, and the rank in it."""
    if process is None:
        return None, None
    known = _processes.get(process)
    if known is None:
        text = process.decode("utf-8", "replace")
        match = _RANK.search(text)
        known = (text, int(match.group(1)) if match else None)
        if len(_processes) < 4096:
            _processes[process] = known
    return known


_LEVELS = {b"DEBUG": "debug", b"INFO": "info", b"WARNING": "warning", b"ERROR": "error", b"CRITICAL": "error"}
_BARE = re.compile(
    rb"(?:(?P<error>ERROR: |CRITICAL: |\[[EF]\d{4} |(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt)(?:: |$)|"
    rb"Traceback \(|"
    rb"Killed$|Segmentation fault|Fatal Python error|Bus error)|"
    rb"(?P<warning>WARNING: |\[W\d{4} |Exception ignored|\S+: \w*Warning: |\S+ NCCL WARN))"
)
_ERROR_ANYWHERE = (b": error: ", b"NCCL WARN", b"Warning: ", b"Traceback (")


def severity_of(level: Optional[bytes], body: bytes) -> str:
    """debug, info, warning or error: from the header's level, else from how the text starts."""
    if level is not None:
        return _LEVELS[level]
    match = _BARE.match(body)
    if match is not None:
        return "error" if match.group("error") is not None else "warning"
    if any(mark in body for mark in _ERROR_ANYWHERE):
        return "error" if b": error: " in body or b"Traceback (" in body else "warning"
    return "info"


class RecordReader:
    """Bytes -> `Record`s, for a log view. `feed` in any pieces, `finish` at the end."""

    __slots__ = ("_lines",)

    def __init__(self, offset: int = 0) -> None:
        self._lines = LineSplitter(offset)

    def feed(self, data: bytes) -> List[Record]:
        return [record for line in self._lines.feed(data) for record in records_of(line)]

    def finish(self) -> List[Record]:
        return [record for line in self._lines.finish() for record in records_of(line)]


def records_of(line: Line) -> Iterator[Record]:
    """The records in one physical line; a line of only a prefix gives none."""
    offset, raw, cut = line
    for at, piece, (process, level, stamp, body) in pieces(clean(raw), offset):
        text = piece[body:].rstrip()
        if not text:
            continue
        name, rank = process_name(process)
        yield Record(
            at,
            name,
            rank,
            severity_of(level, text),
            stamp.decode("ascii") if stamp else None,
            text.decode("utf-8", "replace"),
            cut,
        )
