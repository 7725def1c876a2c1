"""What a pipeline says: its log, one line an event with the time, and what it does at this moment."""

from __future__ import annotations

import sys
import time
from typing import Any, Dict, List, Mapping, Optional, Tuple

from eagletui.agent.pipeline.record import Now


class Failed(Exception):
    """The pipeline stops here: why, and what to do."""

    def __init__(self, why: str, remedy: str = "") -> None:
        super().__init__(why)
        self.why, self.remedy = why, remedy

    @property
    def words(self) -> str:
        return "%s - %s" % (self.why, self.remedy) if self.remedy else self.why


def seconds_words(seconds: float) -> str:
    """``4.2 s``, ``12 min 5 s``, ``3 h 20 min``."""
    if seconds < 10:
        return "%.1f s" % seconds
    whole = round(seconds)
    if whole < 120:
        return "%d s" % whole
    if whole < 7200:
        return "%d min %d s" % (whole // 60, whole % 60) if whole % 60 else "%d min" % (whole // 60)
    return "%d h %d min" % (whole // 3600, whole % 3600 // 60)


def why_server_failed(state: Mapping[str, Any]) -> Tuple[str, str]:
    """Why a server failed, by the likeliest cause that its log and its end tell, and what to do."""
    for cause in state.get("causes") or ():
        if cause.get("id") != "unknown":
            return str(cause.get("title")), str(cause.get("remedy") or "")
    said = [state.get("first_error"), state.get("detail"), state.get("outcome")]
    words = next((str(text) for text in said if text), "")
    if not words:
        words = "it ended with status %s" % state["rc"] if state.get("rc") is not None else "it is gone, and nobody can say why"
    return words, ""


def work_words(work: Optional[Mapping[str, Any]]) -> str:
    """``120 of 440 samples``; what a job is at, as far as it tells."""
    if not work:
        return ""
    done, total, unit = work.get("done"), work.get("total"), str(work.get("unit") or "")
    parts = []
    if done is not None:
        parts.append(("%.10g of %.10g %s" % (done, total, unit) if total else "%.10g %s" % (done, unit)).strip())
    elif work.get("stage"):
        parts.append(str(work["stage"]))
    return ", ".join(parts)


def counts_words(result: Mapping[str, Any]) -> str:
    """The plain numbers of a result, ``rows 10, failed 0``; empty when there are none."""
    numbers = [(key, value) for key, value in result.items() if isinstance(value, (int, float)) and not isinstance(value, bool)]
    return ", ".join("%s %.6g" % pair for pair in numbers if pair[0] not in ("wall", "seconds"))[:300]


class Narrator:
    """Writes the log, and ``now.json`` for the supervisor: ``done`` of ``total`` steps and what goes on."""

    def __init__(self, now: Now, total: int) -> None:
        self._now, self._total = now, total
        self._stage = ""
        self.done = 0
        self.troubles: List[str] = []
        self._day = ""

    def line(self, text: str, depth: int = 0) -> None:
        """One line of the log, written out at once."""
        day = time.strftime("%Y-%m-%d")
        stamp = time.strftime("%H:%M:%S") if day == self._day else time.strftime("%Y-%m-%d %H:%M:%S")
        self._day = day
        sys.stdout.write("%s  %s%s\n" % (stamp, "  " * depth, text.replace("\n", " ")))
        sys.stdout.flush()

    def at(self, number: int, step: Mapping[str, Any], what: str = "") -> None:
        """The step that it is at (counted from 1), and how far that is."""
        words = "step %d of %d: %s" % (number, self._total, step["id"])
        self._stage = words
        self.show(what)

    def show(self, what: str = "") -> None:
        work: Dict[str, Any] = {"done": self.done, "total": self._total, "unit": "steps"}
        work["stage"] = ", ".join(text for text in (self._stage, what) if text) or None
        self._now.write({"work": {key: value for key, value in work.items() if value is not None}, "troubles": self.troubles})

    def loading(self, name: str, state: Mapping[str, Any]) -> None:
        phases: List[Mapping[str, Any]] = state.get("phases") or []
        phase: Mapping[str, Any] = next((entry for entry in reversed(phases) if entry.get("seconds") is None), {})
        words = "server %s is loading" % name
        if phase.get("total") and phase.get("done") is not None:
            words += " (%d of %d %s)" % (phase["done"], phase["total"], phase.get("unit") or "")
        self.show(words)

    def refused(self, why: str) -> None:
        """It never began; the supervisor reads why."""
        self._now.write({"refused": why})
