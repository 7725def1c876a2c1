"""Any program: run to its end, judged by its exit status and, where they are named, by the files that it should have made."""

from __future__ import annotations

import os
import shlex
from typing import Any, Mapping, Optional, Sequence, Tuple

from eagletui.jobs.base import BadJob, Kind, Spec, job_spec, redact_argv, status_words
from eagletui.jobs.keys import Key, Wrong
from eagletui.jobs.seen import SeenWatcher
from eagletui.jobs.watcher import Outcome


class Command(Kind):
    """The values have ``argv`` (a list, run without a shell) or ``shell`` (a line for ``bash -lc``, shown as such)."""

    name = "command"
    keys: Tuple[Key, ...] = (
        Key("argv", "texts", "the program and its arguments, run without a shell"),
        Key("shell", "text", "or a line for `bash -lc`"),
        Key("expect", "texts", "files or directories that must be there afterwards, from `cwd` where they are relative"),
        Key("port", "int", "a port that it needs for itself", low=1, high=65535),
    )

    def check(self, values: Mapping[str, Any]) -> Sequence[Wrong]:
        if (values.get("argv") is None) == (values.get("shell") is None):
            key = "shell" if "argv" in values else "argv"
            return [
                Wrong(key, "a command has either argv or shell", "keep one of them" if "argv" in values else "add one of them")
            ]
        return ()

    def spec(self, profile: Mapping[str, Any], job: str, cards: Sequence[str] = ()) -> Spec:
        argv, line = profile.get("argv"), profile.get("shell")
        if (argv is None) == (line is None):
            raise BadJob("a command has either argv or shell")
        if line is not None:
            if not isinstance(line, str) or not line.strip():
                raise BadJob("shell should be a line of text")
            argv = ["bash", "-lc", line]
        if not isinstance(argv, (list, tuple)):
            raise BadJob("argv should be a list of texts, the program first")
        expect = list(profile.get("expect") or ()) or None
        return job_spec(self.name, profile, job, argv, cards, port=profile.get("port"), expect=expect)

    def title(self, spec: Mapping[str, Any]) -> str:
        return " ".join(shlex.quote(part) for part in redact_argv(spec["argv"]))

    def watcher(self, spec: Mapping[str, Any], directory: str) -> "CommandWatcher":
        return CommandWatcher(spec, directory)

    def verdict(self, spec: Mapping[str, Any], state: Mapping[str, Any], killed: bool) -> Tuple[Optional[bool], str]:
        rc = state.get("rc")
        if killed:
            return None, "ended on request"
        if rc is None:
            return None, status_words(None)
        return rc == 0, status_words(rc)


class CommandWatcher(SeenWatcher):
    """Progress as far as the output shows it; what it tells in our own way, a result too, is taken."""

    def outcome(self, rc: Optional[int], killed: bool) -> Outcome:
        found = super().outcome(rc, killed)
        if killed or rc is None or (rc == 0 and self.said is not None and not found.ok):
            return found
        why = found.why if rc == 0 and self.said is not None else status_words(rc)
        missing = [path for path in self.spec.get("expect") or () if not os.path.lexists(self._place(path))]
        if rc == 0 and missing:
            return Outcome(False, "%s, but %s is not there" % (why, ", ".join(missing[:3])), dict(found.result, missing=missing))
        return Outcome(rc == 0, why, found.result)

    def _place(self, path: str) -> str:
        return os.path.join(str(self.spec.get("cwd") or "/"), path)
