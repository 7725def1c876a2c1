"""Answers of the target itself to a file of prompts, from its running server: what a drafter is trained on."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Mapping, Optional, Sequence

from eagletui.jobs.base import Kind, Spec, job_spec
from eagletui.jobs.keys import Key, Wrong
from eagletui.jobs.told import ToldWatcher
from eagletui.jobs.watcher import Outcome, Watcher

PROGRAM = "eagletui.jobs.on_host.synthesise"
TOOLS = ("eagletui", "speculators")

KEYS = (
    Key("python", "path", "the python of the environment that has vLLM or SGLang (its OpenAI client is used)", required=True),
    Key("prompts", "path", "JSON or JSONL, each row with conversations or messages", required=True),
    Key("output", "path", "directory of the answers; an unfinished one is gone on with", required=True),
    Key("endpoint", "text", "the server's address, up to /v1", default="http://127.0.0.1:8000/v1"),
    Key("model", "text", "the name it is served under; by default the only one there is"),
    Key("limit", "int", "how many prompts, from the first on; by default all", low=1),
    Key("max_tokens", "int", "tokens of one answer, reasoning included", default=4096, low=1),
    Key("temperature", "number", "by default what the model's own generation settings say", low=0),
    Key("seed", "int", "each request gets a seed that follows from it, the prompt and the turn", low=0),
    Key("sampling", "table", "further fields of each request: top_p, top_k, chat_template_kwargs ..."),
    Key("enable_thinking", "bool", "chat_template_kwargs.enable_thinking, for templates that have it"),
    Key(
        "concurrency",
        "int",
        "most requests at a time; it begins with fewer and finds out how many pay",
        default=64,
        low=1,
        high=1000,
    ),
    Key(
        "retries", "int", "how often a request that failed is sent again; a server that is away does not count", default=5, low=0
    ),
    Key("request_timeout", "number", "seconds that one answer may take", default=1800, low=1),
    Key("server_wait", "number", "seconds that the server may be away, each time", default=3600, low=0),
    Key("keep_truncated", "bool", "whether answers that ran into max_tokens are trained on", default=True),
    Key("keep_empty", "bool", "whether answers without any text (all went into reasoning) are trained on", default=False),
    Key("skip_invalid", "bool", "go on without prompts that cannot be used, instead of refusing the file", default=False),
    Key("stop_after_failures", "int", "stop when so many prompts in a row got no answer", default=200, low=1),
    Key("most_failed", "number", "the share of prompts without an answer that is still a success", default=0.05, low=0, high=1),
    Key("api_key_env", "text", "name of the variable that holds the server's key (name it in secrets too)"),
    Key("tool", "text", "speculators: its regenerate-responses, on vLLM only", default="eagletui", choices=TOOLS),
)


class Synthesise(Kind):
    """See `KEYS` for its job file and `on_host.answers` for the rows that it writes."""

    name = "synthesise"
    keys = KEYS

    def check(self, values: Mapping[str, Any]) -> Sequence[Wrong]:
        out, key_name = [], values.get("api_key_env")
        if key_name is not None and key_name not in (values.get("secrets") or ()):
            # a key that stands there itself is not said again
            what = "the variable in 'api_key_env' is not among the secrets"
            out.append(Wrong("api_key_env", what, "give the variable's name here, and in secrets too: its value is asked for"))
        if values.get("tool") == "speculators":
            if key_name is not None:
                out.append(Wrong("api_key_env", 'tool = "speculators" cannot send a key', "leave one of them out"))
            if values.get("keep_empty"):
                out.append(Wrong("keep_empty", 'tool = "speculators" keeps no empty answers', "leave one of them out"))
        clash = sorted(
            {"model", "messages", "max_tokens", "temperature", "seed", "n", "stream"} & set(values.get("sampling") or ())
        )
        if clash:
            out.append(
                Wrong("sampling", "%s in [sampling]" % ", ".join(clash), "these have keys of their own, or cannot be changed")
            )
        return out

    def made(self, values: Mapping[str, Any]) -> Mapping[str, str]:
        return {"rows": "%s/answers.jsonl" % values["output"]}

    def spec(self, profile: Mapping[str, Any], job: str, cards: Sequence[str] = ()) -> Spec:
        settings: Dict[str, Any] = {key.name: profile[key.name] for key in KEYS if profile.get(key.name) is not None}
        python = settings.pop("python")
        most_failed = settings.pop("most_failed")
        # the program needs no card, only the server does
        return job_spec(
            self.name,
            profile,
            job,
            [python, "-m", PROGRAM, json.dumps(settings, sort_keys=True)],
            on_host=True,
            output=settings["output"],
            most_failed=most_failed,
        )

    def title(self, spec: Mapping[str, Any]) -> str:
        settings = settings_of(spec)
        some = " (the first %d)" % settings["limit"] if settings.get("limit") else ""
        return "answers to %s%s -> %s" % (os.path.basename(settings["prompts"]), some, settings["output"])

    def watcher(self, spec: Mapping[str, Any], directory: str) -> Optional[Watcher]:
        return SynthesiseWatcher(spec, directory)


def settings_of(spec: Mapping[str, Any]) -> Dict[str, Any]:
    """The settings that a spec hands to the program."""
    settings: Dict[str, Any] = json.loads(spec["argv"][-1])
    return settings


class SynthesiseWatcher(ToldWatcher):
    """Believes the counts only as far as the files bear them out."""

    def check(self, result: Mapping[str, Any]) -> Outcome:
        made, why = dict(result), str(result.get("why"))
        wrong = self._wrong(result)
        return Outcome(not wrong, "; ".join([*wrong, why]) if wrong else why, made)

    def _wrong(self, result: Mapping[str, Any]) -> List[str]:
        out = []
        try:
            size = os.path.getsize(str(result["path"]))
        except OSError as error:
            return ["%s: %s" % (result["path"], error.strerror)]
        if size != result["bytes"]:
            out.append("%s has %d bytes and should have %d" % (result["path"], size, result["bytes"]))
        if result["double"]:
            out.append("%d rows are there twice" % result["double"])
        if result["missing"]:
            out.append("%d prompts are not accounted for" % result["missing"])
        if not result["rows"]:
            out.append("no row to train on")
        if result["failed_share"] > self.spec.get("most_failed", 0):
            reasons = result.get("reasons") or {}
            most = max(reasons, key=lambda reason: reasons[reason]) if reasons else "see " + str(result.get("errors"))
            out.append("%d of %d prompts failed (%s)" % (result["failed"], result["prompts"], most))
        return out
