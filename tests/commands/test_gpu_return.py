"""The proof that the cards' memory came back: from boards before and after, and waiting for it."""

from __future__ import annotations

import asyncio

import pytest

from eagletui.commands import Desk
from eagletui.commands.gpu_return import cards_before, memory_back, still_held
from eagletui.commands.kills import _plan_of
from eagletui.hosts.target import parse_target
from eagletui.records import GpuBoard, GpuProcess, GpuSample
from eagletui.store import Connection, Store
from eagletui.watch.core import Watch
from tests.watch.double import INFO, FakeHost

GIB = 1 << 30
MINE, OTHER = (
    GpuProcess(10, mem=80 * GIB, user="root", command="VLLM::Worker"),
    GpuProcess(99, mem=2 * GIB, user="bob", command="x"),
)


def board(used: float, *processes: GpuProcess, number: int = 2) -> GpuBoard:
    card = GpuSample("GPU-a", number, "card", mem_used=int(used * GIB), mem_total=96 * GIB, processes=processes)
    return GpuBoard(1.0, True, cards=(card,))


BEFORE = board(82.5, MINE, OTHER)


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (board(2.5, OTHER), ()),
        (board(40.5, OTHER._replace(mem=40 * GIB)), ()),  # another one has grown meanwhile
        (board(2.9, OTHER), ()),
        (board(5.6, OTHER), ("card 2 still holds 3.1 GiB",)),
        (board(82.5, MINE, OTHER), ("card 2 still holds 80.0 GiB (pid 10 in NVML's list)",)),
        (GpuBoard(1.0, True), ()),
    ],
)
def test_what_a_card_still_holds(after: GpuBoard, words: tuple[str, ...]) -> None:
    assert still_held(after, cards_before(BEFORE, ["GPU-a"], {10, 11})) == words


def test_in_a_container_the_pids_that_proc_does_not_show_count() -> None:
    hidden = board(80.5, GpuProcess(4711, mem=80 * GIB))
    before = cards_before(hidden, ["GPU-a"], {10})
    assert before.pids == {4711}
    assert still_held(hidden, before) == ("card 2 still holds 80.0 GiB (pid 4711 in NVML's list)",)
    assert cards_before(hidden, ["GPU-other"], {10}).unaccounted == {}


def test_the_plan_counts_own_memory_and_shows_strangers() -> None:
    doc = {
        "job": "j", "name": "n", "token": "t", "main": 10, "gpus": ["GPU-a"], "port": 8000, "listening": True, "suspects": [],
        "processes": [{"pid": 10, "start": 5, "command": "c"}], "shm": [{"path": "/dev/shm/a", "why": "used"}], "tmp": [],
    }  # fmt: skip
    card = BEFORE.cards[0]
    plan = _plan_of(doc, [(card, process) for process in (MINE, OTHER, GpuProcess(7, mem=GIB))])
    assert plan.gpu_memory == 80 * GIB
    assert plan.suspects == (OTHER,)
    assert plan.processes[0].main
    assert plan.shm == ("/dev/shm/a",)
    assert _plan_of(doc, []).gpu_memory is None


async def test_waiting_for_the_memory() -> None:
    host, store = FakeHost(), Store()
    watch = Watch(host, store)
    watch.on_state(Connection("online"), INFO)
    await watch.start(("gpus",))
    desk = Desk(parse_target("local"), host, store, watch)  # type: ignore[arg-type]
    before = cards_before(BEFORE, ["GPU-a"], {10})
    assert await memory_back(desk, cards_before(None, [], {10})) is None

    def push(used: float, pid: int | None) -> None:
        processes = {str(pid): {"pid": pid, "mem": 80 * GIB}} if pid else {}
        card = {"number": 2, "name": "card", "mem_used": int(used * GIB), "processes": processes}
        host.push("gpus", {"present": True, "cards": {"GPU-a": card}})

    waiting = asyncio.create_task(memory_back(desk, before))
    for used, pid in ((80.5, 10), (3.6, None), (0.6, None)):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done()
        push(used, pid)
    back = await waiting
    assert back is not None
    assert back.done
    assert back.words == "GPU memory back after 0 s"
    waiting = asyncio.create_task(memory_back(desk, before, patience=0.05))
    await asyncio.sleep(0)
    push(3.6, None)
    back = await waiting
    assert back is not None
    assert not back.done
    await watch.stop()
