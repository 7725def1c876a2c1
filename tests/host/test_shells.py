"""What a host's login shell may do to the agent's start, and what sshd may forbid: with the real agent."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from eagletui.hosts.base import HostError
from eagletui.hosts.link import Link
from eagletui.hosts.ssh import connect_ssh, open_ssh
from tests.host.sshd import Sshd

LOGIN_SHELLS = pytest.mark.fault(17, how="login shells that print, fail, are another shell, allow no login, or force a command")

NOISY = """#!/bin/sh
echo 'Welcome to the cluster!'
printf 'no newline \\377\\001 and control bytes'
echo 'warning on stderr' >&2
exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"
"""
FAILING_RC = """#!/bin/sh
exec /bin/bash --rcfile /dev/null -c 'false; echo "conda: command not found" >&2; eval "$SSH_ORIGINAL_COMMAND"'
"""
NOLOGIN = """#!/bin/sh
echo 'This account is currently not available.'
exit 1
"""
FORCED = """#!/bin/sh
echo 'only git commands are allowed here' >&2
exit 128
"""
SMALL_ROOT = """#!/bin/sh
exec chroot {root} /bin/sh -c "$SSH_ORIGINAL_COMMAND"
"""


@pytest.fixture
async def behind(servers: Callable[[], Sshd], key: Path, known: Path) -> Callable[..., object]:
    """Start a server with a login shell of the test's, or other lines of sshd_config, and let the default key in."""

    async def start(*extra: str, shell: str | None = None) -> Sshd:
        sshd = servers()
        sshd.allow(Path(f"{key}.pub"))
        known.write_text(sshd.known_line())
        return await sshd.start(*extra, shell=shell)

    return start


async def agent_works(sshd: Sshd) -> Link:
    link = await connect_ssh(sshd.target)
    assert link.info.user == "root"
    assert link.info.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return link


async def no_agent(sshd: Sshd) -> HostError:
    with pytest.raises(HostError) as caught:
        await connect_ssh(sshd.target)
    return caught.value


@LOGIN_SHELLS
@pytest.mark.parametrize("shell", [None, NOISY, FAILING_RC])
async def test_the_agent_starts_behind(behind: Callable[..., object], shell: str | None) -> None:
    link = await agent_works(await behind(shell=shell))  # type: ignore[misc]
    await link.close()


@LOGIN_SHELLS
@pytest.mark.parametrize("shell", ["csh", "fish", "bash", "dash"])
async def test_the_agent_starts_under_other_shells(behind: Callable[..., object], shell: str) -> None:
    path = shutil.which(shell)
    assert path is not None, f"this test needs the Debian package {shell}"
    link = await agent_works(await behind(shell=f'#!/bin/sh\nexec {path} -c "$SSH_ORIGINAL_COMMAND"\n'))  # type: ignore[misc]
    await link.close()


@LOGIN_SHELLS
async def test_an_account_without_a_shell(behind: Callable[..., object]) -> None:
    error = await no_agent(await behind(shell=NOLOGIN))  # type: ignore[misc]
    assert not error.retry
    assert "This account is currently not available." in error.why
    assert "exit status 1" in error.why


@LOGIN_SHELLS
async def test_a_forced_command(behind: Callable[..., object]) -> None:
    error = await no_agent(await behind(shell=FORCED))  # type: ignore[misc]
    assert not error.retry
    assert "only git commands are allowed here" in error.why
    assert "exit status 128" in error.why


def small_root(path: Path, python: str | None) -> Path:
    """A root directory with a shell and nothing else; ``python`` is a script there that says it is python3."""
    (path / "bin").mkdir(parents=True)
    (path / "dev").mkdir()
    os.mknod(path / "dev" / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    copy_with_libraries(Path("/bin/sh"), path, "bin/sh")
    if python is not None:
        (path / "usr" / "bin").mkdir(parents=True)
        script = path / "usr" / "bin" / "python3"
        script.write_text(python)
        script.chmod(0o755)
    return path


def copy_with_libraries(program: Path, root: Path, name: str) -> None:
    shutil.copy(program.resolve(), root / name)
    listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
    for library in re.findall(r"(/\S+)", listed):
        target = root / library.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(library).resolve(), target)


@pytest.mark.fault(16, how="a root directory with a shell and nothing else, or a python3 that is too old or partial")
async def test_no_python_on_the_host(behind: Callable[..., object], tmp_path: Path) -> None:
    root = small_root(tmp_path / "root", None)
    error = await no_agent(await behind(shell=SMALL_ROOT.format(root=root)))  # type: ignore[misc]
    assert (error.kind, error.retry) == ("no-python", False)
    assert "apt-get install python3" in error.remedy


@pytest.mark.fault(16, how="a root directory with a shell and nothing else, or a python3 that is too old or partial")
@pytest.mark.parametrize(
    ("status", "says", "kind"),
    [(92, "Python 3.6.8", "old-python"), (93, "it lacks json ctypes", "minimal-python")],
)
async def test_an_unfit_python(behind: Callable[..., object], tmp_path: Path, status: int, says: str, kind: str) -> None:
    told = f"#!/bin/sh\necho 'eagletui[{status}]: /usr/bin/python3: {says}' >&2\nexit {status}\n"
    root = small_root(tmp_path / "root", told)
    error = await no_agent(await behind(shell=SMALL_ROOT.format(root=root)))  # type: ignore[misc]
    assert (error.kind, error.retry) == (kind, False)
    assert says in error.why


@pytest.mark.fault(12, how="sshd with MaxSessions 1 and 0")
async def test_one_session_is_enough(behind: Callable[..., object]) -> None:
    sshd = await behind("MaxSessions 1")  # type: ignore[misc]
    link = await agent_works(sshd)
    await link.close()


@pytest.mark.fault(12, how="sshd with MaxSessions 1 and 0")
async def test_no_session_at_all(behind: Callable[..., object]) -> None:
    error = await no_agent(await behind("MaxSessions 0"))  # type: ignore[misc]
    assert error.step == "session"
    assert "MaxSessions" in error.remedy
    assert not error.retry


# ------------------------------------------------------------------------------------------------------ forwarding


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"<" + await reader.read(100) + b">")
    await writer.drain()
    writer.close()


async def test_a_forwarded_port(server: Sshd) -> None:
    there = await asyncio.start_server(echo, "127.0.0.1", 0)
    link = await agent_works(server)
    forward = await link.forward(there.sockets[0].getsockname()[1])
    reader, writer = await asyncio.open_connection("127.0.0.1", forward.port)
    writer.write(b"hi")
    assert await reader.read() == b"<hi>"
    writer.close()
    await forward.close()
    with pytest.raises(OSError, match="Connect"):
        await asyncio.open_connection("127.0.0.1", forward.port)
    there.close()
    with pytest.raises(HostError) as caught:
        await link.forward(there.sockets[0].getsockname()[1] if there.sockets else 1)
    assert (caught.value.kind, caught.value.step) == ("refused", "forward")
    await link.close()


@pytest.mark.fault(13, how="sshd with AllowTcpForwarding no")
async def test_forwarding_that_is_forbidden(behind: Callable[..., object]) -> None:
    link = await agent_works(await behind("AllowTcpForwarding no"))  # type: ignore[misc]
    with pytest.raises(HostError) as caught:
        await link.forward(80)
    assert "forbids forwarding" in caught.value.why
    assert "AllowTcpForwarding" in caught.value.remedy
    assert await link.request("stat", paths=["/"])  # the agent is still there
    await link.close()


async def test_a_command_line_holds_nothing_but_the_bootstrap(server: Sshd) -> None:
    """What a shell on the host sees is fixed text; no path, name or secret of ours stands in it."""
    transport = await open_ssh(server.target, "tr '\\0' ' ' </proc/$PPID/cmdline; env")
    seen = b""
    while data := await transport.read():
        seen += data
    await transport.close()
    assert b"SSH_CONNECTION" in seen
    assert b"SSH_TTY" not in seen
    assert b"DISPLAY" not in seen
    assert b"SSH_AUTH_SOCK" not in seen
