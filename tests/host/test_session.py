"""The session over a real sshd, a real agent and a proxy with faults: it comes back, and the streams go on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from eagletui.connection import Connection
from eagletui.hosts.base import HostError, Push
from eagletui.hosts.session import Session, Timings
from eagletui.hosts.ssh import connector
from eagletui.hosts.target import Target
from tests.host.proxy import TcpProxy
from tests.host.sshd import Sshd

FAST = Timings(stale=1.0, backoff=(0.05, 0.1), tick=0.05, patience=30.0)


class Watcher:
    """Collects states and pushes; waits for what a test expects of them."""

    def __init__(self) -> None:
        self.states: list[Connection] = []
        self.pushes: list[Push] = []
        self._news = asyncio.Event()

    def state(self, state: Connection) -> None:
        self.states.append(state)
        self._news.set()

    def push(self, push: Push) -> None:
        self.pushes.append(push)
        self._news.set()

    @property
    def names(self) -> list[str]:
        """The states, each once when it holds on."""
        names = [s.state for s in self.states]
        return [n for i, n in enumerate(names) if not i or names[i - 1] != n]

    async def until(self, what: Callable[[], bool], limit: float = 60.0) -> None:
        async with asyncio.timeout(limit):
            while not what():
                self._news.clear()
                await self._news.wait()

    async def more_pushes(self, count: int = 2) -> None:
        wanted = len(self.pushes) + count
        await self.until(lambda: len(self.pushes) >= wanted)


@pytest.fixture
async def watched(proxy: TcpProxy) -> AsyncIterator[tuple[Session, Watcher]]:
    watcher = Watcher()
    connect = connector(Target("127.0.0.1", "root", proxy.port), silence=2.0)
    session = Session(connect, watcher.state, target="gpu", timings=FAST)
    yield session, watcher
    await session.close()


@pytest.mark.fault(5, how="a proxy that resets all connections")
async def test_a_cut_connection_comes_back_and_the_stream_goes_on(
    watched: tuple[Session, Watcher], proxy: TcpProxy, tmp_path: Path
) -> None:
    session, watcher = watched
    await session.open()
    await session.subscribe("host", 0.2, watcher.push)
    await watcher.more_pushes()
    before = watcher.pushes[-1]
    assert watcher.names == ["online"]
    proxy.reset()
    await watcher.until(lambda: watcher.names == ["online", "reconnecting", "online"])
    told = next(s for s in watcher.states if s.state == "reconnecting")
    assert told.why
    assert told.next_try is not None
    await watcher.more_pushes()
    assert set(watcher.pushes[-1].doc) >= {"mem_total", "tasks"} & set(before.doc)
    assert watcher.pushes[-1].boot > before.boot
    assert not watcher.states[-1].rebooted
    assert watcher.states[-1].attempts == 0
    file = tmp_path / "log"
    file.write_bytes(b"0123456789")
    assert (await session.read(str(file), 4)).data == b"456789"


@pytest.mark.fault(5, how="a proxy that freezes and resets with a read and a write under way")
async def test_a_read_under_way_is_sent_again_a_write_is_not(
    watched: tuple[Session, Watcher], proxy: TcpProxy, tmp_path: Path
) -> None:
    session, watcher = watched
    await session.open()
    file = tmp_path / "log"
    file.write_bytes(b"old")
    reading = asyncio.create_task(session.read(str(file), 3, wait=15.0))
    await proxy.traffic()
    # as a launch would: a request that changes something, held up by the frozen line
    proxy.freeze()
    writing = asyncio.create_task(session.request("write", b"x", path=str(tmp_path / "w"), expect_sha="", mode=0o600))
    await asyncio.sleep(0)
    proxy.reset()
    proxy.thaw()
    with pytest.raises(HostError) as caught:
        await writing
    assert (caught.value.kind, caught.value.retry) == ("closed", True)
    assert "may or may not" in caught.value.why
    await watcher.until(lambda: watcher.names[-2:] == ["reconnecting", "online"])
    with file.open("ab") as out:
        out.write(b"new")
    assert (await reading).data == b"new"


@pytest.mark.fault(3, how="a proxy that passes nothing any more and keeps both connections")
async def test_a_half_open_link_is_noticed(watched: tuple[Session, Watcher], proxy: TcpProxy) -> None:
    session, watcher = watched
    await session.open()
    await session.subscribe("host", 0.2, watcher.push)
    await watcher.more_pushes()
    proxy.freeze()
    await watcher.until(lambda: watcher.names[-1] == "reconnecting")
    assert watcher.names == ["online", "stale", "reconnecting"]
    assert proxy.connections == 1
    proxy.thaw()
    await watcher.until(lambda: watcher.names[-1] == "online")
    await watcher.more_pushes()


@pytest.mark.fault(3, how="a proxy that passes nothing any more and keeps both connections")
async def test_closing_a_half_open_session_is_quick(watched: tuple[Session, Watcher], proxy: TcpProxy) -> None:
    session, watcher = watched
    await session.open()
    proxy.freeze()
    async with asyncio.timeout(5):  # a second by its own limit; the rest is for a busy machine
        await session.close()
    assert watcher.states[-1].state == "closed"
    with pytest.raises(HostError) as caught:
        await session.request("stat", paths=["/"])
    assert caught.value.kind == "closed"


@pytest.mark.fault(12, how="nothing listens for a while")
async def test_a_server_that_is_away_for_a_while(watched: tuple[Session, Watcher], proxy: TcpProxy) -> None:
    session, watcher = watched
    await session.open()
    await proxy.refuse()
    await watcher.until(lambda: any(s.kind == "refused" and s.attempts >= 3 for s in watcher.states))
    asking = asyncio.create_task(session.request("stat", paths=["/"]))
    await proxy.start()
    session.retry_now()
    assert (await asking)[0]["inode"]
    assert watcher.names == ["online", "reconnecting", "online"]


async def test_a_changed_key_blocks_until_a_person_acts(
    watched: tuple[Session, Watcher], proxy: TcpProxy, server: Sshd, known: Path
) -> None:
    session, watcher = watched
    await session.open()
    good = known.read_text()
    known.write_text(server.known_line("ecdsa-sha2-nistp256", name=f"[127.0.0.1]:{proxy.port}"))
    proxy.reset()
    await watcher.until(lambda: watcher.names[-1] == "blocked")
    state = watcher.states[-1]
    assert (state.kind, state.next_try) == ("key-changed", None)
    attempts = proxy.connections
    with pytest.raises(HostError) as caught:
        await session.request("stat", paths=["/"])
    assert caught.value.kind == "key-changed"
    assert proxy.connections == attempts  # nothing is tried behind the person's back
    known.write_text(good)
    session.retry_now()
    await watcher.until(lambda: watcher.names[-1] == "online")


async def test_the_first_failure_is_raised_by_open(proxy: TcpProxy) -> None:
    await proxy.refuse()
    watcher = Watcher()
    session = Session(connector(Target("127.0.0.1", "root", proxy.port)), watcher.state, timings=FAST)
    with pytest.raises(HostError) as caught:
        await session.open()
    assert caught.value.kind == "refused"
    assert session.state.state == "closed"


async def test_a_forwarded_port_stays_over_a_reconnect(watched: tuple[Session, Watcher], proxy: TcpProxy) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"<" + await reader.read(100) + b">")
        writer.close()

    there = await asyncio.start_server(echo, "127.0.0.1", 0)
    session, watcher = watched
    await session.open()
    forward = await session.forward(there.sockets[0].getsockname()[1])

    async def ask() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", forward.port)
        writer.write(b"hi")
        answer = await reader.read()
        writer.close()
        return answer

    assert await ask() == b"<hi>"
    proxy.reset()
    await watcher.until(lambda: watcher.names == ["online", "reconnecting", "online"])
    assert await ask() == b"<hi>"
    await forward.close()
    there.close()


async def test_bytes_and_round_trips_are_counted(watched: tuple[Session, Watcher], proxy: TcpProxy) -> None:
    session, watcher = watched
    proxy.delay = 0.02
    await session.open()
    await watcher.until(lambda: watcher.states[-1].rtt is not None)
    state = watcher.states[-1]
    assert state.rtt is not None
    assert state.rtt >= 0.04
    assert state.received > 0
    assert state.sent > 10_000  # the agent's modules
    assert state.last_frame is not None
    assert state.last_frame <= time.monotonic()
