"""Ending what eagletui did not start: a server that was found, or processes that a person has named one by one.

Both have ids like jobs have: ``found-...`` (see `adopt`) and ``pids-4242-4243``. What is needed to end one is written into a
directory of its own, ``endings/<id>``, in the form of a job's; a helper, which outlives us, works there as it does for a job
whose supervisor is dead. A server is ended by its lever where it has one. Of named processes exactly these are signalled.
"""

from __future__ import annotations

import os
import re
import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from eagletui.agent import adopt, kill, levers, procfs, state_dir
from eagletui.agent.calls import CallError
from eagletui.agent.job_files import Board, Job, shim_lives
from eagletui.agent.members import Key, Named, Origin, Scanner, here

PIDS = "pids-"
_KEPT = 86400.0
_KTHREADD = 2
_OURS = ("eagletui.agent.shim_main", "eagletui.agent.main")


class Target(NamedTuple):
    """What would be ended: in the form of a job's files, with what finds its processes."""

    spec: Dict[str, Any]
    state: Dict[str, Any]
    scanner: Scanner


class EndingJob(Job):
    """The directory in which such an ending is carried out. Its state is what the helper last wrote, no more."""

    def state(self) -> Optional[Dict[str, Any]]:
        return self.stored_state()

    @property
    def active(self) -> bool:
        """Whether the helper is at work."""
        return shim_lives(self.stored_state() or {})


def is_ours(job: str) -> bool:
    """Whether this id is one that is ended here."""
    return adopt.is_found(job) or job.startswith(PIDS)


def directory(root: str, job: str) -> EndingJob:
    """Where the ending of ``job`` is kept. Raises `StateError` for an id that is no plain name."""
    name = os.path.basename(state_dir.job_dir(root, job))
    return EndingJob(os.path.join(root, "endings", name))


def target(root: str, job: str) -> Target:
    """What an id stands for at this moment. Raises `CallError` (absent: nothing of it runs)."""
    return _pids(root, job) if job.startswith(PIDS) else _found(job)


def _found(job: str) -> Target:
    found = adopt.find(job)
    if found is None:
        raise CallError("kill plan", "nothing of %s runs (any more)" % job, "there is nothing to end", kind="absent")
    spec = dict(found.spec(), argv=list(found.argv), found=found.holder.kind, uid=found.uid)
    lever = levers.of_holder(found.holder)
    if lever is not None and found.main is not None:  # of a dead server's leftovers nothing is held any more
        spec["lever"] = lever
    return Target(spec, found.state(), found.scanner())


def _pids(root: str, job: str) -> Target:
    words = job[len(PIDS) :].split("-")
    if not all(re.fullmatch(r"[1-9][0-9]{0,8}", word) for word in words):
        raise CallError("kill plan", "%r names no processes" % job, "the form is pids-4242-4243")
    numbers = sorted({int(word) for word in words})
    line = _own_line()
    keys: List[Key] = []
    for pid in numbers:
        stat = procfs.read_stat(pid)
        if stat is None or stat.dead:
            raise CallError("kill plan", "there is no process %d (any more)" % pid, "look at the list again", kind="absent")
        why = _untouchable(root, stat, line)
        if why:
            raise CallError("kill plan", "process %d is not ended: %s" % (pid, why[0]), why[1], kind="denied")
        keys.append((pid, stat.start))
    boot_id, namespace, first = here()
    main = keys[0] if len(keys) == 1 else None
    origin = Origin(boot_id, namespace, first, (0, 0), main, None, None, frozenset(keys))
    name = ("process " if len(keys) == 1 else "processes ") + ", ".join(str(pid) for pid in numbers)
    uid = procfs.uid_of(numbers[0])
    spec = {"id": job, "kind": "foreign", "name": name, "gpus": [], "only": True, "uid": uid}
    state = {
        "id": job,
        "kind": "foreign",
        "name": name,
        "state": "running",
        "boot_id": boot_id,
        "started": 0.0,
        "members": len(keys),
    }
    oldest = min(start for _, start in keys) / procfs.CLOCK_TICKS
    state.update(started_boot=oldest, operator=None if uid is None else procfs.user(uid))
    return Target(spec, {key: value for key, value in state.items() if value is not None}, Named(origin))


def _own_line() -> Tuple[int, ...]:
    """We and our ancestors: the connection itself."""
    line, pid = [], os.getpid()
    while pid > 1 and pid not in line:
        line.append(pid)
        stat = procfs.read_stat(pid)
        pid = stat.ppid if stat is not None else 0
    return tuple(line)


def _untouchable(root: str, stat: procfs.Stat, line: Tuple[int, ...]) -> Optional[Tuple[str, str]]:
    """(why a process is not ended by its number, what to do instead)."""
    if stat.pid == 1:
        return "it is the first process of the system", ""
    if stat.pid == _KTHREADD or stat.ppid == _KTHREADD:
        return "it is a thread of the kernel", ""
    if stat.pid in line:
        return "this very connection runs in it", ""
    if any(word in _OURS for word in procfs.argv(stat.pid)):
        return "it is eagletui's own (the supervisor of a job, or an agent)", "end the job instead"
    for job, state in Board(root).look().items():
        if [stat.pid, stat.start] in [list(key) for key in state.get("member_pids") or ()]:
            return "it belongs to the job %s" % job, "end that job instead"
    return None


# ------------------------------------------------------------------------------------------------------------- carried out


def prepare(root: str, job: str, what: Target, operator: Optional[str]) -> EndingJob:
    """Write down what the helper needs. Raises `StateError` and `OSError`."""
    state_dir.create(root)
    base = os.path.join(root, "endings")
    os.makedirs(base, mode=0o700, exist_ok=True)
    _forget_old(base)
    found = directory(root, job)
    os.makedirs(found.directory, mode=0o700, exist_ok=True)
    spec = dict(what.spec, graces=list(kill.graces_of(what.spec)))
    if operator:
        spec["operator"] = operator
    origin = what.scanner.origin._replace(known=frozenset(what.scanner.known))
    state_dir.write_json(found.path("spec.json"), {key: value for key, value in spec.items() if value is not None})
    state_dir.write_json(found.path("shim.json"), origin.doc())
    state_dir.write_json(found.path("state.json"), what.state)
    return found


def _forget_old(base: str) -> None:
    """Remove what came of endings a day ago: only their helper, and whoever had asked for them, looked there."""
    for entry in list(os.scandir(base)):
        if time.time() - entry.stat(follow_symlinks=False).st_mtime > _KEPT and not EndingJob(entry.path).active:
            state_dir.remove_tree(entry.path)


def under_way(root: str, job: str) -> Optional[Dict[str, Any]]:
    """The state of such an ending while the helper works, for whoever shows the server meanwhile; else None."""
    found = directory(root, job)
    return found.stored_state() if found.active else None


def ending(root: str) -> List[str]:
    """The ids of what is being ended just now."""
    try:
        names = os.listdir(os.path.join(root, "endings"))
    except OSError:
        return []  # nothing of the kind was ever ended here
    return [name for name in names if directory(root, name).active]


def overlay(root: str, docs: Dict[str, Dict[str, Any]]) -> None:
    """Say of servers that were found, and are being ended just now, how that goes. ``docs``: {id: `JobState` document}."""
    try:
        names = os.listdir(os.path.join(root, "endings"))
    except OSError:
        return  # nothing of the kind was ever ended here
    for name in names:
        if name not in docs:
            continue
        kept = directory(root, name)
        state = kept.stored_state()
        if state is not None and (kept.active or (state.get("ended_by") and docs[name].get("state") == "exited")):
            told = {key: state[key] for key in ("state", "health", "detail", "ended_by") if key in state}
            docs[name] = dict(docs[name], **told)


def look(root: str, job: str) -> Dict[str, Any]:
    """``{state, spec, result}`` of what is, or was, ended here. Raises `CallError` of kind absent and `StateError`."""
    kept = directory(root, job)
    result = state_dir.read_json(kept.path("result.json")) or {}
    if kept.active:
        return {"state": kept.stored_state(), "spec": kept.spec, "result": result}
    try:
        what = target(root, job)
    except CallError:
        state = kept.stored_state()
        if state is None:
            raise
        return {"state": state, "spec": kept.spec, "result": result}
    return {"state": what.state, "spec": what.spec, "result": result}


def described(plan: Mapping[str, Any], what: Target) -> Dict[str, Any]:
    """A kill plan with what is said of things that eagletui did not start."""
    lever = levers.of_spec(what.spec)
    out = dict(plan, adopted=what.spec.get("found"), only=bool(what.spec.get("only")))
    if lever is not None:
        out["lever"] = levers.words(lever, kill.graces_of(what.spec).main)
    return out
