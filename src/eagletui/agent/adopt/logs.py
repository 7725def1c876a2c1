"""The log of a server that was found, as a source of bytes: a file of the host, the systemd journal, or a container engine's.

Each source gives what it reads to a sink, and says where a client can read the same bytes: a file in its own place, the others
in the agent's memory. What is missing of a log stands in it as a line that begins with ``eagletui:``.
"""

from __future__ import annotations

import os
import stat
import time
from typing import Any, Callable, Optional, Tuple

from eagletui.agent.adopt.memory import MemoryFile
from eagletui.agent.child import Child
from eagletui.agent.loop import Loop
from eagletui.agent.workers import workers

PIECE = 64 * 1024
WHOLE = 32 << 20
HEAD = 8 << 20
TAIL = 256 * 1024
MARK = b"eagletui: "

Sink = Callable[[bytes], None]


class Source:
    """``path`` is where a client reads it (None: not yet, or never), ``problem`` why there is none or what is missing.

    ``settled`` once what was there at the beginning has been read. `poll` is called about once a second."""

    def __init__(self) -> None:
        self.path: Optional[str] = None
        self.problem: Optional[str] = None
        self.size: Optional[int] = None
        self.floor = 0
        self.mtime: Optional[float] = None
        self.settled = False

    def poll(self) -> None:
        raise NotImplementedError

    def enough(self) -> None:
        """The beginning has told all it can (the server is ready): what follows need not all be read."""

    def close(self) -> None:
        raise NotImplementedError


class FileSource(Source):
    """A file that grows, seen through a descriptor of the process that writes it, so that neither renaming nor deleting loses it.

    It is only read, in a thread: its disk may hang. Of a large one the beginning is read until the server is ready, then the end.
    ``jumped`` is told the offset of what comes next, when that is not where the last piece ended.
    """

    def __init__(self, loop: Loop, lead: str, name: str, sink: Sink, jumped: Callable[[int], None]) -> None:
        super().__init__()
        self._loop, self._lead, self._name, self._sink, self._jumped = loop, lead, name, sink, jumped
        self._fd = -1
        self._offset = 0
        self._asked: Optional[float] = None
        self._closed = self._skipping = False

    def poll(self) -> None:
        if self._closed:
            return
        if self._asked is not None:
            if self._loop.now() - self._asked > 10:
                self.problem = "its log cannot be read: the file system of %s does not answer" % self._name
            return
        self._asked = self._loop.now()
        workers(self._loop).run(self._attempt, self._done)

    def enough(self) -> None:
        self._skipping = True

    def close(self) -> None:
        self._closed = True
        if self._asked is None and self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _attempt(self) -> Tuple[os.stat_result, Optional[str], int, bytes]:
        """In the thread: what is new."""
        if self._fd < 0:
            fd = os.open(self._lead, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                os.close(fd)
                raise OSError(22, "it is not a regular file")
            self._fd = fd
        info = os.fstat(self._fd)
        path = self._place(info)
        offset = 0 if info.st_size < self._offset else self._offset  # somebody cut it: what comes now is new
        return info, path, offset, os.pread(self._fd, PIECE, offset)

    def _place(self, info: os.stat_result) -> Optional[str]:
        """A path that leads to this very file: its name, else our own descriptor."""
        try:
            there = os.stat(self._name)
            if (there.st_dev, there.st_ino) == (info.st_dev, info.st_ino):
                return self._name
        except OSError:
            pass  # deleted, renamed, or in another mount namespace
        return "/proc/self/fd/%d" % self._fd

    def _done(self, result: Any, error: Optional[BaseException]) -> None:
        self._asked = None
        if self._closed:
            self.close()
            return
        if error is not None:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            self.problem = "its log %s cannot be read: %s" % (self._name, why)
            self.settled = True
            return
        info, path, offset, data = result
        self.problem, self.path = None, path
        self.size, self.mtime = info.st_size, info.st_mtime
        if offset != self._offset:
            self._sink(b"\n")
            self._jumped(offset)
        self._offset = offset + len(data)
        if data:
            self._sink(data)
        left = info.st_size - self._offset
        long_past = info.st_size > WHOLE and (self._skipping or self._offset >= HEAD) and not self.settled
        if left > (TAIL if long_past else WHOLE):
            self._offset = info.st_size - TAIL
            self._sink(b"\n")
            self._jumped(self._offset)
        if left <= 0 or not data:
            self.settled = True
        elif not self._closed:
            self._loop.call_later(0, self.poll)


class ToldSource(Source):
    """What a program of the host tells, kept in the agent's memory: at most the newest ``cap`` bytes."""

    def __init__(self, loop: Loop, name: str, cap: int, sink: Sink) -> None:
        super().__init__()
        self._loop, self._sink = loop, sink
        self._file = MemoryFile(name + ".log", cap)
        self._child: Optional[Child] = None
        self._rest = b""
        self._count = 0
        self._heard = self._due = loop.now()
        self._jumped = self._closed = False

    def _write(self, data: bytes) -> None:
        if not data:
            return
        self._file.write(data)
        self._sink(data)
        self.problem = None if self._file.full is None else "its log is not kept any further here: %s" % self._file.full
        self.size, self.floor, self.mtime = self._file.size, self._file.floor, self._file.mtime

    def _settle(self) -> None:
        self.settled = True
        self.path = self._file.path

    def close(self) -> None:
        self._closed = True
        if self._child is not None:
            self._child.close()
            self._child = None
        self._file.close()


def note(text: str, wall: Optional[float] = None) -> bytes:
    """A line about the log, in the log; ``wall`` is its time when that is not now."""
    return MARK + time.strftime("%Y-%m-%d %H:%M:%S ", time.localtime(wall)).encode() + text.encode() + b"\n"
