"""The forked child: answers, hangs, crashes, ends with its parent's pipe, and holds nothing of its parent open."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from eagletui.agent import worker as module
from eagletui.agent.loop import Loop
from eagletui.agent.worker import Cell, Worker, hanging


@pytest.fixture
def loop() -> Iterator[Loop]:
    def fail(what: str, error: Exception) -> None:
        raise AssertionError(f"{what}: {error!r}")

    before = signal.getsignal(signal.SIGCHLD)
    loop = Loop(fail)
    yield loop
    loop.close()
    signal.signal(signal.SIGCHLD, before)


def drive(loop: Loop, done: Callable[[], Any], seconds: float = 20.0) -> None:
    """Run the loop until ``done()``, looking after each turn."""
    end = time.monotonic() + seconds

    def look() -> None:
        if done() or time.monotonic() > end:
            loop.stop()
        else:
            loop.call_later(0.005, look)

    loop.call_later(0, look)
    loop.run()
    assert done(), "not reached in time"


def make(cell: Cell) -> module.Answer:
    def answer(question: dict[str, Any]) -> dict[str, Any]:
        what = question["do"]
        cell.note(question.get("n", -1), what)
        if what == "hang":
            signal.pause()
        if what == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if what == "raise":
            raise ValueError("an error in the child")
        if what == "fds":
            return {"fds": len(os.listdir("/proc/self/fd"))}
        return {"echo": question, "pid": os.getpid(), "big": "x" * question.get("big", 0)}

    return answer


class Asked:
    """A worker and what came of it."""

    def __init__(self, loop: Loop) -> None:
        self.answers: list[dict[str, Any]] = []
        self.ends: list[str] = []
        self.late: list[tuple[int, str]] = []
        self.worker = Worker(loop, "test", make, self.ends.append)

    def ask(self, seconds: float = 20.0, **question: Any) -> None:
        self.worker.ask(question, self.answers.append, seconds, lambda: self.late.append(self.worker.cell.read()))


def test_answers_one_after_the_other(loop: Loop) -> None:
    asked = Asked(loop)
    asked.ask(do="echo", text="ü\x1b")
    assert asked.worker.busy
    with pytest.raises(RuntimeError):
        asked.ask(do="echo")
    drive(loop, lambda: asked.answers)
    assert asked.answers[0]["echo"] == {"do": "echo", "text": "ü\x1b"}
    assert asked.answers[0]["pid"] == asked.worker.pid
    asked.ask(do="echo", big=1_000_000)
    drive(loop, lambda: len(asked.answers) == 2)
    assert len(asked.answers[1]["big"]) == 1_000_000, "an answer longer than the pipe"
    asked.worker.close()
    drive(loop, lambda: not os.path.exists(f"/proc/{asked.worker.pid}"))
    assert asked.ends == [], "nobody is told of an end that was wanted"


def test_a_hang_is_killed_and_named(loop: Loop) -> None:
    asked = Asked(loop)
    asked.ask(0.1, do="hang", n=3)
    drive(loop, lambda: asked.ends)
    assert asked.late == [(3, "hang")]
    assert asked.answers == []
    assert "SIGKILL" in asked.ends[0]
    assert not asked.worker.crashed
    assert not hanging("test"), "it is dead and reaped"


def test_one_that_cannot_be_killed_is_remembered(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.kill
    monkeypatch.setattr(module.os, "kill", lambda pid, number: None)  # as if it slept uninterruptibly
    asked = Asked(loop)
    asked.ask(0.05, do="hang")
    drive(loop, lambda: asked.late)
    assert asked.worker.stuck
    assert hanging("test")
    assert not hanging("other")
    asked.worker.close()
    assert hanging("test"), "also when its owner has let it go"
    real(asked.worker.pid, signal.SIGKILL)
    drive(loop, lambda: not hanging("test"))


def test_a_crash_is_told_with_the_call(loop: Loop) -> None:
    asked = Asked(loop)
    asked.ask(do="crash", n=5)
    drive(loop, lambda: asked.ends)
    assert asked.ends == ["the helper process was ended by SIGSEGV in crash"]
    assert asked.worker.crashed
    assert asked.worker.cell.read() == (5, "crash")


def test_an_exception_ends_the_child_with_a_status(loop: Loop) -> None:
    asked = Asked(loop)
    asked.ask(do="raise")
    drive(loop, lambda: asked.ends)
    assert asked.ends == ["the helper process ended with status 1 in raise"]


def test_asking_a_child_that_has_just_died(loop: Loop) -> None:
    asked = Asked(loop)
    asked.ask(do="echo")
    drive(loop, lambda: asked.answers)
    os.kill(asked.worker.pid, signal.SIGKILL)
    os.waitid(os.P_PID, asked.worker.pid, os.WEXITED | os.WNOWAIT)
    asked.ask(do="echo")
    drive(loop, lambda: asked.ends)
    assert "SIGKILL" in asked.ends[0]
    assert len(asked.answers) == 1


def test_the_child_holds_nothing_of_ours(loop: Loop) -> None:
    pipes = [os.pipe() for _ in range(5)]
    asked = Asked(loop)
    asked.ask(do="fds")
    drive(loop, lambda: asked.answers)
    assert asked.answers[0]["fds"] <= 6, "0, 1, 2, two pipes and the listing itself"
    asked.worker.close()
    for pair in pipes:
        for fd in pair:
            os.close(fd)


def test_no_descriptor_is_left_here(loop: Loop) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        asked = Asked(loop)
        asked.ask(do="raise")
        drive(loop, lambda asked=asked: asked.ends)
    assert len(os.listdir("/proc/self/fd")) == before
