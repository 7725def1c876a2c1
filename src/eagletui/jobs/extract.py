"""The extraction of hidden states from a target: through a vLLM server of its own, or with transformers."""

from __future__ import annotations

import json
import os
import re
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from eagletui.jobs import hidden_states
from eagletui.jobs.base import BadJob, Kind, Spec, job_spec, status_words
from eagletui.jobs.hidden_states import Layout, Row
from eagletui.jobs.keys import Key
from eagletui.jobs.pace import Pace
from eagletui.jobs.told import ToldWatcher
from eagletui.jobs.watcher import Outcome, Watcher
from eagletui.records.work import Counter, Work

_SKIPPED = re.compile(r"Skipping sample (\d+) due to error: (.*)")
_LOOKS, _AT_END = 2, 48
"""Samples whose numbers are looked at in one look, and at the end."""


class Extract(Kind):
    """Its output is a directory with one file a sample, as `speculators train` reads it."""

    name = "extract"
    keys: Tuple[Key, ...] = (
        Key("python", "path", "the python of the environment that has speculators (or transformers)", required=True),
        Key("target", "text", "the target model: its configuration says how wide the states are", required=True),
        Key("data", "path", "the prepared data", required=True),
        Key("output", "path", "where the states go", required=True),
        Key("layers", "ints", "the layers that the drafter reads; by default 2, the middle one and the last but two", low=0),
        Key("backend", "text", "vllm: through a server that extracts; transformers: in this process", default="vllm",
            choices=("vllm", "transformers")),
        Key("endpoint", "text", "the server's address", default="http://127.0.0.1:8000/v1"),
        Key("storage", "path", "the folder that the server writes to, on the output's disk; by default the server is asked"),
        Key("dtype", "text", "the number format of the states; by default the server's, or the target's", default="auto",
            choices=("auto", *hidden_states.FORMATS)),
        Key("concurrency", "int", "requests at a time", default=32, low=1),
        Key("request_timeout", "number", "seconds for one request; by default it grows with the samples' length", low=1),
        Key("limit", "int", "only so many samples, from the first on", low=1),
        Key("reserve", "int", "bytes of the disk that stay free", default=1 << 30, low=0),
        Key("most_skipped", "number", "the share of samples that may fail", default=0.01, low=0, high=1),
        Key("trust_remote_code", "bool", "run the code that comes with the target (transformers)", default=False),
    )  # fmt: skip

    def spec(self, profile: Mapping[str, Any], job: str, cards: Sequence[str] = ()) -> Spec:
        values = dict(profile)
        if values.get("backend") == "transformers" and values.get("storage"):
            raise BadJob('storage: only a server has one; leave it out with backend = "transformers"')
        inputs: Dict[str, Any] = {name: values[name] for name in ("layers", "backend", "dtype") if values.get(name) is not None}
        claim = {"values": inputs, "paths": {"data": values["data"], "target": values["target"]}}
        argv = [values["python"], "-m", "eagletui.jobs.on_host.extract", "--inputs", json.dumps(claim, sort_keys=True)]
        for key, flag in (
            ("data", "--data"),
            ("output", "--output"),
            ("target", "--target"),
            ("backend", "--backend"),
            ("endpoint", "--endpoint"),
            ("storage", "--storage"),
            ("dtype", "--dtype"),
            ("concurrency", "--concurrency"),
            ("limit", "--limit"),
            ("request_timeout", "--timeout"),
            ("reserve", "--reserve"),
        ):
            if values.get(key) is not None:
                argv += [flag, str(values[key])]
        if values.get("layers"):
            argv += ["--layers", ",".join(str(layer) for layer in values["layers"])]
        if values.get("trust_remote_code"):
            argv.append("--trust-remote-code")
        values["env"] = {"COLUMNS": "400", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1", **(values.get("env") or {})}
        plan = {"output": values["output"], "most_skipped": values.get("most_skipped", 0.01)}
        return job_spec(self.name, values, job, argv, cards, on_host=True, model=values["target"], extract=plan)

    def title(self, spec: Mapping[str, Any]) -> str:
        return "hidden states of %s" % spec.get("model")

    def watcher(self, spec: Mapping[str, Any], directory: str) -> Watcher:
        return ExtractWatcher(spec, directory)

    def verdict(self, spec: Mapping[str, Any], state: Mapping[str, Any], killed: bool) -> Tuple[Optional[bool], str]:
        return None, "nobody looked at its files: %s" % status_words(state.get("rc"))


class ExtractWatcher(ToldWatcher):
    """Counts the files, and looks into some of them while more are written."""

    def __init__(self, spec: Mapping[str, Any], directory: str) -> None:
        super().__init__(spec, directory)
        self._output = str(spec["extract"]["output"])
        self._rows: List[Row] = []
        self._layout: Optional[Layout] = None
        self._there: Set[int] = set()
        self._first: Optional[int] = None
        self._tokens = 0
        self._speed, self._files = Pace(), Pace()
        self._looked: Set[int] = set()
        self._insane: Dict[int, str] = {}
        self._skipped: Dict[int, str] = {}

    def line(self, text: str, boot: float) -> None:
        match = _SKIPPED.search(text)
        if match is not None:
            self._skipped[int(match.group(1))] = match.group(2)[:200]

    def look(self, boot: float) -> None:
        if self._layout is None and not self._read_rows():
            return
        found = {index for index in hidden_states.present(self._output) if index < len(self._rows)}
        new = sorted(found - self._there)
        self._tokens += sum(self._rows[index].tokens for index in new)
        self._there = found
        if self._first is None:
            self._first = len(found)
        self._speed.tell(boot, self._tokens)
        self._files.tell(boot, len(found))
        for index in new[:: max(1, len(new) // _LOOKS)][:_LOOKS]:
            self._look_into(index)

    def _read_rows(self) -> bool:
        """The lengths, once this run's program has written them: those of an earlier run may be of other data."""
        if (self._progress or {}).get("stage") != "extracting" and self.said is None:
            return False
        try:
            self._rows, self._layout = hidden_states.read_rows(os.path.join(self._output, hidden_states.ROWS))
        except (OSError, ValueError):
            return False  # refused before it was written: the program's own words say why
        return True

    def _look_into(self, index: int) -> None:
        assert self._layout is not None
        path = os.path.join(self._output, hidden_states.file_name(index))
        problem = hidden_states.insane(path, self._rows[index], self._layout, seed=index)
        self._looked.add(index)
        if problem is None:
            self._insane.pop(index, None)
        else:
            self._insane[index] = problem

    def work(self, boot: float) -> Optional[Work]:
        told = super().work(boot)
        if self._layout is None:
            return told
        total = float(len(self._rows))
        speed = self._speed.rate(boot)
        counters = [Counter("tokens", float(self._tokens))]
        if speed is not None:
            counters.append(Counter("speed", speed, "tok/s"))
        size = sum(hidden_states.file_bytes(self._rows[index].tokens, self._layout) for index in self._there)
        counters.append(Counter("written", float(size), "B"))
        counters.append(Counter("looked into", float(len(self._looked)), "samples"))
        counters.append(Counter("skipped", float(len(self._skipped)), "samples", True))
        counters.append(Counter("wrong", float(len(self._insane)), "samples", True))
        return Work(
            stage="extracting",
            done=float(len(self._there)),
            total=total,
            unit="samples",
            rate=self._files.rate(boot),
            remaining=self._files.remaining(boot, total),
            basis=self._files.basis(boot),
            counters=tuple(counters),
        )

    def troubles(self) -> Tuple[str, ...]:
        out = list(super().troubles())
        if self._insane:
            out.append("states: %s" % next(iter(self._insane.values())))
        if self._skipped:
            index, why = next(iter(self._skipped.items()))
            out.append("skipped: %d samples, sample %d by %s" % (len(self._skipped), index, why))
        return tuple(out)

    def outcome(self, rc: Optional[int], killed: bool) -> Outcome:
        plain = super().outcome(rc, killed)
        if self._layout is None and not self._read_rows():
            return plain if not plain.ok else Outcome(False, "it left no %s" % hidden_states.ROWS, plain.result)
        assert self._layout is not None
        rows, layout = self._rows, self._layout
        good, damaged = [], []
        for index in hidden_states.present(self._output):
            if index < len(rows):
                path = os.path.join(self._output, hidden_states.file_name(index))
                problem = hidden_states.shape_problem(path, rows[index], layout)
                if problem is None:
                    good.append(index)
                else:
                    damaged.append(problem)
        for index in good[:: max(1, len(good) // _AT_END)]:
            if index not in self._looked:
                self._look_into(index)
        return self._judge(rc, killed, plain, good, damaged)

    def _judge(self, rc: Optional[int], killed: bool, plain: Outcome, good: List[int], damaged: List[str]) -> Outcome:
        assert self._layout is not None
        rows, layout = self._rows, self._layout
        skipped = len(rows) - len(good)
        result: Dict[str, Any] = {
            "samples": len(good),
            "rows": len(rows),
            "tokens": sum(rows[index].tokens for index in good),
            "bytes": sum(hidden_states.file_bytes(rows[index].tokens, layout) for index in good),
            "path": self._output,
            "skipped": skipped,
            "skipped_share": skipped / len(rows) if rows else 0.0,
            "dtype": layout.dtype,
            "looked": len(self._looked),
            "sane": not self._insane and not damaged,
        }
        far = "%d of %d samples, %d tokens" % (len(good), len(rows), result["tokens"])
        if self._insane or damaged:
            wrong = damaged or list(self._insane.values())
            return Outcome(False, "%s, but %d are wrong: %s" % (far, len(wrong), wrong[0]), result)
        if killed:
            return Outcome(None, "stopped on request after %s: goes on from there when it is started again" % far, result)
        if rc is None:
            return Outcome(None, "ended with an unknown status after %s" % far, result)
        if rc != 0:
            return Outcome(False, "%s after %s" % (plain.why, far), result)
        if skipped > float(self.spec["extract"]["most_skipped"]) * len(rows):
            why = next(iter(self._skipped.values()), "the log does not say why")
            return Outcome(False, "%s: %d were skipped (%s)" % (far, skipped, why), result)
        more = "" if not skipped else ", %d skipped" % skipped
        return Outcome(True, "%s%s; %d looked into" % (far, more, len(self._looked)), result)
