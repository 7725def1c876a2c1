"""How acceptance is put into words: rate, length, positions, where the numbers come from, and the verdict. Pure functions."""

from __future__ import annotations

from eagletui.records import Acceptance, JobState
from eagletui.screens.details import folded_text
from eagletui.screens.serving_words import duration_short, share, value
from eagletui.text import clean, known, number, percent
from eagletui.views.serving import conditional, first_position
from eagletui.widgets.bars import gauge
from eagletui.widgets.paint import Line, fit, wrapped

DEFINITION = "accepted / proposed draft tokens; length counts the bonus token"
_BASIS = {
    "counters": "from the engine's counters, pooled over the window",
    "derived": "derived from its counts of finished requests: it moves when requests end",
    "gauge": "a gauge, not a window: the engine's last log interval, without counts",
}


def definition_lines(acceptance: Acceptance, width: int) -> list[Line]:
    """What the numbers mean and where they come from, on one line or two."""
    gauge_ = acceptance.basis == "gauge"
    text = _BASIS.get(acceptance.basis, clean(acceptance.basis, 40))
    basis: Line = [("! ", "warn"), (text, "warn")] if gauge_ else [(text, "dim")]
    return [[(" ", ""), *line] for line in wrapped([[(f"definition: {DEFINITION}", "dim")], basis], width - 1)]


def acceptance_problem(job: JobState, acceptance: Acceptance | None) -> Line:
    """Why there is no acceptance; empty when there is one."""
    if acceptance is None:
        if not job.drafter:
            return [("no drafter: nothing is proposed, so nothing can be accepted", "")]
        return [("! ", "warn"), ("a drafter is set, but the engine counts no draft tokens", "warn")]
    if acceptance.restarted:
        return [("the server restarted in this window: its counters cannot be compared", "warn")]
    if acceptance.rate is None and acceptance.length is None:
        return [("nothing drafted in this window", "")]
    return []


def acceptance_parts(acceptance: Acceptance, dim: bool = False) -> list[Line]:
    """Rate and length, then drafted, accepted and emitted tokens per second."""
    style = "dim" if dim else "strong"
    plain = "dim" if dim else ""
    parts: list[Line] = [
        [("acceptance ", "dim"), *value(percent(share(acceptance.rate), 1), style=style)],
        [("length ", "dim"), *value(number(acceptance.length, 2), style=style)],
    ]
    for name, rate in (
        ("drafted", acceptance.drafted_per_s),
        ("accepted", acceptance.accepted_per_s),
        ("emitted", acceptance.emitted_per_s),
    ):
        if rate is not None:
            parts.append([(f"{name} ", "dim"), *value(number(rate, 1), "tok/s", plain)])
    return parts


def position_lines(acceptance: Acceptance, width: int, dim: bool = False) -> list[Line]:
    """A bar per position: the share of all verify steps, and the one given that the position before was accepted."""
    if not acceptance.per_position:
        if acceptance.basis == "counters":
            return []
        return [[(" per position: this engine does not count it", "dim")]]
    room = max(6, min(60, width - 40))
    plain = "dim" if dim else ""
    out: list[Line] = [
        [(f" {'':<11}{'accepted, of all verify steps':<{room + 11}}"[: room + 22], "head"), ("given the last", "head")]
    ]
    for place, (joint, given) in enumerate(zip(acceptance.per_position, conditional(acceptance), strict=True), 1):
        out.append(
            [
                (f" position {place:<2}", "dim"),
                *gauge(100 * joint, room, "dim" if dim else "fill"),
                (f" {percent(100 * joint, 1):>8} ", plain),
                (f"   p{place} ", "dim"),
                (f"{percent(share(given), 1):>8}", plain if known(given) else "dim"),
            ]
        )
    return out


_HINTS = {
    "wiring": (
        "warn",
        "position 1 is under 10 %: reports of that came from wiring, not from training - check the auxiliary layers read against "
        "those trained with, the draft vocabulary, the chat template, and that the drafter belongs to this target",
    ),
    "mismatch": ("", "position 1 is under 40 %: undertrained, trained on other traffic than this, or one layer off"),
}


def verdict_lines(job: JobState, acceptance: Acceptance | None, width: int) -> list[Line]:
    """Whether the drafter pays: without a baseline on this host nobody can say, and that is said; then a hint on position 1."""
    if acceptance is None or not job.drafter or acceptance.length is None:
        return []
    out = [
        [(" Verdict  " if n == 0 else " " * 10, "strong"), *line] for n, line in enumerate(wrapped(no_baseline(job), width - 10))
    ]
    found = _HINTS.get(first_position(acceptance) or "")
    if found is not None:
        style, text = found
        if "kimi-k2" in f"{job.model} {job.served_model}".lower():
            text += "; usual for this family: 60-65 % on chat traffic"
        out += hanging("hint: " if not style else "! ", text, width, style)
    return out


def no_baseline(job: JobState) -> list[Line]:
    """``no baseline here: run it (~24 min ...)`` in parts; the time is a load as long as this one's."""
    parts: list[Line] = [[("no baseline here", "work"), (": it needs the step time without the drafter", "")]]
    if job.ready_seconds is None:
        return [*parts, [("run it", "")]]
    return [*parts, [("run it ", ""), (f"(~{duration_short(job.ready_seconds)} to load, then the measurement)", "dim")]]


def hanging(head: str, text: str, width: int, style: str, indent: int = 10) -> list[Line]:
    """Text broken between words, its lines below each other beside a head."""
    lines = folded_text("", text, width - indent - len(head) + 2, style)
    blank = " " * indent
    return [
        [(blank + (head if n == 0 else " " * len(head)), style or "dim"), *(fit(line, width - indent - len(head)))]
        for n, line in enumerate(lines)
    ]
