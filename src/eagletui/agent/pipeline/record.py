"""A pipeline's record, ``DIR/pipeline.json``: which steps are done, what runs, why it stopped. And the lock on its directory.

What is about to be launched is written down first, with the id that its job will have; a launch with that id happens once. So
whoever comes after a runner that died at any moment finds every job it had started, and starts none twice.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from typing import Any, Dict, List, Mapping, Optional

from eagletui.agent import state_dir
from eagletui.jobs.pipeline import RECORD

LOCK = "pipeline.lock"
VERSION = 1


class Busy(Exception):
    """Another runner works in this directory; the text says which."""


def lock(directory: str, job: str) -> int:
    """Have the directory for ourselves, for as long as the descriptor is open. Raises `Busy`, `OSError`."""
    fd = os.open(os.path.join(directory, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        words = os.pread(fd, 4096, 0).decode("utf-8", "replace").strip() or "another runner"
        os.close(fd)
        raise Busy(words) from None
    os.ftruncate(fd, 0)
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    os.pwrite(fd, ("job %s (pid %d), since %s" % (job, os.getpid(), since)).encode(), 0)
    return fd


class Record:
    """The record in memory; `save` after each change. Raises `StateError` for a damaged file, which is never overwritten."""

    def __init__(self, directory: str, job: str, name: str) -> None:
        self.path = os.path.join(directory, RECORD)
        self.doc = state_dir.read_json(self.path) or {}
        if self.doc.get("version", VERSION) != VERSION:
            raise state_dir.StateError("%s was written by another version of eagletui" % self.path)
        self.doc.setdefault("born", "%s-%s" % (_word(name), os.urandom(3).hex()))
        for key in ("why", "ended", "at"):
            self.doc.pop(key, None)
        self.doc.update(version=VERSION, job=job, name=name, state="running", started=round(time.time(), 3))
        self.steps: List[Dict[str, Any]] = list(self.doc.get("steps") or [])
        self.servers: Dict[str, Dict[str, Any]] = dict(self.doc.get("servers") or {})

    def save(self) -> None:
        """Raises `OSError`."""
        self.doc.update(steps=self.steps, servers=self.servers, wall=round(time.time(), 3))
        state_dir.write_json(self.path, self.doc)

    def step(self, name: str) -> Optional[Dict[str, Any]]:
        return next((entry for entry in self.steps if entry.get("id") == name), None)

    def arrange(self, steps: List[Mapping[str, Any]]) -> List[Dict[str, Any]]:
        """One entry for each step, in their order, keeping what is known; returns those of steps that are no longer there."""
        known = {str(entry.get("id")): entry for entry in self.steps}
        self.steps = []
        for step in steps:
            entry = known.pop(step["id"], None) or {"state": "waiting"}
            entry.update(id=step["id"], kind=step["kind"], stage=step.get("stage"), server=step.get("server"))
            self.steps.append(entry)
        return list(known.values())

    def next_job(self, entry: Dict[str, Any], what: str) -> str:
        """Write down that a new attempt begins; the id of its job. ``what`` is the step's id, or that of a server."""
        entry["attempt"] = int(entry.get("attempt") or 0) + 1
        entry["job"] = "%s-%s-%d" % (self.doc["born"], what, entry["attempt"])
        self.save()
        return str(entry["job"])


def _word(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:14].strip("-") or "pipeline"


class Now:
    """``now.json`` in the job's own directory: what the runner does at this moment, for its supervisor. It need not survive."""

    def __init__(self, directory: str) -> None:
        self._path = os.path.join(directory, "now.json")
        self._written = ""

    def write(self, doc: Mapping[str, Any]) -> None:
        text = json.dumps(doc, sort_keys=True)
        if text != self._written:
            self._written = text
            try:
                state_dir.write_json(self._path, doc, sync=False)
            except OSError:
                self._written = ""  # a full disk: what is shown is older than it could be, and nothing else suffers
