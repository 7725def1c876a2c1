"""The servers of a pipeline: started for a step, waited for until ready, stopped when no later step needs them."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Mapping, Optional

from eagletui.agent.calls import CallError
from eagletui.agent.job_files import is_over
from eagletui.agent.loop import Loop
from eagletui.agent.pipeline import cards
from eagletui.agent.pipeline.asking import LIVE, Asking
from eagletui.agent.pipeline.record import Record
from eagletui.agent.pipeline.words import Failed, Narrator, seconds_words, why_server_failed
from eagletui.jobs.pipeline import spec_print

READY_WITHIN = 7200.0
"""Seconds that a load may take: twenty minutes are usual, and a server that hangs must not cost the night."""


class Servers:
    """``launch(spec, id)`` starts a job as a child of the pipeline. Failures are told as `Failed`."""

    def __init__(
        self,
        asking: Asking,
        loop: Loop,
        record: Record,
        plan: Mapping[str, Any],
        tell: Narrator,
        launch: Callable[[Mapping[str, Any], str], None],
    ) -> None:
        self._asking, self._loop, self._record, self._tell, self._launch = asking, loop, record, tell, launch
        self._specs: Mapping[str, Mapping[str, Any]] = plan["servers"]

    def running(self) -> List[str]:
        """The names of those that may have processes."""
        return [name for name, entry in self._record.servers.items() if entry.get("state") not in (None, "stopped")]

    def job(self, name: str) -> str:
        return str(self._record.servers[name]["job"])

    # --------------------------------------------------------------------------------------------------------- starting

    def need(self, name: str) -> None:
        """Have the server ready. Raises `Failed`."""
        spec = self._specs[name]
        entry = self._record.servers.setdefault(name, {})
        if not self._usable(name, entry, spec):
            self.stop([other for other in self.running() if other == name or self._in_the_way(other, spec)])
            self._start(name, entry, spec)
        self._ready(name, entry)

    def _usable(self, name: str, entry: Dict[str, Any], spec: Mapping[str, Any]) -> bool:
        """Whether what an earlier step, or an earlier run, had started will do."""
        if entry.get("state") not in ("starting", "ready"):
            return False
        state = self._asking.state(self.job(name))
        if state is None:
            # written down, and not launched any more: the launch with that id can be made now
            return False
        if entry.get("fingerprint") != spec_print(spec):
            self._tell.line("server %s runs as it was before its entry in the file changed: it is started anew" % name, 1)
            return False
        if state.get("state") not in LIVE or state.get("health") not in ("loading", "ready"):
            if not is_over(state):
                self._tell.line("server %s: %s; it is started anew" % (name, state.get("detail") or state.get("state")), 1)
            return False
        self._tell.line("server %s runs: job %s" % (name, self.job(name)), 1)
        return True

    def _in_the_way(self, other: str, spec: Mapping[str, Any]) -> bool:
        theirs = self._record.servers[other]
        wanted = spec.get("leases") or {"port": spec.get("port"), "gpus": spec.get("gpus") or ()}
        same_port = wanted.get("port") is not None and theirs.get("port") == wanted.get("port")
        return same_port or bool(set(theirs.get("gpus") or ()) & set(wanted.get("gpus") or ()))

    def give_way(self, name: Optional[str], spec: Mapping[str, Any]) -> None:
        """Stop servers that hold what a step's own job is to have. Raises `Failed` when it is the very server that it needs."""
        there = [other for other in self.running() if self._in_the_way(other, spec)]
        if name in there:
            raise Failed("it and its server %s want the same port or cards" % name, "give them different ones")
        self.stop(there)

    def _start(self, name: str, entry: Dict[str, Any], spec: Mapping[str, Any]) -> None:
        wanted = spec.get("leases") or {"port": spec.get("port"), "gpus": spec.get("gpus") or ()}
        entry.update(state="starting", fingerprint=spec_print(spec), port=wanted.get("port"), gpus=list(wanted.get("gpus") or ()))
        entry["cards"] = cards.used(self._loop, entry["gpus"])
        job = self._record.next_job(entry, "server-" + name)
        what = " ".join(str(spec[key]) for key in ("engine", "model") if spec.get(key))
        where = " on port %s" % spec["port"] if spec.get("port") else ""
        self._tell.line("server %s: starting %s%s, job %s" % (name, what or spec["argv"][0], where, job), 1)
        try:
            self._launch(spec, job)
        except CallError as error:
            entry.update(state="stopped", why=error.why)
            self._record.save()
            raise Failed("server %s cannot be started: %s" % (name, error.why), error.remedy) from None

    def _ready(self, name: str, entry: Dict[str, Any]) -> None:
        job = self.job(name)

        def look() -> Optional[Dict[str, Any]]:
            state = self._asking.state(job) or {}
            self._tell.loading(name, state)
            settled = state.get("health") in ("ready", "failed", "gone") or state.get("state") not in LIVE
            return state if settled else None

        was = entry.get("state")
        state = self._asking.wait(look, seconds=READY_WITHIN)
        if state is None:
            raise Failed(
                "server %s was not ready within %s" % (name, seconds_words(READY_WITHIN)), "look at its log: job %s" % job
            )
        if state.get("health") != "ready" or state.get("state") != "running":
            why, remedy = why_server_failed(state)
            raise Failed("server %s did not become ready: %s" % (name, why), remedy or "look at its log: job %s" % job)
        if was != "ready":
            entry["state"] = "ready"
            self._record.save()
            took = state.get("ready_seconds")
            self._tell.line("server %s: ready%s" % (name, " after %s" % seconds_words(took) if took else ""), 1)

    def check(self, name: Optional[str]) -> None:
        """Whether the server still serves, while a step uses it. Raises `Failed`."""
        if name is None:
            return
        state = self._asking.state(self.job(name)) or {}
        if state.get("state") == "running" and state.get("health") == "ready":
            return
        if state.get("state") == "stopping":
            return  # whoever ends it is told once it has ended
        if state.get("state") == "lost_supervisor" and state.get("members"):
            return  # it serves on without one; how it ends shows in the step
        if state.get("ended_by"):
            raise Failed("server %s was ended by %s" % (name, state["ended_by"]), "")
        why, remedy = why_server_failed(state)
        raise Failed("server %s failed meanwhile: %s" % (name, why), remedy or "look at its log: job %s" % self.job(name))

    # --------------------------------------------------------------------------------------------------------- stopping

    def stop(self, names: List[str], operator: str = "the pipeline", now: Callable[[], bool] = lambda: False) -> None:
        """End these, and wait until nothing of them is left, and the memory of their cards is back. Raises `Failed`.

        ``now`` is asked again and again: once it is True they get no more time.
        """
        began = time.monotonic()
        left = {name: self.job(name) for name in names if self.job_runs(name)}
        hurried: Dict[str, bool] = {}

        def look() -> bool:
            for name, job in list(left.items()):
                if not self.job_runs(name):
                    del left[name]
                elif name not in hurried or (now() and not hurried[name]):
                    first = name not in hurried
                    hurried[name] = now()
                    self._ask(name, job, operator, hurried[name], first)
            return not left

        self._asking.wait(look)
        for name in names:
            entry = self._record.servers[name]
            result = self._asking.result(self.job(name)) if entry.get("job") else {}
            if hurried.get(name) is not None:
                words = seconds_words(time.monotonic() - began)
                self._tell.line("server %s: stopped after %s (%s)" % (name, words, _released(result)), 1)
            self._memory_back(name, entry)
            entry["state"] = "stopped"
            self._record.save()

    def _ask(self, name: str, job: str, operator: str, now: bool, first: bool) -> None:
        try:
            if first:
                self._tell.line("server %s: stopping" % name, 1)
            self._asking.kill(job, operator, now)
        except CallError as error:
            raise Failed("server %s cannot be stopped: %s" % (name, error.why), error.remedy) from None

    def job_runs(self, name: str) -> bool:
        """Whether any process of it, or its supervisor, is there."""
        entry = self._record.servers[name]
        if not entry.get("job"):
            return False
        state = self._asking.state(str(entry["job"]))
        return state is not None and self._asking.over(str(entry["job"])) is None

    def _memory_back(self, name: str, entry: Mapping[str, Any]) -> None:
        before = entry.get("cards") or {}
        if not before:
            return

        last: List[str] = []

        def look() -> bool:
            last[:] = cards.held(before, cards.used(self._loop, list(before)))
            return not last

        if not self._asking.wait(look, seconds=cards.PATIENCE):
            raise Failed("server %s has ended, and %s" % (name, "; ".join(last)), "see which process holds it: nvidia-smi")
        self._tell.line("server %s: the memory of its cards is back" % name, 1)


def _released(result: Mapping[str, Any]) -> str:
    """What came free with a server's end; its many files are counted."""
    items = [str(item) for item in result.get("released") or ()]
    files = sum(item.startswith("/") for item in items)
    words = [item for item in items if not item.startswith("/")] + (["%d files" % files] if files else [])
    return ", ".join(words) or "nothing was left of it"
