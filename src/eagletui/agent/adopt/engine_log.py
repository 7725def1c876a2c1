"""The log of a container as its engine keeps it: ``docker logs`` or ``podman logs`` in a child, from the container's start on."""

from __future__ import annotations

import calendar
import re
from typing import List, Optional, Tuple

from eagletui.agent.adopt.holder import Holder
from eagletui.agent.adopt.journal import AGAIN, CAP, LATER, MOST_BACK, NEWEST, QUIET
from eagletui.agent.adopt.logs import Sink, ToldSource, note
from eagletui.agent.child import NOT_FOUND, Child
from eagletui.agent.loop import Loop

_STAMPED = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)) ?")


def moment(stamp: bytes) -> Tuple[int, int]:
    """The stamp of a line (RFC 3339) as Unix seconds and nanoseconds."""
    text = stamp.decode("ascii")
    numbers = [int(part) for part in re.findall(r"\d+", text[:19])]
    seconds = calendar.timegm((numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], 0, 0, 0))
    fraction = re.match(r"\.(\d+)", text[19:])
    zone = re.search(r"([+-])(\d\d):?(\d\d)$", text)
    if zone is not None:
        away = int(zone.group(2)) * 3600 + int(zone.group(3)) * 60
        seconds -= away if zone.group(1) == "+" else -away
    return seconds, int(fraction.group(1)[:9].ljust(9, "0")) if fraction is not None else 0


class EngineSource(ToldSource):
    """``holder`` names the engine and the container, ``started`` is when the container's own processes began (Unix time)."""

    def __init__(self, loop: Loop, name: str, holder: Holder, started: float, sink: Sink) -> None:
        super().__init__(loop, name, CAP, sink)
        self._holder = holder
        self._since = "%d" % int(started)
        self._started = (int(started), int(started % 1.0 * 1e9))
        self._last: Optional[bytes] = None  # the stamp read last, and how many lines bore it
        self._same = self._skip = 0
        self._resuming: Optional[Tuple[int, int]] = None
        self._said: List[str] = []

    def poll(self) -> None:
        now = self._loop.now()
        if self._child is None and now >= self._due and not self._closed:
            self._begin()
        if not self.settled and now - self._heard > QUIET and self._count:
            self._settle()

    def _begin(self, newest: Optional[int] = None) -> None:
        argv = [self._holder.kind, "logs", "--timestamps", "--follow"]
        if newest is not None:
            argv.append("--tail=%d" % newest)
        elif self._last is not None:
            argv.append("--since=" + self._last.decode("ascii"))
            self._resuming, self._skip = moment(self._last), self._same
        else:
            argv.append("--since=" + self._since)
        self._said = []
        self._heard = self._loop.now()
        argv.append(str(self._holder.container))
        self._child = Child(self._loop, argv, self._data, self._ended, merged=True, uid=self._holder.owner)
        self._loop.call_later(QUIET * 1.5, self.poll)

    def _data(self, data: bytes) -> None:
        self._heard = self._loop.now()
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._write(b"".join(self._take(line) for line in lines))
        if not self.settled and self._count >= MOST_BACK and not self._jumped:
            self._jump()

    def _take(self, line: bytes) -> bytes:
        match = _STAMPED.match(line)
        if match is None:
            # the engine's own complaint, or the second half of a line: nothing of the server's is without a stamp
            self._said.append(line.decode("utf-8", "replace").strip()[:300])
            del self._said[:-3]
            return b""
        stamp = match.group(1)
        if self._last is None and moment(stamp) < self._started:
            return b""  # of an earlier run of the container, in the same second
        if self._resuming is not None:
            at, before = moment(stamp), self._resuming
            if at < before or (at == before and self._skip):
                self._skip -= at == before
                return b""  # read before the child was started anew
            self._resuming = None
        self._same = self._same + 1 if stamp == self._last else 1
        self._last = stamp
        self._count += 1
        return line[match.end() :].rstrip(b"\r") + b"\n"

    def _jump(self) -> None:
        self._jumped = True
        if self._child is not None:
            self._child.close()
        self._rest, self._last = b"", None
        self._write(note("lines are left out here; all of them: %s logs %s" % (self._holder.kind, self._holder.container)))
        self._begin(NEWEST)

    def _ended(self, status: int, errors: str) -> None:
        """The container has ended, or its engine refuses."""
        self._child, self._rest = None, b""
        if status == NOT_FOUND:
            self.problem = "its log is kept by %s, whose program is not installed here" % self._holder.kind
        elif status and self._said and not self._count:
            self.problem = "its log is kept by %s, which says: %s" % (self._holder.kind, self._said[-1])
        if self._count:
            self._settle()
        self.settled = True
        self._due = self._loop.now() + (AGAIN if self._count else LATER)
