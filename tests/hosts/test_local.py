"""This machine as a host: the whole way, from the shell text to answers."""

from __future__ import annotations

import asyncio
import itertools
import os
import select
import shutil
import signal
from pathlib import Path

import pytest

from eagletui.hosts import bootstrap
from eagletui.hosts.base import Host, HostError, Push
from eagletui.hosts.local import connect_local

from ..agent.fakenvml import FakeNvml, build

SOURCE = """
from eagletui.agent.source import Source
class HostSource(Source):
    name = "host"
    def start(self, interval, params):
        self.count = 0
        self.interval = interval
        self.going = True
        self.tick()
    def tick(self):
        if self.going:
            self.count += 1
            self.context.publish({"count": self.count, "same": {"a": 1}})
            self.context.loop.call_later(self.interval, self.tick)
    def stop(self):
        self.going = False
"""


async def test_the_local_host_answers(host_python: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"hello")
    link = await connect_local()
    try:
        host: Host = link
        if host_python != "host":
            assert host.info.python.startswith(host_python + ".")
        assert (await host.read(str(file), 0)).data == b"hello"
        assert (await host.search(str(file), "ell"))["matches"][0]["at"] == 1
        assert (await host.forward(1234)).port == 1234
        with pytest.raises(HostError, match="nothing listens"):
            await host.http(1, "/")
        assert link.target == "local"
    finally:
        await link.close()
    with pytest.raises(ProcessLookupError):
        os.kill(link.info.agent_pid, 0)
    assert link.ended.result().kind == "closed"


async def test_a_stream_from_a_real_agent() -> None:
    got: asyncio.Queue[Push] = asyncio.Queue()
    starts: list[asyncio.Task[object]] = []
    link = await connect_local(
        early=lambda link: starts.append(asyncio.create_task(link.subscribe("host", 0.02, got.put_nowait))),
        blob=bootstrap.bundle({"eagletui.agent.host": SOURCE}),
    )
    try:
        pushes = [await got.get() for _ in range(8)]
        await starts[0]
    finally:
        await link.close()
    assert [p.number for p in pushes] == list(range(1, 9))
    counts = [p.doc["count"] for p in pushes]
    assert counts == sorted(set(counts))
    assert all(p.doc["same"] == {"a": 1} for p in pushes)
    assert all("same" not in p.changed for p in pushes[1:])
    assert all(a.boot < b.boot for a, b in itertools.pairwise(pushes))


async def test_cards_are_seen_with_the_module_that_the_client_sends(
    host_python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc to build the stand-in for NVML")
    fake = FakeNvml(await asyncio.to_thread(build, tmp_path), tmp_path)
    for name, value in fake.environ.items():
        monkeypatch.setenv(name, value)
    got: asyncio.Queue[Push] = asyncio.Queue()
    starts: list[asyncio.Task[object]] = []
    link = await connect_local(lambda link: starts.append(asyncio.create_task(link.subscribe("gpus", 0.1, got.put_nowait))))
    try:
        assert link.info.nvml is True
        push = await got.get()
        while not push.doc.get("cards"):
            push = await got.get()
        assert all(uuid.startswith("GPU-") for uuid in push.doc["cards"])
        assert push.doc["present"] is True
        await starts[0]
    finally:
        await link.close()


@pytest.mark.fault(14, how="SIGKILL of the agent")
async def test_an_agent_that_is_killed_is_told() -> None:
    link = await connect_local()
    waiting = asyncio.create_task(link.read("/proc/self/comm", 10**6, wait=60))
    os.kill(link.info.agent_pid, signal.SIGKILL)
    with pytest.raises(HostError) as caught:
        await waiting
    assert caught.value.kind == "closed"
    assert "exit status 137" in caught.value.why
    await link.close()


@pytest.mark.fault(14, how="SIGSTOP of the agent")
async def test_a_stopped_agent_is_killed_when_the_link_is_closed() -> None:
    link = await connect_local()
    handle = os.pidfd_open(link.info.agent_pid)
    os.kill(link.info.agent_pid, signal.SIGSTOP)
    async with asyncio.timeout(30):
        await link.close()
    await asyncio.to_thread(select.select, [handle], [], [])  # until it has ended
    os.close(handle)


def shell(tmp_path: Path, text: str) -> str:
    path = tmp_path / "shell"
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return str(path)


@pytest.mark.fault(17, how="a shell that prints before the agent")
async def test_a_noisy_login_shell(tmp_path: Path) -> None:
    noisy = shell(tmp_path, "echo Welcome; printf '\\033]0;title\\007\\377\\000'; echo trouble >&2; exec /bin/sh \"$@\"")
    link = await connect_local(shell=noisy)
    assert link.banner.startswith("Welcome")
    await link.close()


@pytest.mark.parametrize(
    ("text", "kind", "why"),
    [
        ("echo 'This account is currently not available.'; exit 1", "closed", "This account is currently not available."),
        ("echo 'syntax error in .bashrc' >&2; exit 2", "closed", "syntax error in .bashrc, exit status 2"),
        ("kill -9 $$", "closed", "killed by signal 9"),
        (
            "PATH=/nowhere; yes=y; while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done",
            "protocol",
            "more than 1 MiB",
        ),
        ("echo 'eagletui[92]: /usr/bin/python3: Python 3.6.8' >&2; exit 92", "old-python", "Python 3.6.8 is too old"),
    ],
)
async def test_a_login_shell_that_starts_no_agent(tmp_path: Path, text: str, kind: str, why: str) -> None:
    with pytest.raises(HostError) as caught:
        await connect_local(shell=shell(tmp_path, text))
    assert caught.value.kind == kind
    assert why in caught.value.why


async def test_no_shell_at_all() -> None:
    with pytest.raises(HostError, match="No such file"):
        await connect_local(shell="/nowhere/sh")
