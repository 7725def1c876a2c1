"""How cards, jobs, servers and alerts are put into words and colours; the same on every screen. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping

from eagletui.records import Alert, GpuSample, JobState
from eagletui.screens.work_words import work_line
from eagletui.store import GpuSummary, Store
from eagletui.text import MISSING, clean, duration, gib, number, plural, watts
from eagletui.views.adopted import holder_words, leftover_words
from eagletui.widgets.paint import Line, Span

_HARD = ("HW thermal", "HW power brake", "HW slowdown")
_SOFT = ("SW thermal",)
NO_LINKS: Mapping[str, str] = {}


def card_trouble(card: GpuSample, store: Store) -> list[Span]:
    """What is wrong or remarkable with a card, the worst first; empty when nothing is."""
    if card.lost is not None:
        return [(f"LOST: {clean(card.lost, 120)}", "bad")]
    found: list[Span] = []
    if card.rows_failed:
        found.append(("row remap FAILED", "bad"))
    if card.ecc_uncorrected:
        found.append((f"ECC {card.ecc_uncorrected:,} uncorrected", "bad"))
    if card.recovery and card.recovery.lower() != "none":
        found.append((f"needs: {clean(card.recovery, 60)}", "bad"))
    reasons = card.throttle or ()
    found += [(clean(reason, 40), "bad") for reason in reasons if reason in _HARD]
    if card.uuid in store.outliers:
        found.append((f"outlier: {clean(store.outliers[card.uuid], 60)}", "warn"))
    links = store.gpu_summary.links if store.gpu_summary is not None else NO_LINKS
    if card.uuid in links:
        found.append((f"PCIe {clean(links[card.uuid], 40)}", "warn"))
    if card.rows_pending:
        found.append(("row remap pending: reset", "warn"))
    found += [(clean(reason, 40), "warn") for reason in reasons if reason in _SOFT]
    if card.rows_uncorrected:
        found.append((plural(card.rows_uncorrected, "row") + " remapped", "warn"))
    if card.ecc_corrected:
        found.append((f"ECC {card.ecc_corrected:,} corrected", "dim"))
    found += [(clean(reason, 40), "dim") for reason in reasons if reason not in _HARD and reason not in _SOFT]
    return found


def card_state(card: GpuSample, store: Store) -> Line:
    """The state column of a card: its troubles with a sign, else whether it works."""
    found = card_trouble(card, store)
    if not found:
        if card.util is None:
            return [(MISSING, "dim")]
        return [("working", "good")] if card.util > 0 else [("idle", "dim")]
    line: Line = []
    if found[0][1] in ("bad", "warn"):
        line.append(("✗ " if found[0][1] == "bad" else "! ", found[0][1]))
    for position, span in enumerate(found):
        if position:
            line.append((", ", "dim"))
        line.append(span)
    return line


def margin_style(margin: int | None) -> str:
    """Degrees left before the card slows down: under 5 is bad, under 10 needs attention."""
    if margin is None:
        return ""
    return "bad" if margin < 5 else "warn" if margin < 10 else ""


def temperature(temp: int | None, margin: int | None) -> Line:
    """``71 C −14`` : the temperature and how far it is from slowing down."""
    if temp is None:
        return [(MISSING, "dim")]
    style = margin_style(margin)
    line: Line = [(f"{temp}", style), (" C", "dim")]
    line.append((f" {f'({margin})':>4}", style or "dim") if margin is not None else ("     ", ""))
    return line


def pair(used: float | None, total: float | None, width: int, style: str = "") -> Line:
    """``91/96``: the first right-aligned, the second quiet."""
    if used is None:
        return [(f"{MISSING:>{width}}", "dim")]
    tail = f"/{number(total)}" if total is not None else ""
    return [(f"{number(used):>{max(1, width - len(tail))}}", style), (tail, "dim")]


def memory(card: GpuSample, width: int) -> Line:
    used = None if card.mem_used is None else card.mem_used / (1 << 30)
    total = None if card.mem_total is None else card.mem_total / (1 << 30)
    return pair(used, total, width)


def link_word(card: GpuSample, summary: GpuSummary | None) -> Span:
    """The PCIe link now; dim where it may not be judged (it idles at generation 1), bad where it is worse than it can be."""
    if card.pcie_gen is None or card.pcie_width is None:
        return (MISSING, "dim")
    text = f"x{card.pcie_width} g{card.pcie_gen}"
    if summary is not None and card.uuid in summary.links:
        return (text, "warn")
    return (text, "dim" if summary is None or not summary.loaded or card.pstate not in (0, 1) else "")


def gpu_summary_parts(store: Store) -> list[Line]:
    """The summary of all cards in parts; on a narrow screen the last ones give way, so what is wrong comes early."""
    total = store.gpu_summary
    if total is None or not total.expected:
        return []
    short = total.answering < total.expected
    parts: list[Line] = [[(f"{'✗ ' if short else ''}{total.answering} of {total.expected}", "bad" if short else "strong")]]
    parts.append([("util ", "dim"), (f"{number(total.util):>3}", ""), (" %", "dim")])
    if total.mem_used is not None:
        parts.append([("mem ", "dim"), (f"{gib(total.mem_used)}/{gib(total.mem_total)}", ""), (" GiB", "dim")])
    if total.power is not None:
        parts.append([("power ", "dim"), (f"{watts(total.power):>7}", "")])
    if total.temp is not None:
        style = margin_style(total.margin)
        hot: Line = [("hottest ", "dim"), (f"{total.temp} C", style)]
        if total.margin is not None:
            hot.append((f" (margin {total.margin})", style or "dim"))
        parts.append(hot)
    if total.links:
        parts.append([("! ", "warn"), (f"PCIe worse on {plural(len(total.links), 'card')}", "warn")])
    elif total.link is not None:
        parts.append([("PCIe ", "dim"), (total.link, "")])
    if store.outliers:
        numbers = [str(c.number) for c in (store.gpus.cards if store.gpus else ()) if c.uuid in store.outliers]
        first = next(iter(store.outliers.values()))
        word = f"outlier: {', '.join(numbers)}" + (f" ({clean(first, 40)})" if len(numbers) == 1 else "")
        parts.append([("! ", "warn"), (word, "warn")])
    elif total.loaded and store.gpus is not None and store.gpus.stale_since is None:
        parts.append([("outlier: none", "dim")])
    wrong = [part for part in parts[1:] if any(style in ("warn", "bad") for _, style in part)]
    return [parts[0], *wrong, *(part for part in parts[1:] if part not in wrong)]


def board_age(store: Store) -> float | None:
    """How old the cards' data is while NVML hangs, in seconds of the host's clock; None while it is fresh."""
    board = store.gpus
    if board is None or board.stale_since is None:
        return None
    now = max(board.boot, store.host.boot if store.host is not None else board.boot)
    return max(0.0, now - board.stale_since)


def board_problem(store: Store) -> Line | None:
    """One line when there are no cards, or when their data is old."""
    board = store.gpus
    if board is None:
        return [("no data of the cards yet", "dim")]
    if not board.present and store.cards_known:
        return [("✗ ", "bad"), ("the NVIDIA driver has gone", "bad"), _why(board.problem)]
    if not board.present:
        return [("no NVIDIA driver on this host", "dim"), _why(board.problem)]
    age = board_age(store)
    if age is not None and board.cards:
        return [("! ", "warn"), (f"the driver does not answer: data is {duration(age)} old", "warn"), _why(board.problem)]
    if not board.cards:
        return [("! ", "warn"), ("no cards answer", "warn"), _why(board.problem)]
    return [("! ", "warn"), (clean(board.problem, 200), "warn")] if board.problem else None


def _why(problem: str | None) -> Span:
    return (f"   {clean(problem, 200)}" if problem else "", "dim")


# ------------------------------------------------------------------------------------------------------ jobs and alerts

_JOB_STATES: Mapping[str, tuple[str, str]] = {
    "launching": ("~ launching", "work"),
    "running": ("● running", "good"),
    "stopping": ("~ stopping", "warn"),
    "failed_to_exec": ("✗ did not start", "bad"),
    "oom": ("✗ out of memory", "bad"),
    "lost_supervisor": ("! supervisor lost", "warn"),
    "lost_reboot": ("! lost: reboot", "warn"),
    "lost_container": ("! lost: container", "warn"),
    "leftover": ("! leftover", "bad"),
}
_HEALTHS: Mapping[str, tuple[str, str]] = {
    "loading": ("~ loading", "work"),
    "ready": ("● ready", "good"),
    "failed": ("✗ failed", "bad"),
    "stopping": ("~ stopping", "warn"),
    "gone": ("- gone", "dim"),
}
LIVE_STATES = frozenset(("launching", "running", "stopping"))


def job_state(job: JobState) -> Span:
    """The state of a job with its sign. An exit status of 0 is "ended", not success: only a check of the result knows."""
    if job.state == "running" and (job.health or "") in _HEALTHS:
        return _HEALTHS[job.health or ""]
    if job.state == "exited" and job.kind != "serve":
        if job.ok is True:
            return ("✓ done", "good")
        if job.ok is False:
            return ("✗ failed" + (f" ({job.rc})" if job.rc else ""), "bad")
    if job.state == "exited":
        if job.rc is not None and job.rc < 0:
            return (f"- ended by signal {-job.rc}", "dim") if job.ended_by else (f"✗ ended by signal {-job.rc}", "bad")
        if job.health == "failed" or (job.rc is not None and job.rc > 0):
            return ("✗ failed" + (f" ({job.rc})" if job.rc else ""), "bad")
        return ("- ended" if job.rc == 0 else "- ended, status unknown", "dim")
    return _JOB_STATES.get(job.state, (clean(job.state, 24), ""))


def job_progress(job: JobState, store: Store) -> Line:
    """What a job does or how it ended, in one line; of a server that was only found, first what holds it."""
    holder = holder_words(job)
    words = _progress(job, store)
    return words if holder is None else [(clean(holder, 80), "dim"), *([("   ", ""), *words] if words else [])]


def _progress(job: JobState, store: Store) -> Line:
    if job.state == "leftover":
        return [(leftover_words(store, job), "bad"), (f"   {clean(job.detail or '', 200)}", "dim")]
    if job.work is not None and job.state in LIVE_STATES:
        return work_line(job.work)
    if job.outcome and job.state not in LIVE_STATES:
        return [(clean(job.outcome, 300), "")]
    if job.first_error and job_state(job)[1] == "bad":
        return [(clean(job.first_error, 300), "")]
    phase = next((p for p in reversed(job.phases) if p.seconds is None), None)
    if job.state in LIVE_STATES and phase is not None and job.health != "ready":
        line: Line = [(clean(" ".join(filter(None, (phase.id, phase.role))), 40), "")]
        if phase.done is not None and phase.total:
            line.append((f"  {number(phase.done)}/{number(phase.total)} {clean(phase.unit or '', 12)}".rstrip(), ""))
        eta = store.etas.get(job.id)
        if eta is not None:
            line.append((f"  ~{duration(eta.seconds)} left ({clean(eta.basis, 60)})", ""))
        return line
    text = clean(job.detail or (job.phase if job.state in LIVE_STATES else "") or "", 300)
    if text:
        return [(text, "")]
    return [(f"ready after {duration(job.ready_seconds)}", "dim")] if job.ready_seconds is not None else []


def alert_line(alert: Alert) -> Line:
    """Sign and text of an alert; an acknowledged one is quiet."""
    style = "dim" if alert.acknowledged else {"bad": "bad", "warn": "warn"}.get(alert.severity, "work")
    sign = "✓" if alert.acknowledged else {"bad": "✗", "warn": "!"}.get(alert.severity, "i")
    return [(f"{sign} ", style), (clean(alert.text, 400), style)]


_SEVERITY = {"bad": 0, "warn": 1, "info": 2}


def sorted_alerts(alerts: Mapping[str, Alert]) -> list[Alert]:
    """Unacknowledged first, then the worst, then the newest."""
    return sorted(alerts.values(), key=lambda a: (a.acknowledged, _SEVERITY.get(a.severity, 3), -a.wall))
