"""A job's files as an agent reads them, and what is true of the job now: never a guess.

The stored state is the shim's last word. It is checked against this boot, this container, and whether shim and main process
(pid and start) live: a job whose supervisor was lost says so, and its exit status stays unknown.
"""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List, Mapping, Optional, Tuple

from eagletui.agent import procfs, state_dir
from eagletui.agent.members import Named, Origin, Scanner, here, read_origin

ENDED = ("exited", "failed_to_exec", "oom")
_LIVE_FIELDS = ("blocked", "stopped", "cpu", "cpu_top", "rss", "listening", "silent", "members", "member_pids")
NEWEST = 200


class Job:
    """One job's directory. Everything is read when asked for. Raises `StateError` for damaged files."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.id = os.path.basename(directory)

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    @property
    def spec(self) -> Dict[str, Any]:
        return state_dir.read_json(self.path("spec.json")) or {}

    def stored_state(self) -> Optional[Dict[str, Any]]:
        """The state as last written; None before the job was started."""
        return state_dir.read_json(self.path("state.json"))

    def origin(self) -> Optional[Origin]:
        doc = state_dir.read_json(self.path("shim.json"))
        if doc is None:
            return None
        try:
            return read_origin(doc)
        except (KeyError, TypeError, ValueError) as error:
            raise state_dir.StateError("%s is damaged: %s" % (self.path("shim.json"), error)) from None

    def scanner(self) -> Optional[Scanner]:
        """Finds the job's processes; None when they cannot be of this boot and container, or nothing is known of them."""
        origin = self.origin()
        if origin is None or where(origin) is not None:
            return None
        return self._scanner(origin)

    def _scanner(self, origin: Origin) -> Scanner:
        # of a pipeline the runner alone: what that starts are jobs of their own
        spec = self.spec
        return Named(origin) if spec.get("only") or spec.get("pipeline") else Scanner(origin)

    def state(self) -> Optional[Dict[str, Any]]:
        """What is true now, as a `JobState` document; None before the job was started."""
        stored = self.stored_state()
        return None if stored is None else self.reconcile(stored)

    def reconcile(self, stored: Dict[str, Any]) -> Dict[str, Any]:
        """The stored state, corrected by what lives. An ended job without members is returned as it is."""
        if is_over(stored) or shim_lives(stored):
            return stored
        origin = self.origin()
        if origin is None:
            return _lost(stored, "lost_supervisor", "the supervisor died before the job was started")
        lost = where(origin)
        exit_doc = state_dir.read_json(self.path("exit.json")) or {}
        if lost is not None:
            if stored.get("state") in ENDED or "rc" in exit_doc:
                return _ended(stored, exit_doc, 0)
            return _lost(stored, *lost)
        members = self._scanner(origin).scan()
        if stored.get("state") in ENDED or "rc" in exit_doc:
            return _ended(stored, exit_doc, len(members))
        if origin.main is not None and procfs.alive(*origin.main):
            out = _lost(stored, "lost_supervisor", "running, its exit status will be unknown: the supervisor died")
            out["health"] = stored.get("health") or ""
            out["pid"] = origin.main[0]
        elif members and origin.main is None:
            out = _lost(stored, "lost_supervisor", "the supervisor died while it started the job; processes of it are left")
        elif members:
            out = _lost(stored, "lost_supervisor", "the main process is gone, exit status unknown; others are left")
        else:
            out = _lost(stored, "lost_supervisor", "gone, exit status unknown: the supervisor died")
        if members:
            out["members"] = len(members)
        return {key: value for key, value in out.items() if value not in (None, "")}


def is_over(state: Mapping[str, Any]) -> bool:
    """Ended, and no process of it is left. One whose supervisor had died is, once a helper has ended it and has said so."""
    ended = state.get("state") in ENDED or (state.get("state") == "lost_supervisor" and bool(state.get("ended_by")))
    return ended and not state.get("members")


def shim_lives(state: Mapping[str, Any]) -> bool:
    """Whether the supervisor that wrote this state runs (in this boot; the pid is compared with its start)."""
    pid, start = state.get("shim_pid"), state.get("shim_start")
    if not isinstance(pid, int) or not isinstance(start, int):
        return False
    return state.get("boot_id") == here()[0] and procfs.alive(pid, start)


def where(origin: Origin) -> Optional[Tuple[str, str]]:
    """None when the job's pids are valid here; else (state, why)."""
    boot_id, namespace, first = here()
    if origin.boot_id != boot_id:
        return "lost_reboot", "the host was rebooted while it ran; exit status unknown"
    if (origin.pid_ns, origin.pid1_start) != (namespace, first):
        return "lost_container", "it ran in another container, or before this one was restarted; exit status unknown"
    return None


def _lost(stored: Mapping[str, Any], state: str, detail: str) -> Dict[str, Any]:
    out = {key: value for key, value in stored.items() if key not in _LIVE_FIELDS}
    out.update(state=state, detail=detail)
    if "health" in out:
        out["health"] = "gone"
    return out


def _ended(stored: Mapping[str, Any], exit_doc: Mapping[str, Any], members: int) -> Dict[str, Any]:
    """The main process's end is known; its supervisor, which watched what it left behind, has gone."""
    out = {key: value for key, value in stored.items() if key not in _LIVE_FIELDS}
    if out.get("state") not in ENDED:
        out["state"] = "oom" if exit_doc.get("oom") else "exited"
        for key, name in (("rc", "rc"), ("ended", "wall")):
            if exit_doc.get(name) is not None:
                out[key] = exit_doc[name]
    if members:
        out["members"] = members
        out["detail"] = "%d process%s left behind" % (members, "" if members == 1 else "es")
    return out


class Board:
    """All jobs of a state directory, cheaply: ended ones are read once, live ones when their file changed."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._read: Dict[str, Tuple[Tuple[int, int], Dict[str, Any]]] = {}
        self._lost: Dict[str, Tuple[float, Dict[str, Any]]] = {}
        self.problems: Dict[str, str] = {}

    def look(self) -> Dict[str, Dict[str, Any]]:
        """{id: `JobState` document}, at most the `NEWEST`."""
        found: Dict[str, Dict[str, Any]] = {}
        self.problems = {}
        for job in state_dir.job_ids(self._root):
            try:
                doc = self._one(job)
            except state_dir.StateError as error:
                self.problems[job] = error.why
                continue
            if doc is not None:
                found[job] = doc
        for gone in set(self._read) - set(found):
            del self._read[gone]
            self._lost.pop(gone, None)
        if len(found) > NEWEST:
            newest = sorted(found, key=lambda job: found[job].get("started") or 0, reverse=True)[:NEWEST]
            found = {job: found[job] for job in newest}
        return found

    def _one(self, name: str) -> Optional[Dict[str, Any]]:
        job = Job(os.path.join(self._root, "jobs", name))
        try:
            info = os.stat(job.path("state.json"))
        except OSError:
            return None  # being launched, or just removed
        version = (info.st_ino, info.st_mtime_ns)
        kept = self._read.get(name)
        if kept is None or kept[0] != version:
            stored = job.stored_state()
            if stored is None:
                return None
            self._read[name] = kept = (version, stored)
            self._lost.pop(name, None)
        stored = kept[1]
        if is_over(stored):
            return stored
        if shim_lives(stored):
            return _with_log(job, stored)
        # without its supervisor a job is looked at in full, which means all of /proc: not at every turn
        lost = self._lost.get(name)
        now = time.monotonic()
        if lost is None or now - lost[0] > 5.0:
            self._lost[name] = lost = (now, job.reconcile(stored))
        return _with_log(job, lost[1]) if lost[1].get("members") else lost[1]


def _with_log(job: Job, state: Dict[str, Any]) -> Dict[str, Any]:
    """The state with the log's size and age as they are at this moment."""
    try:
        info = os.stat(job.path("log"))
    except OSError:
        return state  # no log yet
    age = max(0.0, round(time.time() - info.st_mtime, 1))
    return dict(state, log_size=info.st_size, log_age=age if age < 5 else float(int(age)), silent=float(int(age)))


def read_results(job: Job) -> Dict[str, Any]:
    """``{"result", "exit"}``: what is there of them."""
    out: Dict[str, Any] = {}
    for key, name in (("result", "result.json"), ("exit", "exit.json")):
        doc = state_dir.read_json(job.path(name))
        if doc is not None:
            out[key] = doc
    return out


def tail_text(path: str, limit: int = 2000) -> List[str]:
    """The last lines of a small file; empty when it is not there."""
    text = procfs.read_text(path) or ""
    return text[-limit:].splitlines()
