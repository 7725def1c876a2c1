"""The container of a job, beside its supervisor: which processes it has, how it ended, and that nothing of it stays.

The foreground client (``docker run``, ``podman run``) is the supervisor's child. It may be killed, and podman's monitor too: the
container runs on. So the job's main process is the container's first one, known by its host pid; its exit status is the
client's while that lives, else what the engine says, else what the kernel told us when it had become our child, else unknown.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from eagletui.agent import levers, procfs
from eagletui.agent.levers import Seen
from eagletui.agent.loop import Loop
from eagletui.agent.members import Key
from eagletui.jobs import container

LOOK_EVERY = 1.0
TRIES = 5
LOG_MODE = 0o622
"""The program inside may run as another user, and opens the log itself. Nobody else gets there: the directory is ours alone."""
ENGINE_FAILED, NOT_STARTED = 125, (125, 126, 127)
"""Statuses of the client when the engine failed, and when there may have been no program at all."""


def command_of(spec: Mapping[str, Any], log: str) -> Tuple[str, ...]:
    """What is really run for a spec: with the path of the log in its place."""
    argv: Sequence[str] = spec["argv"]
    if not spec.get("container"):
        return tuple(argv)
    return container.with_log(argv, log, os.path.exists("/sys/fs/selinux/enforce"))


class Found:
    """What is known once the container runs: its id, its first process on the host, its control group."""

    def __init__(self, id: str, main: Key, cgroup: Optional[str]) -> None:  # noqa: A002 - the engine's name for it
        self.id, self.main, self.cgroup = id, main, cgroup


class Box:
    """The container of the job ``spec``. ``found(Found)`` is called once it runs.

    `client_ended` decides what the end of the client means, and calls ``over(status, oom, note)`` when the container has
    ended: status as of an exit (None: unknown), whether its engine says that memory killed it, and what else to tell.
    """

    def __init__(self, loop: Loop, spec: Mapping[str, Any], found: Callable[[Found], None], told: Callable[[str], None]) -> None:
        self._loop, self._about = loop, spec["container"]
        self._found_it, self._told = found, told
        self.engine = str(self._about["engine"])
        self.found: Optional[Found] = None
        self._ended = self._asking = False
        self._tries = 0
        self._over: Optional[Callable[[Optional[int], bool, Optional[str]], None]] = None
        self._client: Optional[int] = None
        self._reaped: Dict[int, int] = {}
        self.removed: Optional[bool] = None
        self.stays: Optional[str] = None

    def start(self) -> None:
        self._loop.call_later(LOOK_EVERY / 2, self._look)

    # -------------------------------------------------------------------------------------------------------- it runs

    def _look(self) -> None:
        if self.found is None and not self._ended and not self._asking:
            self._asking = True
            levers.inspect(self._loop, self._about, self._looked)

    def _looked(self, seen: Seen) -> None:
        self._asking = False
        if self.found is None and not self._ended:
            stat = procfs.read_stat(seen.pid) if seen.pid > 0 else None
            if stat is not None and not stat.dead:
                self.found = Found(seen.id, (stat.pid, stat.start), group_of(stat.pid, seen.id))
                self._found_it(self.found)
            else:
                self._loop.call_later(LOOK_EVERY, self._look)

    @property
    def lives(self) -> bool:
        """Whether its first process runs."""
        return self.found is not None and procfs.alive(*self.found.main)

    # --------------------------------------------------------------------------------------------------------- it ends

    def reaped(self, pid: int, status: int) -> None:
        """An orphan that had become our child has ended: perhaps the container's first process, after its monitor had died."""
        self._reaped = {pid: status} if self.found is not None and pid == self.found.main[0] else self._reaped

    def client_ended(self, status: int, over: Callable[[Optional[int], bool, Optional[str]], None]) -> None:
        """The client has ended with this wait status (negative: unknown)."""
        self._over, self._ended = over, True
        self._client = None if status < 0 or os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        if self.lives:
            self._told("the foreground client of %s has ended, the container runs on" % self.engine)
        self._await()

    def _await(self) -> None:
        if self.lives:
            self._loop.call_later(LOOK_EVERY / 2, self._await)
        elif self._client is not None and self._client not in (NOT_STARTED if self.found is None else (ENGINE_FAILED,)):
            self._tell(self._client, False, None)
        else:
            levers.inspect(self._loop, self._about, self._last_seen)

    def _last_seen(self, seen: Seen) -> None:
        stat = procfs.read_stat(seen.pid) if seen.pid > 0 else None
        if self.found is None and stat is not None and not stat.dead and seen.status == "running":
            # the client died before we had seen the container run
            self.found = Found(seen.id, (stat.pid, stat.start), group_of(stat.pid, seen.id))
            self._found_it(self.found)
            self._await()
            return
        if seen.rc is not None:
            failed = self.found is None and seen.rc in NOT_STARTED
            self._tell(seen.rc, seen.oom, "its program could not be started in the container" if failed else None)
        elif self.found is None and (seen.absent or seen.status in ("created", "configured", "initialized")):
            self._tell(self._client, False, "the container was never started")
        elif self.found is not None and self.found.main[0] in self._reaped:
            status = self._reaped[self.found.main[0]]
            rc = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            self._tell(rc, False, "its monitor had died; the exit status is the kernel's")
        elif self._tries < TRIES:
            self._tries += 1  # podman's monitor writes the status a moment after the end
            self._loop.call_later(LOOK_EVERY, lambda: levers.inspect(self._loop, self._about, self._last_seen))
        else:
            self._tell(None, False, "%s cannot tell how the container ended" % self.engine)

    def _tell(self, rc: Optional[int], oom: bool, note: Optional[str]) -> None:
        if self._over is not None:
            self._over(rc, oom, note)

    # ------------------------------------------------------------------------------------------------------- removing it

    def clear(self) -> bool:
        """Remove what is left of it, once its status is known. False while that goes on."""
        if self.removed is None:
            self.removed = False
            levers.remove(self._loop, self._about, self._cleared)
        return self.removed

    def _cleared(self, why: Optional[str]) -> None:
        self.removed, self.stays = True, why


def group_of(pid: int, container_id: str) -> Optional[str]:
    """The control group of a container, down to the part that bears its id; None when none does."""
    text = procfs.read_text("%s/%d/cgroup" % (procfs.PROC, pid)) or ""
    for line in text.splitlines():
        path = line.split(":", 2)[-1]
        at = path.find(container_id) if container_id else -1
        if at >= 0:
            end = path.find("/", at)
            return path if end < 0 else path[:end]
    return None


class Last:
    """For whoever takes a dead supervisor's place: how the container ended (``rc``, None: not told), and then it is removed."""

    def __init__(self, loop: Loop, spec: Mapping[str, Any]) -> None:
        self._loop, self._about = loop, spec["container"]
        self.rc: Optional[int] = None
        self._done: Optional[bool] = None

    def clear(self) -> bool:
        """True once it is gone; ask again and again."""
        if self._done is None:
            self._done = False
            levers.inspect(self._loop, self._about, self._seen)
        return self._done

    def _seen(self, seen: Seen) -> None:
        self.rc = seen.rc
        levers.remove(self._loop, self._about, self._removed)

    def _removed(self, _why: Optional[str]) -> None:
        self._done = True  # one that stays is found by its name, and told when the job is removed


def client_problem(lines: List[str]) -> Optional[str]:
    """What the engine's client complained of, of the log of a container that never ran."""
    for line in reversed(lines):
        if line.startswith(("Error", "docker:", "podman:", "Unable to find image", "error", "/bin/sh:", "sh:")):
            return line.strip()[:400]
    return lines[-1].strip()[:400] if lines else None
