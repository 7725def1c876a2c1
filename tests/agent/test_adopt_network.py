"""In whose network a server is: by its namespace, else by its sockets, and never guessed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagletui.agent import adopt, procfs
from eagletui.agent.adopt import network, observer, watched
from tests.agent.adopt_harness import Look, Servers

UNIX = "Num RefCount Protocol Flags Type St Inode Path\n%s"


def host(root: Path, ours: str | None, theirs: str | None) -> None:
    """A /proc in which namespaces cannot be read."""
    for who, inodes in (("self", ours), ("7", theirs)):
        folder = root / who / "net"
        folder.mkdir(parents=True)
        if inodes is None:
            continue
        rows = "".join(f"000: 00000002 00000000 00010000 0001 01 {inode} /run/x\n" for inode in inodes.split())
        (folder / "unix").write_text(UNIX % rows)
        for name in ("tcp", "tcp6", "udp", "udp6"):
            (folder / name).write_text("  sl  local_address\n")


@pytest.mark.parametrize(
    ("ours", "theirs", "is_ours"),
    [
        ("11 12", "12 13", True),
        ("11 12", "13", False),
        ("11", "", False),
        ("", "", None),  # nothing tells
        ("11", None, None),  # hidden altogether
    ],
)
def test_a_network_that_cannot_be_seen_is_told_by_its_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ours: str, theirs: str | None, is_ours: bool | None
) -> None:
    host(tmp_path, ours, theirs)
    monkeypatch.setattr(procfs, "PROC", str(tmp_path))
    assert network.is_ours(7) is is_ours


def test_our_own_network_is_ours() -> None:
    assert network.is_ours(os.getppid()) is True
    assert network._same_sockets(os.getpid()) is not False


@pytest.mark.skipif(os.geteuid() != 0, reason="a network of its own needs root")
def test_a_network_of_its_own_is_not_ours_by_either_way() -> None:
    child = subprocess.Popen(
        ["unshare", "-n", sys.executable, "-I", "-S", "-c", "print(1, flush=True); input()"], stdin=-1, stdout=-1
    )
    assert child.stdout is not None
    child.stdout.readline()
    try:
        assert network.is_ours(child.pid) is False
        assert network._same_sockets(child.pid) is False
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    monkeypatch.setenv("EAGLETUI_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(adopt, "_finder", None)
    monkeypatch.setattr(observer, "LOOK_EVERY", 0.5)
    found = Servers(tmp_path)
    yield found
    found.clean()


@pytest.fixture
def look(servers: Servers, tmp_path: Path) -> Iterator[Look]:
    found = Look(tmp_path)
    yield found
    found.close()


def test_a_port_in_a_network_that_nobody_can_see_is_not_this_hosts(
    servers: Servers, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "is_ours", lambda pid: None)
    process = servers.start(servers.argv())
    doc = look.server(pid=process.pid)
    servers.note(doc)
    assert "port" not in doc
    assert "cannot be seen" in doc["metrics_problem"]


def test_a_failing_search_for_servers_is_told_and_goes_on(servers: Servers, look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(found: object) -> object:
        raise OSError(5, "the table cannot be read")

    with monkeypatch.context() as broken:
        broken.setattr(observer, "found_of", fail)
        broken.setattr(look.loop, "_on_error", lambda what, error: None)
        process = servers.start(servers.argv())
        told = look.until(lambda doc: doc.get("!problems"))
        assert "the table cannot be read" in told["looking for servers among all processes"]
        assert not look.errors
    servers.note(look.server(pid=process.pid))
    look.until(lambda doc: "!problems" not in doc)


def test_a_server_that_cannot_be_looked_at_is_told_by_its_id(
    servers: Servers, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = servers.start(servers.argv())
    doc = look.server(pid=process.pid)
    servers.note(doc)

    def fail(self: watched.Watched, now: float) -> None:
        raise ValueError("odd")

    with monkeypatch.context() as broken:
        broken.setattr(watched.Watched, "tick", fail)
        broken.setattr(look.loop, "_on_error", lambda what, error: None)
        told = look.until(lambda doc: doc.get("!problems"))
        assert told[f"looking at the server {doc['id']}"] == "ValueError: odd"
    look.until(lambda doc: "!problems" not in doc)
