"""Which of the servers on the host are eagletui's own jobs: these are in the table of jobs already, and must not come twice."""

from __future__ import annotations

import os
from typing import Any, Dict, Iterable, List, Mapping, Optional, Set

from eagletui.agent import procfs
from eagletui.agent.adopt.finder import Group
from eagletui.agent.adopt.holder import DOCKER, PODMAN, Holder
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
        self._logs: Set[str] = set()
        self._awaited: Dict[str, float] = {}  # engine -> when a job was started in a container that is not known yet
        for job in jobs:
            if job.get("state") not in LIVE and not job.get("members"):
                continue
            for pid, start in (("pid", "pid_start"), ("shim_pid", "shim_start")):
                if isinstance(job.get(pid), int) and isinstance(job.get(start), int):
                    (self._keys if pid == "pid" else self._shims).add((job[pid], job[start]))
            self._keys.update((int(pid), int(start)) for pid, start in job.get("member_pids") or ())
            self._holders.update(str(job[name]) for name in ("unit", "container") if job.get(name))
            if job.get("log"):
                self._logs.add(str(job["log"]))
            runner, began = job.get("runner"), job.get("started_boot")
            if runner in (DOCKER, PODMAN) and not job.get("container") and isinstance(began, (int, float)):
                self._awaited[str(runner)] = min(float(began), self._awaited.get(str(runner), float(began)))

    def knows(self, key: Key) -> bool:
        """Whether a process is one of these jobs'."""
        return key in self._keys

    def holds(self, group: Group, holder: Holder) -> bool:
        """Whether a group of processes belongs to one of these jobs."""
        line = [(stat.pid, stat.start) for stat in (*group.members, *group.chain)]
        if any(key in self._keys or key in self._shims for key in line):
            return True
        if holder.unit in self._holders or holder.container in self._holders:
            return True
        if not self._logs.isdisjoint(procfs.fd_paths(group.head.pid).values()):
            return True
        began = self._awaited.get(holder.kind)
        if began is not None and group.head.start / procfs.CLOCK_TICKS >= began - 1.0:
            return True  # most likely that job's container; if it is not, it is found once that one is known
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
