"""What a job that is no server does, as its supervisor notes it: the kind's `Watcher` is fed, asked, and judges the end.

A watcher is code for one tool's output, and tools change: whatever it raises is told, and never hurts the job; nor does a
file system that hangs under it (see `turns`).
"""

from __future__ import annotations

import os
from typing import Any, Mapping, Optional, Tuple

from eagletui.agent import state_dir
from eagletui.agent.ending import RESULT, merge_result
from eagletui.agent.job_lines import SAMPLES_CAP, Lines
from eagletui.agent.job_log import JobLog
from eagletui.agent.loop import Loop
from eagletui.agent.shim_files import Kept
from eagletui.agent.turns import Seen, Turns
from eagletui.jobs.base import status_words
from eagletui.jobs.kinds import kind
from eagletui.jobs.watcher import Outcome

LOOK_EVERY = 2.0
VALIDATION = b'"split":"val"'
"""In the samples that are never thinned out."""
MOST_NOTES = 50
"""Notes that are kept of one look: what a tool says a thousand times a second is not worth more."""
JUDGE_SECONDS = 120.0
"""How long the watcher may take to judge the end, before that is told without it: its files may lie on what does not answer."""


class Worked(Kept):
    """The part of a supervisor that its `Watcher` speaks to. A server has none; then nothing here does anything."""

    _spec: Mapping[str, Any]
    _loop: Loop
    _log: JobLog
    _samples: Optional[Lines]
    _turns: Optional[Turns] = None
    _watch_fails: Tuple[Tuple[str, str], ...] = ()
    _watch_troubles: Tuple[str, ...] = ()
    _last: Optional[Seen] = None
    _judge_by: Optional[float] = None
    _outcome: Optional[Outcome] = None

    def _trouble(self, text: str) -> None:
        raise NotImplementedError

    def _finish(self) -> None:
        """No process of the job is left."""
        raise NotImplementedError

    def _start_watching(self) -> None:
        try:
            watcher = kind(str(self._spec["kind"])).watcher(self._spec, self._directory)
        except Exception as error:  # noqa: BLE001 - told as a trouble of the job, which goes on
            self._watch_failed("begin", error)
            return
        if watcher is not None:
            self._turns = Turns(self._loop, watcher, self._took)
            self._loop.call_later(LOOK_EVERY, self._work_tick)

    def _work_tick(self) -> None:
        if self._turns is not None and self._judge_by is None:
            self._loop.call_later(LOOK_EVERY, self._work_tick)
            self._turns.begin()

    def _feed(self, data: bytes) -> None:
        """More of the job's log."""
        self._log.feed(data)
        if self._turns is not None:
            self._turns.feed(data)
            if self._turns.full:
                self._turns.begin()

    def _may_read(self) -> bool:
        """Whether the log may be read on: a flood waits for the watcher, as far as that moves."""
        return self._turns is None or not self._turns.full

    def _took(self, seen: Seen) -> None:
        """What a turn brought."""
        for what, error in seen.fails:
            self._watch_failed(what, error)
        if seen.work is not None:
            self._f["work"] = seen.work
        for sample in seen.samples:
            self._keep_sample(sample)
        for text in seen.notes[:MOST_NOTES]:
            self._log.note({"kind": "notice", "text": str(text)})
        if len(seen.notes) > MOST_NOTES:
            self._log.note({"kind": "notice", "text": "and %d more" % (len(seen.notes) - MOST_NOTES)})
        self._watch_troubles = seen.troubles
        if self._judge_by is not None:
            if seen.outcome is not None or any(what in ("outcome", "turn") for what, _ in seen.fails):
                self._last = seen
            self._finish()

    def _keep_sample(self, sample: Mapping[str, Any]) -> None:
        try:
            if self._samples is None:
                self._samples = Lines(os.path.join(self._directory, "samples.jsonl"), SAMPLES_CAP, always=VALIDATION)
            self._samples.append(sample)
        except OSError as error:
            self._trouble("samples.jsonl: %s" % (error.strerror or error))
        except (TypeError, ValueError) as error:  # no JSON: the watcher's mistake
            self._watch_failed("samples", error)

    def _work_troubles(self) -> Tuple[str, ...]:
        """What the watcher, or its failure, has for a person."""
        own = tuple(words for _, words in self._watch_fails[:1])
        hangs = self._turns.hangs if self._turns is not None else 0.0
        if hangs:
            own += ("progress: the job's files have not answered for %d s: a file system that has gone?" % (hangs // 30 * 30),)
        dropped = self._turns.dropped if self._turns is not None else 0
        if dropped:
            own += ("progress: some of the output was not looked at while its files did not answer",)
        return (*self._watch_troubles, *own)

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
        """Ask, once, how the job ended, and write it down. False until that is known and written; a later tick tries again."""
        if self._outcome is None:
            if self._turns is not None and self._last is None and not self._too_late(killed):
                return False
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

    def _too_late(self, killed: bool) -> bool:
        """Have the last turn begin as soon as none is under way; True once that has taken too long."""
        now = self._loop.now()
        if self._judge_by is None:
            self._judge_by = now + JUDGE_SECONDS
        if self._turns is not None:
            self._turns.begin((self._f.get("rc"), killed))
        return now > self._judge_by

    def _judged(self, killed: bool) -> Outcome:
        rc = self._f.get("rc")
        found = self._last.outcome if self._last is not None else None
        if found is None and self._turns is not None:
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
