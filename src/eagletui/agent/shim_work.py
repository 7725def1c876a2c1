"""What a job that is no server does, as its supervisor notes it: the kind's `Watcher` is fed, asked, and judges the end.

A watcher is code for one tool's output, and tools change: whatever it raises is told, and never hurts the job.
"""

from __future__ import annotations

import json
import os
from typing import Any, Callable, List, Mapping, Optional, Tuple, TypeVar

from eagletui.agent import state_dir
from eagletui.agent.ending import RESULT, merge_result
from eagletui.agent.job_lines import SAMPLES_CAP, Lines
from eagletui.agent.job_log import JobLog
from eagletui.agent.loop import Loop, boot_now
from eagletui.agent.shim_files import Kept
from eagletui.jobs.base import status_words
from eagletui.jobs.kinds import kind
from eagletui.jobs.watcher import Outcome, Watcher

T = TypeVar("T")

LOOK_EVERY = 2.0
MOST_NOTES = 50
"""Notes that are kept of one look: what a tool says a thousand times a second is not worth more."""


class Worked(Kept):
    """The part of a supervisor that its `Watcher` speaks to. A server has none; then nothing here does anything."""

    _spec: Mapping[str, Any]
    _loop: Loop
    _log: JobLog
    _samples: Optional[Lines]
    _watcher: Optional[Watcher] = None
    _watch_fails: Tuple[Tuple[str, str], ...] = ()
    _watch_troubles: Tuple[str, ...] = ()
    _outcome: Optional[Outcome] = None

    def _trouble(self, text: str) -> None:
        raise NotImplementedError

    def _start_watching(self) -> None:
        self._watcher = self._ask("begin", lambda: kind(str(self._spec["kind"])).watcher(self._spec, self._directory))
        if self._watcher is not None:
            self._loop.call_later(LOOK_EVERY, self._work_tick)

    def _work_tick(self) -> None:
        if self._outcome is None:
            self._loop.call_later(LOOK_EVERY, self._work_tick)
            self._look_at_work()

    def _feed(self, data: bytes) -> None:
        """More of the job's log."""
        self._log.feed(data)
        watcher = self._watcher
        if watcher is not None:
            self._ask("feed", lambda: watcher.feed(data, boot_now()))

    def _look_at_work(self) -> None:
        watcher = self._watcher
        if watcher is None:
            return
        boot = boot_now()
        self._ask("look", lambda: watcher.look(boot))
        self._f["work"] = self._ask("work", lambda: watcher.work(boot)) or self._f.get("work")
        for sample in self._ask("samples", watcher.samples) or ():
            self._keep_sample(sample)
        notes: List[str] = self._ask("notes", watcher.notes) or []
        for text in notes[:MOST_NOTES]:
            self._log.note({"kind": "notice", "text": str(text)})
        if len(notes) > MOST_NOTES:
            self._log.note({"kind": "notice", "text": "and %d more" % (len(notes) - MOST_NOTES)})
        self._watch_troubles = tuple(self._ask("troubles", watcher.troubles) or ())

    def _keep_sample(self, sample: Mapping[str, Any]) -> None:
        try:
            if self._samples is None:
                self._samples = Lines(os.path.join(self._directory, "samples.jsonl"), SAMPLES_CAP)
            self._samples.append(sample)
        except OSError as error:
            self._trouble("samples.jsonl: %s" % (error.strerror or error))
        except (TypeError, ValueError) as error:  # no JSON: the watcher's mistake
            self._watch_failed("samples", error)

    def _work_troubles(self) -> Tuple[str, ...]:
        """What the watcher, or its failure, has for a person."""
        return (*self._watch_troubles, *(words for _, words in self._watch_fails[:1]))

    def _ask(self, what: str, call: Callable[[], T]) -> Optional[T]:
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - told as a trouble of the job, which goes on
            self._watch_failed(what, error)
            return None

    def _watch_failed(self, what: str, error: Exception) -> None:
        """Told once for each thing that was asked of it: once in the job's record, and with its place in ``shim.log``."""
        if any(what == asked for asked, _ in self._watch_fails):
            return
        words = "progress: it cannot be read (%s: %s)" % (type(error).__name__, str(error)[:200])
        self._watch_fails = (*self._watch_fails, (what, words))
        self._log.note({"kind": "notice", "text": words})
        self._loop.complain("watcher, %s" % what, error)

    # --------------------------------------------------------------------------------------------------------- the end

    def _judge(self, killed: bool) -> bool:
        """Ask, once, how the job ended, and write it down. False while it cannot be written: the next tick tries again."""
        if self._outcome is None:
            self._look_at_work()
            self._outcome = self._judged(killed)
            work = self._f.get("work")
            if work is not None:
                self._f["work"] = work._replace(rate=None, remaining=None, basis=None)  # it goes nowhere any more
        outcome = self._outcome

        def write() -> None:
            path = os.path.join(self._directory, RESULT)
            there = state_dir.read_json(path) or {}
            # what a kill has written of its own stays
            made = {key: value for key, value in outcome.result.items() if "released" not in there or key not in there}
            merge_result(self._directory, dict(made, ok=outcome.ok, why=outcome.why))

        if not self._safely(RESULT, write):
            return False
        self._f.update(ok=outcome.ok, outcome=outcome.why)
        return True

    def _judged(self, killed: bool) -> Outcome:
        rc = self._f.get("rc")
        watcher = self._watcher
        found: Optional[Outcome] = None
        if watcher is not None:
            found = self._ask("outcome", lambda: _plain(watcher.outcome(rc, killed)))
            if found is None:
                # it ended well or not; that its result is right is more than anybody knows
                words = "%s, and its result could not be checked" % status_words(rc)
                found = Outcome(None if killed or rc == 0 else False, words, {})
        if found is None:
            ok, why = kind(str(self._spec["kind"])).verdict(self._spec, self._f, killed)
            found = Outcome(ok, why, {})
        memory = self._f.get("detail") if self._f.get("state") == "oom" else None
        if memory and not found.ok and memory not in found.why:
            found = Outcome(False, "%s; %s" % (memory, found.why), found.result)
        return found


def _plain(outcome: Outcome) -> Outcome:
    """The same, when it is JSON; else raises ``TypeError`` or ``ValueError``."""
    json.dumps(outcome.result, allow_nan=False)
    return Outcome(outcome.ok, str(outcome.why), outcome.result)
