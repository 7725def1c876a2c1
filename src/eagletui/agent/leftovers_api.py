"""The request ``leftovers``: what ended jobs left in /dev/shm and /tmp, however long ago; listed, and removed when asked.

A job that was ended here cleans up after itself; one that crashed, or whose supervisor was killed, does not. Only files that its
supervisor saw members use, that are still the same files, and that nobody uses now, are told.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Tuple

from eagletui.agent import leftovers, procfs, state_dir
from eagletui.agent.calls import Call, CallError, Handler
from eagletui.agent.job_files import Job, is_over
from eagletui.agent.members import here


def left(root: str) -> Tuple[List[Dict[str, Any]], Dict[str, leftovers.Number]]:
    """(entries ``{job, name, path, size}``, their numbers) of all ended jobs under ``root``."""
    wanted: Dict[str, Tuple[str, str, leftovers.Number]] = {}
    where = set(leftovers.PLACES)
    boot = here()[0]
    for name in state_dir.job_ids(root):
        job = Job(os.path.join(root, "jobs", name))
        try:
            origin, state = job.origin(), job.stored_state()
            # the state is not written anew while nothing in it changes; the files are noted in the other one
            last_seen = max(os.stat(job.path(name)).st_mtime for name in ("state.json", "shim.json"))
            if origin is None or state is None or not origin.files:
                continue
            if not is_over(state):
                state = job.reconcile(state)
                if not is_over(state) and (state.get("members") or not str(state.get("state")).startswith("lost_")):
                    continue
        except state_dir.StateError:
            continue  # told among the problems of the list of jobs
        except OSError:
            continue  # it was never started, or has just been removed
        where.update(origin.places)
        for path, (device, inode) in origin.known_files.items():
            try:
                info = os.lstat(path)
            except OSError:
                continue  # it has gone
            # over a reboot a disk may have another number; the file's own number and its age still tell
            same = info.st_ino == inode and (info.st_dev == device or origin.boot_id != boot)
            # a disk gives a number out again at once: what was changed since the job was last seen may be another file
            if same and info.st_uid == os.geteuid() and float(state.get("started") or 0) <= info.st_ctime <= last_seen:
                wanted[path] = (name, str(state.get("name") or name), (info.st_dev, info.st_ino))
    if not wanted:
        return [], {}
    in_use = leftovers.used_paths(procfs.pids(), where)
    entries, numbers = [], {}
    for path, (job_id, title, number) in sorted(wanted.items()):
        if path in in_use:
            continue
        try:
            size = os.lstat(path).st_blocks * 512
        except OSError:
            continue  # it has gone meanwhile
        entries.append({"job": job_id, "name": title, "path": path, "size": size})
        numbers[path] = number
    return entries, numbers


def _root() -> str:
    root = state_dir.locate(os.environ)
    why = state_dir.problem(root)
    if why and os.path.lexists(root):
        raise CallError("leftovers", why, "make it yours alone: chown, and chmod 700")
    return root


def request(call: Call) -> None:
    """``remove``: the paths to remove. Answers ``{entries, removed, kept: {path: why}}``; ``entries`` are those left now."""
    root = _root()
    remove = call.params.get("remove") or []
    if not isinstance(remove, list) or not all(isinstance(path, str) for path in remove):
        raise CallError("request", "'remove' should be a list of paths")

    entries, numbers = left(root)
    asked = {path: leftovers.USED for path in remove if path in numbers}
    said = leftovers.remove(asked, os.geteuid(), {os.path.dirname(path) for path in asked}, numbers)
    kept = {path: why for path, why in said.items() if why}
    kept.update({path: "not a leftover of an ended job" for path in remove if path not in numbers})
    removed = sorted(path for path, why in said.items() if not why)
    call.reply({"entries": [entry for entry in entries if entry["path"] not in removed], "removed": removed, "kept": kept})


METHODS: Dict[str, Handler] = {"leftovers": request}
