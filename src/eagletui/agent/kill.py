"""Ending a job: the plan that a person confirms, and the ladder that carries it out - main process first, never by pattern.

The ladder runs in the shim (or, when that is dead, in a helper that takes its place), so it goes on when the client has gone.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence

from eagletui.agent import leftovers, ports, procfs, syscalls
from eagletui.agent.levers import Lever
from eagletui.agent.loop import Loop, boot_now
from eagletui.agent.members import Key, Origin, Scanner
from eagletui.agent.procfs import Stat

POLL = 0.1
RESCAN = 0.5
SWEEP = 0.05


class Graces(NamedTuple):
    """Seconds that are given: to the main process after SIGTERM, to all members after SIGTERM, and after SIGKILL."""

    main: float = 60.0
    members: float = 15.0
    kill: float = 30.0


GRACES = {"serve": Graces(60, 15, 30), "train": Graces(120, 30, 30), "build": Graces(10, 5, 5), "foreign": Graces(30, 5, 10)}


def graces_of(spec: Mapping[str, Any]) -> Graces:
    """The spec's own ``graces`` (three numbers), else its kind's."""
    own = spec.get("graces")
    if isinstance(own, (list, tuple)) and len(own) == 3 and all(isinstance(n, (int, float)) and n >= 0 for n in own):
        return Graces(*[float(n) for n in own])
    return GRACES.get(str(spec.get("kind")), Graces())


def token(job: str, boot_id: str, main: Optional[Key], members: Sequence[Key]) -> str:
    """What a confirmation is bound to: the main process while it lives (what it forks is its own), else every member."""
    import hashlib  # OpenSSL: 4 MB, which the shim, which never needs it, should not pay

    parts = [main] if main is not None and main in members else sorted(members)
    text = "\0".join([job, boot_id] + ["%d:%d" % part for part in parts])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def describe(stat: Stat) -> Dict[str, Any]:
    """One process of the plan."""
    uid = procfs.uid_of(stat.pid)
    out: Dict[str, Any] = {
        "pid": stat.pid,
        "start": stat.start,
        "state": stat.state,
        "command": procfs.cmdline(stat.pid) or stat.comm,
        "rss": stat.rss * procfs.PAGE_SIZE,
        "user": "" if uid is None else procfs.user(uid),
    }
    if stat.state == "D":
        out["waiting_on"] = waiting_on(stat.pid)
    return out


def waiting_on(pid: int) -> str:
    """The kernel function that a blocked process waits in, or "?"."""
    return (procfs.read_text("%s/%d/wchan" % (procfs.PROC, pid)) or "").strip() or "?"


def plan(spec: Mapping[str, Any], state: Mapping[str, Any], scanner: Scanner) -> Dict[str, Any]:
    """What a kill would end and free. The state is the reconciled `JobState` document; nothing is signalled."""
    members = scanner.scan()
    main = scanner.origin.main
    order = sorted(members, key=lambda key: (key != main, key[1], key[0]))
    port = spec.get("port")
    started = float(state.get("started") or 0)
    files = job_files(scanner.origin, members, started, spec.get("uid")) if started else []
    on_port = ports.listeners(port, [pid for pid, _ in members]) if isinstance(port, int) else []
    boot = state.get("started_boot")
    return {
        "job": spec.get("id"),
        "name": spec.get("name"),
        "token": token(str(spec.get("id")), scanner.origin.boot_id, main, list(members)),
        "main": main[0] if main in members and main is not None else None,
        "processes": [describe(members[key]) for key in order],
        "gpus": list(spec.get("gpus") or ()),
        "port": port,
        "listening": bool(on_port),
        "shm": [entry._asdict() for entry in files if entry.path.startswith(leftovers.SHM)],
        "tmp": [entry._asdict() for entry in files if not entry.path.startswith(leftovers.SHM)],
        "uptime": None if boot is None or not members else max(0.0, boot_now() - float(boot)),
        "cost": state.get("ready_seconds"),
        "operator": state.get("operator"),
        "graces": list(graces_of(spec)),
    }


def job_files(origin: Origin, members: Iterable[Key], started: float, uid: Optional[int] = None) -> List[leftovers.Leftover]:
    """What the job has in its places for shared memory and temporary files now. ``started`` is its Unix time, ``uid`` whose the
    files are (by default ours)."""
    pids = [pid for pid, _ in members]
    return leftovers.find(pids, os.geteuid() if uid is None else uid, started, origin.known_files, origin.places)


LEVER, MAIN, ALL, KILL = -1, 0, 1, 2
SETTLE = 10.0
"""Seconds after a lever has done its work, until what is left is signalled."""
TRACKER = "multiprocessing.resource_tracker"
ALONE = 10.0
"""Seconds that a server's main process has of its grace once all its other processes have ended: a front without an engine
answers nobody, and waits for requests that nobody will finish (vLLM did, for its whole grace, on two cards)."""
FORCE_FIRST = 15.0
"""Seconds that a lever has for ending it at once, before signals do: what holds it must not take their effect for a crash."""


class Ladder:
    """SIGTERM to the main process; grace; SIGTERM to all members; grace; SIGKILL to all, again and again until none is left.

    ``twice``, for servers: half way through the first grace the main process gets its SIGTERM once more, and `repeated` is True
    then; when all its other processes have ended, its grace is cut to `ALONE`, and `alone` is True.
    With a ``lever`` that comes first: what holds the processes is told to stop them. ``report(text)`` is called as it goes;
    ``done(members that cannot be ended)`` once. `hurry` skips to SIGKILL. `refused` says why a lever that alone may end a
    server did not; then nothing is signalled unless `hurry` asks for it.
    """

    def __init__(
        self,
        loop: Loop,
        scanner: Scanner,
        graces: Graces,
        report: Callable[[str], None],
        done: Callable[[List[Stat]], None],
        cgroup_kill: Optional[str] = None,
        lever: Optional[Lever] = None,
        twice: bool = False,
    ) -> None:
        self._loop, self._scanner, self._graces = loop, scanner, graces
        self._report, self._done = report, done
        self._cgroup_kill, self._lever, self._twice = cgroup_kill, lever, twice
        self.repeated = False
        self.alone = self._had_others = False
        self._alone_since: Optional[float] = None
        self.refused: Optional[str] = None
        self._settled = 0.0
        self._step = MAIN
        self._since = loop.now()
        self._scanned = -RESCAN
        self._told: Dict[Key, int] = {}
        self._finished = False
        self.denied: Dict[int, str] = {}

    def start(self, now: bool = False) -> None:
        self._enter(KILL if now else LEVER if self._lever is not None else MAIN)
        if self._step == LEVER and self._lever is not None:
            self._lever.pull()
        self._poll()

    def hurry(self) -> None:
        """Do not wait any longer: SIGKILL."""
        if not self._finished and self._step < KILL:
            self._enter(KILL)

    def _enter(self, step: int) -> None:
        self._step, self._since = step, self._loop.now()
        self._told.clear()
        if step == KILL and self._lever is not None:
            self._lever.force()

    def _use_lever(self, lever: Lever, waited: float, members: Mapping[Key, Stat]) -> bool:
        """One turn while the lever works. True when the ladder is over."""
        grace = sum(self._graces)
        if not lever.finished:
            if waited >= grace:
                self._enter(KILL)
            self._say(lever.text, waited, grace, members)
        elif lever.problem is None:
            self._settled = self._settled or self._loop.now()
            if self._loop.now() - self._settled >= SETTLE:
                self._enter(MAIN)
        elif lever.own:
            self._enter(MAIN)  # its engine does not answer: the processes are ours to end in any case
        else:
            self.refused = lever.problem
            return True
        return False

    def _poll(self) -> None:
        now = self._loop.now()
        members = self._scanner.refresh()
        if not members or self._step > 0 or now - self._scanned >= RESCAN:
            members, self._scanned = self._scanner.scan(), now
        if not members:
            members = self._orphans()  # one that forks and ends all the time is not there when it is looked at
        if not members:
            self._finished = True
            self._done([])
            return
        waited = now - self._since
        main = self._scanner.origin.main
        if self._step == LEVER and self._lever is not None and self._use_lever(self._lever, waited, members):
            self._finished = True
            self._done(list(members.values()))
            return
        waited = now - self._since
        if self._step == MAIN:
            if main is None or main not in members or waited >= self._graces.main or self._left_alone(main, members, now):
                self._enter(ALL)
            else:
                if self._twice and not self.repeated and waited >= self._graces.main / 2:
                    self.repeated = True
                    self._told.clear()
                self._signal({main: members[main]}, signal.SIGTERM)
                again = ", sent again as the first did nothing" if self.repeated else ""
                self._say("SIGTERM to the main process" + again, waited, self._graces.main, members)
        if self._step == ALL:
            waited = now - self._since
            if waited >= self._graces.members:
                self._enter(KILL)
            else:
                self._signal(members, signal.SIGTERM)
                self._say("SIGTERM to all", waited, self._graces.members, members)
        if self._step == KILL:
            waited = now - self._since
            if waited >= self._graces.kill:
                self._finished = True
                self._done(list(members.values()))
                return
            if self._lever is not None and not self._lever.finished and waited < min(FORCE_FIRST, self._graces.kill / 2):
                self._say(self._lever.text + " at once", waited, self._graces.kill, members)
            else:
                self._kill_all(members)
                self._say("SIGKILL to all", waited, self._graces.kill, members)
        self._loop.call_later(POLL, self._poll)

    def _left_alone(self, main: Key, members: Mapping[Key, Stat], now: float) -> bool:
        """Whether nothing but a server's front has been left for `ALONE` seconds; multiprocessing's tracker is no worker."""
        if not self._twice:
            return False
        others = [key for key in members if key != main and TRACKER not in (procfs.cmdline(key[0]) or "")]
        self._had_others = self._had_others or bool(others)
        if others or not self._had_others:
            self._alone_since = None
            return False
        if self._alone_since is None:
            self._alone_since = now
        self.alone = now - self._alone_since >= min(ALONE, self._graces.main / 4)
        return self.alone

    def _kill_all(self, members: Mapping[Key, Stat]) -> None:
        if self._cgroup_kill is not None:
            try:
                with open(self._cgroup_kill, "w", encoding="ascii") as file:
                    file.write("1")
            except OSError:
                self._cgroup_kill = None  # an older kernel; the members are signalled one by one below in any case
        self._told.clear()  # SIGKILL may be repeated: a process that was in the kernel gets it when it comes back
        self._signal(members, signal.SIGKILL)
        self._sweep()

    def _sweep(self) -> None:
        """Whoever forks and ends at once is gone before a look at all processes is over; but then its child is ours."""
        until = time.monotonic() + SWEEP
        while time.monotonic() < until:
            orphans = self._orphans()
            if not orphans:
                return
            self._told.clear()
            self._signal(orphans, signal.SIGKILL)

    def _orphans(self) -> Dict[Key, Stat]:
        """The living processes whose parents have ended and that we, as their supervisor, have inherited."""
        while True:
            living, again = {}, False
            for pid in self._scanner.adopted():
                if pid in self._loop.watched:
                    continue  # the main process, or a tool of ours: the loop takes their status
                stat = procfs.read_stat(pid)
                if stat is not None and not stat.dead:
                    living[(pid, stat.start)] = stat
                elif stat is not None:
                    again = True  # what it had forked became ours before it was seen to be dead
                    try:
                        os.waitpid(pid, os.WNOHANG)
                    except ChildProcessError:
                        again = False  # not ours to reap, so we have read somebody else's children
            if living or not again:
                return living

    def _signal(self, members: Mapping[Key, Stat], number: int) -> None:
        for key, stat in members.items():
            if self._told.get(key) == number:
                continue
            self._told[key] = number
            try:
                syscalls.signal_process(stat.pid, stat.start, number)
            except PermissionError:
                self.denied[stat.pid] = "not ours to signal"

    def _say(self, what: str, waited: float, grace: float, members: Mapping[Key, Stat]) -> None:
        count = len(members)
        text = "%s, %d of %d s; %d process%s left" % (what, waited, grace, count, "" if count == 1 else "es")
        blocked = [stat for stat in members.values() if stat.state == "D"] if self._step == KILL else []
        if blocked:
            text += ", pid %d uninterruptible, waiting on %s" % (blocked[0].pid, waiting_on(blocked[0].pid))
        self._report(text)


def stuck_text(stat: Stat, denied: Optional[Mapping[int, str]] = None) -> str:
    """Why a process is still there after SIGKILL, in words."""
    if denied and stat.pid in denied:
        why = denied[stat.pid]
    elif stat.state == "D":
        why = "uninterruptible, waiting on %s" % waiting_on(stat.pid)
    else:
        why = "still there (state %s)" % stat.state
    return "pid %d (%s): %s" % (stat.pid, stat.comm, why)


def release(
    spec: Mapping[str, Any],
    stuck: Sequence[Stat],
    denied: Mapping[int, str],
    ended: int,
    files: Mapping[str, str],
    origin: Optional[Origin] = None,
    refused: Optional[str] = None,
) -> Dict[str, Any]:
    """After the ladder: what is free again and what is not. Removes the job's own files that nobody uses.

    ``gpus`` is None: whether a card's memory came back only NVML tells, and it is asked by the agent, not here.
    """
    released, remaining = [], [stuck_text(stat, denied) for stat in stuck]
    if refused:
        # nothing was signalled: what holds the server would not have kept it from coming back
        remaining = [refused, "%d process%s on" % (len(stuck), " runs" if len(stuck) == 1 else "es run")]
    if ended:
        released.append("%d process%s" % (ended, "" if ended == 1 else "es"))
    port = spec.get("port")
    if isinstance(port, int):
        taken = ports.why_taken(port)
        if taken is None:
            released.append("port %d" % port)
        else:
            remaining.append(taken)
    where, numbers = (origin.places, origin.known_files) if origin is not None else (leftovers.PLACES, {})
    for path, why in leftovers.remove(files, os.geteuid() if spec.get("uid") is None else spec["uid"], where, numbers).items():
        if why and files[path] == leftovers.USED:
            remaining.append("%s: %s" % (path, why))
        elif not why:
            released.append(path)
    return {"released": released, "remaining": remaining, "gpus": None}
