"""`search`: find lines in a file on the host, forward or backward, in bounded slices, so that a 5 GB log stays there.

One request looks at `SLICE_BYTES` or for `SLICE_SECONDS`, whichever is first; the answer says where to go on (``next``) and
whether the file is done. A match is given as the offset of its line, of itself, and the line's text: at most 4 KiB of it,
around the match. A pattern is plain text, or a regular expression on bytes; ``^`` and ``$`` are the ends of lines.
"""

from __future__ import annotations

import os
import re
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from eagletui.agent.calls import Call, CallError, Handler
from eagletui.agent.files import absolute, floor_of, in_worker, open_regular

BLOCK = 64 * 1024  # a regular expression holds the interpreter for one block: about a millisecond
SLICE_BYTES = 64 * 1024 * 1024
SLICE_SECONDS = 0.25
MAX_LINE = 4096
MAX_PATTERN = 1000
OVERLAP = 4096  # of a line longer than a block, so that a match across the seam is found

Finder = Callable[[bytes], Iterator[Tuple[int, int]]]


def search(call: Call) -> None:
    path = absolute(call)
    pattern = call.text("pattern")
    if not pattern or len(pattern) > MAX_PATTERN:
        raise CallError("search", "a pattern has 1 to %d characters" % MAX_PATTERN)
    find = _finder(pattern.encode(), bool(call.params.get("regex")), bool(call.params.get("ignore_case")))
    backward = bool(call.params.get("backward"))
    start = call.params.get("start", -1 if backward else 0)
    end = call.params.get("end")
    if not isinstance(start, int) or not (end is None or isinstance(end, int)):
        raise CallError("request", "'start' and 'end' should be offsets")
    limit = int(call.number("limit", 200, 1, 5000))
    hunt = _Hunt(path, find, start, end, limit)
    call.on_cancel = hunt.stop
    in_worker(call, "search", path, hunt.backward if backward else hunt.forward)


def _finder(pattern: bytes, regex: bool, ignore_case: bool) -> Finder:
    """A function that yields (start, end) of the matches in a block, at most one per line."""
    if not regex:
        low = pattern.lower()  # of ASCII, as IGNORECASE on bytes; ten times as fast
        return (lambda block: _plain(low, block.lower())) if ignore_case else (lambda block: _plain(pattern, block))
    try:
        compiled = re.compile(pattern, re.MULTILINE | (re.IGNORECASE if ignore_case else 0))
    except (re.error, OverflowError) as error:
        raise CallError("search", "the pattern is not a regular expression: %s" % error) from None

    def find(block: bytes) -> Iterator[Tuple[int, int]]:
        at = 0
        while at <= len(block):
            match = compiled.search(block, at)
            if match is None or (match.start() == len(block) and match.start() == match.end()):
                return
            yield match.span()
            line_end = block.find(b"\n", match.start())
            if line_end < 0:
                return
            at = line_end + 1

    return find


def _plain(pattern: bytes, block: bytes) -> Iterator[Tuple[int, int]]:
    at = block.find(pattern)
    while at >= 0:
        yield at, at + len(pattern)
        line_end = block.find(b"\n", at)
        if line_end < 0:
            return
        at = block.find(pattern, line_end + 1)


class _Hunt:
    """One slice of a search; runs in a worker thread, `stop` is called from the loop."""

    def __init__(self, path: str, find: Finder, start: int, end: Optional[int], limit: int) -> None:
        self.path, self.find, self.start, self.end, self.limit = path, find, start, end, limit
        self.stopped = False
        self.matches: List[Dict[str, Any]] = []
        self.scanned = 0
        self.until = 0.0

    def stop(self) -> None:
        self.stopped = True

    def _open(self) -> Tuple[int, int, int]:
        fd, info = open_regular(self.path, "search")
        self.until = time.monotonic() + SLICE_SECONDS
        return fd, floor_of(fd, info.st_size), info.st_size

    def _enough(self) -> bool:
        return self.stopped or self.scanned >= SLICE_BYTES or len(self.matches) >= self.limit or time.monotonic() >= self.until

    def _answer(self, following: int, done: bool) -> Dict[str, Any]:
        return {"matches": self.matches, "next": following, "done": done, "scanned": self.scanned}

    def forward(self) -> Dict[str, Any]:
        fd, floor, size = self._open()
        try:
            high = size if self.end is None else min(self.end, size)
            at = max(self.start, floor)
            line = at  # where the line that `at` lies in starts
            seen = -1  # the last match in a line longer than a block
            while at < high and not self._enough():
                block = os.pread(fd, min(BLOCK, high - at), at)
                if not block:
                    break  # it was truncated meanwhile
                last = at + len(block) >= high
                cut = block.rfind(b"\n") + 1
                whole = block if last or not cut else block[:cut]
                self.scanned += len(whole)
                for first, after in self.find(whole):
                    if at + first <= seen:
                        continue  # found before, in the overlap
                    if len(self.matches) >= self.limit:
                        return self._answer(at + whole.rfind(b"\n", 0, first) + 1, False)
                    self._add(whole, at, line, first, after)
                    seen = at + first
                if last or cut:
                    at += len(whole)
                    line = at
                else:
                    at += max(1, len(block) - OVERLAP)
            return self._answer(at, at >= high)
        finally:
            os.close(fd)

    def backward(self) -> Dict[str, Any]:
        fd, floor, size = self._open()
        try:
            low = max(floor, self.end or 0)
            high = size if self.start < 0 else min(self.start, size)
            seen = size + 1  # the last match in a line longer than a block
            while high > low and not self._enough():
                at = max(low, high - BLOCK)
                block = os.pread(fd, high - at, at)
                if not block:
                    break  # it was truncated meanwhile
                cut = 0 if at == low else block.find(b"\n", 0, len(block) - 1) + 1
                found = [(first, after) for first, after in self.find(block[cut:])]
                self.scanned += len(block) - cut
                for first, after in reversed(found):
                    if at + cut + first >= seen:
                        continue  # found before, in the overlap
                    if len(self.matches) >= self.limit:
                        # go on above the line after this match: the match itself is still to be given
                        line_end = block.find(b"\n", cut + first)
                        return self._answer(high if line_end < 0 else at + line_end + 1, False)
                    self._add(block[cut:], at + cut, at + cut, first, after)
                    seen = at + cut + first
                high = at + cut if cut or at == low else at + min(OVERLAP, len(block) - 1)
            return self._answer(high, high <= low)
        finally:
            os.close(fd)

    def _add(self, block: bytes, at: int, line: int, first: int, after: int) -> None:
        """Note the match ``block[first:after]`` of a block that starts at ``at``, in the file's line from ``line`` on."""
        begin = block.rfind(b"\n", 0, first) + 1
        end = block.find(b"\n", first)
        end = len(block) if end < 0 else end
        offset = at + begin if begin else line
        if end - begin > MAX_LINE:
            begin = max(begin, min(first - MAX_LINE // 4, end - MAX_LINE)) if first - begin > MAX_LINE // 2 else begin
            end = min(end, begin + MAX_LINE)
        text = block[begin:end].rstrip(b"\r").decode("utf-8", "replace")
        self.matches.append({"offset": offset, "at": at + first, "length": after - first, "line": text})


METHODS: Dict[str, Handler] = {"search": search}
