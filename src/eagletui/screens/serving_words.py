"""How a serving job, its windows and its acceptance are put into words. Pure functions of store and records."""

from __future__ import annotations

import time

from eagletui.records import Eta, JobState, Percentiles, ServerView
from eagletui.screens.words import job_state
from eagletui.store import Store
from eagletui.text import MISSING, clean, duration, number, percent
from eagletui.views.adopted import holder_words, leftover_words, numbers_words, pid_words
from eagletui.views.loading import eta_of, phase_name, running_phase, silence_of
from eagletui.views.serving import (
    LABELS,
    LEFTOVER,
    Shown,
    current,
    elapsed,
    has_failed,
    is_loading,
    ready_for,
    servers,
    shown_window,
    tensor_parallel,
)
from eagletui.widgets.paint import Line, folded, joined, spread, wrapped

ENGINES = {"vllm": "vLLM", "sglang": "SGLang"}


def engine_word(job: JobState) -> str:
    name = ENGINES.get(job.engine or "", clean(job.engine or "", 20))
    return " ".join(filter(None, (name, clean(job.engine_version or "", 24))))


def drafter_word(job: JobState) -> str:
    """``drafter /data/out/4  k 3``; says so when there is none."""
    if not job.drafter:
        return "no drafter"
    return f"drafter {clean(job.drafter, 100)}"


def state_line(store: Store, job: JobState, now: float) -> Line:
    """The state of a serving job with its time: loading for, ready for, ran for."""
    word, style = job_state(job)
    line: Line = [(word, style)]
    if job.health == "ready" and job.ended is None:
        spent = ready_for(store, job, now)
    elif is_loading(job) or job.ended is not None:
        spent = elapsed(store, job, now)
    else:
        spent = None
    if spent is not None:
        line.append((f" {'after ' if job.ended is not None else ''}{duration(spent)}", ""))
    return line


def head_lines(store: Store, width: int, now: float) -> list[Line]:
    """One or two lines on the selected job; without any what to do."""
    job = current(store)
    if job is None:
        return no_server_lines(store)
    parts: list[Line] = [[(clean(job.name, 40), "strong")], state_line(store, job, now)]
    engine = engine_word(job)
    if engine:
        parts.append([(engine, "")])
    if job.port is not None:
        parts.append([(f":{job.port}", "")])
    order = [one.id for one in servers(store.jobs.values())]
    place: Line = []
    if len(order) > 1:
        place = [(f"{order.index(job.id) + 1} of {len(order)} servers  ", "dim"), ("[ ]", "key")]
    first = spread([(" ", ""), *joined(parts, width - 16)], place, width) if place else [(" ", ""), *joined(parts, width - 1)]
    tp = tensor_parallel(job)
    shape: Line = [(f"k {job.k}", "")] if job.drafter and job.k else []
    size: Line = [(f"TP {tp}", "")] if tp is not None else []
    model: Line = [(clean(job.model or job.served_model or "", 100), "")]
    second = joined(
        [part for part in (model, [(drafter_word(job), "" if job.drafter else "dim")], shape, size) if part], width - 1
    )
    return [first, [(" ", ""), *second], *found_line(job, width), []]


def found_line(job: JobState, width: int) -> list[Line]:
    """Of a server that eagletui did not start: what holds it, and what is therefore not known of it."""
    holder = holder_words(job)
    if holder is None:
        return []
    parts: list[Line] = [[(clean(holder, 100), "work")]]
    if job.image:
        parts.append([(f"image {clean(job.image, 80)}", "dim")])
    parts += [[(clean(words, 200), "dim")] for words in (pid_words(job), numbers_words(job)) if words]
    return [[(" ", ""), *line] for line in wrapped(parts, width - 1, most=2)]


def no_server_lines(store: Store) -> list[Line]:
    if store.jobs_seen is None and not store.jobs:
        return [[], [(" no word of the jobs on this host yet", "dim")]]
    return [
        [],
        [(" No serving job has run on this host.", "")],
        [],
        [(" Start one from a profile of the configuration; it goes on when you leave:", "dim")],
        [("   eagletui launch HOST PROFILE", "")],
    ]


# --------------------------------------------------------------------------------------------------------------- windows


def windows_word(label: str) -> Line:
    """``[10 s 1 m 10 m all]`` with the one that is shown in force."""
    line: Line = [("w", "key")]
    for one in LABELS:
        line.append((f" {one} ", "tab") if one == label else (f" {one} ", "dim"))
    return line


def true_length(shown: Shown) -> Line:
    """``over 60.9 s`` or ``over 24.0 s, partial``: the true length of the window."""
    window = shown.window
    if window is None:
        return []
    text = f"over {window.seconds:.1f} s" if window.seconds < 120 else f"over {duration(window.seconds)}"
    line: Line = [(text, "")]
    if window.partial:
        line.append((", partial", "warn"))
    if window.restarted:
        line.append((", the server restarted in it", "warn"))
    return line


def window_line(store: Store, job: JobState, shown: Shown, width: int) -> Line:
    """Which window is shown, its true length, and since when the server is idle."""
    parts: list[Line] = [windows_word(store.window)]
    why = no_numbers(store, job, shown)
    if why:
        parts.append(why)
    else:
        if shown.idle is not None:
            at = "" if shown.since is None else time.strftime(", since %H:%M", time.localtime(shown.since))
            parts.append([("idle", "work"), (f" for {duration(shown.idle)}{at}", "")])
        parts.append(true_length(shown))
        if shown.idle is not None:
            parts.append([("dim: the last window with work", "dim")])
    return [(" ", ""), *joined([part for part in parts if part], width - 1)]


def no_numbers(store: Store, job: JobState, shown: Shown) -> Line:
    """Why there are no numbers; empty when there are."""
    view = store.servers.get(job.id)
    if view is None:
        if is_loading(job):
            return [("not ready yet: the screen Load shows how far it is", "dim")]
        if job.ready_seconds is None:
            return [("it was never ready: there are no numbers", "dim")]
        return [("no scrape of its /metrics yet", "dim")]
    if shown.unused:
        return [("no request yet", "work"), (" since the first scrape", "dim")]
    if shown.window is None:
        return [("one scrape so far: a window needs two", "dim")]
    return []


def problems(view: ServerView | None, job: JobState) -> list[str]:
    """Why a server's numbers are missing, old or incomplete: what the host and the reading of its records say."""
    return [text for text in (job.metrics_problem, view.problem if view is not None else None) if text]


def problem_lines(view: ServerView | None, job: JobState, width: int) -> list[Line]:
    return [line for text in problems(view, job) for line in warned(text, width)]


def warned(text: str, width: int, most: int = 3) -> list[Line]:
    """A text that needs attention, in at most ``most`` lines."""
    pieces = folded(clean(text, 400), max(10, width - 4))[:most]
    return [[("   " if number_ else " ! ", "warn"), (piece, "warn")] for number_, piece in enumerate(pieces)]


def value(text: str, unit: str = "", style: str = "") -> Line:
    """A number with its quiet unit."""
    return [(text, "dim" if text == MISSING else style), (f" {unit}" if unit else "", "dim")]


def latency(seconds: float | None, beyond: bool = False) -> str:
    """``4.2 ms``, ``61 ms``, ``1.24 s``; ``>`` when the histogram ends below it."""
    if seconds is None:
        return MISSING
    text = (
        f"{seconds:.2f} s"
        if seconds >= 0.9995
        else f"{seconds * 1000:.0f} ms"
        if seconds >= 0.00995
        else f"{seconds * 1000:.1f} ms"
    )
    return f">{text}" if beyond else text


def percentile_row(name: str, found: Percentiles | None, style: str) -> Line:
    """``TTFT   p50  61 ms   p90 ...``; in words when nothing was observed in the window."""
    line: Line = [(f" {name:<6}", "dim")]
    if found is None:
        return [*line, ("nothing observed in this window", "dim")]
    for label in ("p50", "p90", "p99", "mean"):
        number_ = getattr(found, label)
        line += [
            (f"{label:>6} ", "dim"),
            (f"{latency(number_, label in found.beyond):>8}", style if number_ is not None else "dim"),
        ]
    line.append((f"   of {number(found.observations)}", "dim"))
    return line


def share(value_: float | None) -> float | None:
    """0..1 as percent."""
    return None if value_ is None else 100 * value_


def duration_short(seconds: float) -> str:
    """``~`` values have one figure of time: ``40 s``, ``22 min``."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def span_short(low: float, high: float) -> str:
    """``17-23 min``: a range with its unit once where both ends have it; ``up to 4 min`` when its low end is passed."""
    if low < 1 <= high:
        return f"up to {duration_short(high)}"
    one, other = duration_short(low), duration_short(high)
    if one == other:
        return one
    number_, _, unit = one.partition(" ")
    return f"{number_}-{other}" if other.endswith(f" {unit}") else f"{one} to {other}"


# ------------------------------------------------------------------------------------------------------ in the overview


def server_lines(store: Store, job: JobState, width: int, now: float) -> list[Line]:
    """A server in one to three lines: how it is, what it does, and what becomes of its draft tokens."""
    parts: list[Line] = [[(clean(job.name, 40), "strong")], state_line(store, job, now)]
    out: list[Line] = []
    if job.health == "ready" and job.ended is None:
        parts += traffic_parts(store, job)
        out = acceptance_line(store, job)
    elif job.state == LEFTOVER:
        out = [[("  ! ", "bad"), (leftover_words(store, job), "bad")]]
    elif has_failed(job):
        text = clean(job.first_error or job.detail or "", 400)
        out = [[("  ", ""), (text, "bad")]] if text else []
    else:
        parts += progress_parts(job)
        left = eta_parts(store, job, now)
        out = [[("  ", ""), *joined(left, width - 2)]] if left else []
    if job.port is not None:
        parts.append([(f":{job.port}", "")])
    parts.append([(engine_word(job) or MISSING, "dim")])
    holder = holder_words(job)
    if holder is not None:
        parts.append([(clean(holder, 80), "dim")])
    view = store.servers.get(job.id)
    out += [[("  ! ", "warn"), (clean(text, 200), "warn")] for text in problems(view, job)]
    return [joined([part for part in parts if part], width), *out]


def progress_parts(job: JobState) -> list[Line]:
    """``weights target 13/64 shards``: the phase that runs."""
    phase = running_phase(job)
    if phase is None or phase.seconds is not None:
        return []
    line: Line = [(phase_name(phase.id, phase.role), "")]
    if phase.done is not None and phase.total:
        line.append((f" {number(phase.done)}/{number(phase.total)} {clean(phase.unit or '', 12)}".rstrip(), ""))
    return [line]


def eta_parts(store: Store, job: JobState, now: float) -> list[Line]:
    """``~20 min to ready   17-23 min   basis``, and a silence that is too long."""
    parts: list[Line] = []
    silence = silence_of(store, job, now)
    if silence is not None and silence.too_long:
        parts.append([("! ", "warn"), (f"silent for {duration(silence.seconds)}", "warn")])
    eta = eta_of(store, job, now)
    if eta is not None:
        parts += eta_words(eta)
    return parts


def eta_words(eta: Eta, stuck: bool = False) -> list[Line]:
    """``~20 min to ready``, ``17-23 min`` and the basis; quiet while nothing moves, and words once all of it is passed."""
    basis: Line = [(f"basis: {clean(eta.basis, 160)}", "dim")]
    if eta.high < 1:
        return [[("longer than expected", "dim" if stuck else "warn")], basis]
    value = (f"~{duration_short(eta.seconds)}", "dim" if stuck else "strong")
    return [[value, (" to ready" + (" if it goes on" if stuck else ""), "dim")], [(span_short(eta.low, eta.high), "")], basis]


def traffic_parts(store: Store, job: JobState) -> list[Line]:
    """Requests now and tokens per second over the shortest window; since when it is idle instead of zeros."""
    view = store.servers.get(job.id)
    if view is None:
        return []
    sample = view.sample
    shown = shown_window(store.servers, store.last_busy, job.id, LABELS[0])
    if shown.unused:
        return [[("no request yet", "dim")]]
    if shown.idle is not None:
        return [[("idle", "dim"), (f" for {duration(shown.idle)}", "dim")]]
    parts: list[Line] = [[(number(sample.running), ""), (" running ", "dim"), (number(sample.waiting), ""), (" waiting", "dim")]]
    if shown.window is not None and shown.window.generated_per_s is not None:
        parts.append(value(number(shown.window.generated_per_s, 1), "tok/s"))
    if sample.kv is not None:
        parts.append([("KV ", "dim"), (percent(share(sample.kv)), "")])
    return parts


def acceptance_line(store: Store, job: JobState) -> list[Line]:
    """``acceptance 15.1 % over 60 s, length 1.45``; dim where it is of the last minute with work."""
    shown = shown_window(store.servers, store.last_busy, job.id, "1 m")
    gain = shown.window.acceptance if shown.window is not None else None
    if gain is None or (gain.rate is None and gain.length is None):
        return []
    style = "dim" if shown.idle is not None else ""
    over = "a gauge" if gain.basis == "gauge" else f"over {gain.seconds:.0f} s"
    tail = "   the last minute with work" if shown.idle is not None else ""
    return [
        [
            ("  acceptance ", "dim"),
            (percent(share(gain.rate), 1), style),
            (f" {over}, length ", "dim"),
            (number(gain.length, 2), style),
            (tail, "dim"),
        ]
    ]
