"""The process table: what is on top, by what, and against which earlier look."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from eagletui.agent import procfs, procs
from eagletui.agent.calls import CallError
from eagletui.agent.documents import processes_from_doc
from eagletui.agent.loop import boot_now
from eagletui.agent.procs import ProcessSource, top
from eagletui.agent.source import Context
from tests.agent.fakenvml import Running, pythons
from tests.agent.test_worker import drive, loop

__all__ = ["loop"]
SOURCE = "eagletui.agent.procs:ProcessSource"


def stat(pid: int, used: int = 0, rss: int = 0, start: int = 1) -> procfs.Stat:
    return procfs.Stat(pid, "x", "S", 1, pid, pid, start, used, 0, 1, rss)


def scan(at: float, *stats: procfs.Stat) -> Any:
    return SimpleNamespace(at=at, stats=list(stats))


def test_top_by_cpu_and_by_memory() -> None:
    before = (10.0, {(1, 1): 100, (2, 1): 0, (3, 1): 0, (4, 1): 0})
    now = scan(12.0, stat(1, 300, 5), stat(2, 100, 1), stat(3, 0, 1000), stat(4, 0, 500), stat(5, 100, 0, start=1150))
    assert [(p.pid, p.cpu) for p in top(now, before, 2, "cpu")] == [(1, 100.0), (2, 50.0)]
    assert [p.pid for p in top(now, before, 2, "mem")] == [3, 4]
    assert [p.pid for p in top(now, before, 4)] == [1, 2, 3, 4], "half by each"
    assert len(top(now, before, 40)) == 5


def test_cpu_is_unknown_at_the_first_look_and_for_a_reused_pid_it_is_its_own() -> None:
    assert [p.cpu for p in top(scan(12.0, stat(1, 300)), None, 5)] == [None]
    # pid 1 is another process now: it started between the looks, so all its time is of this window
    assert [p.cpu for p in top(scan(12.0, stat(1, 50, start=1100)), (10.0, {(1, 1): 9999}), 5)] == [25.0]
    # not seen before although it is older: how much of its time is of this window is not known
    assert [p.cpu for p in top(scan(12.0, stat(1, 50, start=1)), (10.0, {}), 5)] == [None]


@pytest.mark.parametrize("python", pythons(), ids=lambda path: "oldest" if "3.8" in path else "this")
def test_a_busy_process_is_on_top(python: str) -> None:
    code = "import sys; print('up', flush=True)\nwhile True: pass"
    child = subprocess.Popen([sys.executable, "-c", code, "\x1b[31mname"], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    running = Running(SOURCE, python)
    try:
        running.send(start=[0.1, {"limit": 30}])
        doc = running.until(lambda doc: doc.get(str(child.pid), {}).get("cpu", 0) > 0, "the busy process")
        assert len(doc) <= 30
        assert not any("age" in item for item in doc.values()), "an age would change at every push"
        stat = procfs.read_stat(child.pid)
        assert stat is not None
        found = next(p for p in processes_from_doc(doc, boot=1e9) if p.pid == child.pid)
        assert (found.start, found.ppid, found.user) == (stat.start, os.getpid(), procfs.user(os.geteuid()))
        assert found.command.endswith("\x1b[31mname")
        assert (found.rss or 0) > 0
        assert (found.age or 0) > 0
    finally:
        running.close()
        child.kill()
        child.communicate()


def test_a_source_started_again_does_not_measure_over_an_instant(loop: Any) -> None:
    source = ProcessSource(Context(loop, lambda doc: None, lambda module: None, lambda line: None))
    for ago, least, most in ((0.1, 0.0, 0.95), (60.0, -600.0, 0.0)):
        source._before = (boot_now() - ago, {})
        source.start(3.0, {})
        assert least < source._ticker._due - loop.now() <= most
    source._before = None
    source.start(15.0, {})
    assert source._ticker._due <= loop.now()
    source.stop()


class FakeCall:
    def __init__(self, loop: Any, **params: Any) -> None:
        self.loop, self.params = loop, params
        self.replies: list[Any] = []
        self.on_cancel: Any = None
        self.reply = self.replies.append

    def text(self, name: str, default: str | None = None) -> Any:
        return self.params.get(name, default)

    def number(self, name: str, default: float | None = None, low: float = 0, high: float = 0) -> Any:
        return self.params.get(name, default)


def test_the_request(loop: Any) -> None:
    call = FakeCall(loop, sort="mem", limit=3, over=0.05)
    procs.METHODS["processes"](call)  # type: ignore[arg-type]
    drive(loop, lambda: call.replies)
    (found,) = call.replies
    assert len(found) == 3
    assert [p["rss"] for p in found] == sorted((p["rss"] for p in found), reverse=True)
    assert all("cpu" in p and p["user"] and p["age"] >= 0 for p in found), "measured over the time between two looks"


def test_a_cancelled_request_does_not_answer(loop: Any) -> None:
    call, other = FakeCall(loop, over=0.05), FakeCall(loop, over=0.06)
    procs.METHODS["processes"](call)  # type: ignore[arg-type]
    procs.METHODS["processes"](other)  # type: ignore[arg-type]
    call.on_cancel()
    drive(loop, lambda: other.replies)
    assert call.replies == []


def test_a_wrong_order_is_refused(loop: Any) -> None:
    with pytest.raises(CallError, match="cannot sort by 'name'"):
        procs.METHODS["processes"](FakeCall(loop, sort="name"))  # type: ignore[arg-type]
