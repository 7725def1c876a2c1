"""The watch over one host: subscribes to its streams and keeps the store, the series and the alerts current.

Headless: the dashboard and the command line use the same. No exception leaves a listener; a document that cannot be read
becomes an alert that names its stream, and the other streams go on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from eagletui.hosts.base import HostError, Listener, Push
from eagletui.records import Alert, HostInfo
from eagletui.store import Connection, Store
from eagletui.watch import telemetry
from eagletui.watch.alerts import Alarms, Sign, board_signs, host_signs, job_signs


class Subscriber(Protocol):
    """The part of a session that the watch needs."""

    async def subscribe(
        self, stream: str, interval: float, listener: Listener, **params: Any
    ) -> Callable[[], Awaitable[None]]: ...


class Intervals(NamedTuple):
    """Seconds between samples of each stream; ``processes_looked_at`` while the process table is on the screen."""

    host: float = 2.0
    gpus: float = 1.0
    processes: float = 15.0
    processes_looked_at: float = 3.0
    jobs: float = 2.0


STREAMS: Mapping[str, Callable[[Store, Mapping[str, Any], float], None]] = {
    "host": telemetry.record_host,
    "gpus": telemetry.record_gpus,
    "processes": telemetry.record_processes,
    "jobs": telemetry.record_jobs,
}


class Watch:
    """Feeds ``store`` from ``session``. `start` once the session is up; `stop` before it is closed.

    ``expected_cards`` is the number of cards the user's configuration gives for this host.
    """

    def __init__(
        self,
        session: Subscriber,
        store: Store,
        *,
        intervals: Intervals | None = None,
        expected_cards: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.session, self.store, self.intervals = session, store, intervals or Intervals()
        self._expected = expected_cards
        self._clock, self._wall = clock, wall
        self._alarms = Alarms(store, clock)
        self._ends: dict[str, Callable[[], Awaitable[None]]] = {}
        self._looks: dict[str, int] = {}
        self._last_boot: float | None = None
        self._began: float | None = None
        self._offsets: list[float] = []
        self._counts = dict.fromkeys(STREAMS, 0)
        self._refused: set[str] = set()
        self._waiters: dict[str, list[asyncio.Future[None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, streams: tuple[str, ...] = tuple(STREAMS)) -> None:
        """Subscribe to the streams, all in one round trip; one that the host refuses becomes an alert, not an error."""
        await asyncio.gather(*(self._subscribe(name, getattr(self.intervals, name)) for name in streams))

    async def stop(self) -> None:
        """End the subscriptions."""
        for task in tuple(self._tasks):
            task.cancel()
        ends, self._ends = list(self._ends.values()), {}
        for result in await asyncio.gather(*(end() for end in ends), return_exceptions=True):
            # a link that is down takes its subscriptions with it: nothing to end there
            if isinstance(result, BaseException) and not isinstance(result, HostError):
                raise result

    def look(self, topic: str, on: bool) -> None:
        """A screen begins or ends to show ``topic``: the process table is then sampled more often. Counts its lookers."""
        before = self._looks.get(topic, 0)
        self._looks[topic] = now = max(0, before + (1 if on else -1))
        if topic == "processes" and (before > 0) != (now > 0):
            interval = self.intervals.processes_looked_at if now else self.intervals.processes
            task = asyncio.ensure_future(self._resubscribe(topic, interval))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def sample(self, stream: str, number: int = 1) -> None:
        """Wait until ``number`` pushes of ``stream`` have come since the start, or the host has refused it."""
        while self._counts[stream] < number and stream not in self._refused:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.setdefault(stream, []).append(waiter)
            await waiter

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
        self.store.changed("connection")

    def _on_info(self, info: HostInfo) -> None:
        known = self.store.info
        self.store.info = info
        self._offsets.clear()
        if known is not None and known.boot_id != info.boot_id:
            self._on_reboot(info)
        self.store.changed("info")

    def _on_reboot(self, info: HostInfo) -> None:
        """Host times start again at zero: the old series would lie in the future of the new ones."""
        self.store.drop_series(lambda key: False)
        self.store.host = self.store.gpus = self.store.gpu_summary = None
        self.store.outliers, self.store.processes = {}, ()
        for group in STREAMS:
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

    async def _subscribe(self, name: str, interval: float) -> None:
        self._refused.discard(name)
        try:
            self._ends[name] = await self.session.subscribe(name, interval, self._listen(name))
        except HostError as error:
            self._refused.add(name)
            self._wake(name)
            self.store.raise_alert(
                Alert(f"stream:{name}", "warn", f"{name}: no data: {error.why}", self._wall(), "watch", error.remedy or None)
            )

    async def _resubscribe(self, name: str, interval: float) -> None:
        end = self._ends.pop(name, None)
        if end is not None:
            try:
                await end()
            except HostError:
                pass  # the link is down; the session forgets the subscription with it, and the next one is made below
        await self._subscribe(name, interval)

    def _listen(self, name: str) -> Listener:
        def listener(push: Push) -> None:
            try:
                STREAMS[name](self.store, push.doc, push.boot)
                self._last_boot = push.boot
                self._judge(name, push)
            except Exception as error:  # noqa: BLE001 - whatever one document holds, the others must go on; it is shown
                self.store.raise_alert(
                    Alert(
                        f"stream:{name}",
                        "warn",
                        f"{name}: what the host sent cannot be read: {error}",
                        self._wall(),
                        "watch",
                        "the agent and this program may differ in version: connect again",
                    )
                )
            else:
                self.store.clear_alert(f"stream:{name}")
            self._counts[name] += 1
            self._wake(name)

        return listener

    def _judge(self, name: str, push: Push) -> None:
        if name == "host":
            self._measure_clock(push.wall)
        if self._began is None:
            self._began = push.wall
        self._alarms.judge(name, self._signs(name), self._wall())

    def _signs(self, name: str) -> Iterator[Sign]:
        if name == "host":
            yield from host_signs(self.store.host, self.store.clock_offset)
        elif name == "gpus":
            yield from board_signs(self.store.gpus, self._expected)
        elif name == "jobs":
            yield from job_signs(self.store.jobs.values(), self._began or 0.0)

    def _measure_clock(self, host_wall: float) -> None:
        """The host's clock minus ours. A push is late by the way here, never early: the largest of the last few is nearest."""
        self._offsets.append(host_wall + (self.store.connection.rtt or 0.0) / 2 - self._wall())
        del self._offsets[:-8]
        self.store.clock_offset = max(self._offsets)
