"""The session over a host that a test scripts: states, back-off, replay, what is asked again, and sleep."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest

from eagletui.connection import Connection
from eagletui.hosts.base import Chunk, Doc, Forward, HostError, HttpAnswer, Listener, Push
from eagletui.hosts.session import Early, Session, Timings
from eagletui.records import HostInfo

NETWORK = HostError("connect", "no route to gpu", "check the network", kind="route", retry=True)
FAST = Timings(stale=5.0, backoff=(0.01, 0.02), tick=0.01, patience=5.0)


class FakeForward:
    """A port that nothing is behind."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def close(self) -> None: ...


class FakeHost:
    """A `session.Live` whose every answer waits until the test gives it or the link ends."""

    def __init__(self, boot_id: str = "boot-1") -> None:
        self.info = HostInfo("gpu", boot_id, "root", 0, "3.11", 1, 0.0, 0.0)
        self.last_frame: float | None = 0.0
        self.rtt: float | None = 0.01
        self.received = self.sent = 100
        self.ended: asyncio.Future[HostError] = asyncio.get_running_loop().create_future()
        self.listeners: dict[str, Listener] = {}
        self.refuses: HostError | None = None
        self.calls: list[str] = []
        self.open: asyncio.Queue[asyncio.Future[Any]] = asyncio.Queue()
        self.closed = False
        self.port: int | None = None

    def die(self, error: HostError | None = None) -> None:
        self.ended.set_result(error or HostError("connection", "the host went away", kind="closed", retry=True))

    async def _answer(self, what: str) -> Any:
        self.calls.append(what)
        if self.ended.done():
            raise self.ended.result()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.open.put_nowait(future)
        await asyncio.wait({future, self.ended}, return_when=asyncio.FIRST_COMPLETED)
        if future.done():
            return future.result()
        raise HostError("connection", "the host went away", kind="timeout")

    async def reply(self, value: Any) -> None:
        (await self.open.get()).set_result(value)

    async def request(self, method: str, body: bytes = b"", /, **params: Any) -> Any:
        return await self._answer(method)

    async def batch(self, calls: Sequence[tuple[str, Doc]]) -> list[Any]:
        return list(await self._answer("batch"))

    async def subscribe(self, stream: str, interval: float, listener: Listener, **params: Any) -> Callable[[], Awaitable[None]]:
        self.calls.append(f"subscribe {stream} {interval} {params}")
        if self.refuses is not None:
            raise self.refuses
        self.listeners[stream] = listener

        async def stop() -> None:
            self.calls.append(f"unsubscribe {stream}")
            del self.listeners[stream]

        return stop

    async def read(
        self, path: str, offset: int, limit: int = 65536, wait: float = 0.0, identity: tuple[int, int] | None = None
    ) -> Chunk:
        return Chunk(await self._answer("read"), offset, 0, 0, 0)

    async def search(self, path: str, pattern: str, start: int = 0, **params: Any) -> Doc:
        return dict(await self._answer("search"))

    async def http(
        self,
        port: int,
        path: str,
        method: str = "GET",
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout: float = 5.0,
    ) -> HttpAnswer:
        return HttpAnswer(200, {}, await self._answer(f"http {method}"))

    async def forward(self, port: int) -> Forward:
        if self.port is None:
            raise HostError("forward", "not here", kind="refused")
        return FakeForward(self.port)

    async def close(self) -> None:
        self.closed = True
        if not self.ended.done():
            self.die()


class Rig:
    """A session whose connections a test hands out: a `FakeHost`, or a `HostError` to raise."""

    def __init__(self, timings: Timings = FAST) -> None:
        self.results: asyncio.Queue[FakeHost | HostError] = asyncio.Queue()
        self.attempts = 0
        self.states: list[Connection] = []
        self.news = asyncio.Event()
        self._slept, self._ahead = 0.0, 4000.0
        self.session = Session(
            self.connect,
            self.state,
            target="gpu",
            timings=timings,
            monotonic=lambda: self.monotonic,
            wall=lambda: self.wall,
        )

    @property
    def monotonic(self) -> float:
        """The session's monotonic clock: the real one, which a test may put forward."""
        return time.monotonic() + self._slept

    @monotonic.setter
    def monotonic(self, value: float) -> None:
        self._slept = value - time.monotonic()

    @property
    def wall(self) -> float:
        return time.monotonic() + self._ahead

    @wall.setter
    def wall(self, value: float) -> None:
        self._ahead = value - time.monotonic()

    async def connect(self, early: Early) -> FakeHost:
        self.attempts += 1
        self.news.set()
        result = await self.results.get()
        if isinstance(result, HostError):
            raise result
        result.last_frame = self.monotonic
        early(result)
        return result

    def state(self, state: Connection) -> None:
        self.states.append(state)
        self.news.set()

    def give(self, *results: FakeHost | HostError) -> None:
        for result in results:
            self.results.put_nowait(result)

    async def until(self, what: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not what():
                self.news.clear()
                await self.news.wait()

    async def reaches(self, *names: str) -> None:
        await self.until(lambda: self.names[-len(names) :] == list(names))

    @property
    def names(self) -> list[str]:
        names = [s.state for s in self.states]
        return [n for i, n in enumerate(names) if not i or names[i - 1] != n]


@pytest.fixture
async def rig() -> Any:
    made = Rig()
    yield made
    await made.session.close()


async def online(rig: Rig) -> FakeHost:
    host = FakeHost()
    rig.give(host)
    await rig.session.open()
    return host


async def test_network_failures_are_tried_again_with_what_is_known(rig: Rig) -> None:
    host = FakeHost()
    rig.session.start()
    rig.give(NETWORK, NETWORK, host)
    await rig.until(lambda: bool(rig.states))
    state = rig.states[0]
    assert state.attempts == 1
    assert (state.state, state.kind, state.step, state.why) == ("connecting", "route", "connect", "no route to gpu")
    assert state.next_try is not None
    assert state.next_try < rig.monotonic + 0.02
    await rig.until(lambda: any(s.attempts == 2 for s in rig.states))
    await rig.reaches("connecting", "online")
    state = rig.states[-1]
    assert (state.why, state.attempts, state.next_try, state.kind) == ("", 0, None, "")
    assert rig.session.info == host.info


@pytest.mark.parametrize("kind", ["auth", "key-changed", "config", "no-python"])
async def test_what_a_person_must_mend_blocks(rig: Rig, kind: str) -> None:
    rig.session.start()
    rig.give(HostError("login", "no", "do something", kind=kind))
    await rig.reaches("blocked")
    with pytest.raises(HostError) as caught:
        await rig.session.request("stat")
    assert caught.value.kind == kind
    rig.monotonic += 1000
    rig.wall += 5000  # not even a resume tries again
    await asyncio.sleep(0)
    assert rig.attempts == 1
    rig.session.retry_now()
    rig.give(FakeHost())
    await rig.reaches("connecting", "online")
    assert rig.attempts == 2


async def test_a_defect_is_shown_and_ends_nothing(rig: Rig) -> None:
    async def broken(early: Early) -> FakeHost:
        raise ZeroDivisionError("oops")

    session = Session(broken, rig.state, timings=FAST)
    session.start()
    await rig.reaches("blocked")
    assert "ZeroDivisionError: oops" in rig.states[-1].why
    await session.close()


async def test_open_raises_the_first_failure(rig: Rig) -> None:
    rig.give(NETWORK)
    with pytest.raises(HostError) as caught:
        await rig.session.open()
    assert caught.value is NETWORK
    assert rig.session.state.state == "closed"


async def test_subscriptions_are_sent_again_to_the_same_listener(rig: Rig) -> None:
    pushes: list[Push] = []
    first, second = await online(rig), FakeHost()
    end = await rig.session.subscribe("gpus", 1.0, pushes.append, only="a")
    first.listeners["gpus"](Push("gpus", 7, 1.0, 1.0, {"n": 1}, {}))
    first.die()
    rig.give(second)
    await rig.reaches("online", "reconnecting", "online")
    second.listeners["gpus"](Push("gpus", 1, 2.0, 2.0, {"n": 2}, {}))
    assert [push.doc["n"] for push in pushes] == [1, 2]
    assert first.calls == second.calls == ["subscribe gpus 1.0 {'only': 'a'}"]
    assert first.closed
    await end()
    assert second.calls[-1] == "unsubscribe gpus"
    second.die()
    third = FakeHost()
    rig.give(third)
    await rig.until(lambda: rig.attempts == 3)
    await rig.reaches("reconnecting", "online")
    assert third.calls == []


async def test_a_stream_wanted_before_the_first_connection_travels_with_the_agent(rig: Rig) -> None:
    host = FakeHost()
    wanting = asyncio.create_task(rig.session.subscribe("gpus", 1.0, lambda push: None))
    rig.session.start()
    await rig.until(lambda: rig.attempts == 1)
    rig.give(host)
    await wanting
    assert host.calls == ["subscribe gpus 1.0 {}"]


async def test_a_refused_stream_is_told_to_who_asked(rig: Rig) -> None:
    host = await online(rig)
    host.refuses = HostError("subscribe", "there is no stream x", kind="agent")
    with pytest.raises(HostError, match="no stream x"):
        await rig.session.subscribe("x", 1.0, lambda push: None)
    host.die()
    second = FakeHost()
    rig.give(second)
    await rig.reaches("reconnecting", "online")
    assert second.calls == []


async def test_a_stream_that_is_refused_after_a_reconnect_is_shown(rig: Rig) -> None:
    host = await online(rig)
    await rig.session.subscribe("gpus", 1.0, lambda push: None)
    second = FakeHost()
    second.refuses = HostError("subscribe", "no driver any more", kind="agent")
    rig.give(second)
    host.die()
    await rig.reaches("reconnecting", "online")
    assert rig.states[-1].why == "no driver any more"


Ask = Callable[[Session], Awaitable[Any]]


@pytest.mark.parametrize(
    "ask",
    [
        lambda s: s.read("/f", 0),
        lambda s: s.search("/f", "x"),
        lambda s: s.http(80, "/metrics"),
        lambda s: s.request("stat", paths=[]),
        lambda s: s.batch([("stat", {}), ("read", {})]),
    ],
)
async def test_what_only_reads_is_asked_again(rig: Rig, ask: Ask) -> None:
    first, second = await online(rig), FakeHost()
    asking = asyncio.ensure_future(ask(rig.session))
    await first.open.get()
    rig.give(second)
    first.die()
    await second.reply({})
    await asking
    assert first.calls == second.calls


@pytest.mark.parametrize(
    "ask",
    [
        lambda s: s.request("launch", spec={}),
        lambda s: s.request("kill", job="a"),
        lambda s: s.request("read", b"with a body"),
        lambda s: s.http(80, "/v1/completions", "POST"),
        lambda s: s.batch([("stat", {}), ("kill", {})]),
    ],
)
async def test_what_changes_something_is_not(rig: Rig, ask: Ask) -> None:
    first, second = await online(rig), FakeHost()
    asking = asyncio.ensure_future(ask(rig.session))
    await first.open.get()
    rig.give(second)
    first.die()
    with pytest.raises(HostError) as caught:
        await asking
    assert (caught.value.kind, caught.value.retry) == ("closed", True)
    await rig.reaches("reconnecting", "online")
    assert second.calls == []


async def test_an_answer_of_the_agent_is_passed_on(rig: Rig) -> None:
    host = await online(rig)
    asking = asyncio.create_task(rig.session.request("stat"))
    (await host.open.get()).set_exception(HostError("stat", "denied", kind="denied"))
    with pytest.raises(HostError, match="denied"):
        await asking
    assert host.calls == ["stat"]


async def test_a_request_waits_for_the_connection_but_not_for_ever() -> None:
    rig = Rig(FAST._replace(patience=0.05))
    rig.session.start()
    rig.give(NETWORK)
    with pytest.raises(HostError) as caught:
        await rig.session.request("stat")
    assert caught.value.retry
    await rig.session.close()


async def test_silence_is_stale(rig: Rig) -> None:
    host = await online(rig)
    rig.monotonic += 4
    rig.wall += 4
    assert rig.names == ["online"]
    rig.monotonic += 2
    rig.wall += 2
    await rig.reaches("stale")
    host.last_frame = rig.monotonic
    await rig.reaches("stale", "online")


async def test_a_reboot_is_told_and_streams_go_on(rig: Rig) -> None:
    host = await online(rig)
    await rig.session.subscribe("gpus", 1.0, lambda push: None)
    again = FakeHost("boot-2")
    rig.give(again)
    host.die()
    await rig.reaches("reconnecting", "online")
    assert rig.states[-1].rebooted
    assert "gpus" in again.listeners
    third = FakeHost("boot-2")
    rig.give(third)
    again.die()
    await rig.until(lambda: rig.attempts == 3 and rig.states[-1].state == "online")
    assert not rig.states[-1].rebooted


async def test_bytes_add_up_over_connections(rig: Rig) -> None:
    host = await online(rig)
    assert rig.states[-1].received == 100
    rig.give(FakeHost())
    host.die()
    await rig.reaches("reconnecting", "online")
    assert rig.states[-1].received == rig.states[-1].sent == 200


@pytest.mark.fault(6, how="clocks that jump apart, as in a suspend")
async def test_a_resume_cuts_the_back_off_short() -> None:
    rig = Rig(FAST._replace(backoff=(1000.0,)))
    rig.session.start()
    rig.give(NETWORK, FakeHost())
    await rig.until(lambda: bool(rig.states) and rig.states[-1].attempts == 1)
    rig.wall += 60  # the machine slept a minute; its monotonic clock stood still
    await rig.reaches("connecting", "online")
    await rig.session.close()


@pytest.mark.fault(6, how="clocks that jump apart, as in a suspend")
async def test_after_a_resume_a_silent_link_is_given_up_soon(rig: Rig) -> None:
    await online(rig)
    await rig.until(lambda: rig.states[-1].last_frame is not None)
    second = FakeHost()
    rig.give(second)
    rig.wall += 60

    async def time_passes() -> None:
        while True:
            rig.monotonic += 0.5
            rig.wall += 0.5
            await asyncio.sleep(0.01)  # the clock of the test, not a wait for something to happen

    clock = asyncio.create_task(time_passes())
    await rig.until(lambda: rig.attempts == 2 and rig.states[-1].state == "online")
    clock.cancel()
    assert not any(s.state == "stale" for s in rig.states)


@pytest.mark.fault(6, how="clocks that jump apart, as in a suspend")
async def test_after_a_resume_a_link_that_is_heard_stays(rig: Rig) -> None:
    host = await online(rig)
    rig.wall += 60
    async with asyncio.timeout(5):
        while rig.session._drift < 4050:  # it has seen the jump
            await asyncio.wait({host.ended}, timeout=0.01)
    host.last_frame = rig.monotonic + 0.1
    host.rtt = 0.5
    await rig.until(lambda: rig.states[-1].rtt == 0.5)
    rig.monotonic += 4
    rig.wall += 4
    host.rtt = 0.6
    await rig.until(lambda: rig.states[-1].rtt == 0.6)
    assert rig.attempts == 1


async def test_close_ends_everything(rig: Rig) -> None:
    host = await online(rig)
    asking = asyncio.create_task(rig.session.request("stat"))
    await host.open.get()
    await rig.session.close()
    assert host.closed
    with pytest.raises(HostError):
        await asking
    assert rig.names == ["online", "closed"]
    with pytest.raises(HostError) as caught:
        await rig.session.read("/f", 0)
    assert caught.value.kind == "closed"


async def test_info_before_the_first_connection(rig: Rig) -> None:
    with pytest.raises(HostError, match="not connected yet"):
        _ = rig.session.info


async def test_a_forwarded_port_that_is_closed_is_forgotten(rig: Rig) -> None:
    host = await online(rig)
    with pytest.raises(HostError):
        await rig.session.forward(8000)
    host.port = 40000
    kept, closed = await rig.session.forward(8000), await rig.session.forward(8000)
    await closed.close()
    assert rig.session._relays == {kept}
    await rig.session.close()
    assert rig.session._relays == set()
