"""One arm of a benchmark: a running server measured at several loads by its engine's own benchmark tool, in several passes."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from eagletui.jobs.base import Kind, Spec, job_spec, status_words
from eagletui.jobs.keys import COMMON, Key, Wrong
from eagletui.jobs.told import ToldWatcher
from eagletui.jobs.watcher import Outcome, Watcher

ROLES = ("none", "pretrained", "trained", "synthetic", "other")


class Benchmark(Kind):
    """Its output has ``result.json`` (`records.bench.BenchResult`), ``passes/`` and ``texts/``."""

    name = "benchmark"
    keys: Tuple[Key, ...] = (
        Key("python", "path", "the python of the engine's environment, which has its benchmark tool", required=True),
        Key("output", "path", "where the results go", required=True),
        Key("arm", "text", "what this arm is called", required=True),
        Key("engine", "text", "the server's engine", required=True, choices=("vllm", "sglang")),
        Key("model", "text", "the target model: its path, for the tokenizer", required=True),
        Key("port", "int", "the server's port", required=True, low=1, high=65535),
        Key("host", "text", "the server's address", default="127.0.0.1"),
        Key("served_model", "text", "the name it serves the model under; by default it is asked"),
        Key("api_key_env", "text", "the variable that holds the server's key; name it in secrets too"),
        Key("drafter", "text", "the drafter that the server has"),
        Key("k", "int", "draft tokens a step", low=1, high=64),
        Key("role", "text", "what the arm is for; a plan without a drafter is what the others are compared with", choices=ROLES),
        Key("prompts", "path", "the file of prompts: conversations, messages or prompt, JSONL or JSON", required=True),
        Key("count", "int", "prompts a pass; at least four for each request under way are taken", default=48, low=2),
        Key("contexts", "ints", "prompt lengths in tokens, made from the prompts; 0 is as they are", default=(0,), low=0),
        Key("context_files", "texts", "more files of prompts, each a context of its own"),
        Key("concurrency", "ints", "requests under way at once", default=(1, 4, 16), low=1, high=4096),
        Key("passes", "int", "how often each load is measured", default=3, low=1, high=100),
        Key("max_tokens", "int", "the longest answer", default=256, low=2),
        Key("temperature", "number", "0 makes answers comparable", default=0, low=0, high=2),
        Key("seed", "int", "the order of the prompts, and sampling", default=0, low=0),
        Key("ignore_eos", "bool", "go on past the end of answers: acceptance is flattered then", default=False),
        Key("warmups", "int", "requests before each pass that do not count; by default as many as will be under way", low=1),
        Key("flush", "bool", "empty the prefix cache before each pass, where the engine can", default=True),
        Key("sets", "path", "where the prompt sets lie, for all arms of a plan; by default in the output"),
        Key("tool", "text", "the engine's own benchmark tool, or eagletui's client", default="engine", choices=("engine", "own")),
        Key("trust_remote_code", "bool", "run the code that comes with the model's tokenizer", default=False),
        Key("synthetic_length", "number", "the acceptance length that the server was told to act out", low=1),
        Key("block", "text", "a word for this start of the server, where an arm is measured more than once"),
        Key("launch", "table", "how the server was started (argv, env), for where its process cannot be read"),
    )

    def spec(self, profile: Mapping[str, Any], job: str, cards: Sequence[str] = ()) -> Spec:
        values = dict(profile)
        for key in ("concurrency", "contexts"):
            values[key] = list(dict.fromkeys(values[key]))
        settings = {key: value for key, value in values.items() if key not in _COMMON and value is not None}
        argv = [values["python"], "-m", "eagletui.jobs.on_host.benchmark", json.dumps(settings, sort_keys=True)]
        env = {"PYTHONUNBUFFERED": "1", **(values.get("env") or {})}
        # it uses no card: the server has them
        more: Dict[str, Any] = {key: values.get(key) for key in ("engine", "model", "drafter", "k")}
        return job_spec(
            self.name, dict(values, env=env), job, argv, (), on_host=True, output=values["output"], arm=values["arm"], **more
        )

    def check(self, values: Mapping[str, Any]) -> Sequence[Wrong]:
        out: List[Wrong] = []
        if not values.get("contexts") and not values.get("context_files"):
            out.append(Wrong("contexts", "there is no context", "leave it out, or name prompt lengths or context_files"))
        if not values.get("concurrency"):
            out.append(Wrong("concurrency", "there is no load", "name at least one"))
        if values.get("api_key_env") and values["api_key_env"] not in (values.get("secrets") or ()):
            out.append(Wrong("api_key_env", "%s is not among the secrets" % values["api_key_env"], "name it in secrets too"))
        if values.get("drafter") and not values.get("k"):
            out.append(Wrong("drafter", "k is missing", "add k: the draft tokens a step that the server makes"))
        return out

    def title(self, spec: Mapping[str, Any]) -> str:
        return "benchmark of %s on %s" % (spec.get("arm") or "a server", spec.get("model") or "a model")

    def watcher(self, spec: Mapping[str, Any], directory: str) -> Optional[Watcher]:
        return BenchmarkWatcher(spec, directory)

    def verdict(self, spec: Mapping[str, Any], state: Mapping[str, Any], killed: bool) -> Tuple[Optional[bool], str]:
        return None, "ended on request" if killed else status_words(state.get("rc"))


_COMMON = tuple(key.name for key in COMMON)


class BenchmarkWatcher(ToldWatcher):
    """A benchmark is good when at least one load could be measured; how many could not is among its counts."""

    def check(self, result: Mapping[str, Any]) -> Outcome:
        path = result.get("path")
        if not isinstance(path, str) or not os.path.exists(path):
            return Outcome(False, "its result %s is not there" % path, dict(result))
        return Outcome(bool(result.get("good")), str(result.get("why") or ""), dict(result))
