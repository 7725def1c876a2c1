"""The ``processes`` stream and request: the top of the host's process table by CPU and by memory.

A whole look at a table of 2,000 processes takes about 40 ms, so it is taken in slices, and seldom.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple

from eagletui.agent import procfs
from eagletui.agent.calls import Call, CallError, Handler
from eagletui.agent.loop import Loop, boot_now
from eagletui.agent.rounding import mebibytes
from eagletui.agent.source import Context, Source
from eagletui.agent.ticker import Ticker
from eagletui.records import Process, to_doc

LIMIT = 40
SLICE = 100  # processes per turn of the loop: about 2 ms
LEAST = 1.0  # seconds that the use of the processors is measured over, at least
_COMMAND = 300
_Ticks = Dict[Tuple[int, int], int]  # (pid, start): CPU ticks used


class Scan:
    """One look at the whole table; ``done(self)`` when it is complete. CPU is known against an earlier scan."""

    def __init__(self, loop: Loop, done: Callable[["Scan"], None]) -> None:
        self._loop, self._done = loop, done
        self._waiting = procfs.pids()
        self._cancelled = False
        self.at = boot_now()
        self.stats: List[procfs.Stat] = []
        self._slice()

    def cancel(self) -> None:
        self._cancelled = True

    def _slice(self) -> None:
        if self._cancelled:
            return
        pids, self._waiting = self._waiting[:SLICE], self._waiting[SLICE:]
        for pid in pids:
            stat = procfs.read_stat(pid)
            if stat is not None:
                self.stats.append(stat)
        if self._waiting:
            self._loop.call_later(0, self._slice)
        else:
            self._loop.call_later(0, self._finish)

    def _finish(self) -> None:
        if not self._cancelled:
            self._done(self)

    def ticks(self) -> _Ticks:
        return {(s.pid, s.start): s.utime + s.stime for s in self.stats}


def top(scan: Scan, before: Optional[Tuple[float, _Ticks]], limit: int, sort: str = "") -> List[Process]:
    """The processes with most CPU since ``before``, or most memory, or (``sort`` empty) half of each; busiest first."""
    seconds = scan.at - before[0] if before is not None else 0.0
    cpu: Dict[int, float] = {}
    if before is not None and seconds > 0:
        for s in scan.stats:
            # one that has started since then has used all of its time since then
            used = s.utime + s.stime - before[1].get((s.pid, s.start), 0)
            if (s.pid, s.start) in before[1] or s.start / procfs.CLOCK_TICKS >= before[0]:
                cpu[s.pid] = round(max(0.0, 100.0 * used / procfs.CLOCK_TICKS / seconds), 1)
    by_cpu = sorted(scan.stats, key=lambda s: (-cpu.get(s.pid, 0.0), -s.rss, s.pid))
    by_mem = sorted(scan.stats, key=lambda s: (-s.rss, s.pid))
    if sort == "cpu":
        chosen = by_cpu[:limit]
    elif sort == "mem":
        chosen = by_mem[:limit]
    else:
        first = by_cpu[: (limit + 1) // 2]
        known = {s.pid for s in first}
        chosen = (first + [s for s in by_mem if s.pid not in known])[:limit]
    return [_process(s, cpu.get(s.pid), scan.at) for s in chosen]


def _process(s: procfs.Stat, cpu: Optional[float], boot: float) -> Process:
    uid = procfs.uid_of(s.pid)
    return Process(
        pid=s.pid,
        start=s.start,
        ppid=s.ppid,
        user="" if uid is None else procfs.user(uid),
        state=s.state,
        comm=s.comm,
        command=(procfs.cmdline(s.pid) or "")[:_COMMAND],
        cpu=cpu,
        rss=mebibytes(s.rss * procfs.PAGE_SIZE),
        threads=s.threads,
        age=round(procfs.age(s, boot), 1),
    )


class ProcessSource(Source):
    """Publishes ``{pid: Process}`` without ages (they follow from the start). Parameter ``limit``: how many, default 40."""

    name = "processes"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._ticker = Ticker(context.loop, self._tick)
        self._limit = LIMIT
        self._scan: Optional[Scan] = None
        self._before: Optional[Tuple[float, _Ticks]] = None

    def start(self, interval: float, params: Dict[str, Any]) -> None:
        limit = params.get("limit", LIMIT)
        self._limit = limit if isinstance(limit, int) and 1 <= limit <= 1000 else LIMIT
        # the use of the processors since the last scan says nothing when that was only just now
        since = boot_now() - self._before[0] if self._before is not None else LEAST
        self._ticker.start(max(0.1, interval), max(0.0, min(LEAST - since, interval)))

    def stop(self) -> None:
        self._ticker.stop()
        if self._scan is not None:
            self._scan.cancel()
            self._scan = None

    def _tick(self) -> None:
        if self._scan is None:
            self._scan = Scan(self.context.loop, self._scanned)

    def _scanned(self, scan: Scan) -> None:
        self._scan = None
        found = top(scan, self._before, self._limit)
        self._before = (scan.at, scan.ticks())
        self.context.publish({str(p.pid): to_doc(p._replace(age=None)) for p in found})


def processes(call: Call) -> None:
    """``sort`` (cpu, mem or empty: half of each), ``limit``, ``over`` (seconds that CPU is measured over, default 0.5)."""
    sort, limit, over = call.text("sort", ""), int(call.number("limit", LIMIT, 1, 10000)), call.number("over", 0.5, 0.05, 10)
    if sort not in ("", "cpu", "mem"):
        raise CallError("processes", "cannot sort by %r" % sort, "sort by cpu or mem")

    def first(scan: Scan) -> None:
        before = (scan.at, scan.ticks())
        call.loop.call_later(over, lambda: run(lambda second: finish(second, before)))

    def finish(scan: Scan, before: Tuple[float, _Ticks]) -> None:
        call.reply([to_doc(p) for p in top(scan, before, limit, sort)])

    def run(done: Callable[[Scan], None]) -> None:
        if not stopped:
            scans.append(Scan(call.loop, done))

    def cancel() -> None:
        stopped.append(True)
        for scan in scans:
            scan.cancel()

    scans: List[Scan] = []
    stopped: List[bool] = []
    call.on_cancel = cancel
    run(first)


METHODS: Dict[str, Handler] = {"processes": processes}
