"""How far a program is that knows nothing of us, by what it prints: bars of tqdm, ninja's and CMake's counts, percentages."""

from __future__ import annotations

import re
from typing import Any, Mapping, NamedTuple, Optional

from eagletui.engines.bars import parse_bar
from eagletui.jobs.pace import Pace
from eagletui.jobs.told import ToldWatcher
from eagletui.records.work import Work

_COUNT = re.compile(r"^\s*\[\s*(\d+)\s*/\s*(\d+)\s*\]\s*(.*)$")
_PERCENT = re.compile(r"^\s*\[?\s*(\d{1,3}(?:\.\d+)?)\s*%\s*\]?(?:\s+(.*))?$")
_STAGE = 60


class Mark(NamedTuple):
    """One sight of progress: ``done`` of ``total`` in ``unit``, of what ``of`` (the same words: the same bar)."""

    done: float
    total: float
    unit: str
    of: str
    text: str = ""


def mark(text: str) -> Optional[Mark]:
    """The progress in a line of output, without its terminal escapes; None when there is none."""
    if "%" in text:
        bar = parse_bar(text.encode("utf-8", "replace"))
        if bar is not None and bar.total > 0:
            return Mark(bar.done, bar.total, "", "bar " + bar.desc, bar.desc)
        match = _PERCENT.match(text)
        if match is not None and float(match.group(1)) <= 100:
            return Mark(float(match.group(1)), 100.0, "%", "percent", (match.group(2) or "").strip())
    match = _COUNT.match(text) if text.lstrip().startswith("[") else None
    if match is not None and 0 < int(match.group(2)) >= int(match.group(1)):
        return Mark(float(match.group(1)), float(match.group(2)), "steps", "count", match.group(3).strip())
    return None


class SeenWatcher(ToldWatcher):
    """What a program tells in our own way counts; else what its bars show. The total of another bar begins another count."""

    def __init__(self, spec: Mapping[str, Any], directory: str) -> None:
        super().__init__(spec, directory)
        self._mark: Optional[Mark] = None
        self._mark_pace = Pace()

    def line(self, text: str, boot: float) -> None:
        found = mark(text)
        if found is None:
            return
        before = self._mark
        if before is None or (found.of, found.total) != (before.of, before.total):
            self._mark_pace = Pace()
        self._mark = found
        self._mark_pace.tell(boot, found.done)

    def work(self, boot: float) -> Optional[Work]:
        told = super().work(boot)
        if self._mark is None or (told is not None and told.done is not None):
            return told
        seen, pace = self._mark, self._mark_pace
        return Work(
            stage=": ".join(part for part in (told.stage if told is not None else None, seen.text[:_STAGE]) if part) or None,
            done=seen.done,
            total=seen.total,
            unit=seen.unit,
            rate=pace.rate(boot),
            remaining=pace.remaining(boot, seen.total),
            basis=pace.basis(boot),
        )

    def so_far(self) -> str:
        seen = self._mark
        if seen is None or (self._progress or {}).get("done") is not None:
            return super().so_far()
        return (
            " at %g%%" % seen.done if seen.unit == "%" else " after %g of %g %s" % (seen.done, seen.total, seen.unit or "steps")
        )
