"""Which processes belong to a job: never by name, never by a marker in the environment (engines erase theirs).

Members are the union of: the unit's control group, the session of the main process, descent from the shim (it is a child
subreaper) and from other members, and whoever has the job's log as stdout or stderr. A process is (pid, start ticks), within
one boot and one pid namespace. The shim itself, process 1 and we are never members.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional, Set, Tuple

from eagletui.agent import procfs
from eagletui.agent.leftovers import PLACES
from eagletui.agent.procfs import Stat
from eagletui.agent.tool import running

Key = Tuple[int, int]


class Origin(NamedTuple):
    """What a job's processes are recognised by; the shim keeps it in ``shim.json``.

    ``main`` and ``shim`` are (pid, start), ``log`` (device, inode), ``known`` the members seen last, ``files`` the (path, device,
    inode) in the job's ``places`` (/dev/shm, /tmp ...) that members were seen to use. ``boot_id``, ``pid_ns`` and
    ``pid1_start`` say in which boot and container the pids are meant.
    """

    boot_id: str
    pid_ns: int
    pid1_start: int
    shim: Key
    main: Optional[Key] = None
    log: Optional[Tuple[int, int]] = None
    cgroup: Optional[str] = None
    known: FrozenSet[Key] = frozenset()
    files: Tuple[Tuple[str, int, int], ...] = ()
    places: Tuple[str, ...] = PLACES

    def doc(self) -> Dict[str, Any]:
        out = dict(self._asdict())
        out["known"] = sorted(self.known)
        return out

    @property
    def known_files(self) -> Dict[str, Tuple[int, int]]:
        """{path: (device, inode)}."""
        return {path: (device, inode) for path, device, inode in self.files}


def read_origin(doc: Mapping[str, Any]) -> Origin:
    """`Origin.doc` read back. Raises `KeyError`, `TypeError`, `ValueError` for a damaged one."""

    def pair(value: Any) -> Optional[Tuple[int, int]]:
        return None if value is None else (int(value[0]), int(value[1]))

    shim = pair(doc["shim"])
    if shim is None:
        raise ValueError("no shim")
    known = frozenset((int(pid), int(start)) for pid, start in doc.get("known") or ())
    group = doc.get("cgroup")
    return Origin(
        str(doc["boot_id"]),
        int(doc["pid_ns"]),
        int(doc["pid1_start"]),
        shim,
        pair(doc.get("main")),
        pair(doc.get("log")),
        str(group) if group else None,
        known,
        # a supervisor of an older version noted paths only: which files they were is not known
        tuple((str(f[0]), int(f[1]), int(f[2])) for f in doc.get("files") or () if not isinstance(f, str)),
        tuple(str(place) for place in doc.get("places") or PLACES),
    )


def here() -> Tuple[str, int, int]:
    """(boot id, inode of the pid namespace, start ticks of process 1): where pids are valid."""
    boot_id = (procfs.read_text("/proc/sys/kernel/random/boot_id") or "").strip()
    try:
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        namespace = 0
    first = procfs.read_stat(1)
    return boot_id, namespace, first.start if first else 0


def cgroup_pids(cgroup: str) -> List[int]:
    """The processes of a control group and those below it (unified hierarchy, else systemd's own)."""
    for base in ("/sys/fs/cgroup", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified"):
        top = base + cgroup
        if os.path.isfile(top + "/cgroup.procs"):
            found: List[int] = []
            for directory, _names, _files in os.walk(top):
                text = procfs.read_text(directory + "/cgroup.procs", 1 << 22) or ""
                found.extend(int(line) for line in text.split() if line.isdigit())
            return found
    return []


class Scanner:
    """Finds a job's members, again and again; remembers who is none, so that a scan looks only at new processes."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.known: Set[Key] = set(origin.known)
        self._strangers: Set[Key] = set()

    def scan(self) -> Dict[Key, Stat]:
        """All live members now, zombies left out: {(pid, start): stat}."""
        table = {}
        for pid in procfs.pids():
            stat = procfs.read_stat(pid)
            if stat is not None:
                table[pid] = stat
        found = self._closure(table)
        self.known = set(found)
        return {key: stat for key, stat in found.items() if not stat.dead}

    def refresh(self) -> Dict[Key, Stat]:
        """The known members that still live; new ones are found by `scan` only."""
        found = {}
        for pid, start in self.known:
            stat = procfs.read_stat(pid)
            if stat is not None and stat.start == start and not stat.dead:
                found[(pid, start)] = stat
        return found

    def adopted(self) -> List[int]:
        """The children of this process, told by the kernel in no time; empty unless we are the job's supervisor.

        Besides the main process those are orphans of the job: what it has daemonised has just become our child.
        """
        if os.getpid() != self.origin.shim[0]:
            return []
        return [pid for pid in procfs.children(os.getpid()) if pid not in running()]

    def _closure(self, table: Mapping[int, Stat]) -> Dict[Key, Stat]:
        origin = self.origin
        # what we ask ourselves (podman, systemctl) is our child too, and none of the job's
        excluded = {0, 1, 2, os.getpid(), *running()}
        found: Dict[Key, Stat] = {}

        def add(stat: Stat) -> None:
            if stat.pid not in excluded:
                found[(stat.pid, stat.start)] = stat

        shim = table.get(origin.shim[0])
        shim_lives = shim is not None and shim.start == origin.shim[1]
        if shim_lives:
            excluded.add(origin.shim[0])
        earliest = origin.main[1] if origin.main else origin.shim[1]
        for pid in cgroup_pids(origin.cgroup) if origin.cgroup else ():
            if pid in table:
                add(table[pid])
        for stat in table.values():
            key = (stat.pid, stat.start)
            if key == origin.main or key in self.known or (stat.start >= earliest and self._writes_log(stat, excluded)):
                add(stat)
        parents = {origin.shim[0]: origin.shim[1]} if shim_lives else {}
        self._spread(table, found, parents, earliest, origin.main[0] if origin.main else 0, add)
        self._strangers = {(s.pid, s.start) for s in table.values()} - set(found)
        return found

    @staticmethod
    def _spread(
        table: Mapping[int, Stat],
        found: Dict[Key, Stat],
        parents: Dict[int, int],
        earliest: int,
        main: int,
        add: Callable[[Stat], None],
    ) -> None:
        """Children of members (or of the live shim), and whoever shares a session with one, until nothing is added."""
        while True:
            before = len(found)
            parents.update(found)
            # a session's number is not used again while anybody is in it, so one live member vouches for the others; only
            # sessions of the job's own count: the main process's, and those whose leader is a member
            sessions = set()
            for member in found.values():
                leader = table.get(member.session)
                if member.session == main or (leader is not None and (leader.pid, leader.start) in found):
                    sessions.add(member.session)
            for stat in table.values():
                parent = parents.get(stat.ppid)
                if stat.start < earliest or (stat.pid, stat.start) in found:
                    continue
                if (parent is not None and stat.start >= parent) or stat.session in sessions:
                    add(stat)
            if len(found) == before:
                return

    def _writes_log(self, stat: Stat, excluded: Iterable[int]) -> bool:
        log = self.origin.log
        key = (stat.pid, stat.start)
        if log is None or stat.pid in excluded or key in self._strangers or stat.ppid == 2:
            return False
        return log in procfs.fd_inodes(stat.pid).values()


class Named(Scanner):
    """Exactly the processes that a person has named: none of their children, nobody of their session."""

    def scan(self) -> Dict[Key, Stat]:
        return self.refresh()
