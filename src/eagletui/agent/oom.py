"""Has the kernel killed for memory? A counter of the job's control group that rose, and the kernel's own line; never a guess."""

from __future__ import annotations

import os
import re
from typing import Collection, Iterable, List, Optional, Set

from eagletui.agent import procfs

GROUPS = "/sys/fs/cgroup"
KMSG = "/dev/kmsg"
_HOST = "/proc/vmstat"
_INIT_NAMESPACE = 0xEFFFFFFC
_KILLED = re.compile(rb"(Memory cgroup out of memory|Out of memory)[^:]*: Killed process (\d+) \((.*?)\),? (.*)")
_HELD = re.compile(rb"anon-rss:(\d+)kB")
MOST_RECORDS = 20000
AFTER = 60.0


def counters(pid: int) -> List[str]:
    """The file that counts kills for memory in the control group of ``pid`` (v2 or v1), or in the nearest one above that has
    the memory controller; the host's counter where none can be read."""
    for line in (procfs.read_text("%s/%d/cgroup" % (procfs.PROC, pid)) or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            # a group that was delegated to us has no controllers of its own: the unit's, above it, counts for it
            while True:
                file = "%s%s/memory.events" % (GROUPS, path.rstrip("/"))
                if os.access(file, os.R_OK):
                    return [file]
                if not path.strip("/"):
                    break
                path = path.rstrip("/").rpartition("/")[0]
        elif "memory" in controllers.split(","):
            # inside a container the path is often the host's, and our own group is the mount's top
            for inside in (path.rstrip("/"), ""):
                file = "%s/memory%s/memory.oom_control" % (GROUPS, inside)
                if os.access(file, os.R_OK):
                    return [file]
    return [_HOST] if os.access(_HOST, os.R_OK) else []


def kills(paths: List[str]) -> Optional[int]:
    """How often the kernel has killed for memory there so far; None when it does not say."""
    for path in paths:
        for line in (procfs.read_text(path, 65536) or "").splitlines():
            key, _, value = line.partition(" ")
            if key == "oom_kill" and value.strip().isdigit():
                return int(value)
    return None


class Watch:
    """The counters of the group that ``pid`` is in, from now on. ``text`` says what the kernel did last, None while nothing."""

    def __init__(self, pid: int) -> None:
        self._files = counters(pid)
        self._before = kills(self._files)
        self._said: List[bytes] = []
        self._were: Set[int] = {pid}
        self._rose = 0.0
        self._sure = False
        self.text: Optional[str] = None

    def look(self, pids: Iterable[int], now: float) -> bool:
        """Whether the kernel killed for memory since the last look. ``pids`` are the job's processes, ``now`` is monotonic."""
        self._were.update(pids)
        count = kills(self._files)
        if count is None or self._before is None or count <= self._before:
            return False
        self._before = count
        lines = [line for line in evidence(self._were) if line not in self._said]
        self._said += lines
        if not lines and self._files == [_HOST]:
            return False  # somebody on the host was killed, and nothing says that it was one of ours
        self._rose, self._sure = now, bool(lines)
        self.text = "; ".join(map(_words, lines[-4:])) or "the kernel killed a process of this control group for memory"
        return True

    def ended(self, rc: Optional[int], now: float) -> bool:
        """Whether a main process that ended by itself with ``rc`` did so because the kernel had just killed for memory: it, or,
        by the kernel's own line, one that it could not do without."""
        if self.text is None or not rc or now - self._rose > AFTER:
            return False
        return self._sure or rc in (-9, 137)


def evidence(pids: Collection[int]) -> List[bytes]:
    """The kernel's lines about kills of these processes, oldest first; empty when its log is not ours to read."""
    try:
        if os.stat("/proc/self/ns/pid").st_ino != _INIT_NAMESPACE:
            return []  # the kernel's numbers are not ours here
        fd = os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    found = []
    try:
        for _ in range(MOST_RECORDS):
            try:
                record = os.read(fd, 8192)
            except BrokenPipeError:
                continue  # overwritten while it was read: the next one follows
            if not record:
                break
            match = _KILLED.search(record)
            if match is not None and int(match.group(2)) in pids:
                found.append(record.partition(b"\n")[0])
    except OSError:
        pass  # its end (EAGAIN), or the log is not ours to read
    finally:
        os.close(fd)
    return found


def _words(record: bytes) -> str:
    """``the kernel killed pid 123 (python3), which held 480 MB: its control group had no memory left``."""
    match = _KILLED.search(record)
    if match is None:
        return record.decode("utf-8", "replace")
    held = _HELD.search(match.group(4))
    size = ", which held %.0f MB" % (int(held.group(1)) * 1024 / 1e6) if held is not None else ""
    where = "its control group" if match.group(1).startswith(b"Memory cgroup") else "the host"
    return "the kernel killed pid %s (%s)%s: %s had no memory left" % (
        match.group(2).decode(),
        match.group(3).decode("utf-8", "replace"),
        size,
        where,
    )
