"""What a server may do to a session: come back later, allow little, forbid forwarding, change its keys; what an agent may do."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from eagletui.hosts import link
from eagletui.hosts.base import HostError
from eagletui.hosts.session import Session, Timings
from eagletui.hosts.ssh import connect_ssh, connector
from eagletui.hosts.ssh_transport import SshTransport
from eagletui.hosts.target import Target
from tests.faults.net import PATIENCE, Watcher, alive, gone, say, until
from tests.faults.seeds import seeded
from tests.host.conftest import home, key, known, proxies, server, servers, short_path  # noqa: F401 - fixtures
from tests.host.proxy import TcpProxy
from tests.host.sshd import Sshd

FAST = Timings(stale=1.0, backoff=(0.05, 0.1), tick=0.05, patience=30.0)


@pytest.fixture
async def sessions() -> AsyncIterator[Callable[..., tuple[Session, Watcher]]]:
    """Makes sessions to a target; closed at the end."""
    made: list[Session] = []

    def make(target: Target, timings: Timings = FAST, silence: float = 5.0) -> tuple[Session, Watcher]:
        watcher = Watcher()
        made.append(Session(connector(target, silence=silence), watcher.state, timings=timings))
        return made[-1], watcher

    yield make
    for session in made:
        await session.close()


Sessions = Callable[..., tuple[Session, Watcher]]


@pytest.mark.fault(12, how="sshd ended with all its sessions, and started again")
async def test_sshd_is_restarted(
    server: Sshd,  # noqa: F811
    known: Path,  # noqa: F811
    proxies: Callable[..., TcpProxy],  # noqa: F811
    sessions: Sessions,
) -> None:
    proxy = await proxies(server.port).start()
    known.write_text(server.known_line(name=f"[127.0.0.1]:{proxy.port}"))
    session, watcher = sessions(Target("127.0.0.1", "root", proxy.port))
    await session.open()
    await session.subscribe("host", 0.2, watcher.push)
    await watcher.more()
    agent = session.info.agent_pid
    await server.stop()
    proxy.reset()
    await watcher.until(lambda: any(state.attempts >= 2 for _, state in watcher.states))
    assert {state.kind for _, state in watcher.states if state.state == "reconnecting"} <= {"closed", "refused"}
    await server.start()
    await watcher.becomes("online")
    await watcher.more()
    assert session.info.agent_pid != agent
    await gone(agent, 70)


@pytest.mark.fault(12, how="sshd with MaxStartups 1, whose one place is held by somebody else")
async def test_a_server_that_takes_no_more_logins_now(
    servers: Callable[[], Sshd],  # noqa: F811
    key: Path,  # noqa: F811
    known: Path,  # noqa: F811
    sessions: Sessions,
) -> None:
    sshd = servers()
    sshd.allow(Path(f"{key}.pub"))
    known.write_text(sshd.known_line())
    await sshd.start("MaxStartups 1:100:1")
    _, held = await asyncio.open_connection("127.0.0.1", sshd.port)
    await sshd.logged("Connection from")
    with pytest.raises(HostError) as caught:
        await connect_ssh(sshd.target)
    assert caught.value.retry
    assert "MaxStartups" in str(caught.value)
    held.close()
    session, watcher = sessions(sshd.target)
    session.start()
    await watcher.becomes("online")


@pytest.mark.fault(
    13, how="sshd with AllowTcpForwarding no, or PermitOpen none: what a server on the host measures is asked by the agent"
)
@pytest.mark.parametrize("line", ["AllowTcpForwarding no", "PermitOpen none"])
async def test_metrics_need_no_forwarding(servers: Callable[[], Sshd], key: Path, known: Path, line: str) -> None:  # noqa: F811
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nvllm:x 1\n")
        writer.close()

    there = await asyncio.start_server(serve, "127.0.0.1", 0)
    sshd = servers()
    sshd.allow(Path(f"{key}.pub"))
    known.write_text(sshd.known_line())
    await sshd.start(line)
    host = await connect_ssh(sshd.target)
    port = there.sockets[0].getsockname()[1]
    answer = await host.http(port, "/metrics")
    assert (answer.status, answer.body) == (200, b"vllm:x 1\n")
    with pytest.raises(HostError) as caught:
        await host.forward(port)
    assert caught.value.kind == "refused"
    assert not host.ended.done()
    await host.close()
    there.close()


@pytest.mark.fault(14, how="SIGKILL of the agent over ssh")
async def test_an_agent_that_is_killed_is_started_again(server: Sshd, sessions: Sessions) -> None:  # noqa: F811
    session, watcher = sessions(server.target, Timings())
    await session.open()
    await session.subscribe("host", 0.2, watcher.push)
    await watcher.more()
    agent = session.info.agent_pid
    os.kill(agent, signal.SIGKILL)
    begun = time.monotonic()
    await watcher.becomes("reconnecting")
    await watcher.becomes("online")
    say(f"agent killed: another one after {await watcher.more(1) - begun:.2f} s (2 s)")
    assert session.info.agent_pid != agent
    assert not alive(agent)


@pytest.mark.fault(14, how="SIGSTOP of the agent over ssh")
async def test_an_agent_that_is_stopped_is_left_and_ends_once_it_may(server: Sshd, sessions: Sessions) -> None:  # noqa: F811
    session, watcher = sessions(server.target, silence=2.0)
    await session.open()
    await session.subscribe("host", 0.2, watcher.push)
    await watcher.more()
    agent = session.info.agent_pid
    os.kill(agent, signal.SIGSTOP)
    try:
        await watcher.becomes("reconnecting")
        assert "stale" in watcher.names
        await watcher.becomes("online")
        await watcher.more(1)
        assert session.info.agent_pid != agent
    finally:
        os.kill(agent, signal.SIGCONT)
    await gone(agent, 70)


@pytest.mark.fault(15, how="bytes from the agent replaced from a random one on, connection after connection")
async def test_a_stream_that_breaks_is_told_and_tried_again_with_pauses(
    server: Sshd,  # noqa: F811
    sessions: Sessions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dice, true_read = seeded("broken streams"), SshTransport.read
    breaks = [dice.randrange(2000) for _ in range(4)]
    seen: dict[int, int] = {}

    async def read(self: SshTransport) -> bytes:
        data = await true_read(self)
        at = seen.setdefault(id(self), 0)
        seen[id(self)] += len(data)
        number = len(seen) - 1
        if number == 0 or number > len(breaks):
            return data
        keep = max(0, breaks[number - 1] + 200 - at)  # the nonce and the start pass
        return data[:keep] + b"\xff" * (len(data) - keep)

    session, watcher = sessions(server.target, silence=3.0)
    monkeypatch.setattr(SshTransport, "read", read)
    await session.open()
    await session.subscribe("host", 0.2, watcher.push)
    await watcher.more()
    os.kill(session.info.agent_pid, signal.SIGKILL)
    await watcher.until(lambda: len(seen) > len(breaks) + 1 and watcher.states[-1][1].state == "online")
    await watcher.more()
    told = [state for _, state in watcher.states if state.kind == "protocol"]
    assert told
    assert all("what came is not the protocol" in state.why for state in told)
    assert all(state.next_try is not None for state in told)  # never at once


@pytest.mark.fault(15, how="an agent of another version than the client")
async def test_another_version_is_told_and_not_tried_again(
    server: Sshd,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link, "__version__", "0.0.0-other")
    with pytest.raises(HostError) as caught:
        await connect_ssh(server.target)
    assert "the client is 0.0.0-other, the agent" in caught.value.why
    assert not caught.value.retry


@pytest.mark.fault(
    40, how="a jump host whose connection is reset in the middle of a session, and which shows another key afterwards"
)
async def test_a_jump_host_that_drops(
    servers: Callable[[], Sshd],  # noqa: F811
    key: Path,  # noqa: F811
    known: Path,  # noqa: F811
    home: Path,  # noqa: F811
    proxies: Callable[..., TcpProxy],  # noqa: F811
    sessions: Sessions,
) -> None:
    hop, last = servers(), servers()
    for sshd in (hop, last):
        sshd.allow(Path(f"{key}.pub"))
        await sshd.start()
    proxy = await proxies(hop.port).start()
    good = hop.known_line(name=f"[127.0.0.1]:{proxy.port}") + last.known_line()
    known.write_text(good)
    (home / ".ssh" / "config").write_text(f"Host 127.0.0.1\n  Port {last.port}\n  ProxyJump root@localhost:{proxy.port}\n"
                                          "Host localhost\n  HostName 127.0.0.1\n  ProxyJump none\n")  # fmt: skip
    session, watcher = sessions(Target("127.0.0.1", "root", None))
    await session.open()
    await session.subscribe("host", 0.2, watcher.push)
    await watcher.more()
    proxy.reset()
    await watcher.becomes("reconnecting")
    await watcher.becomes("online")
    await watcher.more()
    known.write_text(hop.known_line("ecdsa-sha2-nistp256", name=f"[127.0.0.1]:{proxy.port}") + last.known_line())
    proxy.reset()
    await watcher.becomes("blocked")
    state = watcher.states[-1][1]
    assert (state.kind, state.next_try) == ("key-changed", None)
    assert "jump host" in state.step
    known.write_text(good)
    session.retry_now()
    await watcher.becomes("online")


@pytest.mark.fault(51, how="RekeyLimit 1M on both sides while 12 MB of a log are read")
async def test_keys_are_exchanged_anew_while_a_log_is_read(
    servers: Callable[[], Sshd],  # noqa: F811
    key: Path,  # noqa: F811
    known: Path,  # noqa: F811
    home: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    sshd = servers()
    sshd.allow(Path(f"{key}.pub"))
    known.write_text(sshd.known_line())
    (home / ".ssh" / "config").write_text("Host *\n  RekeyLimit 1M\n")
    await sshd.start("RekeyLimit 1M", "LogLevel DEBUG1")
    log = tmp_path / "log"
    log.write_bytes(os.urandom(12 << 20))
    host = await connect_ssh(sshd.target)
    digest, at = hashlib.sha256(), 0
    async with asyncio.timeout(PATIENCE):
        while at < log.stat().st_size:
            chunk = await host.read(str(log), at)
            digest.update(chunk.data)
            at += len(chunk.data)
    assert digest.hexdigest() == hashlib.sha256(log.read_bytes()).hexdigest()
    await until(lambda: sum("SSH2_MSG_KEXINIT received" in line for line in sshd.log) > 5)
    assert not host.ended.done()
    await host.close()


BASHRC = {
    "noisy": "echo Welcome; printf '\\033[31mred\\n'; echo warning >&2\n",
    "slow": "sleep 3; echo at last\n",
    "failing": "set -e; false; conda activate base\n",
    "ends": "exit 3\n",
    "asks": "read -p 'which module? ' answer\n",
}


@pytest.mark.machine
@pytest.mark.fault(
    17, how="root's home replaced in a mount namespace of sshd: a .bashrc that is noisy, slow, failing, ends, or asks"
)
@pytest.mark.parametrize("name", BASHRC)
async def test_a_bashrc_of_the_login(
    servers: Callable[[], Sshd],  # noqa: F811
    key: Path,  # noqa: F811
    known: Path,  # noqa: F811
    tmp_path: Path,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = tmp_path / "root-home"
    place.mkdir()
    (place / ".bashrc").write_text(BASHRC[name])
    sshd = servers()
    sshd.prefix = ("unshare", "-m", "sh", "-c", f'mount --bind {place} /root && exec "$@"', "sh")
    sshd.allow(Path(f"{key}.pub"))
    known.write_text(sshd.known_line())
    await sshd.start()
    if name in ("ends", "failing"):  # bash reads it before the command, and obeys
        with pytest.raises(HostError) as caught:
            await connect_ssh(sshd.target)
        assert not caught.value.retry
        assert "the login shell ended before the agent started" in caught.value.why
        assert caught.value.remedy
        return
    if name == "asks":  # it takes the agent's first bytes for its answer
        monkeypatch.setattr(link, "START_SECONDS", 4.0)
        with pytest.raises(HostError) as caught:
            await connect_ssh(sshd.target)
        assert not caught.value.retry
        assert "may wait for input" in caught.value.remedy
        return
    host = await connect_ssh(sshd.target)
    assert (await host.request("stat", paths=["/root/.bashrc"]))[0]["size"] == len(BASHRC[name])
    await host.close()
