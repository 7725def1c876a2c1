"""Carrying a kill out, beside the job: reads ``control.json``, climbs the ladder, frees what is left, writes ``result.json``.

Used by the shim and, when that has died, by the helper that takes its place; so a kill goes on without any client.
"""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Dict, List, Mapping, Optional

from eagletui.agent import kill, leftovers, levers, state_dir
from eagletui.agent.loop import Loop
from eagletui.agent.members import Scanner
from eagletui.agent.procfs import Stat

CONTROL, RESULT = "control.json", "result.json"
NOTE_EVERY = 1.0


class Ending:
    """``told(detail)`` is called as it goes, ``done(stuck)`` when no member is left or none can be ended.

    ``repeated`` then tells whether SIGTERM had to be sent twice, ``alone`` whether the main process went on although all its
    others had ended; ``refused`` why what holds the server did not stop it: then its processes were not signalled.
    """

    def __init__(
        self,
        loop: Loop,
        directory: str,
        spec: Mapping[str, Any],
        scanner: Scanner,
        told: Callable[[str], None],
        done: Callable[[List[Stat]], None],
        cgroup_kill: Optional[str] = None,
    ) -> None:
        self._loop, self._directory, self._spec, self._scanner = loop, directory, spec, scanner
        self._told, self._done, self._cgroup_kill = told, done, cgroup_kill
        self._ladder: Optional[kill.Ladder] = None
        self._files: Dict[str, str] = {}
        self._count = 0
        self._began = self._noted = 0.0
        self._stuck = False
        self._unwritten: Optional[Dict[str, Any]] = None
        self.by: Optional[str] = None
        self.refused: Optional[str] = None
        self.repeated = self.alone = False

    @property
    def active(self) -> bool:
        return self._ladder is not None

    def look(self) -> None:
        """Take up a request that lies in ``control.json``."""
        path = os.path.join(self._directory, CONTROL)
        doc = state_dir.read_json(path)
        if doc is not None:
            os.unlink(path)
            self.begin(bool(doc.get("now")), doc.get("operator"), doc.get("files") or {})

    def begin(self, now: bool, operator: Optional[str], files: Mapping[str, str]) -> None:
        """Start the ladder; or, when it is under way and ``now``, skip to its last step. ``files`` are the plan's {path: why}."""
        self._files.update(files)
        if self._ladder is not None:
            if now:
                self._ladder.hurry()
            return
        self.by = operator
        self._began = self._loop.now()
        members = self._scanner.scan()
        self._count = len(members)
        # what they use in this moment is theirs for sure; afterwards nobody can tell
        started = float((state_dir.read_json(os.path.join(self._directory, "state.json")) or {}).get("started") or time.time())
        for entry in kill.job_files(self._scanner.origin, members, started, self._spec.get("uid")):
            if entry.why == leftovers.USED:
                self._files[entry.path] = entry.why
        graces = kill.graces_of(self._spec)
        what = levers.of_spec(self._spec)
        lever: Any = None if what is None else levers.Lever(self._loop, what, graces.main)
        if self._spec.get("pipeline"):
            from eagletui.agent.pipeline.children import RunnerLever

            lever = RunnerLever(self._scanner)
        # vLLM loses a SIGTERM that comes while it loads its weights; to a training that saves a checkpoint a second one may
        # mean "at once", so only a server gets it
        self._ladder = kill.Ladder(
            self._loop,
            self._scanner,
            graces,
            self._climbing,
            self._ended,
            self._cgroup_kill,
            lever,
            twice=bool(self._spec.get("server")),
        )
        self._ladder.start(now)

    def _climbing(self, text: str) -> None:
        """What members make while they are ended is the job's as well: one that is still loading goes on for a while."""
        if self._loop.now() - self._noted >= NOTE_EVERY:
            self._noted = self._loop.now()
            used = leftovers.note((pid for pid, _ in self._scanner.refresh()), self._scanner.origin.places)
            self._files.update(dict.fromkeys(used, leftovers.USED))
        self._told(text)

    def _ended(self, stuck: List[Stat]) -> None:
        denied = self._ladder.denied if self._ladder is not None else {}
        self.refused = self._ladder.refused if self._ladder is not None else None
        self.repeated = self._ladder is not None and self._ladder.repeated
        self.alone = self._ladder is not None and self._ladder.alone
        self._ladder, self._stuck = None, bool(stuck)
        self._tell(stuck, denied, self.refused)

    def settle(self) -> bool:
        """No member is left any more: what could not be ended before has gone. False while the outcome cannot be written."""
        if self._stuck:
            self._stuck = False
            self._tell([], {})
        elif self._unwritten is not None:
            self._write(self._unwritten)
        return self._unwritten is None

    def _tell(self, stuck: List[Stat], denied: Mapping[int, str], refused: Optional[str] = None) -> None:
        gone = max(0, self._count - len(stuck))
        result: Dict[str, Any] = kill.release(self._spec, stuck, denied, gone, self._files, self._scanner.origin, refused)
        if self._spec.get("pipeline"):
            from eagletui.agent.pipeline.children import left

            # its runner ends them before it goes: these had no time, or it was the runner that had to be ended at once
            result["remaining"] += left(os.path.dirname(os.path.dirname(self._directory)), self._spec)
        result["seconds"] = round(self._loop.now() - self._began, 2)
        result["wall"] = round(time.time(), 3)
        if self.by:
            result["operator"] = self.by
        self._write(result)
        self._done(stuck)

    def _write(self, result: Dict[str, Any]) -> None:
        try:
            merge_result(self._directory, result)
            self._unwritten = None
        except OSError:
            self._unwritten = result  # a full disk: `settle` tries again


def merge_result(directory: str, fields: Mapping[str, Any]) -> None:
    """Put fields into ``result.json``, keeping those that are there."""
    path = os.path.join(directory, RESULT)
    doc = state_dir.read_json(path) or {}
    doc.update(fields)
    state_dir.write_json(path, doc)
