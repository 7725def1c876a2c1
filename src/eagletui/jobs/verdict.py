"""The verdict over the arms of a benchmark: which drafter pays where, and whom to suspect."""

from __future__ import annotations

import json
import os
from typing import Any, Mapping, Optional, Sequence, Tuple

from eagletui.jobs.base import Kind, Spec, job_spec, status_words
from eagletui.jobs.keys import COMMON, Key, Wrong
from eagletui.jobs.told import ToldWatcher
from eagletui.jobs.watcher import Outcome, Watcher

_COMMON = tuple(key.name for key in COMMON)


class Verdict(Kind):
    """Its output has ``verdict.json`` (`records.bench.BenchVerdict`). One arm of ``arms`` has to be without a drafter."""

    name = "verdict"
    keys: Tuple[Key, ...] = (
        Key("python", "path", "any python from 3.8 on", required=True),
        Key("output", "path", "where the verdict goes", required=True),
        Key(
            "arms",
            "tables",
            "the arms, each with results (outputs of its benchmarks) and validation (accuracies, or where training left them)",
            required=True,
        ),
        Key("earlier", "texts", "earlier verdicts on this host, for the step cost before anything is served"),
        Key("title", "text", "what the plan is called"),
    )

    def check(self, values: Mapping[str, Any]) -> Sequence[Wrong]:
        for at, arm in enumerate(values.get("arms") or (), 1):
            results = arm.get("results")
            if not isinstance(results, (list, tuple)) or not results or not all(isinstance(one, str) for one in results):
                return (Wrong("arms", "arm %d has no results" % at, 'add results = ["/path/of/a/benchmark"]'),)
        return ()

    def spec(self, profile: Mapping[str, Any], job: str, cards: Sequence[str] = ()) -> Spec:
        settings = {key: value for key, value in profile.items() if key not in _COMMON and value is not None}
        argv = [profile["python"], "-m", "eagletui.jobs.on_host.verdict", json.dumps(settings, sort_keys=True)]
        return job_spec(self.name, profile, job, argv, (), on_host=True, output=profile["output"])

    def title(self, spec: Mapping[str, Any]) -> str:
        return "verdict in %s" % spec.get("output")

    def watcher(self, spec: Mapping[str, Any], directory: str) -> Optional[Watcher]:
        return VerdictWatcher(spec, directory)

    def verdict(self, spec: Mapping[str, Any], state: Mapping[str, Any], killed: bool) -> Tuple[Optional[bool], str]:
        return None, "ended on request" if killed else status_words(state.get("rc"))


class VerdictWatcher(ToldWatcher):
    """Done when its file is there; what it says is no matter of failure: a drafter that does not pay is a finding."""

    def check(self, result: Mapping[str, Any]) -> Outcome:
        path = result.get("path")
        if not isinstance(path, str) or not os.path.exists(path):
            return Outcome(False, "its verdict %s is not there" % path, dict(result))
        return Outcome(True, str(result.get("why") or ""), dict(result))
