"""The session: a `Host` that stays. It connects, notices a dead link, reconnects, and puts the subscriptions back.

States: connecting (first time), online, stale (no frame for some seconds), reconnecting, blocked (a person must act: login, host
key, config), closed. A request that is under way when the link dies is sent again after the reconnect when it only reads (read,
stat, list, search, processes, http GET and HEAD ...); any other fails with a `HostError` of kind closed and ``retry`` set, since
nobody can know whether it was done.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from eagletui.connection import Connection
from eagletui.hosts.base import Chunk, Doc, Forward, Host, HostError, HttpAnswer, Listener, Push
from eagletui.hosts.relay import Relay
from eagletui.records import HostInfo

T = TypeVar("T")
REPEATABLE = frozenset(("hello", "read", "stat", "list", "search", "processes", "job", "jobs", "kill_plan", "http"))


class Timings(NamedTuple):
    """Seconds. ``stale`` is the silence after which data counts as old (the link itself gives up after a longer one);
    ``backoff`` are the pauses before the next attempts, each up to ``jitter`` (a part) shorter;
    ``settled`` how long a connection must hold before the back-off begins anew; ``patience`` how long a request waits for one.

    ``jump`` is how far this machine's wall clock must run ahead of its monotonic one to be taken for a suspend; after one the
    agent has ``resume`` seconds to be heard.
    """

    stale: float = 5.0
    settled: float = 5.0
    backoff: tuple[float, ...] = (0.5, 1.0, 2.0)
    jitter: float = 0.2
    tick: float = 0.5
    jump: float = 3.0
    resume: float = 3.0
    patience: float = 20.0
    close: float = 0.9


class Live(Host, Protocol):
    """What the session watches of a connected host, beyond asking it: `link.Link` is one.

    ``ended`` is done when the link has ended, and says why; ``last_frame`` is monotonic. A host that is watched without an agent
    also has ``pace``, the seconds between two signs of life, and ``limited`` and ``remedy``: why, and what would change that.
    """

    last_frame: float | None
    rtt: float | None
    received: int
    sent: int
    ended: asyncio.Future[HostError]


Early = Callable[[Live], None]
Connect = Callable[[Early], Awaitable[Live]]


class _Subscription:
    """One stream that somebody wants, over all connections."""

    def __init__(self, stream: str, interval: float, listener: Listener, params: dict[str, Any]) -> None:
        self.stream, self.interval, self.listener, self.params = stream, interval, listener, params
        self.wanted = True
        self.host: Host | None = None
        self.end: Callable[[], Awaitable[None]] | None = None
        self.problem: HostError | None = None

    async def start(self, host: Host) -> None:
        """Subscribe on this connection; a refusal is kept in ``problem``."""
        self.host, self.end, self.problem = host, None, None
        try:
            self.end = await host.subscribe(self.stream, self.interval, self._push, **self.params)
        except HostError as error:
            self.problem = error

    def _push(self, push: Push) -> None:
        if self.wanted:
            self.listener(push)


class Session:
    """Implements `base.Host` over ``connect``, called for each connection. ``on_state`` is called on the event loop.

    ``connect(early)`` calls ``early`` with the link before anything came back (as `link.open_link`), so that the subscriptions
    travel with the agent's modules: `local.connect_local` and what `ssh.connector` returns do.
    """

    def __init__(
        self,
        connect: Connect,
        on_state: Callable[[Connection], None] | None = None,
        *,
        target: str = "",
        transport: str = "ssh",
        timings: Timings = Timings(),  # noqa: B008 - immutable
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._connect, self._on_state, self._timings = connect, on_state, timings
        self._monotonic, self._wall = monotonic, wall
        self.state = Connection(target=target, transport=transport, since=monotonic())
        self._host: Live | None = None
        self._info: HostInfo | None = None
        self._subscriptions: list[_Subscription] = []
        self._relays: set[Relay] = set()
        self._changed = asyncio.Condition()
        self._nudge = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._first: asyncio.Future[None] | None = None
        self._drift = wall() - monotonic()
        self._received = self._sent = 0

    # ------------------------------------------------------------------------------------------------ life

    def start(self) -> None:
        """Begin to connect, and keep at it; returns at once."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="session")

    async def open(self) -> None:
        """Connect. Raises the `HostError` of the first attempt and closes; once it has worked the session is kept alive."""
        self._first = asyncio.get_running_loop().create_future()
        self.start()
        try:
            await self._first
        except BaseException:
            await self.close()
            raise

    async def wait_online(self, patience: float | None = None) -> None:
        """Wait for a connection; raises `HostError` when blocked, closed, or after ``patience`` seconds."""
        await self._live(patience)

    def retry_now(self) -> None:
        """Try again at once: after a person has mended what blocked it, or to cut a back-off short."""
        self._nudge.set()

    async def close(self) -> None:
        """End the session within a second, also on a dead link."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        self._set("closed")
        try:
            async with asyncio.timeout(self._timings.close):
                for relay in tuple(self._relays):
                    await relay.close()
                if task is not None:
                    await asyncio.gather(task, return_exceptions=True)
                if self._host is not None:
                    await self._host.close()
        except TimeoutError:
            pass  # the link is dead, and what hangs on it ends with this process
        self._host = None
        await self._tell()

    @property
    def info(self) -> HostInfo:
        """What the agent said of the machine when it last started; raises `HostError` before the first connection."""
        if self._info is None:
            raise HostError("session", "not connected yet", kind="closed", retry=True)
        return self._info

    @info.setter
    def info(self, info: HostInfo) -> None:
        self._info = info

    # ------------------------------------------------------------------------------------------------ keeping it alive

    async def _run(self) -> None:
        attempts = 0
        starting: list[asyncio.Task[None]] = []

        def early(host: Live) -> None:
            starting[:] = [asyncio.create_task(s.start(host)) for s in self._subscriptions]

        while True:
            starting.clear()
            begun = self._monotonic()
            try:
                host = await self._connect(early)
            except HostError as error:
                failure = error
            except Exception as error:  # noqa: BLE001 - a defect must be shown to the user, not end the session silently
                failure = HostError("connect", f"{type(error).__name__}: {error}", "this is a defect of eagletui", kind="other")
            else:
                begun = self._monotonic()
                failure = await self._serve(host, starting)
                if self._monotonic() - begun > self._timings.settled:
                    attempts = 0
                begun = self._monotonic()
                if self._resumed() and failure.retry:
                    continue
            finally:
                for task in starting:  # `_serve` has waited for them; left are those of a connection that did not come about
                    task.cancel()
            if self._first is not None and not self._first.done():
                self._first.set_exception(failure)
                return
            attempts += 1
            await self._wait(failure, attempts, begun)

    async def _wait(self, failure: HostError, attempts: int, begun: float) -> None:
        """Back off after a failure of the network; wait for a person after any other.

        The pause counts from ``begun``, the start of the attempt: one that waited long for an answer has waited already.
        """
        told = {"step": failure.step, "why": failure.why, "remedy": failure.remedy, "kind": failure.kind, "attempts": attempts}
        self._nudge.clear()
        if not failure.retry:
            self._set("blocked", next_try=None, **told)
            await self._tell()
            await self._nudge.wait()
            self._set("reconnecting" if self._info else "connecting", next_try=None)
            return
        steps = self._timings.backoff
        delay = steps[min(attempts, len(steps)) - 1] * (1 - random.random() * self._timings.jitter)  # noqa: S311 - no secret
        due = max(begun + delay, self._monotonic() + min(delay, self._timings.backoff[0]) / 2)
        self._set("reconnecting" if self._info else "connecting", next_try=due, **told)
        await self._tell()
        while (left := due - self._monotonic()) > 0 and not self._resumed():
            with contextlib.suppress(TimeoutError):  # the next look at the clocks
                async with asyncio.timeout(min(left, self._timings.tick)):
                    await self._nudge.wait()
                return

    def _resumed(self) -> bool:
        """Whether this machine slept since the last call: the wall clock went on, the monotonic one stood still."""
        drift = self._wall() - self._monotonic()
        jumped = drift - self._drift > self._timings.jump
        self._drift = drift
        return jumped

    async def _serve(self, host: Live, starting: list[asyncio.Task[None]]) -> HostError:
        """Use a fresh connection until it ends; returns why it ended."""
        rebooted = self._info is not None and self._info.boot_id != host.info.boot_id
        self._info = host.info
        try:
            self._resumed()  # what was slept while connecting is over
            problem = await self._replay(host, starting)
            if host.ended.done():
                return host.ended.result()
            self._host = host
            self._set(
                "online", step=problem.step if problem else "", why=problem.why if problem else "",
                remedy=problem.remedy if problem else "", kind=problem.kind if problem else "",
                attempts=0, next_try=None, rebooted=rebooted, **_limits(host), **self._counts(host),
            )  # fmt: skip
            if self._first is not None and not self._first.done():
                self._first.set_result(None)
            await self._tell()
            return await self._watch(host)
        finally:
            self._received, self._sent = self._received + host.received, self._sent + host.sent
            if self._host is host:
                self._host = None
            await self._end(host)

    async def _end(self, host: Live) -> None:
        try:
            async with asyncio.timeout(self._timings.close):
                await host.close()
        except (TimeoutError, HostError):
            pass  # a dead link need not be closed in good order
        await self._tell()

    async def _replay(self, host: Live, starting: list[asyncio.Task[None]]) -> HostError | None:
        """Have all subscriptions on this connection; the first refusal, when there is one."""
        await asyncio.gather(*starting)
        missing = [s for s in self._subscriptions if s.host is not host]
        await asyncio.gather(*(s.start(host) for s in missing))
        return next((s.problem for s in self._subscriptions if s.problem is not None), None)

    async def _watch(self, host: Live) -> HostError:
        """Follow the link until it ends; gives it up by itself only when it is silent after a suspend."""
        timings = self._timings
        deadline: float | None = None
        heard: float | None = None
        while True:
            await asyncio.wait({host.ended}, timeout=timings.tick)
            if host.ended.done():
                return host.ended.result()
            now = self._monotonic()
            if self._resumed():
                deadline, heard = now + timings.resume, host.last_frame
            if host.last_frame != heard:
                deadline = None
            if deadline is not None and now > deadline:
                return HostError("link", "it did not survive the suspend of this machine", kind="closed", retry=True)
            old = host.last_frame is not None and now - host.last_frame > timings.stale + float(getattr(host, "pace", 0.0))
            self._set("stale" if old else "online", **self._counts(host))

    def _counts(self, host: Live) -> dict[str, Any]:
        return {
            "rtt": host.rtt,
            "last_frame": host.last_frame,
            "received": self._received + host.received,
            "sent": self._sent + host.sent,
        }

    def _set(self, state: str, **fields: Any) -> None:
        if self.state.state == "closed":
            return
        if state != self.state.state:
            fields["since"] = self._monotonic()
        after = self.state._replace(state=state, **fields)
        if after != self.state:
            self.state = after
            if self._on_state is not None:
                self._on_state(after)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    # ------------------------------------------------------------------------------------------------ asking the host

    async def _live(self, patience: float | None = None, besides: Host | None = None) -> Live:
        """The host once it is there (and another than ``besides``). Raises `HostError` when that will not be."""
        limit = self._timings.patience if patience is None else patience
        try:
            async with asyncio.timeout(limit), self._changed:
                while True:
                    state = self.state
                    if state.state == "closed":
                        raise HostError("session", "closed", kind="closed")
                    if state.state == "blocked":
                        raise HostError(state.step, state.why, state.remedy, kind=state.kind)
                    host = self._host
                    # one whose link has just ended is none, though nobody has had the time to take it away yet
                    if host is not None and host is not besides and not host.ended.done():
                        return host
                    await self._changed.wait()
        except TimeoutError:
            state = self.state
            why = state.why or "no connection"
            raise HostError(state.step or "connect", why, state.remedy, kind=state.kind or "timeout", retry=True) from None

    async def _call(self, what: str, repeatable: bool, call: Callable[[Live], Awaitable[T]]) -> T:
        host = await self._live()
        while True:
            try:
                return await call(host)
            except HostError:
                if not host.ended.done():
                    raise  # the answer of a living agent
                if not repeatable:
                    why = "the connection was lost while it was under way; it may or may not have been done"
                    raise HostError(what, why, "look before you try again", kind="closed", retry=True) from None
            host = await self._live(besides=host)

    async def request(self, method: str, body: bytes = b"", /, **params: Any) -> Any:
        return await self._call(method, method in REPEATABLE and not body, lambda host: host.request(method, body, **params))

    async def batch(self, calls: Sequence[tuple[str, Doc]]) -> list[Any]:
        return await self._call("batch", all(method in REPEATABLE for method, _ in calls), lambda host: host.batch(calls))

    async def read(
        self, path: str, offset: int, limit: int = 65536, wait: float = 0.0, identity: tuple[int, int] | None = None
    ) -> Chunk:
        return await self._call("read", True, lambda host: host.read(path, offset, limit, wait, identity))

    async def search(self, path: str, pattern: str, start: int = 0, **params: Any) -> Doc:
        return await self._call("search", True, lambda host: host.search(path, pattern, start, **params))

    async def http(
        self,
        port: int,
        path: str,
        method: str = "GET",
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout: float = 5.0,
    ) -> HttpAnswer:
        safe = method.upper() in ("GET", "HEAD")
        return await self._call("http", safe, lambda host: host.http(port, path, method, body, headers, timeout))

    async def subscribe(self, stream: str, interval: float, listener: Listener, **params: Any) -> Callable[[], Awaitable[None]]:
        """As `Host.subscribe`; the stream goes on after a reconnect, where its numbers begin anew with a whole document."""
        subscription = _Subscription(stream, interval, listener, params)

        async def begin(host: Live) -> None:
            if subscription.host is not host:
                await subscription.start(host)
            if subscription.problem is not None:
                raise subscription.problem

        self._subscriptions.append(subscription)
        try:
            await self._call("subscribe", True, begin)
        except BaseException:
            self._subscriptions.remove(subscription)
            raise

        async def end() -> None:
            if not subscription.wanted:
                return
            subscription.wanted = False
            self._subscriptions.remove(subscription)
            if subscription.end is not None and subscription.host is self._host:
                with contextlib.suppress(HostError):  # the link is gone, and the stream with it
                    await subscription.end()

        return end

    async def forward(self, port: int) -> Forward:
        """As `Host.forward`; the local port stays the same over reconnects."""
        relay = Relay(port, self._live, self._relays.discard)
        await relay.open()
        self._relays.add(relay)
        return relay


def _limits(host: Live) -> dict[str, str]:
    """What `Connection` tells of a host without an agent."""
    limited: str = getattr(host, "limited", "")
    return {"limited": limited, "limited_remedy": getattr(host, "remedy", "") if limited else ""}
