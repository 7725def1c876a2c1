"""What a job's members use together: CPU, memory, bytes read, and how many of them the kernel holds."""

from __future__ import annotations

from typing import Dict, Mapping, NamedTuple, Optional, Tuple

from eagletui.agent import procfs
from eagletui.agent.members import Key
from eagletui.agent.procfs import Stat


class Usage(NamedTuple):
    """Sums over the members. ``cpu`` in percent of one core since the look before, ``cpu_top`` the busiest member's; ``rss``,
    ``bytes_read`` and ``disk_read`` (the part that no page cache held) in bytes. ``blocked`` wait in the kernel (state D),
    ``stopped`` were stopped by a signal or a debugger."""

    members: int
    blocked: int
    stopped: int
    rss: int
    cpu: Optional[float]
    cpu_top: Optional[float]
    bytes_read: Optional[int]
    disk_read: Optional[int] = None


class Meter:
    """Looks at the members again and again. What was read never falls: what ended members had read stays counted."""

    def __init__(self) -> None:
        self._ticks: Dict[Key, int] = {}
        self._read: Dict[Key, Tuple[int, int]] = {}
        self._gone = (0, 0)
        self._when: Optional[float] = None

    def look(self, members: Mapping[Key, Stat], now: float) -> Usage:
        """``now`` is a time that never jumps, in seconds."""
        ticks = {key: stat.utime + stat.stime for key, stat in members.items()}
        cpu = top = None
        if self._when is not None and now > self._when:
            # a member seen for the first time counts from the next look on
            spent = [count - self._ticks[key] for key, count in ticks.items() if key in self._ticks]
            percent = 100.0 / procfs.CLOCK_TICKS / (now - self._when)
            cpu = round(percent * sum(spent), 1)
            top = round(percent * max(spent), 1) if spent else None
        self._ticks, self._when = ticks, now
        for key in members:
            counts = _bytes_read(key[0])
            if counts is not None:
                before = self._read.get(key, (0, 0))
                self._read[key] = max(counts[0], before[0]), max(counts[1], before[1])
        for key in [key for key in self._read if key not in members]:
            last = self._read.pop(key)
            self._gone = self._gone[0] + last[0], self._gone[1] + last[1]
        seen = bool(self._read) or self._gone != (0, 0)
        return Usage(
            len(members),
            sum(stat.state == "D" for stat in members.values()),
            sum(stat.state in ("T", "t") for stat in members.values()),
            sum(stat.rss for stat in members.values()) * procfs.PAGE_SIZE,
            cpu,
            top,
            self._gone[0] + sum(read for read, _ in self._read.values()) if seen else None,
            self._gone[1] + sum(disk for _, disk in self._read.values()) if seen else None,
        )


def _bytes_read(pid: int) -> Optional[Tuple[int, int]]:
    """What the process has read, by read calls (also from the page cache) or by the disk for its mappings, whichever is more; and
    what of it the disk had to give."""
    counts = {}
    for line in (procfs.read_text("%s/%d/io" % (procfs.PROC, pid)) or "").splitlines():
        key, _, value = line.partition(":")
        if value.strip().isdigit():
            counts[key] = int(value)
    disk = counts.get("read_bytes", 0)
    return (max(counts.get("rchar", 0), disk), disk) if counts else None
