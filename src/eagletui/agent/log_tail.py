"""The job's log as the shim sees it: read as it grows, and bounded by punching holes, so that offsets never change.

A job must never die of its own log. So the log gives up its oldest bytes beyond its cap, earlier when the disk runs full, and by
being cut where its file system cannot punch holes. What others do to the file - truncate it, write it anew, move it away, delete
it - is noticed and told, and what is written afterwards is read once.
"""

from __future__ import annotations

import os
from typing import Callable, Optional

from eagletui.agent import syscalls

DEFAULT_CAP = 2 << 30
_SLICE = 128 * 1024
_BLOCK = 4096
_LEAST = 4 << 20
_TINY = 64 * 1024  # even on a disk without any room
_STEP = 1 << 20  # read this much, then look whether it is time to give something back
_MARK = 64  # bytes before the offset by which a file that was written anew is told from one that grew
KEPT_BEFORE = 64 << 20
"""Where holes cannot be punched: bytes of what is cut off that are kept in ``log.1``, at most."""


class LogTail:
    """Reads new bytes of the log and hands them to ``sink``; frees old blocks beyond ``cap`` bytes.

    ``offset`` is the next byte to read, ``floor`` the first one that is still there. ``told(text)`` hears of a log that begins
    anew. `trouble` is what is wrong with keeping it, in words. ``fd`` is open for as long as we are.
    """

    def __init__(
        self,
        path: str,
        sink: Callable[[bytes], None],
        cap: int = DEFAULT_CAP,
        told: Optional[Callable[[str], None]] = None,
    ) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        self._path, self._sink, self._told = path, sink, told
        self._cap = max(_LEAST, cap)
        self.offset = 0
        self.size = 0
        self.mtime: Optional[float] = None
        self.floor = 0
        self.tight = False
        self._mark = b""
        self._cannot_punch: Optional[str] = None
        self._disk: Optional[str] = None
        self._place: Optional[str] = None
        self._bound_at = _STEP
        self.bound()  # how often to look depends on the disk

    @property
    def trouble(self) -> Optional[str]:
        """What a person should know of this log; None when all is well."""
        return self._place or self._disk or self._cannot_punch

    @property
    def due(self) -> bool:
        """Whether enough was read since `bound` that it should look again."""
        return self.offset >= self._bound_at

    # -------------------------------------------------------------------------------------------------------- reading

    def poll(self) -> bool:
        """Read at most one slice. True when there is more to read already."""
        info = os.fstat(self.fd)
        self.size, self.mtime = info.st_size, info.st_mtime
        if info.st_size < self.offset:
            self._begin_anew("the log was truncated")
        if info.st_size == self.offset:
            return False
        before = len(self._mark)
        data = os.pread(self.fd, before + _SLICE, self.offset - before)
        if before and data[:before] != self._mark:
            # cut to nothing and grown past our place between two looks: what is there now has not been read
            self._begin_anew("the log was truncated and written anew")
            before = 0
            data = os.pread(self.fd, _SLICE, 0)
        fresh = data[before:]
        self.offset += len(fresh)
        if fresh:
            self._mark = data[-_MARK:]
            self._sink(fresh)
        return self.offset < info.st_size

    def _begin_anew(self, why: str, goes_on: bool = False) -> None:
        self.offset = self.floor = 0
        self._bound_at = _STEP
        if self._mark and not self._mark.endswith(b"\n") and not goes_on:
            self._sink(b"\n")  # the line that was under way does not go on with what comes now
        self._mark = b""
        if self._told is not None:
            self._told(why + "; it begins anew")

    # ------------------------------------------------------------------------------------------------------- bounding

    def bound(self) -> None:
        """Keep the log within its cap, and within what the disk can spare."""
        info = os.fstat(self.fd)
        held = min(info.st_blocks * 512, max(0, info.st_size - self.floor))
        cap = self._allowance(held)
        if self._cannot_punch is None:
            self._punch(info.st_size, held, cap)
        if self._cannot_punch is not None:
            self._cut(info.st_size, cap)

    def _punch(self, size: int, held: int, cap: int) -> None:
        if held <= cap:
            return
        # only what has been read and understood; and a quarter at once, so that this is rare
        target = min(self.offset - _MARK, size - cap * 3 // 4) // _BLOCK * _BLOCK
        if target <= self.floor:
            return
        reason = syscalls.punch_hole(self.fd, 0, target)
        if reason is None:
            self.floor = target
            return
        self._cannot_punch = "log: it cannot be bounded in place (%s), so it is cut when it has grown to %s" % (
            reason.lower(),
            _mib(self._cap),
        )

    def _cut(self, size: int, cap: int) -> None:
        """Begin the file anew; its last part goes to ``log.1``. Bytes that come while that is copied may be lost."""
        keep = min(cap // 2, KEPT_BEFORE)
        if size <= cap - keep:
            return
        for _ in range(64):
            if not self.poll():
                break
        if self.offset < self.size and self.size < 2 * cap:
            return  # a flood: the next turn tries again, before it is read to its end only when it must be
        self._keep_before(keep)
        os.ftruncate(self.fd, 0)
        self._begin_anew("the log had grown to its cap and was cut", goes_on=True)

    def _keep_before(self, keep: int) -> None:
        temp = self._path + ".1.tmp"
        try:
            out = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                at = max(0, self.offset - keep)
                while at < self.offset:
                    data = os.pread(self.fd, min(_STEP, self.offset - at), at)
                    if not data:
                        break
                    at += os.write(out, data)
            finally:
                os.close(out)
            os.rename(temp, self._path + ".1")
        except OSError:
            # no room for it: the job comes before its old lines
            try:
                os.unlink(temp)
            except OSError:
                pass  # it was never made

    def _allowance(self, held: int) -> int:
        """The cap, less when the disk is nearly full: an eighth below 5 % or 2 GiB of free space, 4 MiB below 1 %."""
        room = os.fstatvfs(self.fd)
        free, total = room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize
        self._disk, self.tight = None, False
        self._bound_at = self.offset + _STEP
        if total <= 0:
            return self._cap  # a file system that does not tell
        full = free * 100 < total
        if not full and free * 20 >= total and free >= (2 << 30):
            return self._cap
        cap = _LEAST if full else max(_LEAST, min(self._cap // 8, free // 2))
        # and never all that is left: others write there as well, and so does our own state
        cap = min(self._cap, cap, max(_TINY, (free + held) // 2))
        self.tight = free < (256 << 20)
        self._bound_at = self.offset + max(_TINY // 4, min(_STEP, free // 8))
        if full or held > cap or (self.floor and held > cap // 2):
            self._disk = "log: its disk is %s, so only its last %s are kept" % ("full" if full else "nearly full", _mib(cap))
        return cap

    # ---------------------------------------------------------------------------------------------------- where it is

    def place(self) -> Optional[str]:
        """The path under which the log can be read now: its own, where it was moved to, or our descriptor once it is deleted."""
        try:
            named: Optional[os.stat_result] = os.stat(self._path, follow_symlinks=False)
        except OSError:
            named = None  # gone, or its directory is: looked at next
        own = os.fstat(self.fd)
        if named is not None and _same(named, own):
            self._place = None
            return self._path
        path = os.readlink("/proc/self/fd/%d" % self.fd)
        try:
            moved = _same(os.stat(path, follow_symlinks=False), own)
        except OSError:
            moved = False  # deleted: the kernel's name for it leads nowhere
        if moved:
            self._place = "log: it was moved to %s, and the job goes on writing there" % path
            return path
        self._place = "log: it was deleted while the job writes it, and will be gone with the job"
        return "/proc/%d/fd/%d" % (os.getpid(), self.fd)

    def close(self) -> None:
        os.close(self.fd)


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def _mib(count: int) -> str:
    return "%d MiB" % (count >> 20) if count >= (1 << 20) else "%d KiB" % (count >> 10)
