"""A launch over a real connection that is cut within its request; and what becomes of its secrets on the way and on the host."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import asyncssh
import pytest

from eagletui.agent import procfs
from eagletui.commands import Desk, launch, open_desk, plan_launch
from eagletui.connection import Connection
from eagletui.hosts.base import HostError
from eagletui.hosts.session import Session, Timings
from eagletui.hosts.ssh import connector
from eagletui.hosts.target import Target
from tests.agent.jobs_harness import Jobs, until
from tests.commands.conftest import fake
from tests.faults.seeds import seeded
from tests.host.conftest import home, key, known, proxies, servers, short_path  # noqa: F401 - fixtures
from tests.host.proxy import TcpProxy
from tests.host.sshd import Sshd

FAST = Timings(stale=1.0, backoff=(0.05, 0.1), tick=0.05, patience=30.0)


@pytest.fixture
async def host(
    jobs: Jobs,
    servers: Callable[[], Sshd],  # noqa: F811
    key: Path,  # noqa: F811
    known: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Sshd:
    """A real sshd whose agent keeps its jobs where ``jobs`` looks; the client's own places are the test's."""
    for name in ("config", "state", "cache"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path / name))
    server = servers()
    server.allow(Path(f"{key}.pub"))
    known.write_text(server.known_line())
    return await server.start(f"SetEnv EAGLETUI_STATE={jobs.root}")


@pytest.fixture
async def proxy(host: Sshd, known: Path, proxies: Callable[..., TcpProxy]) -> TcpProxy:  # noqa: F811
    made = await proxies(host.port).start()
    known.write_text(host.known_line(name=f"[127.0.0.1]:{made.port}"))
    return made


async def _launch(session: Session, spec: dict[str, object], secrets: dict[str, str]) -> dict[str, object]:
    """As the launch command does: the same id again until there is an answer."""
    async with asyncio.timeout(90):
        while True:
            try:
                state: dict[str, object] = await session.request("launch", spec=spec, secrets=secrets)
                return state
            except HostError as error:
                if not error.retry:
                    raise
                await session.wait_online(60)


@pytest.mark.fault(1, how="a TCP proxy resets the ssh connection after sampled bytes of the launch, request or answer")
async def test_a_launch_over_a_connection_that_is_reset_within_it(jobs: Jobs, proxy: TcpProxy, tmp_path: Path) -> None:
    rng = seeded("bytes over the proxy")
    states: list[Connection] = []
    session = Session(connector(Target("127.0.0.1", "root", proxy.port), silence=2.0), states.append, target="gpu", timings=FAST)
    try:
        await session.open()
        await session.request("hello")
        for _ in range(5):
            mark = tmp_path / f"mark-{_}"
            spec = jobs.spec("bash", "-c", f'echo "$$ ${{#HF_TOKEN}}" >> {mark}; exec sleep 300')
            jobs.launched.append(spec["id"])
            before, connections = proxy.passed, proxy.connections
            count = rng.randrange(1, 1500)
            proxy.cut_after(before + count)
            print(f"reset after {count} bytes")
            state = await _launch(session, spec, {"HF_TOKEN": "hf_cut"})
            assert state["state"] == "running"
            until(lambda m=mark: m.exists() and m.read_text().endswith("\n"))  # type: ignore[misc]
            assert mark.read_text() == f"{state['pid']} 6\n"
            assert len(jobs.members(str(spec["id"]))) == 1
            proxy.cut_after(1 << 40)
            print(f"connections: {proxy.connections - connections + 1}")
    finally:
        await session.close()


# ------------------------------------------------------------------------------------------------------------- secrets


@pytest.fixture
def spy() -> Iterator[Callable[[str], set[str]]]:
    """Reads every command line of the machine without a pause; ``spy(text)`` is where it stood, until now."""
    seen: dict[str, str] = {}
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            for pid in procfs.pids():
                line = procfs.read_bytes(f"/proc/{pid}/cmdline", 1 << 20)
                if line:
                    seen.setdefault(line.decode("utf-8", "replace"), str(pid))

    thread = threading.Thread(target=look)
    thread.start()
    yield lambda text: {line for line in list(seen) if text in line}
    stop.set()
    thread.join()


@pytest.fixture
async def desk(host: Sshd) -> AsyncIterator[Desk]:
    opened = await open_desk(Target("127.0.0.1", "root", host.port), None, {}, ("jobs",))
    yield opened
    await opened.close()


def everywhere(root: Path) -> Iterator[tuple[Path, bytes]]:
    for directory, _, names in os.walk(root):
        for name in names:
            path = Path(directory, name)
            yield path, path.read_bytes()


@pytest.mark.fault(50, how="a canary as secret of a launch over ssh, looked for in every command line, file, log and answer")
async def test_a_secret_reaches_the_program_and_nothing_else(
    jobs: Jobs,
    host: Sshd,
    desk: Desk,
    spy: Callable[[str], set[str]],
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    canary = f"hf_canary_{seeded('canary').getrandbits(64):x}"
    asyncssh.set_log_level(logging.DEBUG)
    asyncssh.set_sftp_log_level(logging.DEBUG)
    asyncssh.set_debug_level(2)  # 3 dumps the packets themselves
    caplog.set_level(logging.DEBUG)
    try:
        profile = fake("--workers", "1", secrets=("HF_TOKEN", "SPECIAL"), env={"MY_API_KEY": canary + "-in-env"})
        plan = await plan_launch(desk, profile)
        jobs.launched.append(plan.job)
        values = {"HF_TOKEN": canary, "SPECIAL": canary + "-special"}
        state = await launch(desk, plan, values)
        for name, value in {**values, "MY_API_KEY": canary + "-in-env"}.items():
            assert procfs.environ_has(int(state.pid or 0), name, value), name
        await asyncio.to_thread(jobs.wait, plan.job, lambda s: s.get("health") == "ready")
        # what the host tells afterwards
        said = [await desk.session.request("job", job=plan.job), await desk.session.request("jobs")]
        said.append(await desk.session.request("kill_plan", job=plan.job))
        said.append(await desk.session.request("debug"))
        assert canary not in repr(said)
        assert canary not in repr((plan.command, plan.env, plan.warnings, desk.store.jobs, desk.store.alerts))
    finally:
        asyncssh.set_debug_level(1)
        asyncssh.set_log_level(logging.WARNING)
    assert spy(plan.job), "the supervisor's command line was not looked at"
    assert not spy(canary)
    assert caplog.text
    assert canary not in caplog.text
    assert canary not in "\n".join(host.log)
    shim = int(state.shim_pid or 0)
    assert canary.encode() not in (procfs.read_bytes(f"/proc/{shim}/environ") or b"")
    for path, data in everywhere(tmp_path):
        assert canary.encode() not in data, path
    for directory in ("/run/eagletui", os.environ["HOME"]):
        for path, data in everywhere(Path(directory)):
            assert canary.encode() not in data, path
