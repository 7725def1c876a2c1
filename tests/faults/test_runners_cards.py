"""Somebody else's process is on a card that a launch wants: it is told, a second yes is wanted, and it lives on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from eagletui.cli.jobs import plan_lines
from eagletui.commands import Desk, kill, kill_plan, open_desk, pids_id, plan_launch
from eagletui.hosts.target import parse_target
from eagletui.profiles import Profile
from tests.agent.fakenvml import FakeNvml, build
from tests.agent.jobs_harness import FAKE, Jobs, free_port

GIB = 1 << 30


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def somebody() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def nvml(library: Path, somebody: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """Two cards; ``somebody`` holds 3 GiB on the first."""
    fake = FakeNvml(library, tmp_path)
    fake.set("count 2", f"card 0 used {3 * GIB}", f"process 0 C {somebody.pid} {3 * GIB}")
    for name, value in fake.environ.items():
        monkeypatch.setenv(name, value)
    return fake


@pytest.fixture
async def desk(nvml: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    for name in ("config", "state", "cache"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path / name))
    monkeypatch.setenv("EAGLETUI_STATE", str(tmp_path / "jobs"))
    opened = await open_desk(parse_target("local"), None, {}, ("jobs", "gpus"))
    await opened.watch.sample("gpus", 1)
    while not (opened.store.gpus and opened.store.gpus.cards and opened.store.gpus.cards[0].processes):
        await opened.watch.sample("gpus", opened.watch.count("gpus") + 1)
    yield opened
    await opened.close()
    left = Jobs(tmp_path / "jobs")
    left.launched = [path.name for path in (tmp_path / "jobs/jobs").iterdir()] if (tmp_path / "jobs/jobs").is_dir() else []
    left.clean()


def profile(gpus: object) -> Profile:
    argv = (sys.executable, "-I", "-S", FAKE)
    return Profile("cards", "vllm", "/models/fake", command=argv, port=free_port(), gpus=gpus)  # type: ignore[arg-type]


@pytest.mark.fault(36, how="a stand-in for NVML tells of a foreign process on the card that is wanted; key, command and form")
async def test_a_card_in_use_is_told_and_wants_a_second_yes(desk: Desk, somebody: subprocess.Popen[bytes]) -> None:
    plan = await plan_launch(desk, profile((0,)))
    assert len(plan.busy) == 1
    assert plan.busy[0] in plan.warnings
    assert "card 0 is in use: 3.0 GiB by" in plan.busy[0]
    assert f"(pid {somebody.pid})" in plan.busy[0]
    assert (await plan_launch(desk, profile((1,)))).busy == ()
    assert somebody.poll() is None


@pytest.mark.fault(36, how="the foreign process of a card is ended by its own number only, and its memory is awaited")
async def test_the_process_on_the_card_is_ended_by_its_number(
    desk: Desk, nvml: FakeNvml, somebody: subprocess.Popen[bytes]
) -> None:
    plan = await kill_plan(desk, pids_id([somebody.pid]))
    assert (plan.only, plan.confirm, plan.because) == (True, str(somebody.pid), "eagletui did not start it")
    assert [victim.command for victim in plan.processes] == ["sleep 600"]
    assert (plan.gpu_memory, len(plan.gpus), plan.suspects) == (3 * GIB, 1, ())
    assert "exactly these" in "\n".join(plan_lines(plan))

    async def memory_comes_back() -> None:
        await asyncio.to_thread(somebody.wait, 60)
        nvml.set("count 2")

    back = asyncio.create_task(memory_comes_back())
    report = await kill(desk, plan)
    await back
    assert (report.done, report.remaining) == (True, ())
    assert report.gpu_memory is not None
    assert report.gpu_memory.startswith("GPU memory back after")
