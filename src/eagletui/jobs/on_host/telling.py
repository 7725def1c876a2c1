"""How a program of ours tells its supervisor how far it is: one JSON object a line on its standard output.

`eagletui.jobs.told.ToldWatcher` reads it. Numbers that JSON has no word for (NaN, infinity) are left out. What such a program
prints besides is plain log.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, Dict, Mapping, Optional

EVERY = 1.0
"""Seconds between two lines of progress, at least; a new stage and the last step are told at once."""


class Teller:
    """``unit`` is what is counted. Safe to use from several threads: a line is one write."""

    def __init__(self, unit: str = "", total: Optional[float] = None, every: float = EVERY) -> None:
        self._unit, self._total, self._every = unit, total, every
        self._stage: Optional[str] = None
        self._told = 0.0

    def stage(self, text: str, unit: Optional[str] = None, total: Optional[float] = None, done: Optional[float] = None) -> None:
        """What it does now, in a few words; ``done`` is what was there before (an earlier run's)."""
        self._stage, self._total = text, total
        if unit is not None:
            self._unit = unit
        self.progress(done, at_once=True)

    def progress(
        self,
        done: Optional[float] = None,
        total: Optional[float] = None,
        counters: Optional[Mapping[str, Any]] = None,
        at_once: bool = False,
    ) -> None:
        """How far it is. ``counters``: {name: number, or {"value", "unit", "bad"}}.

        The first ``done`` that is told is what an earlier run had made: the rate counts from there.
        """
        if total is not None:
            self._total = total
        now = time.monotonic()
        if not at_once and now - self._told < self._every and (done is None or done != self._total):
            return
        self._told = now
        doc = {"done": done, "total": self._total, "unit": self._unit, "stage": self._stage, "counters": dict(counters or {})}
        say("progress", **{key: value for key, value in doc.items() if value is not None and value != {}})

    def note(self, text: str) -> None:
        """Something has happened (a checkpoint was written): kept among the job's events."""
        say("note", text=text)

    def sample(self, **values: Any) -> None:
        """A line for the job's ``samples.jsonl``."""
        say("sample", **dict({"wall": round(time.time(), 3)}, **values))

    def trouble(self, subject: str, text: Optional[str]) -> None:
        """What needs a person although it goes on; None takes it back."""
        say("trouble", subject=subject, text=text)

    def result(self, **made: Any) -> None:
        """What it made, once, before it ends. ``why`` says it in one line with the counts; after a failure, why it failed."""
        say("result", **made)


def say(kind: str, **fields: Any) -> None:
    """One line of that kind. It begins on a line of its own only if the others end theirs; the reader finds it anyway."""
    doc: Dict[str, Any] = {"eagletui": kind}
    doc.update({name: _plain(value) for name, value in fields.items()})
    line = json.dumps(doc, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace") + b"\n"
    sys.stdout.flush()
    while line:
        line = line[os.write(1, line) :]


def _plain(value: Any) -> Any:
    """The value without numbers that are none."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
