"""What is done to an engine on purpose, beside a wrong command line: its port is held, one of its processes is killed."""

from __future__ import annotations

import http.server
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from eagletui.agent import procfs
from eagletui.agent.syscalls import signal_process
from eagletui.labparts.running import Child, wait_until
from eagletui.profile_launch import command_of
from eagletui.records import JobState
from tests.lab.listens import Quiet, listens
from tests.lab.provoke.case import World


@contextmanager
def silent(world: World) -> Iterator[None]:
    """Somebody listens on the port, and never answers."""
    with socket.create_server(("127.0.0.1", world.port)):
        yield


class _Refuses(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def chatty(world: World) -> Iterator[None]:
    """Somebody answers HTTP on the port, with 501 to whatever is asked."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", world.port), _Refuses) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield
        server.shutdown()


@contextmanager
def another(world: World) -> Iterator[None]:
    """Another SGLang, that eagletui did not start, serves on the port."""
    folder = world.folder / "another"
    folder.mkdir()
    assert world.sglang is not None
    argv, env = command_of(world.sglang.profile(folder, world.port, drafter=None))
    child = Child(argv, folder / "log", env={**os.environ, **env}, cwd=folder)
    try:
        wait_until("another", child, Quiet(), lambda: listens(world.port), limit=600, remedy="")
        yield
    finally:
        child.stop()


def once_it(phases: tuple[str, ...], act: Callable[[World, JobState], bool]) -> Callable[[World, JobState], bool]:
    """``act`` as soon as the load is in one of these phases ("ready": it has answered)."""

    def look(world: World, state: JobState) -> bool:
        if state.state != "running":
            return False
        now = {phase.id for phase in state.phases}
        reached = state.health == "ready" if "ready" in phases else bool(now & set(phases))
        return reached and act(world, state)

    return look


def killed(mark: str, number: int = signal.SIGKILL) -> Callable[[World, JobState], bool]:
    """A signal to the member whose command line or name holds ``mark`` ("" is the main process); False while there is none."""

    def act(world: World, state: JobState) -> bool:
        victim = member(state, mark)
        if victim is not None:
            signal_process(*victim, number)
        return victim is not None

    return act


def member(state: JobState, mark: str) -> tuple[int, int] | None:
    """(pid, start) of the job's first process with ``mark`` in its name or command line; its main process for ""."""
    for pid, start in state.member_pids:
        words = f"{procfs.cmdline(pid) or ''} {getattr(procfs.read_stat(pid), 'comm', '')}"
        if (not mark and pid == state.pid) or (mark and mark in words):
            return pid, start
    return None
