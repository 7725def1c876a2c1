"""Sizes and rates of the mounted file systems, also where one of them has died.

A local file system is asked directly. One that may hang (network, FUSE, or mounted below such a one) is asked in a `Worker`;
the mount it hangs on is told by name and left alone for a while, the others go on.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Tuple

from eagletui.agent import procfs
from eagletui.agent.loop import Loop
from eagletui.agent.mounts import Mount, choose, parse, parse_diskstats
from eagletui.agent.rounding import mebibytes, significant
from eagletui.agent.worker import Answer, Cell, Worker, hanging

_LABEL = "mounts"


class Disks:
    """`docs` is the ``disks`` object of the host document; `refresh` looks at mounts and sizes again."""

    def __init__(self, loop: Loop, deadline: float = 3.0, pause: float = 60.0) -> None:
        self._loop, self._deadline, self._pause = loop, deadline, pause
        self._mounts: List[Mount] = []
        self._sizes: Dict[str, Tuple[int, int]] = {}
        self._left_alone: Dict[str, float] = {}
        self._worker: Optional[Worker] = None
        self._asked: List[str] = []
        self._before: Optional[Tuple[float, Dict[str, Tuple[str, int, int]]]] = None
        self._rates: Dict[str, Tuple[float, float]] = {}
        self._names: Dict[str, str] = {}

    def refresh(self) -> None:
        """Read the mounts, ask the harmless ones now and the others in the child."""
        chosen = choose(parse(procfs.read_text("/proc/self/mountinfo", 4 << 20) or ""))
        risky = []
        self._mounts = []
        for mount in chosen:
            if mount.risky:
                risky.append(mount.mount)
            else:
                size = _size(mount.mount)
                if size is None:
                    continue  # a file that a container's manager mounted (/etc/hosts), or one that went away
                self._sizes[mount.mount] = size
            self._mounts.append(mount)
        here = {m.mount for m in self._mounts}
        self._sizes = {m: size for m, size in self._sizes.items() if m in here}
        self._left_alone = {m: until for m, until in self._left_alone.items() if m in here}
        if risky:
            self._ask(risky)

    def hung(self) -> List[str]:
        """The mounts that did not answer when they were last asked."""
        return sorted(self._left_alone)

    def docs(self) -> Dict[str, Dict[str, Any]]:
        """``{mount: Disk document}``; a mount whose size is not known (it has never answered) is left out."""
        out = {}
        for mount in self._mounts:
            size = self._sizes.get(mount.mount)
            if size is None:
                continue
            doc: Dict[str, Any] = {"mount": mount.mount, "device": mount.source, "fstype": mount.fstype}
            doc["total"], doc["free"] = size
            rates = self._rates.get(self._device(mount))
            if rates is not None:
                doc["read_rate"], doc["write_rate"] = rates
            out[mount.mount] = doc
        return out

    def count(self) -> None:
        """Read the byte counters; the rates are over the time since the last call."""
        now, stats = self._loop.now(), parse_diskstats(procfs.read_text("/proc/diskstats") or "")
        before, self._before = self._before, (now, stats)
        self._rates = {}
        if before is None or now <= before[0]:
            return
        for device, (name, read, written) in stats.items():
            old = before[1].get(device)
            if old is not None and old[0] == name and read >= old[1] and written >= old[2]:
                seconds = now - before[0]
                self._rates[device] = significant((read - old[1]) / seconds, 3), significant((written - old[2]) / seconds, 3)
                self._names[name] = device

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _device(self, mount: Mount) -> str:
        """The key into the counters. Btrfs has a number of its own, so its device is found by name."""
        if mount.device in self._rates or not mount.source.startswith("/dev/"):
            return mount.device
        return self._names.get(os.path.basename(os.path.realpath(mount.source)), mount.device)

    # ------------------------------------------------------------------------------------------------ what may hang

    def _ask(self, risky: List[str]) -> None:
        now = self._loop.now()
        self._asked = [m for m in risky if now >= self._left_alone.get(m, 0.0)]
        if not self._asked or hanging(_LABEL):
            return
        if self._worker is None:
            self._worker = Worker(self._loop, _LABEL, _sizer, self._gone)
        if not self._worker.busy:
            self._worker.ask({"mounts": self._asked}, self._answered, self._deadline, self._overdue)

    def _answered(self, answer: Dict[str, Any]) -> None:
        for mount, size in answer["sizes"].items():
            self._left_alone.pop(mount, None)
            self._sizes[mount] = (size[0], size[1])

    def _overdue(self) -> None:
        """The child hangs, and has been killed (which does not help while it is inside the kernel)."""
        if self._worker is not None:
            number, _ = self._worker.cell.read()
            if 0 <= number < len(self._asked):
                self._left_alone[self._asked[number]] = self._loop.now() + self._pause

    def _gone(self, why: str) -> None:
        self._worker = None  # the next refresh starts another


def _size(mount: str) -> Optional[Tuple[int, int]]:
    """(total, free for ordinary users) in bytes; None for what is no directory or has no size."""
    try:
        if not os.path.isdir(mount):
            return None
        info = os.statvfs(mount)
    except OSError:
        return None
    total = info.f_blocks * info.f_frsize
    return (total, mebibytes(info.f_bavail * info.f_frsize)) if total else None


def _sizer(cell: Cell) -> Answer:
    def answer(question: Dict[str, Any]) -> Dict[str, Any]:
        sizes = {}
        for number, mount in enumerate(question["mounts"]):
            cell.note(number, "statvfs")
            size = _size(mount)
            if size is not None:
                sizes[mount] = size
        return {"sizes": sizes}

    return answer
