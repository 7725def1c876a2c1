"""Finds the engines' servers among all processes of the host, again and again, cheaply.

Only processes that were not there before are looked at; young ones again (a shell becomes a server by exec, a fork gets its
title), and all of them every few minutes, because a pid may have been given away. Mostly that is one listing of /proc.
"""

from __future__ import annotations

import re
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from eagletui.agent import procfs
from eagletui.agent.loop import boot_now
from eagletui.agent.members import Key
from eagletui.agent.procfs import Stat
from eagletui.engines.titles import SERVER, Title, title_of

SLICE = 100  # processes per turn of the loop: about 2 ms
NEW, YOUNG = 10.0, 120.0
_STARTERS = re.compile(
    r"(?:python|pypy|pt_main|vllm|sglang|sh$|bash|dash|zsh|fish|env|nice|ionice|numactl|taskset|timeout|stdbuf|setsid|setpriv|"
    r"sudo|su$|runuser|conda|mamba|uv|pixi|poetry|tini|dumb-init|catatonit|docker-init|conmon|runc|crun|\()"
)
"""Names of processes that may become a server by exec, or have just been forked to become a part of one."""
WHOLE_EVERY = 300.0
_KTHREADD = 2
_PYTHON = "python"


class Group(NamedTuple):
    """The processes of one server. ``main`` is its API server's parent process, None when that is gone and others are left.

    ``key`` is what the server is known by as long as anything of it runs: its main process's (pid, start), of leftovers that
    were never seen with one the oldest's. ``members`` are all that descend from it, oldest first; ``chain`` the ancestors of
    the main process (of the oldest that is left).
    """

    key: Key
    engine: str
    main: Optional[Stat]
    members: Tuple[Stat, ...]
    chain: Tuple[Stat, ...]

    @property
    def head(self) -> Stat:
        return self.main if self.main is not None else self.members[0]


class Finder:
    """`look` for all of it at once, or `turns` for a slice of the work at each step. ``asked`` counts the calls of `look`."""

    def __init__(self) -> None:
        self._table: Dict[int, Stat] = {}
        self._titles: Dict[Key, Title] = {}
        self._whole = float("-inf")
        self.asked = 0
        self._owner: Dict[Key, Key] = {}  # member -> the key of the group it was last seen in

    def look(self) -> List[Group]:
        """The servers now; costs about 25 us per process of the host when called for the first time."""
        self.asked += 1
        for _ in self.turns():
            pass
        return self.groups()

    def turns(self) -> Iterator[None]:
        """Bring the table up to date, `SLICE` processes at each step."""
        now = boot_now()
        pids = procfs.pids()
        whole = now - self._whole >= WHOLE_EVERY
        alive = set(pids)
        for pid in [pid for pid in self._table if pid not in alive]:
            del self._table[pid]
        todo = [pid for pid in pids if whole or self._worth_a_look(pid, now)]
        for at, pid in enumerate(todo):
            self._take(pid)
            if at % SLICE == SLICE - 1:
                yield
        if whole:
            self._whole = now
        for key in [key for key in self._titles if not self._holds(key)]:
            del self._titles[key]

    def _worth_a_look(self, pid: int, now: float) -> bool:
        known = self._table.get(pid)
        if known is None:
            return True
        age = now - known.start / procfs.CLOCK_TICKS
        return (pid, known.start) in self._titles or age < NEW or (age < YOUNG and _STARTERS.match(known.comm) is not None)

    def _take(self, pid: int) -> None:
        stat = procfs.read_stat(pid)
        if stat is None:
            self._table.pop(pid, None)
            return
        self._table[pid] = stat
        if stat.ppid == _KTHREADD or stat.pid == _KTHREADD:
            return
        key = (pid, stat.start)
        if stat.dead:
            self._titles.pop(key, None)
            return
        title = title_of(procfs.argv(pid, 1 << 16), stat.comm)
        if title is not None:
            self._titles[key] = title
        else:
            self._titles.pop(key, None)

    def _holds(self, key: Key) -> bool:
        stat = self._table.get(key[0])
        return stat is not None and stat.start == key[1]

    # --------------------------------------------------------------------------------------------------------- groups

    def groups(self) -> List[Group]:
        """The servers in the table, and what is left of dead ones; the oldest first."""
        if not self._titles:
            self._owner = {}
            return []
        mains: Dict[Key, str] = {}
        orphans: List[Tuple[Stat, str]] = []
        for key, title in self._titles.items():
            stat = self._table[key[0]]
            top = self._top_server(stat, title.engine)
            if top is not None:
                mains[(top.pid, top.start)] = title.engine
            else:
                left = self._outermost_part(stat)
                if left is not None:
                    orphans.append((left, title.engine))
        engines: Dict[Key, str] = dict(mains)
        home: Dict[Key, Key] = {key: key for key in mains}  # a process that stands for a group -> the group's key
        self._gather_orphans(orphans, engines, home)
        found = []
        for group, members in self._members(home).items():
            main = self._table[group[0]] if group in mains else None
            order = tuple(sorted(members, key=lambda s: (s.start, s.pid)))
            chain = tuple(self.chain(main if main is not None else order[0]))
            found.append(Group(group, engines[group], main, order, chain))
        self._owner = {(s.pid, s.start): g.key for g in found for s in g.members}
        return sorted(found, key=lambda g: (g.key[1], g.key[0]))

    def _gather_orphans(self, orphans: List[Tuple[Stat, str]], engines: Dict[Key, str], home: Dict[Key, Key]) -> None:
        """Leftovers of one dead server are one group: those seen with it before, else those that write to the same place."""
        by_group: Dict[Tuple[str, str], Key] = {}
        for stat, engine in sorted(orphans, key=lambda o: (o[0].start, o[0].pid)):
            key = (stat.pid, stat.start)
            if key in home:
                continue
            place = (engine, _output_of(stat))
            owner = self._owner.get(key) or by_group.get(place, key)
            home[key] = owner
            by_group.setdefault(place, owner)
            engines[owner] = engine

    def chain(self, stat: Stat) -> Iterator[Stat]:
        """The ancestors, the parent first; a parent is never younger than its child."""
        seen = {stat.pid}
        while stat.ppid > 0 and stat.ppid not in seen:
            parent = self._table.get(stat.ppid)
            if parent is None or parent.start > stat.start:
                return
            seen.add(parent.pid)
            yield parent
            stat = parent

    def _top_server(self, stat: Stat, engine: str) -> Optional[Stat]:
        """The outermost server process of this engine among a process and its ancestors: a server's forks carry its argv."""
        top = None
        for one in (stat, *self.chain(stat)):
            title = self._titles.get((one.pid, one.start))
            if title is not None and title.role == SERVER and title.engine == engine:
                top = one
        return top

    def _outermost_part(self, stat: Stat) -> Optional[Stat]:
        """The outermost part above a part without a server; None while the Python program that made it lives."""
        top = stat
        for one in self.chain(stat):
            if (one.pid, one.start) not in self._titles:
                if one.pid != 1 and one.comm.startswith((_PYTHON, "pt_main_thread")):
                    return None
                break
            top = one
        return top

    def _members(self, home: Mapping[Key, Key]) -> Dict[Key, List[Stat]]:
        """Every process to the group it descends from; an orphan stays with the group it was seen in last."""
        groups = set(home.values())
        found: Dict[Key, List[Stat]] = {}
        for stat in self._table.values():
            if stat.dead:
                continue
            group = self._owner.get((stat.pid, stat.start))
            for one in (stat, *self.chain(stat)):
                if (one.pid, one.start) in home:
                    group = home[(one.pid, one.start)]
                    break
            if group in groups and group is not None:
                found.setdefault(group, []).append(stat)
        return found


def _output_of(stat: Stat) -> str:
    """What all processes of one server have in common when it is dead: their log; where that tells nothing, the process group."""
    for lead in procfs.fd_paths(stat.pid).values():
        if not lead.startswith(("/dev/", "/proc/")):
            return lead
    return str(stat.pgrp)
