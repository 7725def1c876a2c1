"""What the log of a server that was found means. Mostly read afterwards, so its phases are timed by the log's own stamps."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple

from eagletui.engines.diagnosis.judge import End
from eagletui.engines.events import Event
from eagletui.engines.reader import LogReader
from eagletui.records import Cause, Evidence, Phase, to_doc

ZONE = 900
"""Seconds: all time zones differ by whole quarters of an hour, so within one a stamp without a zone tells the time."""
LONGEST_SPAWN = 300.0
ROUNDING = 3.0


class LoadLog:
    """Feed it the log's bytes; ``started`` is when the process began (Unix time), ``on_ready`` is called when the log says so."""

    def __init__(self, started: float, on_ready: Callable[[], None]) -> None:
        self._started, self._on_ready = started, on_ready
        self._reader = LogReader()
        self._error: Optional[str] = None
        self._causes: Tuple[Cause, ...] = ()
        self._fed_bytes = 0
        self._jumps: List[Tuple[int, int]] = []  # (bytes fed before it, by how much the log's offsets are ahead from there on)
        self.ready = False
        self.fed = False
        self.asked = False

    def feed(self, data: bytes) -> None:
        self.fed = True
        self._fed_bytes += len(data)
        self._take(self._reader.feed(data))

    def jumped(self, offset: int) -> None:
        """What is fed next stands at this offset of the log: bytes were left out, or somebody has cut it."""
        self._jumps.append((self._fed_bytes, offset - self._fed_bytes))
        del self._jumps[:-64]

    def ended(self) -> None:
        """The server has gone: its last line counts without a line end. Its exit status nobody here knows."""
        self._take(self._reader.finish())
        if not self.asked:
            self._causes = self._reader.diagnosis(End(ended=True))[1] or self._causes

    @property
    def failed(self) -> bool:
        """Whether the log tells that it has failed, by itself."""
        return bool(self._causes) or (self._error is not None and not self.ready)

    def _take(self, events: List[Event]) -> None:
        for event in events:
            if event.kind == "failure" and self._error is None and not self.asked:
                self._error = str(getattr(event.value, "text", "") or event.text)[:500]
            if event.kind == "ready":
                self.ready, self._error = True, None
                self._on_ready()
        if not self.asked:  # what it complains of while it is being ended is no failure of its own
            self._causes = self._reader.summary().causes

    def fields(self, is_ready: bool) -> Dict[str, Any]:
        """The fields of `JobState` that the log tells. ``is_ready``: the server answers, whatever a cut log says of its load."""
        if not self.fed:
            return {}
        summary = self._reader.summary()
        facts = summary.facts
        spawn = self._spawn()
        out: Dict[str, Any] = {
            "engine_version": summary.engine_version,
            "phases": [_doc(phase) for phase in self._phases(summary.phases, spawn)],
            "phase": "ready" if is_ready and summary.ready_seconds is None else summary.phase,
            "k": facts.get("k"),
            "max_model_len": facts.get("max_model_len"),
            "first_error": self._error,
            "causes": [to_doc(self._placed(cause)) for cause in self._causes],
        }
        if summary.ready_seconds is not None and spawn is not None:
            out["ready_seconds"] = round(spawn + summary.ready_seconds, 2)
        return {key: value for key, value in out.items() if value is not None}

    def _placed(self, cause: Cause) -> Cause:
        """With the places of its lines in the log itself; after a jump nobody has counted the lines."""
        if not self._jumps:
            return cause
        return cause._replace(evidence=tuple(self._place(line) for line in cause.evidence))

    def _place(self, line: Evidence) -> Evidence:
        ahead = next((by for at, by in reversed(self._jumps) if at <= line.offset), None)
        return line if ahead is None else line._replace(offset=line.offset + ahead, line=0)

    def _spawn(self) -> Optional[float]:
        """Seconds from the start of the process to the first line; None when the log cannot be this run's from its start."""
        zero = self._reader.zero_stamp
        if zero is None:
            return None
        seconds = (zero - self._started) % ZONE
        if seconds > ZONE - ROUNDING:
            return 0.0  # stamps are whole seconds, cut
        return seconds if seconds <= LONGEST_SPAWN else None

    @staticmethod
    def _phases(phases: Tuple[Phase, ...], spawn: Optional[float]) -> Tuple[Phase, ...]:
        if spawn is None:
            return phases
        moved = tuple(phase._replace(start=phase.start + spawn) for phase in phases)
        if moved and moved[0].id == "spawn":
            first = moved[0]
            seconds = None if first.seconds is None else first.seconds + spawn
            return (first._replace(start=0.0, seconds=seconds), *moved[1:])
        return (Phase("spawn", None, 0.0, spawn), *moved) if moved else moved


def _doc(phase: Phase) -> Dict[str, Any]:
    return {key: value for key, value in zip(phase._fields, phase) if value is not None}
