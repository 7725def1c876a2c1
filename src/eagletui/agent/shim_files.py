"""The files in which a supervisor keeps what it knows of its job: state, origin, result; and which files its members use."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Optional

from eagletui.agent import leftovers, state_dir
from eagletui.agent.members import Key, Scanner
from eagletui.agent.procfs import Stat
from eagletui.records import JobState, to_doc

MOST_FILES = 512


class Kept:
    """The part of a supervisor that writes to its job's directory; ``_f`` are the fields of the `JobState` that it writes.

    ``_unwritten`` are files that must not be lost and could not be written yet, ``_failed_writes`` why, by the file's name.
    """

    _f: Dict[str, Any]
    _directory: str
    _scanner: Scanner
    _members: Dict[Key, Stat]
    _unwritten: Dict[str, Dict[str, Any]]
    _failed_writes: Dict[str, str]
    _written: Optional[Dict[str, Any]]
    _origin_doc: Optional[Dict[str, Any]]

    def _note_files(self) -> None:
        """Remember what members use in /dev/shm and /tmp: when they were killed nobody else can tell whose it was."""
        origin = self._scanner.origin
        used = leftovers.note((pid for pid, _ in self._members), origin.places)
        known = [entry for entry in origin.files if entry[0] not in used and os.path.lexists(entry[0])]
        files = sorted((path, number[0], number[1]) for path, number in used.items()) + known
        self._scanner.origin = origin._replace(files=tuple(files[:MOST_FILES]))

    def _write_state(self, sync: bool = False) -> None:
        doc = to_doc(JobState(**self._f))
        if doc == self._written and not sync:
            return
        if self._safely("state.json", lambda: state_dir.write_json(os.path.join(self._directory, "state.json"), doc, sync)):
            self._written = doc

    def _write_origin(self) -> None:
        origin = self._scanner.origin._replace(known=frozenset(self._scanner.known))
        doc = origin.doc()
        if doc != self._origin_doc:
            path = os.path.join(self._directory, "shim.json")
            if self._safely("shim.json", lambda: state_dir.write_json(path, doc, sync=False)):
                self._origin_doc = doc

    def _keep(self, name: str, doc: Dict[str, Any]) -> None:
        """Write a file that must not be lost; while the disk is full every tick tries again."""
        if self._safely(name, lambda: state_dir.write_json(os.path.join(self._directory, name), doc)):
            self._unwritten.pop(name, None)
        else:
            self._unwritten[name] = doc

    def _safely(self, what: str, write: Callable[[], None]) -> bool:
        """A write that may fail (full disk): told in the next state that can be written, and tried again by the next tick."""
        try:
            write()
        except OSError as error:
            self._failed_writes[what] = "files: %s cannot be written: %s" % (what, error.strerror or error)
            return False
        self._failed_writes.pop(what, None)
        return True
