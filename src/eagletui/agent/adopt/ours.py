"""Which of the servers on the host are eagletui's own jobs: these are in the table of jobs already, and must not come twice."""

from __future__ import annotations

import os
from typing import Any, Iterable, List, Mapping, Optional, Set, Tuple

from eagletui.agent import procfs
from eagletui.agent.adopt.finder import Group
from eagletui.agent.adopt.holder import Holder
from eagletui.agent.members import Key

_SHIM = "eagletui.agent.shim_main"
LIVE = ("launching", "running", "stopping", "lost_supervisor")


class Ours:
    """What the jobs kept under ``root`` are recognised by; ``jobs`` are their state documents."""

    def __init__(self, root: str, jobs: Iterable[Mapping[str, Any]]) -> None:
        self._root = root
        self._keys: Set[Key] = set()
        self._shims: Set[Key] = set()
        self._holders: Set[str] = set()
        self._logs: Set[Tuple[int, int]] = set()
        for job in jobs:
            if job.get("state") not in LIVE and not job.get("members"):
                continue
            for pid, start in (("pid", "pid_start"), ("shim_pid", "shim_start")):
                if isinstance(job.get(pid), int) and isinstance(job.get(start), int):
                    (self._keys if pid == "pid" else self._shims).add((job[pid], job[start]))
            self._keys.update((int(pid), int(start)) for pid, start in job.get("member_pids") or ())
            self._holders.update(str(job[name]) for name in ("unit", "container") if job.get(name))
            try:
                info = os.stat(str(job.get("log") or ""))
                self._logs.add((info.st_dev, info.st_ino))
            except OSError:
                pass  # no log yet: the job is known by its processes

    def holds(self, group: Group, holder: Holder) -> bool:
        """Whether a group of processes belongs to one of these jobs."""
        line = [(stat.pid, stat.start) for stat in (*group.members, *group.chain)]
        if any(key in self._keys or key in self._shims for key in line):
            return True
        if holder.unit in self._holders or holder.container in self._holders:
            return True
        if self._logs and not self._logs.isdisjoint(procfs.fd_inodes(group.head.pid).values()):
            return True
        directory = shim_directory(group)
        return directory is not None and os.path.dirname(os.path.dirname(directory)) == self._root


def shim_directory(group: Group) -> Optional[str]:
    """The directory of the job whose supervisor started these processes, whoever's it is; None when none did."""
    for ancestor in group.chain:
        argv: List[str] = procfs.argv(ancestor.pid)
        if _SHIM in argv and argv[argv.index(_SHIM) + 1 :][:1] == ["run"]:
            rest = argv[argv.index(_SHIM) + 2 :]
            return rest[0] if rest else None
    return None
