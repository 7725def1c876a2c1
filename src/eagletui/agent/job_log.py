"""What the job's log means, as it is written: phases, progress, facts, ready, failures. Events go to ``events.jsonl``.

The grammar is `eagletui.engines`' own. A job without an engine has a log all the same, but nothing is read into it.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, Optional

from eagletui.agent.job_lines import Lines
from eagletui.agent.loop import boot_now
from eagletui.records import to_doc

PROGRESS_EVERY = 5.0
STATS_EVERY = 60.0
_EVERY = {"progress": PROGRESS_EVERY, "stats": STATS_EVERY, "notice": 1.0}


class JobLog:
    """Feed it the log's bytes. ``reader`` is an engines' ``LogReader`` or None; ``on_ready`` is called when the log says so.

    An event line is the event's fields and ``boot``/``wall``, when it was read. Of progress, statistics and notices only some
    are kept: one per phase and `PROGRESS_EVERY` seconds, and the one that completes it.
    """

    def __init__(self, reader: Any, events: Lines, on_ready: Callable[[], None], on_trouble: Callable[[str], None]) -> None:
        self._reader, self._events, self._on_ready, self._on_trouble = reader, events, on_ready, on_trouble
        self._kept: Dict[Any, float] = {}
        self._end: Any = None
        self._alerted: Optional[str] = None
        self.first_error: Optional[str] = None
        self.ready = False

    def feed(self, data: bytes) -> None:
        if self._reader is None:
            return
        boot = boot_now()
        for event in self._reader.feed(data, boot):
            self._take(event, boot)

    def finish(self) -> None:
        """The log is over: an unfinished last line counts too."""
        finish = getattr(self._reader, "finish", None)
        if finish is not None:
            boot = boot_now()
            for event in finish() or ():
                self._take(event, boot)

    def _take(self, event: Any, boot: float) -> None:
        if event.kind == "failure" and self.first_error is None:
            self.first_error = str(getattr(event.value, "text", "") or event.text)[:500]
        if event.kind == "alert":
            self._alerted = event.name
        if event.kind == "ready":
            self.ready = True
            self._on_ready()
        every = _EVERY.get(event.kind)
        if every is not None:
            key = (event.kind, event.name, event.role)
            complete = event.kind == "progress" and event.done is not None and event.done == event.total
            if not complete and boot - self._kept.get(key, -every) < every:
                return
            self._kept[key] = boot
        self.note(to_doc(event), boot)

    def ended(self, rc: Optional[int], oom: bool, asked: bool) -> None:
        """The main process has ended: how it did so may tell why, also when its log does not."""
        diagnosis = getattr(self._reader, "diagnosis", None)
        if diagnosis is None:
            return
        from eagletui.engines.diagnosis.judge import End
        from eagletui.engines.events import Event

        self._end = End(rc, oom, True, asked)
        _, causes = diagnosis(self._end)
        if causes and causes[0].id != self._alerted and not asked:
            self._alerted = causes[0].id
            self.note(to_doc(Event("alert", 0, 0.0, causes[0].id, value=causes, text=causes[0].title)))

    def note(self, doc: Dict[str, Any], boot: Optional[float] = None) -> None:
        """Write one event line; a full disk loses the line, not the job, and is told once."""
        line = dict(doc, boot=round(boot_now() if boot is None else boot, 3), wall=round(time.time(), 3))
        try:
            self._events.append(line)
        except OSError as error:
            self._on_trouble("events.jsonl: %s" % (error.strerror or error))

    def fields(self) -> Dict[str, Any]:
        """The fields of `JobState` that the log tells; None is left to what the spec says."""
        if self._reader is None:
            return {}
        summary = self._reader.summary()
        facts = summary.facts
        return {
            "engine": summary.engine,
            "engine_version": summary.engine_version,
            "phases": summary.phases,
            "phase": summary.phase,
            "k": facts.get("k"),
            "max_model_len": facts.get("max_model_len"),
            "first_error": self.first_error,
            "causes": summary.causes if self._end is None else self._reader.diagnosis(self._end)[1],
        }
