"""A home of its own for every test, so that nobody's ~/.ssh is read or written, and servers that end with the test."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.host.proxy import TcpProxy
from tests.host.sshd import Sshd, write_key


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory with a short name: the socket of an agent must fit 108 bytes."""
    with tempfile.TemporaryDirectory(prefix="et-") as name:
        yield Path(name)


@pytest.fixture(autouse=True)
def home(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = short_path / "home"
    (path / ".ssh").mkdir(parents=True, mode=0o700)
    monkeypatch.setenv("HOME", str(path))
    monkeypatch.setenv("USER", "root")
    monkeypatch.setenv("LOGNAME", "root")
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return path


@pytest.fixture
def known(home: Path) -> Path:
    return home / ".ssh" / "known_hosts"


@pytest.fixture
def key(home: Path) -> Path:
    """A default key without a passphrase."""
    path = home / ".ssh" / "id_ed25519"
    write_key(path)
    return path


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[Callable[[], Sshd]]:
    """Makes servers that are not started yet; all are stopped at the end."""
    made: list[Sshd] = []

    def make() -> Sshd:
        directory = tmp_path / f"sshd{len(made)}"
        directory.mkdir()
        made.append(Sshd(directory))
        return made[-1]

    yield make
    for server in made:
        await server.stop()


@pytest.fixture
async def server(servers: Callable[[], Sshd], key: Path, known: Path) -> Sshd:
    """A started server that is known and lets the default key in."""
    sshd = servers()
    sshd.allow(Path(f"{key}.pub"))
    known.write_text(sshd.known_line())
    return await sshd.start()


@pytest.fixture
async def proxies() -> AsyncIterator[Callable[..., TcpProxy]]:
    made: list[TcpProxy] = []

    def make(target: int, **faults: float) -> TcpProxy:
        made.append(TcpProxy(target, **faults))
        return made[-1]

    yield make
    for proxy in made:
        await proxy.close()


@pytest.fixture
async def proxy(server: Sshd, known: Path, proxies: Callable[..., TcpProxy]) -> TcpProxy:
    """A way to the server that can be cut, slowed and frozen; the server is known there too."""
    made = await proxies(server.port).start()
    known.write_text(server.known_line(name=f"[127.0.0.1]:{made.port}"))
    return made
