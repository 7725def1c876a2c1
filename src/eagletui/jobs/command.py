"""Any program: run to its end, judged by its exit status."""

from __future__ import annotations

import shlex
from typing import Any, Mapping, Optional, Sequence, Tuple

from eagletui.jobs.base import BadJob, Kind, Spec, check_spec, redact_argv, status_words


class Command(Kind):
    """The profile has ``argv`` (a list, run without a shell) or ``shell`` (a line for ``bash -lc``, shown as such)."""

    name = "command"

    def spec(self, profile: Mapping[str, Any], job: str, cards: Sequence[str] = ()) -> Spec:
        argv, line = profile.get("argv"), profile.get("shell")
        if (argv is None) == (line is None):
            raise BadJob("a command has either argv or shell")
        if line is not None:
            if not isinstance(line, str) or not line.strip():
                raise BadJob("shell should be a line of text")
            argv = ["bash", "-lc", line]
        spec: Spec = {"id": job, "kind": self.name, "name": str(profile.get("name") or job), "argv": argv}
        spec["gpus"] = list(cards)
        for key in ("cwd", "env", "port", "log_cap", "graces", "profile", "operator"):
            if profile.get(key) is not None:
                spec[key] = profile[key]
        return check_spec(spec)

    def title(self, spec: Mapping[str, Any]) -> str:
        return " ".join(shlex.quote(part) for part in redact_argv(spec["argv"]))

    def verdict(self, spec: Mapping[str, Any], state: Mapping[str, Any], killed: bool) -> Tuple[Optional[bool], str]:
        rc = state.get("rc")
        if killed:
            return None, "ended on request"
        if rc is None:
            return None, status_words(None)
        return rc == 0, status_words(rc)
