"""Connections that are cut: nothing of a log and no sample is lost or doubled, and the session is back soon."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from eagletui.hosts.session import Session, Timings
from eagletui.hosts.ssh import connector
from eagletui.hosts.target import Target
from eagletui.records import HostInfo, JobState
from eagletui.store import Store
from eagletui.watch.servers import Servers
from tests.faults.net import PATIENCE, Followed, Watcher, say, sha256, until
from tests.faults.seeds import seeded
from tests.host.conftest import home, key, known, proxies, server, servers, short_path  # noqa: F401
from tests.host.proxy import TcpProxy

FAST = Timings(stale=1.0, backoff=(0.05, 0.1), tick=0.05, patience=30.0)


@pytest.fixture
async def watched(proxy: TcpProxy) -> AsyncIterator[tuple[Session, Watcher]]:
    watcher = Watcher()
    session = Session(connector(Target("127.0.0.1", "root", proxy.port), silence=3.0), watcher.state, timings=FAST)
    yield session, watcher
    await session.close()


async def cut(proxy: TcpProxy, how: int, dice: random.Random) -> None:
    """End the connection in one of the ways; returns when another has begun."""
    before = proxy.connections
    if how == 0:
        proxy.cut_after(proxy.passed + dice.randrange(1, 200_000))
    elif how == 1:
        proxy.cut()
    else:
        proxy.freeze()
        await asyncio.sleep(dice.random() * 0.3)  # what is under way lies there
        proxy.reset()
        proxy.thaw()
    await until(lambda: proxy.connections > before)


async def over_cuts(session: Session, watcher: Watcher, proxy: TcpProxy, folder: Path, cuts: int, dice: random.Random) -> None:
    """Follow a log and a server's samples that are written all the time, over that many cuts, and compare with the files."""
    log, samples = folder / "log", folder / "state" / "jobs" / "j1" / "samples.jsonl"
    samples.parent.mkdir(parents=True)
    log.touch()
    written = 0

    def write(count: int) -> None:
        nonlocal written
        with log.open("ab") as file, samples.open("ab") as lines:
            for _ in range(count):
                file.write(dice.randbytes(dice.randrange(1, 30_000)).replace(b"\n", b"\r") + b"\n")
                sample = {"boot": float(written), "wall": 1e9 + written, "engine": "vllm", "generated_tokens": 7.0 * written}
                lines.write(json.dumps(sample).encode() + b"\n")
                written += 1

    write(3)
    store = Store()
    job = JobState("j1", "serve", "lab", "running", 0.0, ready_seconds=1.0, health="ready")
    await session.open()
    info = session.info
    store.info = HostInfo(info.hostname, info.boot_id, "root", 0, "3", 1, 1.0, 1e9, state_dir=str(folder / "state"))
    store.jobs = {"j1": job}
    follower, server_follower = Followed(session, log), Servers(session, store, retry=0.02)
    following = asyncio.create_task(follower.run())
    server_follower.update([job], 1.0)
    await session.subscribe("host", 0.2, watcher.push)
    writing = asyncio.create_task(write_on(write))
    try:
        for number in range(cuts):
            await cut(proxy, dice.randrange(3), dice)
            if number % 2:
                await session.wait_online(PATIENCE)
                await watcher.more(1)
    finally:
        writing.cancel()
    write(1)
    await session.wait_online(PATIENCE)
    await follower.reaches(log.stat().st_size)
    series = ("server", "j1", "generated")
    last = float(written - 1)
    await until(lambda: series in store.series and store.series[series].last() == (last, 7.0))
    following.cancel()
    assert follower.digest.hexdigest() == sha256(log)
    times, values = store.series[series].window()
    assert list(times) == [float(n) for n in range(1, written)]  # every sample once
    assert set(values) == {7.0}
    await server_follower.stop()
    say(f"{cuts} cuts: {log.stat().st_size} bytes of log and {written} samples, none lost or doubled")


async def write_on(write: Callable[[int], None]) -> None:
    while True:
        write(2)
        await asyncio.sleep(0.02)


@pytest.mark.fault(
    5, how="a proxy that resets, closes or freezes at random bytes while a log and a server's samples are followed"
)
async def test_nothing_of_a_log_or_of_the_samples_is_lost_or_doubled_over_cuts(
    watched: tuple[Session, Watcher], proxy: TcpProxy, tmp_path: Path
) -> None:
    await over_cuts(*watched, proxy, tmp_path, 6, seeded("cuts"))


@pytest.mark.machine
@pytest.mark.timeout(600)
@pytest.mark.fault(5, how="the same over 30 cuts")
async def test_nothing_is_lost_or_doubled_over_thirty_cuts(
    watched: tuple[Session, Watcher], proxy: TcpProxy, tmp_path: Path
) -> None:
    await over_cuts(*watched, proxy, tmp_path, 30, seeded("thirty cuts"))


@pytest.mark.fault(5, how="a proxy that resets after sampled bytes of login and start")
async def test_a_cut_anywhere_in_the_start_is_tried_again(
    watched: tuple[Session, Watcher], proxy: TcpProxy, tmp_path: Path
) -> None:
    session, watcher = watched
    dice = seeded("cuts in the start")
    session.start()
    await watcher.becomes("online")
    for _ in range(10):
        before = proxy.connections
        proxy.reset()
        await until(lambda before=before: proxy.connections > before)  # type: ignore[misc]
        proxy.cut_after(proxy.passed + dice.randrange(1, 60_000))
        await until(lambda before=before: proxy.connections > before + 1 or session.state.state == "blocked")  # type: ignore[misc]
        assert session.state.state != "blocked", session.state.why
    await watcher.becomes("online")
    assert "blocked" not in watcher.names
