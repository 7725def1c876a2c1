"""Files in the agent's own memory: what it gathers about servers it only watches must not be written on their host.

A client reads one like any file, under the path ``/proc/self/fd/N``, which the agent resolves. Offsets never change: when it
grows beyond its cap the oldest part is given back, and the floor says so. It is gone when the agent is.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import tempfile
import time
import zlib
from typing import Any, Mapping, Optional

from eagletui.agent import syscalls

_BLOCK = 4096
_LOWEST = 128


class MemoryFile:
    """Appended to, bounded by ``cap`` bytes. ``name`` chooses the descriptor's number, so that the same thing has the same path
    in the next agent, and another thing (nearly) never does. Raises `OSError` when there can be none."""

    def __init__(self, name: str, cap: int) -> None:
        first = _anonymous(name)
        try:
            self._fd = _renumbered(first, name)
        finally:
            os.close(first)
        self._cap = cap
        self.size = self.floor = 0
        self.mtime: Optional[float] = None
        self.full: Optional[str] = None
        self.path = "/proc/self/fd/%d" % self._fd

    def write(self, data: bytes) -> None:
        """Append; what does not fit is dropped, and `full` says why."""
        if self.full is not None or not data:
            return
        try:
            self.size += os.write(self._fd, data)
        except OSError as error:
            self.full = error.strerror or str(error)
            return
        self.mtime = time.time()
        if self.size - self.floor > self._cap:
            target = (self.size - self._cap * 3 // 4) // _BLOCK * _BLOCK
            why = syscalls.punch_hole(self._fd, 0, target)
            if why is None:
                self.floor = target
            else:
                self.full = "it cannot be bounded: %s" % why

    def append(self, doc: Mapping[str, Any]) -> None:
        """Append a JSON object as one line."""
        self.write(json.dumps(doc, separators=(",", ":"), allow_nan=False).encode() + b"\n")

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _anonymous(name: str) -> int:
    make = getattr(os, "memfd_create", None)
    if make is not None:
        return int(make("eagletui-" + name[:200], os.MFD_CLOEXEC))
    with tempfile.TemporaryFile(dir="/dev/shm") as file:  # a C library without memfd: memory as well, and nameless
        return os.dup(file.fileno())


def _renumbered(fd: int, name: str) -> int:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    room = (1024 if limit == resource.RLIM_INFINITY else min(limit, 1024)) - _LOWEST - 64
    if room < 64:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _LOWEST + zlib.crc32(name.encode()) % room)
