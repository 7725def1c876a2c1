"""How the work of a job that is no server is put into words: how far, how long yet, what it counts. Pure functions."""

from __future__ import annotations

import math

from eagletui.records import JobState
from eagletui.records.work import Counter, Work
from eagletui.text import clean, duration, number, percent, size
from eagletui.widgets.paint import Line

_ENDED = {True: ("✓ ", "good"), False: ("✗ ", "bad"), None: ("- ", "dim")}


def amount(value: float, unit: str) -> str:
    """A count in its unit: bytes readable, whole numbers whole."""
    if unit in ("bytes", "B"):
        return size(value)
    return figure(value)


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
    unit = "" if work.unit in ("bytes", "B") else clean(work.unit, 16)
    done = amount(work.done, work.unit)
    if not work.total:
        return f"{done} {unit}".rstrip()
    share = min(100.0, 100.0 * work.done / work.total)
    share = math.floor(share) if share >= 1 else share  # 99.9 % is not all of it
    return (
        f"{done} / {amount(work.total, work.unit)} {unit}".rstrip() + f"  {percent(share, 0 if share >= 1 or not share else 1)}"
    )


def left_words(work: Work) -> str:
    """``~3 h 10 m left (rate of last 10 min)``."""
    if work.remaining is None or not math.isfinite(work.remaining):
        return ""
    return f"~{duration(max(0.0, work.remaining))} left" + (f" ({clean(work.basis, 60)})" if work.basis else "")


def counter_words(counter: Counter) -> Line:
    """``0 failed``, ``312 tok/s``, ``loss 3.21``; loud when it should be none and is some."""
    name, unit = clean(counter.name, 24), clean(counter.unit, 12)
    value = figure(counter.value)
    loud = counter.bad and counter.value > 0
    counted = counter.value == int(counter.value) if math.isfinite(counter.value) else False
    if unit and unit != name:
        text = f"{name}{':' if name[-1:].isdigit() else ''} {value} {unit}"
    else:
        text = f"{value} {name}" if counted or "/" in name else f"{name} {value}"
    return [("! ", "warn"), (text, "warn")] if loud else [(text, "dim" if not counter.value else "")]


def work_parts(work: Work) -> list[Line]:
    """The work in parts, what matters most first."""
    parts: list[Line] = []
    done = done_words(work)
    if work.stage and (not done or work.stage.casefold() not in ("running", "working")):
        parts.append([(clean(work.stage, 60), "work")])
    if done:
        parts.append([(done, "")])
    left = left_words(work)
    if left:
        parts.append([(left, "")])
    loud = [counter for counter in work.counters if counter.bad and counter.value > 0]
    rest = [counter for counter in work.counters if counter not in loud]
    return parts + [counter_words(counter) for counter in [*loud, *rest]]


def work_line(work: Work, gap: str = "  ") -> Line:
    """All of it in one line, to be cut where the room ends."""
    line: Line = []
    for part in work_parts(work):
        line += [(gap, ""), *part] if line else part
    return line


def outcome_line(job: JobState) -> Line:
    """How a job ended, checked; empty where nobody has judged it."""
    if job.outcome is None:
        return []
    sign, style = _ENDED.get(job.ok, ("- ", "dim"))
    return [(sign, style), (clean(job.outcome, 300), "bad" if job.ok is False else "")]
