"""A snapshot of the store, as lines of text for 80 columns and as one JSON object. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap
from typing import Any

from eagletui import __version__, text
from eagletui.cli.words import doing_words, eta_words, job_words
from eagletui.commands.find import is_live
from eagletui.records import GpuSample, HostSample, JobState, ServerView, ServerWindow
from eagletui.store import Store
from eagletui.views.adopted import holder_words
from eagletui.views.serving import complaints

WIDTH = 80
WINDOW = "1 m"
"""The window over which a server's work is told."""
ENDED = 5
"""How many of the jobs that have ended are listed as text."""
_SERVER = "serve"
_RANK = {"bad": 0, "warn": 1, "info": 2}


def as_object(store: Store) -> dict[str, Any]:
    """The shape of ``status --json``: keys are added, never renamed; what is not available is null."""
    jobs = sorted(store.jobs.values(), key=lambda job: job.started)
    return {
        "version": __version__,
        "target": store.connection.target or None,
        "host": _host_object(store),
        "gpus": [as_plain(card) for card in store.gpus.cards] if store.gpus is not None else [],
        "gpus_problem": store.gpus.problem if store.gpus is not None else "no answer",
        "servers": [{**as_plain(job), **_measured(store, job)} for job in jobs if _serves(job)],
        "jobs": [as_plain(job) for job in jobs if not _serves(job)],
        "alerts": [alert._asdict() for alert in sorted(store.alerts.values(), key=lambda a: (_RANK.get(a.severity, 3), a.wall))],
    }


def _serves(job: JobState) -> bool:
    """A server of which something runs; one that has ended is a job like any other."""
    return job.kind == _SERVER and is_live(job)


def _measured(store: Store, job: JobState) -> dict[str, Any]:
    """What a server did in the newest `WINDOW` before its newest scrape, and how long its load may still take."""
    view = store.servers.get(job.id)
    window = _window(view)
    eta = store.etas.get(job.id)
    return {
        "running": view.sample.running if view is not None else None,
        "waiting": view.sample.waiting if view is not None else None,
        "kv": view.sample.kv if view is not None else None,
        "window": as_plain(window) if window is not None else None,
        "eta": as_plain(eta) if eta is not None else None,
    }


def _window(view: ServerView | None) -> ServerWindow | None:
    """The newest `WINDOW`; of a server that was only found and has been scraped once, all since its start."""
    return None if view is None else view.window(WINDOW) or view.window("all")


def _host_object(store: Store) -> dict[str, Any]:
    info = as_plain(store.info) if store.info is not None else {}
    sample = as_plain(store.host) if store.host is not None else dict.fromkeys(HostSample._fields)
    board = store.gpus
    return {
        **info,
        **sample,
        "clock_offset": store.clock_offset,
        "driver": board.driver if board else None,
        "cuda": board.cuda if board else None,
    }


def as_plain(record: Any) -> dict[str, Any]:
    """A record with all its fields, None where nothing is known; nested records likewise."""
    return {name: _plain(value) for name, value in record._asdict().items()}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return as_plain(value) if hasattr(value, "_fields") else [_plain(item) for item in value]
    return value


# --------------------------------------------------------------------------------------------------------------- text


def as_lines(store: Store) -> list[str]:
    """The snapshot as text, at most `WIDTH` cells wide."""
    parts = [*_host_lines(store), *_gpu_lines(store), *_job_lines(store), *_alert_lines(store)]
    return [text.fold(text.clean(line.rstrip()), WIDTH) for line in parts]


def _host_lines(store: Store) -> Iterator[str]:
    info, sample = store.info, store.host
    name = f"{info.user}@{info.hostname}" if info is not None else "-"
    up = text.duration(None if sample is None else sample.uptime if sample.uptime is not None else sample.boot)
    yield f"{name}  up {up}  {info.os_name if info is not None else ''}  {_link(store)}"
    if sample is None:
        yield "host    no data"
        return
    used = None if sample.mem_total is None or sample.mem_available is None else sample.mem_total - sample.mem_available
    net = f"in {text.rate(sample.net_rx)} out {text.rate(sample.net_tx)}"
    yield (
        f"host    cpu {text.percent(sample.cpu)}  load {text.number(sample.load1, 1)}  "
        f"ram {text.gib(used)}/{text.gib(sample.mem_total)} GiB  net {net}"
    )
    shm = None if sample.shm_total is None or sample.shm_used is None else sample.shm_total - sample.shm_used
    disks = [f"{disk.mount} {text.size(disk.free)}" for disk in sample.disks]
    yield "free    " + "  ".join([*disks[:4], f"/dev/shm {text.size(shm)}"])


def _link(store: Store) -> str:
    link = store.connection
    return f"{link.transport} {text.millis(link.rtt)}" if link.transport != "local" else "this machine"


def _gpu_lines(store: Store) -> Iterator[str]:
    board, summary = store.gpus, store.gpu_summary
    if board is None:
        yield "gpus    no answer"
        return
    if not board.cards:
        why = text.clean(board.problem or "no NVIDIA driver")
        yield from wrap(f"none: {why}", WIDTH, initial_indent="gpus    ", subsequent_indent=" " * 8)
        return
    if summary is not None:
        yield (
            f"gpus    {summary.answering} of {summary.expected}  util {text.percent(summary.util)}  "
            f"mem {text.gib(summary.mem_used)}/{text.gib(summary.mem_total)} GiB  {text.watts(summary.power)}  "
            f"hottest {text.number(summary.temp)} C"
        )
    names = dict.fromkeys(text.short_card(card.name) for card in board.cards)
    yield f"        {', '.join(names)}  driver {board.driver or '-'}  CUDA {board.cuda or '-'}"
    if board.stale_since is not None:
        yield f"        OLD DATA: {board.problem or 'the driver does not answer'}"
    yield f"  {'#':>2} {'util':>5} {'mem GiB':>9} {'power':>7} {'temp':>4} {'margin':>6} {'SM MHz':>6} {'link':>6}  state"
    for card in board.cards:
        yield _card_line(card, text.short_card(card.name) if len(names) > 1 else "")


def _card_line(card: GpuSample, name: str) -> str:
    if card.lost is not None:
        return f"  {card.number:>2} LOST: {card.lost}  {name}"
    link = f"g{card.pcie_gen}x{card.pcie_width}" if card.pcie_gen is not None and card.pcie_width is not None else "-"
    state = ", ".join(card.throttle) if card.throttle else ""
    return (
        f"  {card.number:>2} {text.percent(card.util):>5} {text.gib(card.mem_used) + '/' + text.gib(card.mem_total):>9} "
        f"{text.watts(card.power):>7} {text.number(card.temp):>4} {text.number(card.margin):>6} {text.number(card.clock_sm):>6} "
        f"{link:>6}  {'  '.join(part for part in (state, name) if part)}"
    )


def _job_lines(store: Store) -> Iterator[str]:
    jobs = sorted(store.jobs.values(), key=lambda job: (not is_live(job), -job.started))
    serving, others = [job for job in jobs if _serves(job)], [job for job in jobs if not _serves(job)]
    past = [job for job in others if not is_live(job)]
    for title, chosen in (("servers", serving), ("jobs", [job for job in others if is_live(job)] + past[:ENDED])):
        if not chosen:
            yield f"{title:<7} none"
        for number, job in enumerate(chosen):
            yield f"{title if number == 0 else '':<7} {_job_line(job)}"
            if job in serving:
                yield from (f"{'':<9}{line}" for line in _server_lines(store, job))
    if len(past) > ENDED:
        yield f"{'':<7} and {len(past) - ENDED} more that have ended"


def _job_line(job: JobState) -> str:
    port = f" :{job.port}" if job.port is not None else ""
    engine = " ".join(part for part in (job.engine, job.engine_version) if part)
    return f"{text.pad(job.name, 20)} {engine or job.kind}{port} {job_words(job)}  {doing_words(job)}"


def _server_lines(store: Store, job: JobState) -> Iterator[str]:
    holder = holder_words(job)
    if holder is not None:
        yield holder if job.pid is None else f"{holder}, pid {job.pid}"
    if job.log_problem is not None:
        yield job.log_problem
    eta = store.etas.get(job.id)
    if eta is not None:
        yield f"{eta_words(eta)} ({eta.basis})"
    yield from complaints(job)
    view = store.servers.get(job.id)
    window = _window(view)
    if view is None or window is None:
        return
    over = f"over {text.duration(window.seconds)}"
    yield (
        f"{text.number(view.sample.running)} running  {text.number(view.sample.waiting)} waiting  "
        f"{text.number(window.generated_per_s, 1)} tok/s  {over}"
    )
    seen = window.acceptance
    if seen is not None:
        rate = None if seen.rate is None else 100 * seen.rate
        yield f"acceptance {text.percent(rate, 1)}  length {text.number(seen.length, 2)}  k {text.number(job.k)}  {over}"


def _alert_lines(store: Store) -> Iterator[str]:
    alerts = sorted(store.alerts.values(), key=lambda alert: (_RANK.get(alert.severity, 3), alert.wall))
    if not alerts:
        yield "alerts  none"
    for number, alert in enumerate(alerts):
        head = f"{'alerts' if number == 0 else '':<7} {alert.severity:<4} "
        yield from wrap(text.clean(alert.text), WIDTH, initial_indent=head, subsequent_indent=" " * len(head))
        if alert.remedy:
            yield from wrap(
                text.clean(alert.remedy), WIDTH, initial_indent=" " * len(head) + "-> ", subsequent_indent=" " * (len(head) + 3)
            )
