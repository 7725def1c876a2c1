"""The watch over one host: subscribes to its streams and keeps the store, the series and the alerts current.

Headless: the dashboard and the command line use the same. No exception leaves a listener; a document that cannot be read
becomes an alert that names its stream, and the other streams go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from eagletui.hosts.base import HostError, Listener, Push
from eagletui.records import Alert, HostInfo, JobState
from eagletui.store import Connection, Store
from eagletui.watch import telemetry
from eagletui.watch.alerts import Alarms, Sign, board_signs, host_signs, job_signs, problem_signs
from eagletui.watch.follow import Reader
from eagletui.watch.leftovers import Asker, Leftovers
from eagletui.watch.liveness import judge_all, liveness_signs
from eagletui.watch.logs import LogTails
from eagletui.watch.results import BENCH, PIPELINE, Results
from eagletui.watch.servers import Servers
from eagletui.watch.training import Trainings

log = logging.getLogger("eagletui.watch")
log.addHandler(logging.NullHandler())  # never onto the terminal that a screen is drawn on


class Subscriber(Reader, Asker, Protocol):
    """The part of a session that the watch needs."""

    async def subscribe(
        self, stream: str, interval: float, listener: Listener, **params: Any
    ) -> Callable[[], Awaitable[None]]: ...


class Intervals(NamedTuple):
    """Seconds between samples of each stream; ``processes_looked_at`` while the process table is on the screen, ``jobs_busy``
    while a job loads or ends, ``processes_first`` until their use of the processors is known: it takes two samples."""

    host: float = 2.0
    gpus: float = 1.0
    processes: float = 15.0
    processes_looked_at: float = 3.0
    processes_first: float = 1.0
    jobs: float = 2.0
    jobs_busy: float = 1.0


STREAMS: Mapping[str, Callable[[Store, Mapping[str, Any], float], None]] = {
    "host": telemetry.record_host,
    "gpus": telemetry.record_gpus,
    "processes": telemetry.record_processes,
    "jobs": telemetry.record_jobs,
}


class Pace(NamedTuple):
    """How a stream is wanted: its interval in seconds, and ``traffic``, the parameter of that name of ``gpus``."""

    interval: float
    traffic: bool = False

    @property
    def params(self) -> dict[str, Any]:
        return {"traffic": True} if self.traffic else {}


class Watch:
    """Feeds ``store`` from ``session``. `start` once the session is up; `stop` before it is closed.

    ``expected_cards`` is the number of cards the user's configuration gives for this host. Without ``patience`` alerts do not
    wait for their sign to last. ``on_ready`` is called once for each server that is seen ready.
    """

    def __init__(
        self,
        session: Subscriber,
        store: Store,
        *,
        intervals: Intervals | None = None,
        expected_cards: int | None = None,
        patience: bool = True,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.session, self.store, self.intervals = session, store, intervals or Intervals()
        self._expected = expected_cards
        self._clock, self._wall = clock, wall
        self._servers = Servers(session, store)
        self._tails = LogTails(session, store)
        self._trainings = Trainings(session, store)
        self._results = Results(session, store)
        self._leftovers = Leftovers(session, store, clock)
        self._alarms = Alarms(store, clock, patience=patience)
        self._ends: dict[str, Callable[[], Awaitable[None]]] = {}
        self._lookers: dict[str, int] = {}
        self._pace: asyncio.Task[None] | None = None
        self._paces: dict[str, Pace] = {}
        self._asked = dict.fromkeys(STREAMS, 0)
        self._heard = dict.fromkeys(STREAMS, 0)
        self._ready: set[str] = set()
        self.on_ready: Callable[[JobState], None] = lambda job: None
        self._last_boot: float | None = None
        self._began: float | None = None
        self._offsets: list[float] = []
        self._counts = dict.fromkeys(STREAMS, 0)
        self._refused: set[str] = set()
        self._unreached: set[str] = set()
        self._fresh: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiters: dict[str, list[asyncio.Future[None]]] = {}

    async def start(self, streams: tuple[str, ...] = tuple(STREAMS)) -> None:
        """Subscribe to the streams, all in one round trip; one that the host refuses becomes an alert, not an error.

        May be called before the session is connected.
        """
        await asyncio.gather(*(self._subscribe(name) for name in streams))
        self._repace()

    async def stop(self) -> None:
        """End the subscriptions."""
        for task in [*self._tasks, *([self._pace] if self._pace is not None else [])]:
            task.cancel()
        await self._servers.stop()
        await self._tails.stop()
        await self._leftovers.stop()
        await self._trainings.stop()
        await self._results.stop()
        ends, self._ends = list(self._ends.values()), {}
        await asyncio.gather(*(_quietly(end) for end in ends))

    def look(self, topic: str, on: bool) -> None:
        """A screen begins or ends to show ``topic``; its lookers are counted.

        ``processes``: the table is sampled more often. ``traffic``: the PCIe traffic of cards that have to be asked for it one by
        one comes with each sample. ``log:JOB``: the newest lines of that job's log come to ``store.tails``. ``training:JOB``: its
        recorded steps come to ``store.runs``. ``results``: what benchmarks found. ``pipeline:JOB``: the record of that pipeline.
        """
        if topic.startswith("log:"):
            self._tails.look(topic[4:], on)
            return
        if topic == BENCH or topic.startswith(PIPELINE):
            self._results.look(topic, on)
            return
        if topic.startswith("training:"):
            self._trainings.look(topic[9:], on)
            return
        self._lookers[topic] = max(0, self._lookers.get(topic, 0) + (1 if on else -1))
        self._repace()

    async def settled(self) -> None:
        """Wait until a changed pace is in force."""
        if self._pace is not None:
            await self._pace

    def _repace(self) -> None:
        if self._pace is None and self._mispaced():
            self._pace = asyncio.ensure_future(self._set_pace())

    def _mispaced(self) -> list[str]:
        return [name for name in self._ends if self._paces[name] != self._wanted(name)]

    async def _set_pace(self) -> None:
        """Bring the subscriptions to the pace that is wanted, which may change again meanwhile."""
        try:
            while names := self._mispaced():
                for name in names:
                    await self._subscribe(name)
        finally:
            self._pace = None

    def _wanted(self, name: str) -> Pace:
        """How a stream should come now."""
        usual: float = getattr(self.intervals, name)
        if name == "processes" and all(process.cpu is None for process in self.store.processes):
            return Pace(min(self.intervals.processes_first, usual))
        if name == "processes" and self._lookers.get(name):
            return Pace(min(self.intervals.processes_looked_at, usual))
        if name == "jobs" and any(_busy(job) for job in self.store.jobs.values()):
            return Pace(min(self.intervals.jobs_busy, usual))
        return Pace(usual, name == "gpus" and bool(self._lookers.get("traffic")))

    async def sample(self, stream: str, number: int = 1) -> None:
        """Wait until ``number`` pushes of ``stream`` have come since the start, or the host has refused it."""
        while self._counts[stream] < number and stream not in self._refused:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.setdefault(stream, []).append(waiter)
            await waiter

    def count(self, stream: str) -> int:
        """How many pushes of ``stream`` have come."""
        return self._counts[stream]

    def _wake(self, stream: str) -> None:
        for waiter in self._waiters.pop(stream, ()):
            if not waiter.done():  # who gave up waiting has cancelled its own
                waiter.set_result(None)

    # ------------------------------------------------------------------------------------------------- the session's state

    def on_state(self, connection: Connection, info: HostInfo | None) -> None:
        """The session's state has changed. ``info`` is what the agent says of the host, once it has said it."""
        before = self.store.connection.state
        self.store.connection = connection
        if info is not None and info != self.store.info:
            self._on_info(info)
        if before in ("online", "stale") and connection.state not in ("online", "stale") and self._last_boot is not None:
            telemetry.gap(self.store, self._last_boot)
            self._fresh.clear()
            self.store.old = set(STREAMS)
        if connection.state == "online":
            for name in sorted(self._unreached):
                self._spawn(self._subscribe(name))
            self._unreached.clear()
        self.store.changed("connection")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _on_info(self, info: HostInfo) -> None:
        known = self.store.info
        self.store.info = info
        self._offsets.clear()
        if known is not None and known.boot_id != info.boot_id:
            self._on_reboot(info)
        self.store.changed("info")

    def _on_reboot(self, info: HostInfo) -> None:
        """Host times start again at zero: the old series would lie in the future of the new ones.

        Streams that have sent since the connection came back are of the new life already, and keep what they sent.
        """
        self.store.drop_series(lambda key: False)
        self._servers.on_reboot()
        if "host" not in self._fresh:
            self.store.host = None
        if "gpus" not in self._fresh:
            self.store.gpus = self.store.gpu_summary = None
            self.store.outliers = {}
        if "processes" not in self._fresh:
            self.store.processes = ()
        for group in set(STREAMS) - self._fresh:
            self._alarms.forget(group)
        self._last_boot = None
        at = time.strftime("%H:%M", time.localtime(info.wall - info.boot))
        self.store.raise_alert(
            Alert(
                "host:reboot",
                "warn",
                f"{info.hostname} was rebooted at {at}; the history before it is gone",
                self._wall(),
                "host",
            )
        )
        for topic in ("host", "gpus", "processes"):
            self.store.changed(topic)

    # --------------------------------------------------------------------------------------------------------- the streams

    async def _subscribe(self, name: str) -> None:
        """Have a stream as it is wanted now, in place of how it came before.

        The old subscription ends only when the new one is there: the agent lets go of what nobody watches, and a source that
        begins anew has nothing to measure from.
        """
        self._refused.discard(name)
        pace = self._paces[name] = self._wanted(name)
        self._asked[name] += 1
        turn = self._asked[name]
        try:
            end = await self.session.subscribe(name, pace.interval, self._listen(name, turn), **pace.params)
        except HostError as error:
            if error.retry or error.kind == "closed":
                self._unreached.add(name)  # the connection's failure, not the host's answer: asked again once it is there
                return
            self._refused.add(name)
            self._wake(name)
            self.store.raise_alert(
                Alert(f"stream:{name}", "warn", f"{name}: no data: {error.why}", self._wall(), "watch", error.remedy or None)
            )
            return
        before: Callable[[], Awaitable[None]] | None = end  # when it was asked for once more meanwhile, this one is superfluous
        if turn == self._asked[name]:
            before, self._ends[name] = self._ends.get(name), end
        if before is not None:
            await _quietly(before)

    def _listen(self, name: str, turn: int) -> Listener:
        def listener(push: Push) -> None:
            if turn < self._heard[name]:
                return  # of the subscription before: its successor has sent already
            self._heard[name] = turn
            self.store.old.discard(name)
            try:
                STREAMS[name](self.store, push.doc, push.boot)
                self._last_boot = push.boot
                self._fresh.add(name)
                self._judge(name, push)
                self.store.clear_alert(f"stream:{name}")
            except Exception as error:  # noqa: BLE001 - whatever one document holds, the others must go on; it is shown
                self._complain(name, error)
            self._counts[name] += 1
            self._wake(name)

        return listener

    def _complain(self, name: str, error: Exception) -> None:
        log.warning("a push of %s", name, exc_info=error)
        what = f"{name}: what the host sent cannot be used: {type(error).__name__}: {error}"
        remedy = "the agent and this program may differ in version: connect again"
        try:
            self.store.raise_alert(Alert(f"stream:{name}", "warn", what, self._wall(), "watch", remedy))
        except Exception:  # who listens to the store has failed, and would again: the log is all that is left
            log.exception("telling of a push of %s", name)

    def _judge(self, name: str, push: Push) -> None:
        if name == "host":
            self._measure_clock(push.wall)
        if name == "jobs":
            self._servers.update(self.store.jobs.values(), push.boot)
            self._trainings.update(self.store.jobs.values())
            self._results.update(self.store.jobs.values())
            self._leftovers.update(self.store.jobs)
            self._tell_ready()
            judge_all(self.store, self._clock())
        if name in ("jobs", "processes"):
            self._repace()
        if self._began is None:
            self._began = push.wall
        self._alarms.judge(name, self._signs(name), self._wall())

    def _tell_ready(self) -> None:
        ready = {job.id: job for job in self.store.jobs.values() if job.state == "running" and job.health == "ready"}
        fresh, self._ready = ready.keys() - self._ready, set(ready)
        for name in fresh:
            self.on_ready(ready[name])

    def _signs(self, name: str) -> Iterator[Sign]:
        if name == "host":
            yield from host_signs(self.store.host, self.store.clock_offset)
        elif name == "gpus":
            yield from board_signs(self.store.gpus, self._expected)
        elif name == "jobs":
            yield from job_signs(self.store.jobs.values(), self._began or 0.0)
            yield from liveness_signs(self.store)
            yield from self._leftovers.signs()
            yield from problem_signs(self.store.job_problems)

    def _measure_clock(self, host_wall: float) -> None:
        """The host's clock minus ours. A push is late by the way here, never early: the largest of the last few is nearest."""
        self._offsets.append(host_wall + (self.store.connection.rtt or 0.0) / 2 - self._wall())
        del self._offsets[:-8]
        self.store.clock_offset = max(self._offsets)


def _busy(job: JobState) -> bool:
    return job.state in ("launching", "stopping") or job.health in ("loading", "stopping")


async def _quietly(end: Callable[[], Awaitable[None]]) -> None:
    """End a subscription. A link that is down has taken it along: there is nothing left to end then."""
    with contextlib.suppress(HostError):
        await end()
