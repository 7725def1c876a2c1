"""Small readers of /proc. A process may end at any moment: what has gone, or is not ours to read, is None, never an exception.

Identity of a process is (pid, ``start``): the pid alone is used again.
"""

from __future__ import annotations

import os
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from eagletui.records.redact import redact_argv

PROC = "/proc"
CLOCK_TICKS: int = os.sysconf("SC_CLK_TCK")
PAGE_SIZE: int = os.sysconf("SC_PAGE_SIZE")
_USERS: Dict[int, str] = {}


class Stat(NamedTuple):
    """``/proc/PID/stat``. ``start`` is in clock ticks after boot, ``utime``/``stime`` in clock ticks, ``rss`` in pages."""

    pid: int
    comm: str
    state: str
    ppid: int
    pgrp: int
    session: int
    start: int
    utime: int
    stime: int
    threads: int
    rss: int

    @property
    def dead(self) -> bool:
        """Ended and only waiting to be reaped. A zombie that still has threads is none: only its first thread has ended."""
        return self.state in ("Z", "X") and self.threads <= 1


def read_bytes(path: str, limit: int = 1 << 20) -> Optional[bytes]:
    """The first ``limit`` bytes of a small file; None when it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        data = os.read(fd, min(limit, 65536))
        while len(data) < limit:
            more = os.read(fd, min(limit - len(data), 65536))
            if not more:
                break
            data += more
        return data
    except OSError:
        return None  # the process ended while it was read (ESRCH), or may not be looked into
    finally:
        os.close(fd)


def read_text(path: str, limit: int = 1 << 20) -> Optional[str]:
    """`read_bytes` as text; bytes that are not UTF-8 become replacement marks."""
    data = read_bytes(path, limit)
    return None if data is None else data.decode("utf-8", "replace")


def pids() -> List[int]:
    """The processes that /proc shows now, in no order; empty when it cannot be listed."""
    try:
        return [int(name) for name in os.listdir(PROC) if name.isdigit()]
    except OSError:
        return []


def children(pid: int) -> List[int]:
    """The children of the process's first thread, zombies too; empty where the kernel does not tell (CONFIG_PROC_CHILDREN)."""
    text = read_text("%s/%d/task/%d/children" % (PROC, pid, pid)) or ""
    return [int(word) for word in text.split() if word.isdigit()]


def parse_stat(data: bytes) -> Optional[Stat]:
    """``/proc/PID/stat``; the name may hold spaces, brackets and any byte, so it ends at the *last* bracket."""
    left, right = data.find(b"("), data.rfind(b")")
    rest = data[right + 1 :].split()
    if left < 0 or right < left or len(rest) < 22:
        return None
    try:
        return Stat(
            int(data[:left]),
            data[left + 1 : right].decode("utf-8", "replace"),
            rest[0].decode("ascii", "replace"),
            int(rest[1]),
            int(rest[2]),
            int(rest[3]),
            int(rest[19]),
            int(rest[11]),
            int(rest[12]),
            int(rest[17]),
            int(rest[21]),
        )
    except ValueError:
        return None


def read_stat(pid: int) -> Optional[Stat]:
    """The process's stat, or None when there is no such process (any more)."""
    data = read_bytes("%s/%d/stat" % (PROC, pid), 4096)
    return None if data is None else parse_stat(data)


def alive(pid: int, start: int) -> bool:
    """True when this very process still runs, with whichever of its threads; a zombie does not."""
    stat = read_stat(pid)
    return stat is not None and stat.start == start and not stat.dead


def argv(pid: int, limit: int = 1 << 17) -> List[str]:
    """The arguments of the process; empty for a kernel thread, a zombie, or one that has gone."""
    data = read_bytes("%s/%d/cmdline" % (PROC, pid), limit)
    if not data:
        return []
    # a process that wrote its own title leaves padding, or blanks instead of NULs
    return [part.decode("utf-8", "replace") for part in data.rstrip(b"\0 ").split(b"\0")]


def cmdline(pid: int, limit: int = 4096) -> Optional[str]:
    """The command line as one text, arguments joined by blanks, keys hidden; None when there is none (kernel thread, zombie,
    gone)."""
    return " ".join(redact_argv(argv(pid, limit))) or None


def status(pid: int) -> Dict[str, str]:
    """``/proc/PID/status`` as a dict of texts; empty when the process has gone."""
    text = read_text("%s/%d/status" % (PROC, pid))
    pairs = (line.partition(":") for line in (text or "").splitlines())
    return {key: value.strip() for key, colon, value in pairs if colon}


def uid_of(pid: int) -> Optional[int]:
    """The effective user id, or None when the process has gone."""
    try:
        return os.stat("%s/%d" % (PROC, pid)).st_uid
    except OSError:
        return None


def user(uid: int) -> str:
    """The name of a user id, cached; the number as text where /etc/passwd does not know it.

    /etc/passwd only: the C library would ask LDAP or SSSD here, and those may block.
    """
    if not _USERS:
        for line in (read_text("/etc/passwd") or "").splitlines():
            fields = line.split(":")
            if len(fields) > 2 and fields[2].isdigit():
                _USERS.setdefault(int(fields[2]), fields[0])
    name = _USERS.get(uid)
    if name is None:
        name = _USERS[uid] = str(uid)
    return name


def io_read_bytes(pid: int) -> Optional[int]:
    """Bytes that the process has made storage fetch for it (``read_bytes`` of /proc/PID/io); None without the right to see."""
    text = read_text("%s/%d/io" % (PROC, pid))
    for line in (text or "").splitlines():
        key, _, value = line.partition(":")
        if key == "read_bytes" and value.strip().isdigit():
            return int(value)
    return None


def fd_inodes(pid: int, fds: Sequence[int] = (1, 2)) -> Dict[int, Tuple[int, int]]:
    """(device, inode) of what the descriptors lead to; those that are closed or not ours to see are left out."""
    out = {}
    for fd in fds:
        try:
            info = os.stat("%s/%d/fd/%d" % (PROC, pid, fd))
        except OSError:
            continue
        out[fd] = (info.st_dev, info.st_ino)
    return out


def fd_paths(pid: int, fds: Sequence[int] = (1, 2)) -> Dict[int, str]:
    """Where the descriptors lead, as the kernel names it (``pipe:[123]``, ``/x (deleted)``); missing ones are left out."""
    out = {}
    for fd in fds:
        try:
            out[fd] = os.readlink("%s/%d/fd/%d" % (PROC, pid, fd))
        except OSError:
            continue
    return out


def environ(pid: int) -> Optional[Dict[str, str]]:
    """The environment the process started with; None when not ours to see. A process may have overwritten it (vLLM does)."""
    data = read_bytes("%s/%d/environ" % (PROC, pid))
    if data is None:
        return None
    pairs = (item.decode("utf-8", "replace").partition("=") for item in data.split(b"\0"))
    return {key: value for key, equals, value in pairs if equals and key}


def environ_has(pid: int, name: str, value: str) -> bool:
    """True when the process was started with ``name=value`` in its environment, as far as that can be seen."""
    return (environ(pid) or {}).get(name) == value


def cgroup(pid: int) -> Optional[str]:
    """The path of the process in the unified hierarchy (v2), else in systemd's own (v1); None when neither is told."""
    named = None
    for line in (read_text("%s/%d/cgroup" % (PROC, pid)) or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            return path
        if controllers == "name=systemd":
            named = path
    return named


def nspid(pid: int) -> Tuple[int, ...]:
    """The process's numbers from our pid namespace inwards: the last is what a log inside its container prints."""
    numbers = status(pid).get("NSpid", "").split()
    return tuple(int(n) for n in numbers if n.isdigit())


def age(stat: Stat, boot: float) -> float:
    """Seconds since the process started, at the boot time ``boot``."""
    return max(0.0, boot - stat.start / CLOCK_TICKS)
