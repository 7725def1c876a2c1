"""How the work of a job that is no server is put into words: how far, how fast, how long yet, what it counts. Pure functions."""

from __future__ import annotations

import math

from eagletui.records import JobState
from eagletui.records.work import Counter, Work
from eagletui.text import clean, duration, number, percent, size

BYTES = ("bytes", "B")


def amount(value: float, unit: str) -> str:
    """A count in its unit: bytes readable, whole numbers whole."""
    return size(value) if unit in BYTES else figure(value)


def figure(value: float) -> str:
    """A measured value with as many digits as say something."""
    if not math.isfinite(value):
        return "not finite"
    if value == int(value) and abs(value) < 1e15:
        return number(value)
    if 0 < abs(value) < 0.001:
        return f"{value:.1e}"
    return number(value, 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3)


def done_words(work: Work) -> str:
    """``9,412 / 25,000 rows  37 %``; only what was done where the end is not known."""
    if work.done is None:
        return ""
    unit = "" if work.unit in BYTES else clean(work.unit, 16)
    done = amount(work.done, work.unit)
    if not work.total:
        return f"{done} {unit}".rstrip()
    share = min(100.0, 100.0 * work.done / work.total)
    share = math.floor(share) if share >= 1 else share  # 99.9 % is not all of it
    if work.unit == "%":
        return percent(share)
    return (
        f"{done} / {amount(work.total, work.unit)} {unit}".rstrip() + f"  {percent(share, 0 if share >= 1 or not share else 1)}"
    )


def rate_words(work: Work) -> str:
    """``2.1 rows/s``; ``12 rows/min`` for what is slow; empty while it is not known."""
    if work.rate is None or not math.isfinite(work.rate):
        return ""
    if work.unit in BYTES:
        return f"{size(work.rate)}/s"
    unit = clean(work.unit, 16)
    return (
        f"{figure(work.rate)} {unit}/s".replace(" /", "/")
        if work.rate >= 1
        else f"{figure(work.rate * 60)} {unit}/min".replace(" /", "/")
    )


def left_words(work: Work) -> str:
    """``~3 h 10 m left (the last 3 min)``."""
    if work.remaining is None or not math.isfinite(work.remaining):
        return ""
    return f"~{duration(max(0.0, work.remaining))} left" + (f" ({clean(work.basis, 60)})" if work.basis else "")


def counter_text(counter: Counter) -> str:
    """``0 failed``, ``61.2 tok/s``, ``loss 3.21``; one that should be none and is some has a mark before it."""
    name, unit = clean(counter.name, 24), clean(counter.unit, 12)
    value = amount(counter.value, unit)
    if unit and unit not in BYTES:
        value = f"{value} {unit}"
    words = f"{name} {value}" if unit and unit != name else f"{value} {name}"
    return f"! {words}" if is_loud(counter) else words


def is_loud(counter: Counter) -> bool:
    """Whether it counts something that should not be there, and is."""
    return counter.bad and counter.value > 0


def work_words(work: Work) -> list[str]:
    """The work in parts, what matters most first."""
    parts = [done_words(work), rate_words(work), left_words(work), clean(work.stage or "", 60)]
    loud = sorted(work.counters, key=lambda counter: not is_loud(counter))
    return [part for part in (*parts, *map(counter_text, loud)) if part]


def outcome_words(job: JobState) -> str:
    """How a job ended, judged; empty where nobody has."""
    return clean(job.outcome or "", 300)
