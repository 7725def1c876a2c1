"""Servers that eagletui did not start, in words: what holds them, what is not known of them, what a dead one still holds."""

from __future__ import annotations

from eagletui.records import JobState
from eagletui.store import Store
from eagletui.text import plural, size


def holder_words(job: JobState) -> str | None:
    """``found: podman k2-server``, ``found: unit vllm.service``, ``found: process of root``; None for a job of eagletui's own."""
    if job.adopted is None:
        return None
    if job.unit:
        return f"found: unit {job.unit}"
    if job.container:
        return f"found: {job.adopted} {job.name if job.name else job.container[:12]}"
    return f"found: {'process' if job.adopted == 'process' else job.adopted}" + (f" of {job.operator}" if job.operator else "")


def numbers_words(job: JobState) -> str | None:
    """Why the charts of a server that was found show no more than they show."""
    if job.adopted is None or job.samples is None:
        return None
    return "charts only of the time that eagletui was connected: nobody samples it otherwise"


def pid_words(job: JobState, most: int = 4) -> str | None:
    """``pids in its log: 1 is 41273 here, 87 is 41360``: whose numbers its log prints; None where they are this host's."""
    if not job.inner_pids:
        return None
    first, *rest = job.inner_pids[:most]
    more = "" if len(job.inner_pids) <= most else " ..."
    return f"pids in its log: {first[1]} is {first[0]} here" + "".join(f", {inner} is {pid}" for pid, inner in rest) + more


def memory_held(store: Store, job: JobState) -> int | None:
    """The bytes that its processes hold on the cards, as the driver tells; None when it names none of them."""
    cards = store.gpus.cards if store.gpus is not None else ()
    own = [process.mem for card in cards for process in card.processes or () if process.job == job.id and process.mem is not None]
    return sum(own) if own else None


def leftover_words(store: Store, job: JobState) -> str:
    """``3 processes of a dead server, holding 78.2 GiB of the cards' memory``."""
    words = plural(job.members or 0, "process", "processes") + " of a dead server"
    held = memory_held(store, job)
    return words + (f", holding {size(held)} of the cards' memory" if held else "")
