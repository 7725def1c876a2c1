"""What a job's members use together: CPU, memory, bytes read, and how many of them the kernel holds."""

from __future__ import annotations

from typing import Dict, Mapping, NamedTuple, Optional

from eagletui.agent import procfs
from eagletui.agent.members import Key
from eagletui.agent.procfs import Stat


class Usage(NamedTuple):
    """Sums over the members. ``cpu`` in percent of one core since the look before, ``cpu_top`` the busiest member's; ``rss`` and
    ``bytes_read`` in bytes. ``blocked`` wait in the kernel (state D), ``stopped`` were stopped by a signal or a debugger."""

    members: int
    blocked: int
    stopped: int
    rss: int
    cpu: Optional[float]
    cpu_top: Optional[float]
    bytes_read: Optional[int]


class Meter:
    """Looks at the members again and again. ``bytes_read`` never falls: what ended members had read stays counted."""

    def __init__(self) -> None:
        self._ticks: Dict[Key, int] = {}
        self._read: Dict[Key, int] = {}
        self._gone_read = 0
        self._seen_io = False
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
            count = _bytes_read(key[0])
            if count is not None:
                self._seen_io = True
                self._read[key] = max(count, self._read.get(key, 0))
        for key in [key for key in self._read if key not in members]:
            self._gone_read += self._read.pop(key)
        return Usage(
            len(members),
            sum(stat.state == "D" for stat in members.values()),
            sum(stat.state in ("T", "t") for stat in members.values()),
            sum(stat.rss for stat in members.values()) * procfs.PAGE_SIZE,
            cpu,
            top,
            self._gone_read + sum(self._read.values()) if self._seen_io else None,
        )


def _bytes_read(pid: int) -> Optional[int]:
    """What the process has read: by read calls (also from the page cache), or by the disk for its mappings, whichever is more."""
    counts = {}
    for line in (procfs.read_text("%s/%d/io" % (procfs.PROC, pid)) or "").splitlines():
        key, _, value = line.partition(":")
        if value.strip().isdigit():
            counts[key] = int(value)
    return max(counts.get("rchar", 0), counts.get("read_bytes", 0)) if counts else None
