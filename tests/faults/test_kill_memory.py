"""The cards' memory after a kill, by a stand-in for NVML: back at once, back late, never back; and each is told as it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from eagletui.commands import Desk, gpu_return, kills, open_desk
from eagletui.hosts.target import parse_target
from eagletui.records import KillReport
from tests.agent.fakenvml import FakeNvml, build
from tests.agent.jobs_harness import Jobs

MIB = 1 << 20
GIB = 1 << 30
IDLE = 600 * MIB
HELD = 80 * GIB


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def fake(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    made = FakeNvml(library, tmp_path)
    for name, value in made.environ.items():
        monkeypatch.setenv(name, value)
    made.set("count 2", f"card 0 used {IDLE}", f"card 1 used {IDLE}")
    return made


@pytest.fixture
async def desk(jobs: Jobs, fake: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    for name in ("config", "state", "cache"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path / name))
    opened = await open_desk(parse_target("local"), None, {}, ("jobs", "gpus"))
    yield opened
    await opened.close()


async def board(desk: Desk, true: Any) -> Any:
    async with asyncio.timeout(60):
        while desk.store.gpus is None or not true(desk.store.gpus):
            await desk.watch.sample("gpus", desk.watch.count("gpus") + 1)
    return desk.store.gpus


async def killed(desk: Desk, jobs: Jobs, fake: FakeNvml, after: list[list[str]]) -> KillReport:
    """Launch on card 0, let it hold 80 GiB there, end it; NVML then says each of ``after`` in turn."""
    cards = (await board(desk, lambda b: len(b.cards) == 2)).cards
    uuid = next(card.uuid for card in cards if card.number == 0)
    spec = jobs.spec("sleep", "600", gpus=[uuid])
    jobs.launched.append(spec["id"])
    state = await desk.session.request("launch", spec=spec)
    holds = [f"card 0 used {HELD + IDLE}", f"process 0 C {state['pid']} {HELD}"]
    fake.set("count 2", *holds, f"card 1 used {IDLE}")
    await board(desk, lambda b: any(p.pid == state["pid"] and p.mem == HELD for c in b.cards for p in c.processes or ()))
    async with asyncio.timeout(60):
        while spec["id"] not in desk.store.jobs:
            await desk.watch.sample("jobs", desk.watch.count("jobs") + 1)
    plan = await kills.kill_plan(desk, spec["id"])
    assert plan.gpu_memory == HELD
    ending = asyncio.create_task(kills.kill(desk, plan))
    for lines in after:
        async with asyncio.timeout(60):
            while (job := desk.store.jobs[spec["id"]]).state in ("running", "stopping") or job.members:
                await desk.watch.sample("jobs", desk.watch.count("jobs") + 1)
        assert not ending.done()
        fake.set("count 2", *lines, f"card 1 used {IDLE}")
        used = int(lines[0].split()[-1])
        await board(desk, lambda b, used=used: any(c.number == 0 and c.mem_used == used for c in b.cards))
    async with asyncio.timeout(60):
        return await ending


@pytest.mark.fault(30, how="a stand-in for NVML that gives the memory back in two steps, after the processes have gone")
async def test_memory_that_comes_back_late_is_waited_for(desk: Desk, jobs: Jobs, fake: FakeNvml) -> None:
    report = await killed(desk, jobs, fake, [[f"card 0 used {40 * GIB}"], [f"card 0 used {IDLE + 100 * MIB}"]])
    assert report.done
    assert report.remaining == ()
    assert report.gpu_memory is not None
    assert report.gpu_memory.startswith("GPU memory back after ")


@pytest.mark.fault(30, how="a stand-in for NVML whose card never gives the memory of a dead process back")
async def test_memory_that_never_comes_back_is_no_success(
    desk: Desk, jobs: Jobs, fake: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = gpu_return.memory_back
    monkeypatch.setattr(kills, "memory_back", lambda desk, before: patient(desk, before, patience=2.0))
    report = await killed(desk, jobs, fake, [])
    assert not report.done
    assert "card 0 still holds 80.0 GiB" in " ".join([report.gpu_memory or "", *report.remaining])
