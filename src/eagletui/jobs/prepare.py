"""Answers made into a dataset for training, by speculators' prepare-data, checked on both sides of it."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Mapping, Optional, Sequence

from eagletui.jobs.base import Kind, Spec, job_spec
from eagletui.jobs.keys import Key, Wrong
from eagletui.jobs.told import ToldWatcher
from eagletui.jobs.watcher import Outcome, Watcher

PROGRAM = "eagletui.jobs.on_host.prepare"

KEYS = (
    Key("python", "path", "the python of the environment that has speculators", required=True),
    Key("model", "text", "the target: a directory, or a name on the hub", required=True),
    Key("data", "texts", "files of rows (JSONL or JSON), or the output directories of syntheses", required=True),
    Key(
        "output", "path", "directory of the dataset; one that is there is only taken when it was made of the same", required=True
    ),
    Key("seq_length", "int", "tokens of a row; what is longer loses its end", default=8192, low=2),
    Key("max_samples", "int", "keep so many rows, drawn by seed", low=1),
    Key("minimum_valid_tokens", "int", "leave out rows with fewer tokens to train on", low=1),
    Key("keep_truncated", "bool", "whether answers that ran into max_tokens are trained on", default=True),
    Key("keep_empty", "bool", "whether answers without any text are trained on", default=False),
    Key("token_freq", "bool", "count token frequencies, which a drafter with a reduced vocabulary needs", default=True),
    Key("endpoint", "text", "a vLLM server of the target, which renders data that have no token ids"),
    Key("workers", "int", "processes; by default by the number of cores", low=1),
    Key("seed", "int", "of the shuffling", default=0, low=0),
    Key("trust_remote_code", "bool", "let the target's own code run", default=False),
    Key("skip_invalid", "bool", "go on without rows that cannot be used, instead of refusing the data", default=False),
    Key("overwrite", "bool", "make a dataset anew that was made of other data or with other settings", default=False),
)


class Prepare(Kind):
    """See `KEYS` for its job file and `on_host.training_rows` for the rows that it reads."""

    name = "prepare"
    keys = KEYS

    def check(self, values: Mapping[str, Any]) -> Sequence[Wrong]:
        data = values.get("data") or ()
        if "data" in values and not data:
            return [Wrong("data", "'data' is empty", "name at least one file or directory")]
        return [
            Wrong("data", "%r in data is no absolute path" % path, "begin it with /")
            for path in data
            if not str(path).startswith("/")
        ]

    def spec(self, profile: Mapping[str, Any], job: str, cards: Sequence[str] = ()) -> Spec:
        settings: Dict[str, Any] = {key.name: profile[key.name] for key in KEYS if profile.get(key.name) is not None}
        python = settings.pop("python")
        argv = [python, "-m", PROGRAM, json.dumps(settings, sort_keys=True)]
        return job_spec(self.name, profile, job, argv, on_host=True, output=settings["output"])

    def title(self, spec: Mapping[str, Any]) -> str:
        settings = json.loads(spec["argv"][-1])
        return "%s -> %s" % (", ".join(os.path.basename(path.rstrip("/")) for path in settings["data"]), settings["output"])

    def watcher(self, spec: Mapping[str, Any], directory: str) -> Optional[Watcher]:
        return PrepareWatcher(spec, directory)


class PrepareWatcher(ToldWatcher):
    """Believes the program when the files are there, in the size that it says."""

    def check(self, result: Mapping[str, Any]) -> Outcome:
        why, path = str(result.get("why")), str(result.get("path"))
        try:
            names = [name for name in os.listdir(path) if name.endswith(".arrow")]
            size = sum(os.path.getsize(os.path.join(path, name)) for name in names)
            whole = os.path.exists(os.path.join(path, "state.json"))
            if result.get("token_freq"):
                os.stat(str(result["token_freq"]))
        except OSError as error:
            return Outcome(False, "%s: %s" % (error.filename or path, error.strerror), dict(result))
        if not whole or size != result["bytes"]:
            return Outcome(False, "%s is no whole dataset (%d of %d bytes)" % (path, size, result["bytes"]), dict(result))
        return Outcome(True, why, dict(result))
