"""Slow and unsteady links: what is first seen how soon, and that a log neither delays telemetry nor keys. Figures are printed."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from eagletui.hosts.session import Session
from eagletui.hosts.ssh import connector
from eagletui.hosts.target import Target
from eagletui.records import JobState
from eagletui.store import Store
from eagletui.watch.logs import LogTails
from tests.faults.net import Followed, Lag, Watcher, part, say, until, within
from tests.host.conftest import home, key, known, proxies, server, servers, short_path  # noqa: F401
from tests.host.proxy import TcpProxy

# what is measured here depends on the machine's other work: not in every run of the tests
pytestmark = [pytest.mark.machine, pytest.mark.timeout(300)]


@pytest.fixture
async def watched(proxy: TcpProxy) -> AsyncIterator[tuple[Session, Watcher]]:
    """With the timings that a user has."""
    watcher = Watcher()
    session = Session(connector(Target("127.0.0.1", "root", proxy.port)), watcher.state)
    yield session, watcher
    await session.close()


@pytest.mark.fault(8, how="a proxy that delays by 150 ms each way")
async def test_the_first_data_at_300_ms(watched: tuple[Session, Watcher], proxy: TcpProxy) -> None:
    session, watcher = watched
    await session.open()  # the modules of this program are loaded, and what asyncssh imports
    proxy.delay = 0.15
    proxy.reset()
    await watcher.becomes("reconnecting")
    lag, begun = Lag(), time.monotonic()
    subscribing = asyncio.create_task(session.subscribe("host", 1.0, watcher.push))
    session.retry_now()
    first = await watcher.more(1) - begun
    await subscribing
    most = lag.end()
    await watcher.more(5)
    say(f"300 ms: first data after {first:.2f} s (4 s), the event loop was late by {1000 * most:.0f} ms at most")
    assert first < within(4)
    assert most < within(0.2)
    assert watcher.names[-1] == "online"


@pytest.mark.fault(9, how="a proxy of 1 MB/s and 50 ms, with a log read at full speed")
async def test_a_log_does_not_delay_telemetry_on_a_slow_link(
    watched: tuple[Session, Watcher], proxy: TcpProxy, tmp_path: Path
) -> None:
    session, watcher = watched
    log = tmp_path / "log"
    log.write_bytes(os.urandom(1 << 20) * 64)
    await session.open()
    await session.subscribe("host", 0.25, watcher.push)
    proxy.delay, proxy.rate = 0.025, 1e6
    following = asyncio.create_task((follower := Followed(session, log)).run())
    await watcher.more(8)
    watcher.pushes.clear()
    begun, size = time.monotonic(), follower.size
    await watcher.more(60)
    goodput = (follower.size - size) / (time.monotonic() - begun)
    following.cancel()
    offset = time.time() - time.monotonic()
    late = [at + offset - push.wall for at, push in watcher.pushes]
    p50, p95 = part(late, 0.5), part(late, 0.95)
    say(f"1 MB/s, 50 ms: telemetry p50 {1000 * p50:.0f} ms, p95 {1000 * p95:.0f} ms (150 ms), log {goodput / 1e6:.2f} MB/s")
    assert p95 < within(0.3)  # two seconds when the log may fill the window
    assert goodput > 1e5


WRITER = """
import sys, time
file, line, rate = open(sys.argv[1], "ab", 0), b"x" * 99 + b"\\n", int(sys.argv[2])
while True:
    file.write(line * (rate // 2000))
    time.sleep(0.05)
"""


@pytest.mark.fault(10, how="a program that writes 1 MB/s, then 100 MB/s into a log whose tail is shown")
@pytest.mark.parametrize("rate", [1_000_000, 100_000_000])
async def test_the_tail_of_a_flood_costs_little(watched: tuple[Session, Watcher], tmp_path: Path, rate: int) -> None:
    session, watcher = watched
    log = tmp_path / "log"
    log.touch()
    store = Store()
    store.jobs = {"j1": JobState("j1", "serve", "lab", "running", 0.0, log=str(log))}
    await session.open()
    await session.subscribe("host", 0.25, watcher.push)
    tails, lag, process = LogTails(session, store), Lag(), psutil.Process()
    writer = await asyncio.create_subprocess_exec(sys.executable, "-c", WRITER, str(log), str(rate))
    try:
        tails.look("j1", True)
        await until(lambda: "j1" in store.tails and bool(store.tails["j1"]))
        await watcher.more(8)
        before, cpu, at = process.memory_info().rss, time.process_time(), time.monotonic()
        await watcher.more(20)
        grown = process.memory_info().rss - before
        share = (time.process_time() - cpu) / (time.monotonic() - at)
    finally:
        writer.kill()
        await writer.wait()
        await tails.stop()
    most = lag.end()
    cost = f"{100 * share:.0f} % of a core (25 %), {grown >> 20} MiB more, late by {1000 * most:.0f} ms"
    say(f"a log of {rate // 1_000_000} MB/s: {cost}")
    assert grown < 64 << 20
    assert share < within(0.25)
    assert watcher.names[-1] == "online"


@pytest.mark.fault(11, how="a proxy that passes nothing for 3, 7 and 10 s")
async def test_stalls_are_told_and_no_reason_to_connect_anew(watched: tuple[Session, Watcher], proxy: TcpProxy) -> None:
    session, watcher = watched
    await session.open()
    await session.subscribe("host", 0.5, watcher.push)
    for stall in (3.0, 7.0, 10.0):
        await watcher.more(2)
        watcher.states[:-1] = []
        proxy.freeze()
        await asyncio.sleep(stall)  # the stall itself
        proxy.thaw()
        await watcher.more(2)
        await watcher.becomes("online")
        assert watcher.names == (["online", "stale", "online"] if stall > 6 else ["online"])
    assert proxy.connections == 1
    numbers = [push.number for _, push in watcher.pushes]
    assert numbers == sorted(set(numbers))


@pytest.mark.fault(3, how="a link of 50 ms whose host cannot be reached for a while: how soon it is back")
@pytest.mark.parametrize("away", [1.0, 6.0])
async def test_back_within_three_seconds_at_50_ms(watched: tuple[Session, Watcher], proxy: TcpProxy, away: float) -> None:
    session, watcher = watched
    proxy.delay = 0.025
    await session.open()
    await session.subscribe("host", 0.5, watcher.push)
    await watcher.more(2)
    await proxy.refuse()
    await asyncio.sleep(away)  # the network is away that long
    await proxy.start()
    begun = time.monotonic()
    back = await watcher.more(1) - begun
    tries = [state.next_try - at for at, state in watcher.states if state.next_try is not None and state.next_try > at]
    say(f"50 ms, away for {away:g} s: data again after {back:.2f} s (3 s), longest pause {max(tries):.2f} s (2 s)")
    assert back < within(3)
    assert max(tries) <= 2.0
