"""A host whose clock is off by days and is set while it is watched: its monotonic clock tells the times, the skew is shown."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from eagletui.connection import Connection
from eagletui.hosts.session import Session
from eagletui.hosts.ssh import connector
from eagletui.store import Store
from eagletui.watch.core import Watch
from tests.faults.net import PATIENCE
from tests.host.conftest import home, key, known, servers, short_path  # noqa: F401 - fixtures
from tests.host.sshd import Sshd

DAYS = 3 * 86400
WITH_CLOCK = """#!/bin/sh
export LD_PRELOAD={library} CLOCK_OFFSET={offset}
exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"
"""


@pytest.mark.fault(25, how="an agent whose wall clock is three days ahead, then stepped back while it is watched")
async def test_a_clock_that_is_off_and_stepped(
    servers: Callable[[], Sshd],  # noqa: F811
    key: Path,  # noqa: F811
    known: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    library, offset = tmp_path / "clock.so", tmp_path / "offset"
    source = Path(__file__).parents[1] / "native" / "clock.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)  # noqa: ASYNC221
    offset.write_text(str(DAYS))
    sshd = servers()
    sshd.allow(Path(f"{key}.pub"))
    known.write_text(sshd.known_line())
    await sshd.start(shell=WITH_CLOCK.format(library=library, offset=offset))
    store, news = Store(), asyncio.Event()
    store.listen(lambda topic: news.set())

    def on_state(state: Connection) -> None:
        watch.on_state(state, session.info if state.state == "online" else store.info)

    session = Session(connector(sshd.target), on_state)
    watch = Watch(session, store, patience=False)

    async def until(what: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not what():
                news.clear()
                await news.wait()

    def skewed() -> bool:
        return store.clock_offset is not None and abs(store.clock_offset - DAYS) < 60

    try:
        starting = asyncio.create_task(watch.start(("host", "jobs")))
        await session.open()
        await starting
        await until(lambda: skewed() and bool(store.alerts))
        alert = next(alert for alert in store.alerts.values() if "clock" in alert.text)
        assert "ahead of this machine's" in alert.text
        assert store.host is not None
        before = store.host.boot
        assert abs(before - float(Path("/proc/uptime").read_text().split()[0])) < 60
        offset.write_text("-3600")
        await until(lambda: store.clock_offset is not None and abs(store.clock_offset + 3600) < 60)
        assert store.host.boot > before
        times, _ = store.series[("host", "load1")].window()
        assert list(times) == sorted(times)
        assert times[-1] - times[0] < PATIENCE  # three days are no gap and no jump
        assert session.state.state == "online"
        offset.write_text("0")
        await until(lambda: store.clock_offset is not None and abs(store.clock_offset) < 60)
        await until(lambda: not any("clock" in alert.text for alert in store.alerts.values()))
        assert abs(time.time() - (session.info.wall - DAYS)) < PATIENCE
    finally:
        await watch.stop()
        await session.close()
