"""Readers of /proc: hostile names, processes that end, and what the kernel tells of this very test."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagletui.agent import procfs

TAIL = b" S 1 2 3 0 -1 4194560 10 0 0 0 7 8 0 0 20 0 4 0 12345 1000 55 0 0\n"


@pytest.mark.parametrize("name", [b"python3", b"a b", b"x) S 1 (", b"))((", b"\x1b[31mred", b"\xff\xfe", b"new\nline"])
def test_stat_survives_any_process_name(name: bytes) -> None:
    stat = procfs.parse_stat(b"42 (" + name + b")" + TAIL)
    assert stat is not None
    assert (stat.pid, stat.comm) == (42, name.decode("utf-8", "replace"))
    assert (stat.state, stat.ppid, stat.pgrp, stat.session, stat.start) == ("S", 1, 2, 3, 12345)
    assert (stat.utime, stat.stime, stat.threads, stat.rss) == (7, 8, 4, 55)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_stat_or_none(data: bytes) -> None:
    stat = procfs.parse_stat(data)
    assert stat is None or stat.pid >= 0 or data.lstrip().startswith(b"-")


def test_this_process() -> None:
    stat = procfs.read_stat(os.getpid())
    assert stat is not None
    assert stat.ppid == os.getppid()
    assert stat.session == os.getsid(0)
    assert os.getpid() in procfs.pids()
    assert procfs.alive(os.getpid(), stat.start)
    assert not procfs.alive(os.getpid(), stat.start + 1), "same pid, other start: another process"
    assert procfs.uid_of(os.getpid()) == os.geteuid()
    assert procfs.nspid(os.getpid())[-1] == os.getpid()
    assert (procfs.io_read_bytes(os.getpid()) or 0) >= 0
    assert procfs.cgroup(os.getpid())


def test_a_child_with_its_files_environment_and_arguments(tmp_path) -> None:
    out = tmp_path / "out"
    code = "import sys; sys.stderr.write('up\\n'); sys.stderr.flush(); sys.stdin.read()"
    with out.open("wb") as handle:
        child = subprocess.Popen(
            [sys.executable, "-c", code, "an argument", "\x1b[2J"],
            stdin=subprocess.PIPE, stdout=handle, stderr=subprocess.PIPE, env={**os.environ, "EAGLE_MARK": "a=b"},
        )  # fmt: skip
    try:
        assert child.stderr is not None
        assert child.stderr.readline() == b"up\n", "before that it may still be on its way through exec"
        info = out.stat()
        assert procfs.argv(child.pid)[-2:] == ["an argument", "\x1b[2J"]
        assert (procfs.cmdline(child.pid) or "").endswith("an argument \x1b[2J")
        assert procfs.fd_inodes(child.pid, (1, 99)) == {1: (info.st_dev, info.st_ino)}
        assert procfs.fd_paths(child.pid)[1] == str(out)
        assert procfs.fd_paths(child.pid)[2].startswith("pipe:")
        assert procfs.environ_has(child.pid, "EAGLE_MARK", "a=b")
        assert not procfs.environ_has(child.pid, "EAGLE_MARK", "a")
    finally:
        child.communicate()
    assert procfs.read_stat(child.pid) is None


def test_a_process_that_is_not_there() -> None:
    gone = 2**22 + 7
    assert procfs.read_stat(gone) is None
    assert procfs.cmdline(gone) is None
    assert procfs.argv(gone) == []
    assert procfs.uid_of(gone) is None
    assert procfs.io_read_bytes(gone) is None
    assert procfs.fd_inodes(gone) == {}
    assert procfs.environ(gone) is None
    assert procfs.cgroup(gone) is None
    assert procfs.nspid(gone) == ()
    assert not procfs.alive(gone, 1)


def test_a_zombie_is_not_alive_and_has_no_command() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.read()  # closed at exit; the child is not reaped before `wait`
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    stat = procfs.read_stat(child.pid)
    assert stat is not None
    assert stat.state == "Z"
    assert not procfs.alive(child.pid, stat.start)
    assert procfs.cmdline(child.pid) is None
    child.wait()


def test_user_names() -> None:
    assert procfs.user(0) == "root"
    assert procfs.user(4_000_000_001) == "4000000001"
