"""A server that eagletui did not start, as the host's processes show it at this moment, and what it is known by."""

from __future__ import annotations

import time
import zlib
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from eagletui.agent import procfs
from eagletui.agent.adopt.finder import Group
from eagletui.agent.adopt.holder import PROCESS, Holder, holder_of
from eagletui.agent.loop import boot_now
from eagletui.agent.members import Key, Origin, Scanner, cgroup_pids, here
from eagletui.agent.procfs import Stat
from eagletui.engines.command import ServerFacts
from eagletui.engines.titles import server_facts
from eagletui.jobs.base import redact_argv
from eagletui.records.jobs import MOST_PIDS

ID_PREFIX = "found-"
LEFTOVER = "leftover"


def id_of(key: Key, boot_id: str) -> str:
    """``found-PID-xxxxxxxx``: the same for as long as that very process runs, for every agent on this boot."""
    return "%s%d-%08x" % (ID_PREFIX, key[0], zlib.crc32(("%s:%d:%d" % (boot_id, key[0], key[1])).encode()))


class Found(NamedTuple):
    """One such server, or what a dead one has left (``main`` is None then).

    ``holder`` says what ends it: its unit, its container, or signals to ``members``, which are (pid, start), the oldest first.
    """

    id: str
    engine: str
    main: Optional[Key]
    members: Tuple[Key, ...]
    holder: Holder
    argv: Tuple[str, ...]
    facts: Optional[ServerFacts]
    started: float
    started_boot: float
    uid: Optional[int]
    boot_id: str

    @property
    def name(self) -> str:
        """The container's or the unit's name, else the model's."""
        if self.holder.name:
            return self.holder.name
        if self.holder.unit:
            return self.holder.unit[: -len(".service")] if self.holder.unit.endswith(".service") else self.holder.unit
        model = (self.facts.served_model or self.facts.model) if self.facts is not None else None
        return (model or "").rstrip("/").rsplit("/", 1)[-1] or self.engine

    def scanner(self) -> Scanner:
        """Finds its processes for a kill: its unit's or container's control group, else the main process's descendants.

        Never by its log: a file, a terminal or a pipe that it writes to may be anybody's.
        """
        return Scanner(origin_of(self))

    def spec(self) -> Dict[str, Any]:
        """The part of a job's spec that a kill plan needs."""
        facts = self.facts
        spec = {"id": self.id, "kind": "serve", "name": self.name, "server": True, "engine": self.engine, "gpus": []}
        if facts is not None:
            spec.update(port=facts.port, model=facts.model)
        return {key: value for key, value in spec.items() if value is not None}

    def state(self) -> Dict[str, Any]:
        """The `JobState` document as far as the processes alone tell it; the stream ``jobs`` adds what its log and port say."""
        facts, holder = self.facts, self.holder
        doc: Dict[str, Any] = {
            "id": self.id,
            "kind": "serve",
            "name": self.name,
            "state": "running" if self.main is not None else LEFTOVER,
            "started": round(self.started, 3),
            "started_boot": round(self.started_boot, 3),
            "engine": self.engine,
            "boot_id": self.boot_id,
            "operator": None if self.uid is None else procfs.user(self.uid),
            "command": redact_argv(list(self.argv)),
            "members": len(self.members),
            "member_pids": [list(key) for key in self.members[:MOST_PIDS]],
            "adopted": holder.kind,
            "unit": holder.unit,
            "container": holder.container,
        }
        if self.main is not None:
            doc.update(pid=self.main[0], pid_start=self.main[1])
        if facts is not None:
            doc.update(
                model=facts.model,
                served_model=facts.served_model,
                max_model_len=facts.max_model_len,
                drafter=facts.drafter,
                k=facts.k,
                port=facts.port or None,
            )
        return {key: value for key, value in doc.items() if value is not None}


def origin_of(found: Found) -> Origin:
    """What its processes are recognised by. There is no supervisor; the log is left out on purpose."""
    boot_id, namespace, first = here()
    return Origin(boot_id, namespace, first, (0, 0), found.main, None, found.holder.cgroup, frozenset(found.members))


def found_of(group: Group) -> Found:
    """A group of processes as a server."""
    head = group.head
    boot_id = here()[0]
    holder = holder_of(head, group.chain)
    members: List[Stat] = list(group.members)
    if holder.kind != PROCESS and holder.cgroup is not None:
        inside = {stat.pid for stat in members}
        others = (procfs.read_stat(pid) for pid in cgroup_pids(holder.cgroup) if pid not in inside)
        members += [stat for stat in others if stat is not None and not stat.dead]
    argv = procfs.argv(group.main.pid) if group.main is not None else []
    started_boot = head.start / procfs.CLOCK_TICKS
    return Found(
        id_of(group.key, boot_id),
        group.engine,
        None if group.main is None else (group.main.pid, group.main.start),
        tuple((stat.pid, stat.start) for stat in sorted(members, key=lambda s: (s.start, s.pid))),
        holder,
        tuple(argv),
        server_facts(argv),
        time.time() - boot_now() + started_boot,
        started_boot,
        procfs.uid_of(head.pid),
        boot_id,
    )
