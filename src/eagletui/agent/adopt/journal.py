"""The journal of a systemd unit as the log of its server: ``journalctl`` in a child, followed by cursor, gaps told."""

from __future__ import annotations

import json
import os
from typing import Any, List, NamedTuple, Optional

from eagletui.agent import procfs
from eagletui.agent.adopt.logs import Sink, ToldSource, note
from eagletui.agent.child import NOT_FOUND, Child
from eagletui.agent.loop import Loop

CAP = 8 << 20
MOST_BACK = 50_000
"""Entries of the past that are read; of a longer past the beginning and the newest `NEWEST`."""
NEWEST = 2_000
AGAIN = 2.0
LATER = 60.0
QUIET = 0.4
LATE_START = 300.0
_DROPPED = "a596d6fe7bfa4994828e72309e95d61e"  # systemd's message id: journald dropped messages of a unit
_FIELDS = "MESSAGE,MESSAGE_ID,N_DROPPED,SYSLOG_IDENTIFIER,_PID,_LINE_BREAK"


_PLACES = ("/var/log/journal", "/run/log/journal")
DENIED = "its log is in the systemd journal, which only root and the group systemd-journal may read"


def readable() -> bool:
    """Whether this user may read the system's journal. journalctl itself says nothing of it when it prints JSON."""
    machine = (procfs.read_text("/etc/machine-id") or "").strip()
    there = [path for path in ("%s/%s/system.journal" % (base, machine) for base in _PLACES) if os.path.exists(path)]
    return not there or any(os.access(path, os.R_OK) for path in there)


class Entry(NamedTuple):
    """One entry: its ``cursor``, its Unix time, and the bytes that it is in the log, with their line end."""

    cursor: str
    wall: float
    data: bytes


def entry_of(line: bytes) -> Optional[Entry]:
    """A line of ``journalctl -o json``; None when it is none. MESSAGE may be text, a byte array, a list of either, or null."""
    try:
        doc = json.loads(line.decode("utf-8", "replace"))
        wall = int(doc["__REALTIME_TIMESTAMP"]) / 1e6
        cursor = str(doc["__CURSOR"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    data = _bytes(doc.get("MESSAGE"))
    if doc.get("MESSAGE_ID") == _DROPPED:
        count = doc.get("N_DROPPED")
        text = "the journal dropped %s lines of this unit here (its rate limit)" % (count if count else "some")
        return Entry(cursor, wall, note(text, wall))
    if doc.get("_PID") == "1" or doc.get("SYSLOG_IDENTIFIER") == "systemd":
        return Entry(cursor, wall, b"systemd: " + data + b"\n")
    return Entry(cursor, wall, data + (b"" if doc.get("_LINE_BREAK") == "line-max" else b"\n"))


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "replace")
    if isinstance(value, list):
        if all(isinstance(item, int) and 0 <= item < 256 for item in value):
            return bytes(value)
        return b"\n".join(_bytes(item) for item in value)
    return b""  # null: a field that even --all does not show


def journal_argv(unit: str, uid: Optional[int]) -> List[str]:
    """What follows one unit's journal; ``uid`` is the user whose manager it belongs to. Where to begin is added."""
    argv = ["journalctl", "--no-pager", "--all", "--output=json", "--output-fields=" + _FIELDS, "--follow"]
    return argv + (["--unit=" + unit] if uid is None else ["_SYSTEMD_USER_UNIT=" + unit, "_UID=%d" % uid])


class JournalSource(ToldSource):
    """From the start of the server (Unix time ``started``) on. The client reads it from the agent's memory."""

    def __init__(self, loop: Loop, name: str, unit: str, uid: Optional[int], started: float, sink: Sink) -> None:
        super().__init__(loop, name, CAP, sink)
        self._unit, self._uid, self._started = unit, uid, started
        self._cursor: Optional[str] = None
        self._awaited: Optional[str] = None  # the cursor that a resumed reading must begin with
        self._first = True

    def poll(self) -> None:
        now = self._loop.now()
        if self._child is None and now >= self._due and not self._closed:
            if self._uid != os.geteuid() and not readable():
                self.problem, self.settled = DENIED, True
                self._due = now + LATER
                return
            self.problem = None
            self._begin()
        if not self.settled and now - self._heard > QUIET:
            self._settle()

    def _begin(self, newest: Optional[int] = None) -> None:
        argv = journal_argv(self._unit, self._uid)
        if newest is not None:
            argv += ["--lines=%d" % newest]
        elif self._cursor is not None:
            argv += ["--no-tail", "--cursor=" + self._cursor]
            self._awaited = self._cursor
        else:
            argv += ["--no-tail", "--since=@%d" % int(self._started)]
        self._heard = self._loop.now()
        self._child = Child(self._loop, argv, self._data, self._ended)
        self._loop.call_later(QUIET * 1.5, self.poll)

    def _data(self, data: bytes) -> None:
        self._heard = self._loop.now()
        *lines, self._rest = (self._rest + data).split(b"\n")
        out = []
        for line in lines:
            entry = entry_of(line) if line else None
            if entry is not None:
                out.append(self._take(entry))
        self._write(b"".join(out))
        if not self.settled and self._count >= MOST_BACK and not self._jumped:
            self._jump()

    def _take(self, entry: Entry) -> bytes:
        awaited, self._awaited = self._awaited, None
        self._cursor = entry.cursor
        if awaited is not None and entry.cursor == awaited:
            return b""  # the one that was read last
        if entry.wall < self._started - 1.0 and self._first:
            return b""  # of the second before the server's start: another run's
        self._count += 1
        before = b""
        if awaited is not None:
            before = note("lines are missing here: the journal was cut (vacuum, rotation) before they were read")
        elif self._first and entry.wall - self._started > LATE_START:
            before = note("the journal of %s begins here; what was before this is not kept there" % self._unit)
        self._first = False
        return before + entry.data

    def _jump(self) -> None:
        """The past is too long to be read to its end in good time: on with the newest."""
        self._jumped = True
        if self._child is not None:
            self._child.close()
        self._rest = b""
        self._write(note("lines are left out here; all of them: journalctl --unit=%s" % self._unit))
        self._begin(NEWEST)

    def enough(self) -> None:
        pass  # the limit on its length bounds what is read

    def _ended(self, status: int, errors: str) -> None:
        """It should not end: journald was restarted, it was killed, or the journal may not be read."""
        self._child, self._rest = None, b""
        self.settled = True
        if status == NOT_FOUND:
            self.problem = "its log is in the systemd journal, and journalctl is not installed here"
        elif errors and not self._count:
            self.problem = "its log is in the systemd journal: journalctl says: %s" % errors.splitlines()[-1][:200]
        self._due = self._loop.now() + (AGAIN if self._count else LATER)
