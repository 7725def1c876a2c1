"""A client that sleeps: stopped for a while as a whole, with hosts that notice and hosts that do not."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.net import PATIENCE, alive, gone, say, within
from tests.host.conftest import home, key, known, servers, short_path  # noqa: F401
from tests.host.sshd import Sshd

pytestmark = [pytest.mark.machine, pytest.mark.timeout(300)]


@pytest.mark.fault(6, how="SIGSTOP of the client for 20 and 90 s, with an sshd that watches its clients and one that does not")
@pytest.mark.parametrize("asleep", [20.0, 90.0])
@pytest.mark.parametrize("watched", [False, True], ids=["sshd waits", "ClientAlive 3x2"])
async def test_back_soon_after_a_sleep(
    servers: Callable[[], Sshd],  # noqa: F811
    key: Path,  # noqa: F811
    known: Path,  # noqa: F811
    asleep: float,
    watched: bool,
) -> None:
    sshd = servers()
    sshd.allow(Path(f"{key}.pub"))
    known.write_text(sshd.known_line())
    await sshd.start(*(("ClientAliveInterval 3", "ClientAliveCountMax 2") if watched else ()))
    client = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.faults.sleeper",
        str(sshd.target),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert client.stdout is not None

    async def heard(*keys: str) -> dict[str, Any]:
        """The next thing it tells that has these keys."""
        assert client.stdout is not None
        async with asyncio.timeout(PATIENCE):
            while True:
                told: dict[str, Any] = json.loads(await client.stdout.readline())
                if all(key in told for key in keys):
                    return told

    try:
        for _ in range(3):
            before = await heard("push")
        client.send_signal(signal.SIGSTOP)
        await asyncio.sleep(asleep)  # the sleep itself
        client.send_signal(signal.SIGCONT)
        begun = time.monotonic()
        woken = float(Path("/proc/uptime").read_text().split()[0])
        after = await heard("push")
        while after["boot"] < woken - 1:  # what lay in the socket is of before
            after = await heard("push")
        back = time.monotonic() - begun
        anew = after["agent"] != before["agent"]
        say(f"asleep for {asleep:g} s, {'ClientAlive 3x2' if watched else 'sshd waits'}: data after {back:.2f} s (3 s), "
            f"{'connected anew' if anew else 'the same connection'}")  # fmt: skip
        assert back < within(3)
        assert anew == (watched or asleep > 60)
        if anew:
            await gone(before["agent"], 70)
        assert alive(after["agent"])
    finally:
        os.kill(client.pid, signal.SIGKILL)
        await client.wait()
    await gone(after["agent"], 70)
