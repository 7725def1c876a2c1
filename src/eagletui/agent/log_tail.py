"""The job's log as the shim sees it: read as it grows, and bounded by punching holes, so that offsets never change."""

from __future__ import annotations

import os
from typing import Callable, Optional

from eagletui.agent import syscalls

DEFAULT_CAP = 2 << 30
_SLICE = 128 * 1024
_BLOCK = 4096
_LEAST = 4 << 20


class LogTail:
    """Reads new bytes of the log and hands them to ``sink``; frees old blocks beyond ``cap`` bytes.

    ``offset`` is the next byte to read, ``floor`` the first one that is still there, ``warning`` what is wrong with bounding.
    """

    def __init__(self, path: str, sink: Callable[[bytes], None], cap: int = DEFAULT_CAP) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        self._sink, self._cap = sink, max(_LEAST, cap)
        self.offset = 0
        self.size = 0
        self.mtime: Optional[float] = None
        self.floor = 0
        self.warning: Optional[str] = None
        self._can_punch = True

    def poll(self) -> bool:
        """Read at most one slice. True when there is more to read already."""
        info = os.fstat(self._fd)
        self.size, self.mtime = info.st_size, info.st_mtime
        if info.st_size < self.offset:
            self.offset = self.floor = 0  # somebody truncated it: what comes now is new
        if info.st_size == self.offset:
            return False
        data = os.pread(self._fd, _SLICE, self.offset)
        self.offset += len(data)
        if data:
            self._sink(data)
        return self.offset < info.st_size

    def bound(self) -> None:
        """Keep the log within its cap, and within what the disk can spare. A job must never die of its own log."""
        info = os.fstat(self._fd)
        cap = self._allowance()
        if info.st_blocks * 512 <= cap:
            return
        # only what has been read and understood; and a quarter at once, so that this is rare
        target = min(self.offset, info.st_size - cap * 3 // 4) // _BLOCK * _BLOCK
        if target <= self.floor:
            return
        if self._can_punch:
            reason = syscalls.punch_hole(self._fd, 0, target)
            if reason is None:
                self.floor = target
                return
            self._can_punch = False
            self.warning = "the log cannot be bounded in place (%s): it will be cut to nothing at %d MiB" % (
                reason,
                self._cap >> 20,
            )
        if info.st_size > cap and self.offset == info.st_size:
            os.ftruncate(self._fd, 0)
            self.offset = self.floor = 0

    def _allowance(self) -> int:
        """The cap, less when the disk is nearly full: an eighth below 5 % or 2 GiB of free space, 4 MiB below 1 %."""
        room = os.fstatvfs(self._fd)
        free, total = room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize
        if free * 100 < total:
            self.warning = "the disk is full: only the last 4 MiB of the log are kept"
            return _LEAST
        if free * 20 < total or free < (2 << 30):
            return max(_LEAST, min(self._cap // 8, free // 2))
        return self._cap

    def close(self) -> None:
        os.close(self._fd)
