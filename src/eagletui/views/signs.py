"""What shows whether a server works: its silence, processors, disk, cards and tokens over the last minute, from the store.

Pure. What is not known for the whole time (just connected, no cards, no counters) is None and speaks for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from eagletui.records import GpuSample, JobState
from eagletui.store import Series, Store
from eagletui.views.loading import Silence, Step, job_cards, silence_of, steps_of
from eagletui.views.serving import is_loading

WATCHED = 60.0
"""Seconds that a clear sign must have lasted."""
BUSY = 95.0
"""Percent of a card from which it is busy."""
SPIN_SHARE, SPIN_WATTS = 0.42, 220.0
"""Of its cap (without one: watts) a card that only spins in a collective draws less: about 140 of 600 W; decoding draws 300."""
FLAT_BYTES = 64 << 20
"""A card's memory is flat when it changed by less within the time watched."""
QUIET_LINK = 2e8
"""Bytes per second over PCIe, both ways, below which the link carries nothing."""


class CardSigns(NamedTuple):
    """One card over the time watched: means, in the units of `GpuSample`; ``least`` is the lowest utilisation seen.

    ``moved`` is the largest change of its memory in bytes, ``link`` both directions of its PCIe traffic; None is not known.
    """

    number: int
    util: float
    least: float
    power: float | None = None
    cap: float | None = None
    moved: float | None = None
    link: float | None = None

    @property
    def spins(self) -> bool:
        """Fully busy, and hardly any power drawn: it waits for the other ranks."""
        if self.least < BUSY or self.power is None:
            return False
        return self.power < (SPIN_SHARE * self.cap if self.cap else SPIN_WATTS)

    @property
    def flat(self) -> bool:
        return self.moved is None or self.moved < FLAT_BYTES

    @property
    def quiet(self) -> bool:
        return self.link is None or self.link < QUIET_LINK


class Observed(NamedTuple):
    """What is judged. ``cpu`` (mean) and ``cpu_most`` in percent of one core and ``read`` in bytes per second are over `WATCHED`,
    ``cpu_top`` is the busiest process's now. ``busy``: seconds that requests have run without a break, ``quiet``: without a
    token in or out. ``silent_for``: the words of a server that does not answer. ``usual`` and ``spent``: seconds of the phase
    that runs."""

    loading: bool
    phase: str | None = None
    silence: Silence | None = None
    members: int | None = None
    stopped: int = 0
    blocked: int = 0
    cpu: float | None = None
    cpu_most: float | None = None
    cpu_top: float | None = None
    read: float | None = None
    listening: bool | None = None
    port: int | None = None
    cards: Sequence[CardSigns] = ()
    running: float | None = None
    waiting: float | None = None
    busy: float | None = None
    quiet: float | None = None
    silent_for: str | None = None
    usual: float | None = None
    spent: float | None = None


# ------------------------------------------------------------------------------------------------------------ observing


def observe(store: Store, job: JobState, now: float) -> Observed:
    """What is known of a live server over the last minute; ``now`` by this machine's monotonic clock."""
    boot = store.jobs_boot
    cpu = _span(store.series.get(("job", job.id, "cpu")), boot)
    read = _span(store.series.get(("job", job.id, "bytes_read")), boot)
    loading = is_loading(job)
    step = _running(steps_of(store, job, now)) if loading else None
    view = store.servers.get(job.id)
    busy, quiet = _without_tokens(store, job.id)
    detail = job.detail or ""
    return Observed(
        loading,
        step.id if step is not None else None,
        silence_of(store, job, now),
        job.members,
        job.stopped or 0,
        job.blocked or 0,
        None if cpu is None else sum(cpu) / len(cpu),
        None if cpu is None else max(cpu),
        job.cpu_top,
        None if read is None else (max(read) - min(read)) / WATCHED,
        job.listening,
        job.port,
        tuple(found for card in job_cards(store, job) if (found := card_signs(store, card)) is not None),
        view.sample.running if view is not None else None,
        view.sample.waiting if view is not None else None,
        busy,
        quiet,
        detail if not loading and detail.startswith("does not answer") else None,
        step.usual if step is not None else None,
        step.spent if step is not None else None,
    )


def _running(steps: Sequence[Step]) -> Step | None:
    return next((step for step in reversed(steps) if step.state == "running"), None)


def _span(series: Series | None, end: float | None, seconds: float = WATCHED) -> list[float] | None:
    """The values of the last ``seconds`` before ``end``; None unless they are known for all that time without a gap."""
    if series is None or end is None:
        return None
    times, values = series.window(end - seconds - 5.0)
    if not len(times) or times[0] > end - seconds + 5.0 or times[-1] < end - 15.0:
        return None
    known = list(values)
    return known if all(value == value for value in known) else None  # a gap is NaN


def card_signs(store: Store, card: GpuSample) -> CardSigns | None:
    """A card over the last minute; None when that is not known whole (just connected, a lost card, old data)."""
    board = store.gpus
    if board is None or card.lost is not None or board.stale_since is not None:
        return None
    at = board.boot

    def values(name: str) -> list[float] | None:
        return _span(store.series.get(("gpu", card.uuid, name)), at)

    util = values("util")
    if util is None:
        return None
    power, memory = values("power"), values("mem_used")
    sent, received = values("pcie_tx"), values("pcie_rx")
    traffic = _mean(sent) + _mean(received) if sent is not None and received is not None else None
    return CardSigns(
        card.number,
        _mean(util),
        min(util),
        None if power is None else _mean(power),
        card.power_cap,
        None if memory is None else max(memory) - min(memory),
        traffic,
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _without_tokens(store: Store, job: str) -> tuple[float | None, float | None]:
    """(seconds that requests have been running without a break, seconds without a token in or out), as far as is known."""
    running = store.series.get(("server", job, "running"))
    if running is None:
        return None, None
    times, values = running.window()
    busy = _lasting(times, values, lambda value: value > 0)
    quiet = None
    spans = []
    for name in ("generated", "prompt"):
        series = store.series.get(("server", job, name))
        if series is not None:
            spans.append(_lasting(*series.window(), lambda value: value == 0))
    if len(spans) == 2 and all(span is not None for span in spans):
        quiet = min(span for span in spans if span is not None)
    return busy, quiet


def _lasting(times: Sequence[float], values: Sequence[float], holds: Callable[[float], bool]) -> float | None:
    """For how many seconds, up to the newest value, every value held; None without values, or when the newest is a gap."""
    if not len(times) or values[-1] != values[-1]:
        return None
    since: float | None = None
    for at in range(len(times) - 1, -1, -1):
        if values[at] != values[at] or not holds(values[at]):
            break
        since = times[at]
    return 0.0 if since is None else times[-1] - since
