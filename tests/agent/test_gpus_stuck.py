"""The gpus stream when its child cannot be killed, and when pynvml does not come. In this process, without a library."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from eagletui.agent import gpus, nvml, worker
from eagletui.agent.gpus import GpuSource, Timing
from eagletui.agent.source import Context
from tests.agent.test_worker import drive, loop

__all__ = ["loop"]
Doc = dict[str, Any]


class Bench:
    """A source whose child is a function of this test and has two cards; with HANG_NOW in the environment it hangs."""

    def __init__(self, loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.docs: list[Doc] = []
        self.needs: list[str] = []
        monkeypatch.setattr(gpus, "has_nvml", lambda: True)
        monkeypatch.setattr(nvml, "make_asker", lambda source: self.make)
        self.loop = loop
        self.source = self.new()

    def new(self) -> GpuSource:
        source = GpuSource(Context(self.loop, self.docs.append, self.needs.append, lambda text: None))
        source.timing = Timing(answer=0.2, late=0.05, retry=(0.05,), module=0.1)
        return source

    def make(self, cell: worker.Cell) -> worker.Answer:
        hangs = os.environ.get("HANG_NOW")

        def answer(question: Doc) -> Doc:
            if question["do"] in ("open", "add"):
                cards = {str(n): {"static": {"uuid": f"GPU-{n}"}} for n in range(2)}
                return {"driver": "1", "count": 2, "cards": cards}
            cell.note(1, "nvmlDeviceGetPowerUsage")
            if hangs:
                signal.pause()
            return {"cards": {str(n): {"fast": {"power": 50.0}} for n, _ in question["cards"]}}

        return answer


@pytest.fixture
def bench(loop: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    bench = Bench(loop, monkeypatch)
    yield bench
    bench.source.stop()


def children() -> set[int]:
    with open(f"/proc/{os.getpid()}/task/{os.getpid()}/children") as file:
        return {int(pid) for pid in file.read().split()}


@pytest.mark.fault(42, how="a child of the agent that cannot be killed")
def test_no_second_child_while_one_hangs_in_the_kernel(loop: Any, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    real, before = os.kill, children()
    monkeypatch.setenv("HANG_NOW", "1")
    monkeypatch.setattr(worker.os, "kill", lambda pid, number: None)  # as if it slept uninterruptibly
    bench.source.provided("pynvml", b"")
    bench.source.start(0.1, {})
    drive(loop, lambda: worker.hanging("gpus"))
    (child,) = children() - before
    count = len(bench.docs)
    drive(loop, lambda: len(bench.docs) > count + 8)
    assert children() - before == {child}
    assert bench.docs[-1]["problem"].startswith("nvmlDeviceGetPowerUsage on card 1 has not answered for")
    assert "stale_since" in bench.docs[-1]

    bench.source.stop()  # the client goes and comes back: the child of the earlier watch is still there
    bench.source = bench.new()
    bench.source.provided("pynvml", b"")
    bench.source.start(0.1, {})
    drive(loop, lambda: "earlier watch still hangs" in bench.docs[-1].get("problem", ""))
    assert children() - before == {child}

    monkeypatch.delenv("HANG_NOW")
    real(child, signal.SIGKILL)
    drive(loop, lambda: bench.docs[-1].get("cards", {}).get("GPU-1", {}).get("power") == 50.0)
    assert "problem" not in bench.docs[-1]
    assert child not in children()


def test_pynvml_that_does_not_come_is_asked_for_again_and_told(loop: Any, bench: Bench) -> None:
    bench.source.start(0.1, {})
    drive(loop, lambda: len(bench.needs) > 2)
    assert "waiting for pynvml" in bench.docs[-1]["problem"]
    bench.source.provided("pynvml", b"")
    drive(loop, lambda: "problem" not in bench.docs[-1])
    assert set(bench.docs[-1]["cards"]) == {"GPU-0", "GPU-1"}
    asked = len(bench.needs)
    count = len(bench.docs)
    drive(loop, lambda: len(bench.docs) > count + 5)
    assert len(bench.needs) == asked, "not asked for any more"
