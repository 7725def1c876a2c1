"""How a load is put into words: its phases, what is left, its silence, what still moves, how it ended. Pure functions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from eagletui.actions import BY_ID, Keymap
from eagletui.records import Cause, Eta, GpuSample, JobState, Liveness, LogLine
from eagletui.screens.details import folded_text
from eagletui.screens.serving_words import eta_words, warned
from eagletui.store import Store
from eagletui.text import MISSING, clean, clock, duration, gib, number, plural, rate, size
from eagletui.views.adopted import leftover_words
from eagletui.views.loading import (
    LONGEST_PHASE,
    Folded,
    Held,
    Silence,
    Step,
    Work,
    headroom,
    held,
    phase_name,
    running_phase,
    who_failed,
)
from eagletui.views.serving import complaints
from eagletui.widgets.bars import gauge
from eagletui.widgets.paint import Line, fit, joined, padded, wrapped

NAME = LONGEST_PHASE
BEFORE_WEIGHTS = ("spawn", "config", "workers")
"""Phases in which nothing is put on the cards: that their memory does not grow, or is not level, means nothing then."""
GROWS = 5e6
"""Bytes per second from which a card's memory is told to grow."""
LITTLE = 1 << 30
"""Bytes free on a card below which it is told: the next allocation of the engine may fail."""


def phase_lines(steps: Sequence[Step], job: JobState, work: Work, width: int) -> list[Line]:
    """The table of phases: spent, usual here, and of the running one a bar."""
    history = any(step.usual is not None for step in steps)
    head: Line = [(f" {'phase':<{NAME}}{'spent':>7}", "head")]
    if history:
        head.append((f"{'usual here':>12}", "head"))
    out = [head]
    for step in steps:
        style = {"running": "work", "broken": "bad", "ahead": "dim"}.get(step.state, "")
        line: Line = [(f" {phase_name(step.id, step.role):<{NAME}}"[: NAME + 1], style)]
        line.append((f"{clock(step.spent) if step.spent is not None else '':>7}", style))
        if history:
            line.append((f"{clock(step.usual) if step.usual is not None else '':>12}", "dim"))
        line.append(("   ", ""))
        out.append([*line, *_state(step, job, work, width - NAME - 11 - (12 if history else 0))])
    return out


def _state(step: Step, job: JobState, work: Work, room: int) -> Line:
    count = ""
    if step.done is not None and step.total:
        count = f"{number(step.done)}/{number(step.total)} {clean(step.unit or '', 12)}".rstrip()
    if step.state == "ahead":
        return []
    if step.state == "done":
        whole = step.done is not None and step.total is not None and step.done >= step.total  # the last tick may never be printed
        return [("✓", "good"), (f" {count}" if count and whole else "", "dim")]
    if step.state == "broken":
        return [("✗ ended here", "bad"), (f"   {count}" if count else "", "")]
    tail: Line = [(count, "")] if count else [("running", "work")]
    if step.usual is not None and step.spent is not None and step.spent > 2 * step.usual + 10:
        tail += [("   ! longer than usual", "warn")]
    if step.id == "weights" and job.bytes_read is not None and room >= 78:
        tail += [(f"   {size(job.bytes_read)} read", "dim"), (f"  {rate(work.read)}" if work.read is not None else "", "")]
    if not count:
        return tail
    bar = max(6, min(40, room - sum(len(text) for text, _ in tail) - 2))
    return [*gauge(step.done, bar, "fill2", step.total or 1.0), ("  ", ""), *tail]


def eta_line(eta: Eta | None, width: int, stuck: bool = False) -> Line:
    """``~19 min to ready   17-22 min   basis: 5 earlier loads here``: value, range and basis; quiet while nothing moves."""
    if eta is None:
        return [(" no estimate yet: the first load of this profile here, too early to tell", "dim")]
    return [(" ", ""), *joined(eta_words(eta, stuck), width - 1)]


def silence_line(silence: Silence | None, work: Work, width: int, empty: bool = False) -> Line:
    """``last line 3 s ago``; loud, with what else is known, from the stall rule's limit on. ``empty``: there is no line yet."""
    if silence is None:
        return [(" no line in the log yet", "dim")]
    if not silence.too_long:
        if empty:
            return fit([(f" no line yet for {duration(silence.seconds)}: an engine imports first", "dim")], width)
        return [(f" last line {duration(silence.seconds)} ago", "dim")]
    name = phase_name(silence.phase) if silence.phase else "this phase"
    line: Line = [(" ! ", "warn"), (f"{'no line yet for' if empty else 'silent for'} {duration(silence.seconds)}", "warn")]
    if work.moving:
        line.append((", but it works: see below", "good"))
    elif work.computing:
        line.append((", only processors are busy: compiling, or spinning", "warn"))
    elif work.still:
        line.append((", and nothing else moves: hung?", "bad"))
    return fit([*line, (f"   {name}: over {duration(silence.limit)} deserves a look", "dim")], width)


def liveness_lines(found: Liveness | None, keys: Keymap, width: int) -> list[Line]:
    """What speaks for a hang, or against it: the pattern, the first of its evidence, what to do. Nothing when nothing does."""
    if found is None:
        return []
    style = {"stuck": "bad", "suspect": "warn", "slow": "warn", "works": "good"}.get(found.verdict, "")
    mark = {"stuck": "✗ stuck: ", "suspect": "! hung? ", "slow": "! slow: ", "works": "● "}.get(found.verdict, "")
    out = folded_text(" ", mark + clean(found.text, 300), width - 1, style)[:3]
    if found.verdict in ("stuck", "suspect"):
        out += folded_text("   ", clean("; ".join(found.evidence), 600), width - 1, "dim")[:3]
        out += folded_text("   ", clean(found.remedy or "", 400), width - 1, "")[:3]
        out.append([("   ", ""), *key_words(("why", "log", "kill"), keys)])
    return out


def sign_parts(job: JobState, work: Work) -> list[Line]:
    """What shows work without the log: port, processes, processor, bytes read, memory."""
    parts: list[Line] = []
    if job.port is not None:
        word = {True: ("listening", "good"), False: ("not listening", "")}.get(job.listening, (MISSING, "dim"))  # type: ignore[arg-type]
        parts.append([(f"port {job.port} ", "dim"), word])
    if job.members is not None:
        alive = ("", "") if job.members else ("! ", "bad")
        parts.append([alive, (plural(job.members, "process", "processes"), "" if job.members else "bad"), (" alive", "dim")])
    if job.blocked:
        parts.append([("! ", "warn"), (f"{job.blocked} blocked in the kernel", "warn")])
    if job.cpu is not None:
        parts.append([("cpu ", "dim"), (f"{number(job.cpu)} %", ""), (" of one core", "dim")])
    if job.bytes_read is not None:
        line: Line = [("read ", "dim"), (size(job.bytes_read), "")]
        if work.read is not None:
            line.append((f"  {rate(work.read)}", "" if work.read > 0 else "dim"))
        parts.append(line)
    if job.rss is not None:
        parts.append([("memory ", "dim"), (size(job.rss), "")])
    return parts


def memory_lines(job: JobState, cards: Sequence[GpuSample], work: Work, width: int) -> list[Line]:
    """The memory of the job's cards as bars, whether all ranks are level, and whether it grows."""
    found = held(job, cards)
    if not found:
        return []
    per_row = next((n for n in (8, 4, 2) if (width - 1) // n >= 18 and n <= max(2, len(found))), 1)
    cell = min(24, (width - 1) // per_row)
    out: list[Line] = []
    for start in range(0, len(found), per_row):
        line: Line = [(" ", "")]
        for one in found[start : start + per_row]:
            line += padded(_cell(one, cell - 1), cell)
        out.append(line)
    known = [one for one in found if one.used is not None]
    words: list[Line] = []
    phase = running_phase(job)
    early = job.ready_seconds is None and (phase is None or phase.id in BEFORE_WEIGHTS)
    if work.filled is not None and (work.filled >= GROWS or not early):
        moving = work.filled >= GROWS
        words.append([("growing ", "dim"), (rate(work.filled), "")] if moving else [("not growing", "dim")])
    apart = [one for one in known if one.apart is not None]
    if early:
        pass  # nothing is on the cards yet but what others hold
    elif apart:
        words.append([("! ", "warn"), (", ".join(_apart(one) for one in apart[:4]), "warn")])
    elif len(known) >= 3:
        words.append([("all ranks level", "dim")])
    return [*out, [(" card memory, GiB   ", "dim"), *joined(words, width - 20)]] if words else out


def _cell(one: Held, width: int) -> Line:
    text = f"{gib(one.used)}/{gib(one.total)}" if one.total is not None else gib(one.used)
    style = "warn" if one.apart is not None else ""
    bar = max(3, width - 11)
    filled = None if one.used is None else float(one.used)
    return [
        (f"{one.card.number:>2} ", "dim"),
        *gauge(filled, bar, style or "fill2", float(one.total or 1)),
        (f" {text:>7}", style or ("" if one.used is not None else "dim")),
    ]


def _apart(one: Held) -> str:
    assert one.apart is not None
    return f"GPU {one.card.number} holds {size(abs(one.apart))} {'more' if one.apart > 0 else 'less'} than the others"


# -------------------------------------------------------------------------------------------------------- how it ended


def ready_lines(store: Store, job: JobState, cards: Sequence[GpuSample], width: int) -> list[Line]:
    """A server that is ready: its model, its first answer, and the room its cards have left."""
    spent = f" after {duration(job.ready_seconds)}" if job.ready_seconds is not None else ", since before it was found"
    parts: list[Line] = [[("● ready", "good"), (spent, "")]]
    if job.served_model:
        parts.append([("model id ", "dim"), (clean(job.served_model, 80), "")])
    if job.max_model_len is not None:
        parts.append([("max length ", "dim"), (number(job.max_model_len), ""), (" tokens", "dim")])
    first: Line = [("first answer ", "dim")]
    if job.smoke_tokens_per_s is not None:
        first.append((f"{number(job.smoke_tokens_per_s, 1)} tok/s", ""))
        if job.smoke_seconds is not None:
            first.append((f" in {number(job.smoke_seconds, 2)} s", "dim"))
    else:
        unasked = "not asked of a server that eagletui did not start" if job.adopted is not None else "not tried, or not yet"
        first.append(("none" if job.smoke_problem else unasked, "dim"))
    parts.append(first)
    out: list[Line] = [[(" ", ""), *line] for line in wrapped(parts, width - 1)]
    for text in (job.detail, *complaints(job)):
        if text:
            out += warned(text, width, 2)
    free = headroom(cards)
    if free:
        (first_card, least), most = min(free, key=lambda one: one[1]), max(left for _, left in free)
        style = "warn" if least < LITTLE else ""
        words = f"{size(least)} each" if most - least < LITTLE // 4 else f"{size(least)} (GPU {first_card}) to {size(most)}"
        out.append([(" ! " if style else " ", style), ("free on its cards   ", "dim"), (words, style)])
    elif store.gpus is None or not store.gpus.cards:
        out.append([(" no card on this host: ", "dim"), (f"its processes hold {size(job.rss)} of the machine's memory", "")])
    return out


def exit_word(rc: int | None) -> str:
    """An exit status in words; unknown is said, never guessed."""
    if rc is None:
        return "exit status unknown"
    return f"ended by signal {-rc}" if rc < 0 else f"exit status {rc}"


def failed_lines(job: JobState, tail: Sequence[LogLine], keys: Keymap, width: int) -> list[Line]:
    """A load that failed: the first real error, who printed it, in which phase, and what to do."""
    where = next((phase_name(p.id, p.role) for p in reversed(job.phases) if p.id != "ready"), None)
    died = job.state in ("oom", "failed_to_exec", "exited")
    title = {"oom": "killed by the kernel for memory", "failed_to_exec": "did not start"}.get(job.state, "failed")
    parts: list[Line] = [[(f"✗ {title}", "bad"), (f" in {where}" if where and job.ready_seconds is None else "", "")]]
    if job.ready_seconds is not None:
        parts.append([("after it was ready", "")])
    if died:
        parts.append([(exit_word(job.rc), "")])
    elif job.members:
        parts.append([(f"{plural(job.members, 'process', 'processes')} still there", "warn")])
    out = [[(" ", ""), *joined(parts, width - 1)]]
    who = who_failed(job, tail)
    text = clean(job.first_error or job.detail or "", 600)
    if text:
        head = f"{clean(who, 30)}: " if who else ""
        out += folded_text("   ", head + text, width - 1, "bad")[:4]
        if job.first_error and job.detail and clean(job.detail, 300) not in text:
            out += folded_text("   ", clean(job.detail, 300), width - 1, "dim")[:2]
    else:
        out.append([("   the log names no error", "dim")])
    out += cause_lines(job.causes, width)
    offers = key_words(("log", "diagnose", "relaunch", "kill" if not died else ""), keys)
    return [*out, *([[("   ", ""), *offers]] if offers else [])]


MOST_EVIDENCE = 3


def cause_lines(causes: Sequence[Cause], width: int) -> list[Line]:
    """Why it failed, as far as it is known: the likeliest cause, what to do, the lines that show it; then the next likely one."""
    known = [cause for cause in causes if cause.id != "unknown"]
    if not known:
        return []
    best = known[0]
    out = folded_text(" why ", f"{clean(best.title, 300)} ({number(100 * best.confidence)} % sure)", width - 1, "strong")[:3]
    if best.cause:
        out += folded_text("     ", clean(best.cause, 400), width - 1, "dim")[:2]
    out += folded_text("  do ", clean(best.remedy, 500), width - 1, "good")[:4]
    for place in best.evidence[:MOST_EVIDENCE]:
        where = f"line {place.line}" if place.line else f"byte {place.offset}"
        out.append(fit([("     ", ""), (f"{where}  ", "dim"), (clean(place.text, 300), "")], width))
    for other in known[1:2]:
        out.append(fit([("  or ", "dim"), (f"{clean(other.title, 200)} ({number(100 * other.confidence)} %)", "dim")], width))
    return out


def key_words(ids: Iterable[str], keys: Keymap) -> Line:
    """``g log   r relaunch``: the keys of these actions, of those that there are."""
    line: Line = []
    for id_ in ids:
        action = BY_ID.get(id_)
        if action is not None and keys.shown(id_):
            line += [(keys.shown(id_), "key"), (f" {action.label}   ", "")]
    return line


def stopping_lines(job: JobState, width: int) -> list[Line]:
    """A server that is being ended."""
    parts: list[Line] = [[("~ stopping", "warn")]]
    if job.members is not None:
        parts.append([(f"{plural(job.members, 'process', 'processes')} left", "")])
    if job.detail:
        parts.append([(clean(job.detail, 300), "")])
    return [[(" ", ""), *joined(parts, width - 1)]]


def orphan_lines(job: JobState, width: int) -> list[Line]:
    """A server that goes on while its supervisor is gone: nothing of it is recorded any more, and it can still be ended."""
    parts: list[Line] = [[("! supervisor lost", "warn")]]
    if job.members is not None:
        parts.append([(f"{plural(job.members, 'process', 'processes')} still there", "")])
    if job.ready_seconds is not None:
        parts.append([(f"it was ready after {duration(job.ready_seconds)}", "")])
    out = [[(" ", ""), *joined(parts, width - 1)]]
    return out + warned(job.detail, width, 2) if job.detail else out


def left_lines(store: Store, job: JobState, width: int) -> list[Line]:
    """What a dead server that was only found has left, and that it can be ended."""
    out = warned(leftover_words(store, job), width, 2)
    return out + warned(job.detail, width, 2) if job.detail else out


def ended_lines(job: JobState, width: int) -> list[Line]:
    """A server that has ended otherwise."""
    parts: list[Line] = [[("- ended", "dim"), (f", {exit_word(job.rc)}", "")]]
    if job.ended is not None:
        parts.append([(time.strftime("%Y-%m-%d %H:%M", time.localtime(job.ended)), "dim")])
    if job.ready_seconds is not None:
        parts.append([(f"it was ready after {duration(job.ready_seconds)}", "")])
    out = [[(" ", ""), *joined(parts, width - 1)]]
    if job.detail:
        out.append([("   ", ""), (clean(job.detail, 300), "")])
    return out


# ------------------------------------------------------------------------------------------------------------ log lines

_SEVERITIES = {"error": "bad", "warning": "warn", "debug": "dim"}


def log_lines(folded: Folded, width: int, height: int) -> list[Line]:
    """The newest lines of a log: time, process, text; in the colour of their severity."""
    if not folded.lines:
        return [[(" the log is empty so far, or has not been read yet", "dim")]] if height else []
    wide = width >= 100
    names = min(22, max((len(line.process or "") for line in folded.lines), default=0)) if wide else 0
    out: list[Line] = []
    for line in folded.lines[-height:]:
        style = "work" if line.progress else _SEVERITIES.get(line.severity, "")
        text: Line = [(f" {clean(line.stamp or '', 23)[-8:]:<8} ", "dim")]
        if names:
            text.append((f"{clean(line.process or '', names):<{names}} ", "dim"))
        sign = {"error": "✗ ", "warning": "! "}.get(line.severity, "")
        out.append(fit([*text, (sign + clean(line.text.strip(), 500), style)], width))
    return out
