"""The ``host`` stream: CPU, memory, network, disks of the machine, and the memory limit of the container the agent is in."""

from __future__ import annotations

import os
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from eagletui.agent import procfs
from eagletui.agent.disks import Disks
from eagletui.agent.loop import boot_now
from eagletui.agent.rounding import MIB, mebibytes, significant
from eagletui.agent.source import Context, Source
from eagletui.agent.ticker import Ticker
from eagletui.records import HostSample, to_doc

_NOT_A_NETWORK = ("lo", "veth", "docker", "br-", "virbr", "cni", "flannel", "cali", "kube", "tun", "tap", "ifb", "dummy")


class Timing(NamedTuple):
    """Seconds: between looks at mounts and limits; until a file system counts as hung; before a hung one is asked again."""

    slow: float = 10.0
    answer: float = 3.0
    pause: float = 60.0


class Cpu(NamedTuple):
    """Clock ticks of all cores since boot, from the first line of /proc/stat."""

    total: int
    idle: int
    iowait: int


def parse_cpu(text: str) -> Optional[Cpu]:
    fields = text.partition("\n")[0].split()
    if len(fields) < 6 or fields[0] != "cpu" or not all(f.isdigit() for f in fields[1:]):
        return None
    ticks = [int(f) for f in fields[1:9]]  # guest time is part of user time already
    return Cpu(sum(ticks), ticks[3], ticks[4])


def cpu_percent(before: Cpu, after: Cpu) -> Tuple[Optional[float], Optional[float]]:
    """(busy, waiting for disks) in percent of all cores; None when no time has passed or the counters fell."""
    total = after.total - before.total
    idle, iowait = after.idle - before.idle, max(0, after.iowait - before.iowait)
    if total <= 0 or idle < 0:
        return None, None
    return round(100.0 * max(0, total - idle - iowait) / total, 1), round(100.0 * iowait / total, 1)


def parse_meminfo(text: str) -> Dict[str, int]:
    """``/proc/meminfo`` in bytes."""
    out = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        fields = rest.split()
        if fields and fields[0].isdigit():
            out[name] = int(fields[0]) * (1024 if fields[-1] == "kB" else 1)
    return out


def parse_net(text: str) -> Dict[str, Tuple[int, int]]:
    """``/proc/net/dev``: ``{interface: (bytes received, bytes sent)}``."""
    out = {}
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        fields = rest.split()
        if colon and len(fields) >= 9 and fields[0].isdigit() and fields[8].isdigit():
            out[name.strip()] = (int(fields[0]), int(fields[8]))
    return out


def choose_interfaces(names: List[str], real: List[str]) -> List[str]:
    """The interfaces to add up: those with a device behind them; where there is none (a container), all but the internal ones."""
    return [n for n in names if n in real] or [n for n in names if not n.startswith(_NOT_A_NETWORK)]


def memory_limit() -> Tuple[Optional[int], Optional[int]]:
    """(limit, used without droppable file cache) of the tightest control group that holds this process; None without one."""
    for root, files, stat in (
        ("/sys/fs/cgroup", ("memory.max", "memory.current"), "inactive_file"),
        ("/sys/fs/cgroup/memory", ("memory.limit_in_bytes", "memory.usage_in_bytes"), "total_inactive_file"),
    ):
        best: Optional[Tuple[int, str]] = None
        for folder in _chain(root, _own_group(root.endswith("/memory"))):
            text = (procfs.read_text(os.path.join(folder, files[0])) or "").strip()
            if text.isdigit() and int(text) < 1 << 60 and (best is None or int(text) < best[0]):
                best = (int(text), folder)
        if best is not None:
            used = (procfs.read_text(os.path.join(best[1], files[1])) or "").strip()
            cache = [
                int(value)
                for name, _, value in (
                    line.partition(" ") for line in (procfs.read_text(os.path.join(best[1], "memory.stat")) or "").splitlines()
                )
                if name == stat and value.isdigit()
            ]
            return best[0], max(0, int(used) - sum(cache)) if used.isdigit() else None
    return None, None


def _own_group(first_version: bool) -> str:
    for line in (procfs.read_text("/proc/self/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(",") if first_version else (number == "0" and not controllers):
            return path
    return "/"


def _chain(root: str, path: str) -> List[str]:
    """The group's folder and those above it, up to the root; what is not there (another namespace's path) fails to be read."""
    folders = [root]
    for part in path.strip("/").split("/"):
        if part and part != "..":
            folders.append(os.path.join(folders[-1], part))
    return folders


class HostSource(Source):
    """Publishes `HostSample` with ``disks`` keyed by mount. Sizes of disks and limits are looked at every ten seconds."""

    name = "host"
    timing = Timing()

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._ticker = Ticker(context.loop, self._tick)
        self._disks: Optional[Disks] = None
        self._slow_due = 0.0
        self._cpu: Optional[Cpu] = None
        self._net: Optional[Tuple[float, Dict[str, Tuple[int, int]]]] = None
        self._interfaces: List[str] = []
        self._limit: Tuple[Optional[int], Optional[int]] = (None, None)
        self._shm: Tuple[Optional[int], Optional[int]] = (None, None)

    def start(self, interval: float, params: Dict[str, Any]) -> None:
        if self._disks is None:
            self._disks = Disks(self.context.loop, self.timing.answer, self.timing.pause)
            self._slow_due = 0.0
        self._ticker.start(max(0.1, interval))

    def stop(self) -> None:
        self._ticker.stop()
        if self._disks is not None:
            self._disks.close()
            self._disks = None

    def _tick(self) -> None:
        now, disks = self.context.loop.now(), self._disks
        if disks is None:
            return
        if now >= self._slow_due:
            self._slow_due = now + self.timing.slow
            disks.refresh()
            self._look_slowly()
        disks.count()
        doc = to_doc(self._sample())
        doc["disks"] = disks.docs()
        hung = disks.hung()
        if hung:
            doc["hung_mounts"] = hung
        self.context.publish(doc)

    def _look_slowly(self) -> None:
        names = list(parse_net(procfs.read_text("/proc/net/dev") or ""))
        self._interfaces = choose_interfaces(names, [n for n in names if os.path.exists("/sys/class/net/%s/device" % n)])
        self._limit = memory_limit()
        try:
            shm = os.statvfs("/dev/shm")  # a memory file system: asking it does not block
            total = shm.f_blocks * shm.f_frsize
            self._shm = (total, mebibytes(total - shm.f_bfree * shm.f_frsize)) if total else (None, None)
        except OSError:
            self._shm = (None, None)  # a container may have none

    def _sample(self) -> HostSample:
        boot = boot_now()
        memory = parse_meminfo(procfs.read_text("/proc/meminfo") or "")
        total = memory.get("MemTotal")
        step = max(MIB, (total or 0) >> 14)
        before, self._cpu = self._cpu, parse_cpu(procfs.read_text("/proc/stat", 512) or "")
        cpu, iowait = cpu_percent(before, self._cpu) if before and self._cpu else (None, None)
        loads, tasks = parse_loads(procfs.read_text("/proc/loadavg") or "")
        rx, tx = self._net_rates()
        swap = memory.get("SwapTotal")
        return HostSample(
            boot=round(boot, 3),
            cpu=cpu,
            cpu_iowait=iowait,
            load1=loads[0],
            load5=loads[1],
            load15=loads[2],
            mem_total=total,
            mem_available=_stepped(memory.get("MemAvailable"), step),
            mem_cached=_stepped(memory.get("Cached"), step),
            mem_dirty=_stepped(memory.get("Dirty"), MIB),
            swap_total=swap,
            swap_used=None if swap is None else mebibytes(swap - memory.get("SwapFree", swap)),
            net_rx=rx,
            net_tx=tx,
            tasks=tasks,
            shm_total=self._shm[0],
            shm_used=self._shm[1],
            mem_limit=self._limit[0],
            mem_limit_used=_stepped(self._limit[1], step),
        )

    def _net_rates(self) -> Tuple[Optional[float], Optional[float]]:
        now, counts = self.context.loop.now(), parse_net(procfs.read_text("/proc/net/dev") or "")
        before, self._net = self._net, (now, counts)
        if before is None or now <= before[0]:
            return None, None
        both = [(before[1][n], counts[n]) for n in self._interfaces if n in counts and n in before[1]]
        if not both:
            return None, None
        rx, tx = (sum(max(0, new[i] - old[i]) for old, new in both) / (now - before[0]) for i in (0, 1))
        return significant(rx, 3), significant(tx, 3)


def _stepped(size: Optional[int], step: int) -> Optional[int]:
    return None if size is None else mebibytes(size, step)


def parse_loads(text: str) -> Tuple[Tuple[Optional[float], Optional[float], Optional[float]], Optional[int]]:
    fields = text.split()
    try:
        return (float(fields[0]), float(fields[1]), float(fields[2])), int(fields[3].partition("/")[2])
    except (IndexError, ValueError):
        return (None, None, None), None
