"""How the work of a job that is no server is painted: how far, how long yet, what it counts, how it ended. Pure functions."""

from __future__ import annotations

import math

from eagletui.records import JobState
from eagletui.records.work import Counter, Work
from eagletui.text import clean
from eagletui.views.work import BYTES, amount, done_words, is_loud, left_words
from eagletui.widgets.paint import Line

_ENDED = {True: ("✓ ", "good"), False: ("✗ ", "bad"), None: ("- ", "dim")}


def counter_words(counter: Counter) -> Line:
    """``0 failed``, ``312 tok/s``, ``loss 3.21``; loud when it should be none and is some."""
    name, unit = clean(counter.name, 24), clean(counter.unit, 12)
    value, loud = amount(counter.value, unit), is_loud(counter)
    counted = counter.value == int(counter.value) if math.isfinite(counter.value) else False
    if unit in BYTES:
        text = f"{name} {value}"
    elif unit and unit != name:
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
    loud = [counter for counter in work.counters if is_loud(counter)]
    rest = [counter for counter in work.counters if not is_loud(counter)]
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
