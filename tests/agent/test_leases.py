"""Leases and ports: one holder, told by name; free the moment it dies."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from eagletui.agent import leases, ports


@pytest.fixture
def root(tmp_path: Path) -> str:
    (tmp_path / "leases").mkdir()
    return str(tmp_path)


def test_the_second_is_told_who_holds_it(root: str) -> None:
    wanted = leases.names(8000, ["GPU-b", "GPU-a", "GPU-a"])
    assert wanted == ["port-8000", "gpu-GPU-a", "gpu-GPU-b"]
    held = leases.take(root, wanted, {"job": "k25", "operator": "ann", "since": 0})
    with pytest.raises(leases.LeaseTaken, match=r"gpu GPU-b is leased by job k25 of ann, since 19\d\d-"):
        leases.take(root, ["gpu-GPU-b"], {"job": "other"})
    for fd in held:
        os.close(fd)
    for fd in leases.take(root, wanted, {"job": "other"}):
        os.close(fd)


def test_all_or_none(root: str) -> None:
    first = leases.take(root, ["gpu-b"], {"job": "one"})
    with pytest.raises(leases.LeaseTaken):
        leases.take(root, ["gpu-a", "gpu-b"], {"job": "two"})
    for fd in leases.take(root, ["gpu-a"], {"job": "three"}) + first:
        os.close(fd)


def test_names_cannot_leave_the_directory() -> None:
    assert leases.names(None, ["../../etc/x"]) == ["gpu-.._.._etc_x"]


def test_a_killed_holder_frees_it_at_once(root: str) -> None:
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        leases.take(root, ["port-1"], {"job": "child"})
        os.write(told, b"x")
        signal.pause()
    assert os.read(ready, 1) == b"x"
    with pytest.raises(leases.LeaseTaken, match="job child"):
        leases.take(root, ["port-1"], {"job": "me"})
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    for fd in [*leases.take(root, ["port-1"], {"job": "me"}), ready, told]:
        os.close(fd)


def test_racers_have_one_winner_each_round(root: str) -> None:
    for round_ in range(30):
        (start, go), (hold, release), (lost, lose) = os.pipe(), os.pipe(), os.pipe()
        pids = []
        for _ in range(4):
            pid = os.fork()
            if pid == 0:
                os.close(go)
                os.close(release)
                os.read(start, 1)
                try:
                    leases.take(root, [f"port-{round_}"], {"job": "racer"})
                except leases.LeaseTaken:
                    os.write(lose, b"L")
                    os._exit(1)
                os.read(hold, 1)  # hold it until all have tried
                os._exit(0)
            pids.append(pid)
        for fd in (start, hold, lose, go):
            os.close(fd)
        losers = 0
        while losers < 3 and (said := os.read(lost, 3)):
            losers += len(said)
        os.close(release)
        os.close(lost)
        ends = [os.WEXITSTATUS(os.waitpid(pid, 0)[1]) for pid in pids]
        assert sorted(ends) == [0, 1, 1, 1]


def test_a_port_says_who_holds_it() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        server.listen()
        why = ports.why_taken(port)
        assert why is not None
        assert why.startswith(f"port {port} is held by pid {os.getpid()} (")
        assert ", user " in why
        assert ", since 20" in why
        assert ports.listening_inodes(port)
        assert [holder.pid for holder in ports.listeners(port, [os.getpid(), 1])] == [os.getpid()]
    assert ports.why_taken(port) is None
    assert not ports.listening_inodes(port)
