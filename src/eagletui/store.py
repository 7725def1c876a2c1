"""What is known of the host now, and its recent history: the only thing that screens read.

`watch` writes it, on the event loop, in small steps; `revision` of a topic grows with each change, so a screen redraws
only what changed. Nothing here does I/O or computes what a screen shows beyond ring buffers.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from eagletui.connection import Connection
from eagletui.records import Alert, Eta, GpuBoard, HostInfo, HostSample, JobState, Liveness, LogLine, Process, ServerView
from eagletui.records.bench import BenchResult, BenchVerdict
from eagletui.runs import Run

__all__ = ["Connection", "GpuSummary", "Series", "Store"]

NAN = float("nan")


class GpuSummary(NamedTuple):
    """All cards in one line; made by `watch.summary.summarise`. What no card says is None.

    ``util`` is the mean in percent, ``mem_used``/``mem_total`` and ``power``/``power_cap`` are sums, ``temp`` is the hottest
    card's with its ``margin`` to slowdown (the smallest margin known). ``loaded`` counts cards judged under load; ``link`` is
    the PCIe link that all of these agree on, and ``links`` says per uuid which link is worse than the card's own best.
    """

    answering: int
    expected: int
    loaded: int = 0
    util: float | None = None
    mem_used: int | None = None
    mem_total: int | None = None
    power: float | None = None
    power_cap: float | None = None
    temp: int | None = None
    margin: int | None = None
    pcie_tx: float | None = None
    pcie_rx: float | None = None
    link: str | None = None
    links: Mapping[str, str] = MappingProxyType({})


class PipelineDocs(NamedTuple):
    """What a pipeline's job was given (``plan``) and what its runner has written down (``record``), as they came from the host.

    ``problem`` says why something is missing.
    """

    plan: Mapping[str, Any]
    record: Mapping[str, Any]
    problem: str | None = None


class Series:
    """A ring of (time, value); a gap is NaN. Memory is fixed by ``capacity`` from the start."""

    __slots__ = ("_count", "_next", "_times", "_values", "capacity")

    def __init__(self, capacity: int = 1200) -> None:
        self.capacity = capacity
        self._times = array("d", bytes(8 * capacity))
        self._values = array("d", bytes(8 * capacity))
        self._count = self._next = 0

    def push(self, time: float, value: float | None) -> None:
        self._times[self._next] = time
        self._values[self._next] = NAN if value is None else value
        self._next = (self._next + 1) % self.capacity
        self._count = min(self._count + 1, self.capacity)

    def __len__(self) -> int:
        return self._count

    def last(self) -> tuple[float, float] | None:
        """The newest (time, value), value NaN for a gap; None when nothing came yet."""
        if not self._count:
            return None
        i = (self._next - 1) % self.capacity
        return self._times[i], self._values[i]

    def window(self, since: float = float("-inf")) -> tuple[array[float], array[float]]:
        """Times and values not older than ``since``, oldest first, as copies."""
        start = (self._next - self._count) % self.capacity
        if start + self._count <= self.capacity:
            times, values = self._times[start : start + self._count], self._values[start : start + self._count]
        else:
            times = self._times[start:] + self._times[: self._next]
            values = self._values[start:] + self._values[: self._next]
        low, high = 0, len(times)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if times[middle] < since else (low, middle)
        return times[low:], values[low:]


@dataclass
class Store:
    """The state of one host as the client knows it. Times in series are the host's boot seconds.

    ``selected`` is the serving job that the screens show, ``chosen`` the one a person asked for until it is seen to run,
    ``window`` the label of the window they look at. ``usual`` holds, for a job that loads, the seconds each (phase, role) took
    in earlier loads;
    ``cards_known`` is the most cards that were seen at once: an agent that was started anew does not know of one that has gone.
    ``runs`` are the trainings whose recorded steps have been read; ``run`` is the one that a person chose to look at,
    ``overlaid`` those drawn beside it. ``bench`` are the results of benchmark jobs, ``verdicts`` those of their plans, by job id,
    ``result_problems`` why one cannot be read; ``pipelines`` what is known of each pipeline, ``pipeline`` the one that is shown,
    ``verdict`` the one that was chosen.
    ``last_busy`` a server's last view with work in it; ``liveness`` whether it works or hangs, where there is something to say.
    ``job_problems`` are {what the agent could not find out about jobs: why}.
    ``jobs_boot`` is when the job table was taken, ``jobs_seen`` when it came, by this machine's monotonic clock. ``old`` are the
    streams (host, gpus, processes, jobs) that have sent nothing since a connection was lost: what is known is from before.
    """

    connection: Connection = field(default_factory=Connection)
    info: HostInfo | None = None
    host: HostSample | None = None
    gpus: GpuBoard | None = None
    gpu_summary: GpuSummary | None = None
    outliers: dict[str, str] = field(default_factory=dict)
    cards_known: int = 0
    processes: tuple[Process, ...] = ()
    jobs: dict[str, JobState] = field(default_factory=dict)
    servers: dict[str, ServerView] = field(default_factory=dict)
    etas: dict[str, Eta] = field(default_factory=dict)
    tails: dict[str, tuple[LogLine, ...]] = field(default_factory=dict)
    selected: str | None = None
    chosen: str | None = None
    window: str = "1 m"
    usual: dict[str, dict[tuple[str, str | None], float]] = field(default_factory=dict)
    last_busy: dict[str, ServerView] = field(default_factory=dict)
    liveness: dict[str, Liveness] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    run: str | None = None
    overlaid: tuple[str, ...] = ()
    bench: dict[str, BenchResult] = field(default_factory=dict)
    verdicts: dict[str, BenchVerdict] = field(default_factory=dict)
    result_problems: dict[str, str] = field(default_factory=dict)
    pipelines: dict[str, PipelineDocs] = field(default_factory=dict)
    pipeline: str | None = None
    verdict: str | None = None
    job_problems: dict[str, str] = field(default_factory=dict)
    jobs_boot: float | None = None
    jobs_seen: float | None = None
    old: set[str] = field(default_factory=set)
    alerts: dict[str, Alert] = field(default_factory=dict)
    series: dict[tuple[str, ...], Series] = field(default_factory=dict)
    revision: dict[str, int] = field(default_factory=dict)
    clock_offset: float | None = None
    _listeners: list[tuple[Callable[[str], None], Context]] = field(default_factory=list, repr=False)

    def track(self, key: tuple[str, ...], time: float, value: float | None, capacity: int = 1200) -> None:
        """Append to the series ``key`` (say ``("gpu", uuid, "util")``), made on first use."""
        series = self.series.get(key)
        if series is None:
            series = self.series[key] = Series(capacity)
        series.push(time, value)

    def changed(self, topic: str) -> None:
        """Say that a topic (connection, info, host, gpus, processes, jobs, logs, alerts, training ...) has new content."""
        self.revision[topic] = self.revision.get(topic, 0) + 1
        for listener, context in tuple(self._listeners):
            context.copy().run(listener, topic)

    def listen(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Call ``listener(topic)`` after each change; returns the function that stops it.

        It runs in the context (`contextvars`) of this call, not of the task that made the change: a screen can set timers in it.
        """
        entry = (listener, copy_context())
        self._listeners.append(entry)
        return lambda: self._listeners.remove(entry) if entry in self._listeners else None

    def drop_series(self, keep: Callable[[tuple[str, ...]], bool]) -> None:
        for key in [k for k in self.series if not keep(k)]:
            del self.series[key]

    def raise_alert(self, alert: Alert) -> None:
        """Add an alert, or refresh the text of the one with the same key (an acknowledged one stays acknowledged)."""
        known = self.alerts.get(alert.key)
        if known is not None:
            alert = alert._replace(wall=known.wall, acknowledged=known.acknowledged)
        if alert != known:
            self.alerts[alert.key] = alert
            self.changed("alerts")

    def clear_alert(self, key: str) -> None:
        if self.alerts.pop(key, None) is not None:
            self.changed("alerts")

    def acknowledge(self, keys: Iterable[str]) -> None:
        for key in keys:
            if key in self.alerts:
                self.alerts[key] = self.alerts[key]._replace(acknowledged=True)
        self.changed("alerts")
