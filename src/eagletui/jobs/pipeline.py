"""A chain of jobs: steps in order, the servers that they need, gates between them. It runs on the host, without any client.

A pipeline's spec has, besides what every job's has, ``pipeline``::

    dir       where its record ``pipeline.json`` lies, and what its steps make
    servers   {name: spec of a server's job, without an id}
    steps     [{id, kind, spec, server, gates, stage, needs, outputs, secrets} ...]

``spec`` is that of the step's job without an id, ``server`` the name of one in ``servers`` or None, ``gates`` see `gates`,
``stage`` the rows of the stage as text ("10", "all") or None, ``needs`` the ids of earlier steps that it builds on, ``outputs``
the paths that must be there once it is done. ``secrets`` of a spec are names; the client hands their values over at the launch.
Everything in it is fixed: paths, ports, cards. What runs is `agent.pipeline`.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from eagletui.jobs import gates
from eagletui.jobs.base import BadJob, Kind, Spec, check_spec, redact_argv, secret_name, status_words
from eagletui.jobs.watcher import Outcome, Watcher
from eagletui.records.codec import from_doc
from eagletui.records.work import Work

RECORD, NOW = "pipeline.json", "now.json"
STEP_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_VOLATILE = ("id", "name", "operator", "parent", "log_cap", "graces", "profile", "secrets")
STEP_GRACE, SERVER_GRACE, SETTLE = 210.0, 135.0, 30.0


class Pipeline(Kind):
    """The values are a compiled pipeline: ``name``, ``pipeline`` (see above), ``operator``."""

    name = "pipeline"

    def spec(self, profile: Mapping[str, Any], job: str, cards: Sequence[str] = ()) -> Spec:
        plan = check_plan(profile.get("pipeline"))
        spec: Spec = {
            "id": job,
            "kind": self.name,
            "name": str(profile.get("name") or job),
            "argv": ["eagletui-pipeline", plan["dir"]],
            "pipeline": plan,
            "graces": [_longest(plan), 5, 40],
        }
        for key in ("operator", "profile", "log_cap"):
            if profile.get(key) is not None:
                spec[key] = profile[key]
        wanted = secret_names(plan)
        if wanted:
            spec["secrets"] = wanted
        return check_spec(spec)

    def title(self, spec: Mapping[str, Any]) -> str:
        steps = spec["pipeline"]["steps"]
        return "%d step%s in %s" % (len(steps), "" if len(steps) == 1 else "s", spec["pipeline"]["dir"])

    def watcher(self, spec: Mapping[str, Any], directory: str) -> Optional[Watcher]:
        return PipelineWatcher(spec, directory)

    def verdict(self, spec: Mapping[str, Any], state: Mapping[str, Any], killed: bool) -> Tuple[Optional[bool], str]:
        return None, "ended on request" if killed else status_words(state.get("rc"))


def parts(plan: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """The specs of its steps and servers."""
    return [step["spec"] for step in plan["steps"]] + list(plan["servers"].values())


def secret_names(plan: Mapping[str, Any]) -> List[str]:
    """The variables whose values its steps and servers need."""
    return sorted({str(name) for spec in parts(plan) for name in spec.get("secrets") or ()})


def _longest(plan: Mapping[str, Any]) -> float:
    """Seconds that its end may take: of one step, then of the servers, each by their own graces."""

    def total(spec: Mapping[str, Any], default: float) -> float:
        own = spec.get("graces")
        return float(sum(own)) if own else default

    steps = [total(step["spec"], STEP_GRACE) for step in plan["steps"]]
    servers = [total(spec, SERVER_GRACE) for spec in plan["servers"].values()]
    return max(steps) + max(servers, default=0.0) + SETTLE


# ---------------------------------------------------------------------------------------------------------------- checks


def check_plan(plan: Any) -> Dict[str, Any]:
    """A compiled pipeline, once every part of it was looked at. Raises `BadJob` naming the part."""
    if not isinstance(plan, Mapping):
        raise BadJob("pipeline should be an object {dir, servers, steps}")
    place, servers, steps = plan.get("dir"), plan.get("servers") or {}, plan.get("steps")
    if not isinstance(place, str) or not place.startswith("/") or os.path.normpath(place) != place or place == "/":
        raise BadJob("pipeline.dir should be an absolute path, plainly written, not %r" % (place,))
    if not isinstance(servers, Mapping):
        raise BadJob("pipeline.servers should be an object")
    if not isinstance(steps, (list, tuple)) or not steps:
        raise BadJob("pipeline.steps should be a list with at least one step")
    for name, spec in servers.items():
        if not STEP_ID.fullmatch(str(name)):
            raise BadJob("%r is no name for a server" % (name,))
        _check_child(spec, "server %s" % name)
        if not spec.get("server"):
            raise BadJob("server %s: its spec is not that of a server" % name)
    seen: List[str] = []
    for step in steps:
        _check_step(step, servers, seen)
        seen.append(step["id"])
    return {"dir": place, "servers": dict(servers), "steps": [dict(step) for step in steps]}


def _check_step(step: Any, servers: Mapping[str, Any], earlier: Sequence[str]) -> None:
    if not isinstance(step, Mapping) or not isinstance(step.get("id"), str) or not STEP_ID.fullmatch(step["id"]):
        raise BadJob("a step's id should be a word of letters, digits, '.', '_' and '-', at most 32 long")
    where = "step %s" % step["id"]
    if step["id"] in earlier:
        raise BadJob("%s stands there twice" % where)
    _check_child(step.get("spec"), where)
    if step["spec"]["kind"] == Pipeline.name or step["spec"].get("server"):
        raise BadJob("%s: a step is a job that ends by itself, no server and no pipeline" % where)
    if step.get("kind") != step["spec"]["kind"]:
        raise BadJob("%s: its kind is not that of its spec" % where)
    if step.get("server") is not None and step["server"] not in servers:
        raise BadJob("%s: there is no server %r" % (where, step["server"]))
    for name in step.get("needs") or ():
        if name not in earlier:
            raise BadJob("%s: it needs %r, which is no earlier step" % (where, name))
    for gate in step.get("gates") or ():
        why = gates.problem(gate)
        if why:
            raise BadJob("%s: %s" % (where, why))


def _check_child(spec: Any, where: str) -> None:
    try:
        check_spec(dict(spec, id="x") if isinstance(spec, Mapping) else spec)
    except BadJob as error:
        raise BadJob("%s: %s" % (where, error)) from None


# ---------------------------------------------------------------------------------------------------------- fingerprints


def fingerprint(*docs: Any) -> str:
    """16 hexadecimal digits that stand for these JSON documents."""
    import hashlib  # OpenSSL: 4 MB, which a supervisor should not pay

    text = json.dumps(docs, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def spec_print(spec: Mapping[str, Any]) -> str:
    """What a job's result rests on: its spec without who launches it, how it is called, how it is ended, and without secrets,
    which stand in the client's plan and not in the host's."""
    doc = {key: value for key, value in spec.items() if key not in _VOLATILE}
    if doc.get("env"):
        doc["env"] = {name: value for name, value in doc["env"].items() if not secret_name(name)}
    doc["argv"] = redact_argv(spec.get("argv") or ())
    box = doc.get("container")
    if isinstance(box, Mapping):
        doc["container"] = dict(box, program=redact_argv(box.get("program") or ()))
    return fingerprint(doc)


def step_prints(plan: Mapping[str, Any]) -> Dict[str, str]:
    """{step id: what its result rests on}: its own spec, its server's, and all of that of the steps that it needs."""
    out: Dict[str, str] = {}
    for step in plan["steps"]:
        server = plan["servers"].get(step.get("server"))
        parts = [spec_print(step["spec"]), spec_print(server) if server else ""]
        out[step["id"]] = fingerprint(parts + [out[name] for name in sorted(step.get("needs") or ())])
    return out


def made(paths: Sequence[str]) -> Dict[str, Optional[List[int]]]:
    """{path: [files, bytes]} of what lies there now, a directory with all below it; None where nothing is."""
    out: Dict[str, Optional[List[int]]] = {}
    for path in paths:
        if os.path.isdir(path):
            count = size = 0
            for directory, _names, names in os.walk(path):
                for name in names:
                    try:
                        size += os.stat(os.path.join(directory, name)).st_size
                    except OSError:
                        continue  # a link to nothing, or gone meanwhile: no part of what was made
                    count += 1
            out[path] = [count, size]
        else:
            out[path] = [1, os.stat(path).st_size] if os.path.exists(path) else None
    return out


def missing(before: Mapping[str, Any]) -> Optional[str]:
    """What is not there any more of what a step had made (`made`); None when all is. What has grown is as good."""
    for path, counts in made(list(before)).items():
        was = before[path]
        if counts is None:
            return "%s is not there any more" % path
        if was and counts[0] < was[0]:
            return "%s has %d files, and had %d" % (path, counts[0], was[0])
        if was and counts[1] < was[1]:
            return "%s has %d bytes, and had %d" % (path, counts[1], was[1])
    return None


def todo(
    plan: Mapping[str, Any],
    record: Mapping[str, Mapping[str, Any]],
    gone: Callable[[Mapping[str, Any]], Optional[str]] = missing,
) -> Dict[str, str]:
    """{step id: why} of the steps that must be run (again), by their entries in ``pipeline.json``.

    Of a step whose outputs are gone nothing is made again as long as no step that must be run builds on it: hidden states may be
    deleted once the training is done. ``gone`` looks at what was made (`missing`).
    """
    prints, steps = step_prints(plan), plan["steps"]
    out: Dict[str, str] = {}
    lost: Dict[str, str] = {}
    for step in steps:
        entry = record.get(step["id"]) or {}
        why = _why(step, entry, prints[step["id"]])
        if why is not None:
            out[step["id"]] = why
            continue
        what = gone(entry.get("made") or {})
        if what is not None:
            lost[step["id"]] = what
    used = {name for step in steps for name in step.get("needs") or ()}
    out.update({name: why for name, why in lost.items() if name not in used})
    before = -1
    while len(out) != before:
        before = len(out)
        for step in steps:
            needs = step.get("needs") or ()
            if step["id"] in out:
                out.update({name: lost[name] for name in needs if name in lost and name not in out})
            elif any(name in out for name in needs):
                out[step["id"]] = "what it builds on is made anew"
    return out


def _why(step: Mapping[str, Any], entry: Mapping[str, Any], print_: str) -> Optional[str]:
    state = entry.get("state")
    if state == "running":
        return "it had begun"
    # only a gate did not let it pass: perhaps the file's bound is another one now
    if state != "done" and not (state == "failed" and entry.get("gate")):
        return str(entry.get("why") or "not done yet")
    if entry.get("fingerprint") != print_:
        return "what it was made from has changed"
    judged = [gates.judge(gate, entry.get("figures") or {}) for gate in step.get("gates") or ()]
    return next((words for good, words in judged if not good), None)


# --------------------------------------------------------------------------------------------------------------- watching


class PipelineWatcher(Watcher):
    """Reads what the runner writes: ``now.json`` beside the job's log, and the record in the pipeline's own directory."""

    def __init__(self, spec: Mapping[str, Any], directory: str) -> None:
        super().__init__(spec, directory)
        self._now: Dict[str, Any] = {}

    def look(self, boot: float) -> None:
        self._now = _read(os.path.join(self.directory, NOW)) or self._now

    def work(self, boot: float) -> Optional[Work]:
        doc = self._now.get("work")
        return from_doc(Work, doc) if isinstance(doc, Mapping) else None

    def troubles(self) -> Tuple[str, ...]:
        return tuple(str(text) for text in self._now.get("troubles") or ())

    def outcome(self, rc: Optional[int], killed: bool) -> Outcome:
        record = _read(os.path.join(self.spec["pipeline"]["dir"], RECORD)) or {}
        ours = record.get("job") == self.spec.get("id")
        why = str(self._now.get("refused") or (record.get("why") if ours else None) or "")
        steps = record.get("steps") if ours else None
        result: Dict[str, Any] = {"dir": self.spec["pipeline"]["dir"]}
        if isinstance(steps, list):
            result["steps"] = [
                {key: step[key] for key in ("id", "state", "job", "why", "seconds") if step.get(key) is not None}
                for step in steps
            ]
            result["done"] = sum(1 for step in steps if step.get("state") == "done")
        if ours and record.get("state") == "done":
            return Outcome(True, why, result)
        if killed or (ours and record.get("state") == "ended"):
            return Outcome(None, why or "ended on request", result)
        if ours and record.get("state") == "failed":
            return Outcome(False, why, result)
        if self._now.get("refused"):
            return Outcome(False, why, result)
        at = " at " + str(record["at"]) if ours and record.get("at") else ""
        words = "its runner ended%s (%s); what it had started goes on, and a new run takes it up" % (at, status_words(rc))
        return Outcome(False, words, result)


def _read(path: str) -> Optional[Dict[str, Any]]:
    try:
        with open(path, "rb") as file:
            doc = json.loads(file.read().decode("utf-8"))
    except (OSError, ValueError):
        return None  # not there yet, or not to be read: what was known before stays
    return doc if isinstance(doc, dict) else None
