"""Recorded steps into runs: the newest first, all of it once, over rotations, cuts, bad lines and screens that come and go."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from eagletui.agent.job_lines import Lines
from eagletui.records import HostInfo, JobState
from eagletui.store import Store
from eagletui.watch.training import MOST_RUNS, Trainings
from tests.watch.test_servers import FileReader


def doc(step: int, wall: float | None = None, split: str = "train", **named: float) -> dict[str, Any]:
    return {
        "wall": 1000.0 + step if wall is None else wall,
        "step": step,
        "epoch": 0,
        "split": split,
        "values": {"loss": 1.0, **named},
    }


class Host:
    """A host's directory of jobs, the store, and what follows."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.reader = FileReader()
        self.store = Store()
        self.store.info = HostInfo("h", "b", "root", 0, "3", 100, 1.0, 1.0, state_dir=str(root))
        self.follow = Trainings(self.reader, self.store, retry=0.0, wait=1.0)

    def job(self, id_: str = "a", state: str = "running") -> None:
        self.store.jobs[id_] = JobState(id_, "train", id_, state, 1.0, ended=None if state == "running" else 2.0)
        (self.root / "jobs" / id_).mkdir(parents=True, exist_ok=True)

    def path(self, id_: str = "a") -> Path:
        return self.root / "jobs" / id_ / "samples.jsonl"

    def write(self, *docs: Any, id_: str = "a") -> None:
        with self.path(id_).open("a") as file:
            for one in docs:
                file.write((one if isinstance(one, str) else json.dumps(one)) + "\n")
        self.reader.changed.set()

    def steps(self, id_: str = "a") -> list[int]:
        run = self.store.runs.get(id_)
        return [int(step) for step in run.train.last] if run is not None else []

    async def until(self, true: Any) -> None:
        for _ in range(3000):
            if true():
                return
            await asyncio.sleep(0)
        raise AssertionError(self.store.runs)


async def test_tail_past_and_what_comes_are_all_there_once(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.job()
    host.write(*(doc(step) for step in range(3000)))
    assert host.path().stat().st_size > 256 * 1024 // 2
    host.follow.look("a", True)
    await host.until(lambda: host.store.runs.get("a") is not None and host.store.runs["a"].whole)
    assert host.store.runs["a"].train.lines == 3000
    host.write(doc(3000), doc(2999, split="val", full_acc_0=0.5))
    await host.until(lambda: host.store.runs["a"].train.lines == 3001)
    assert len(host.store.runs["a"].val) == 1
    await host.follow.stop()


async def test_a_cut_connection_loses_and_doubles_nothing(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.job()
    host.write(*(doc(step) for step in range(5)))
    host.reader.down = 3
    host.follow.look("a", True)
    await host.until(lambda: host.steps() == list(range(5)))
    host.reader.down = 2
    host.write(*(doc(step) for step in range(5, 9)))
    await host.until(lambda: host.steps() == list(range(9)))
    await host.follow.stop()


async def test_a_rotation_is_followed_and_its_lines_counted_once(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.job()
    lines = Lines(str(host.path()), 6000, keep_one_in=1)
    for step in range(20):
        lines.append(doc(step))
    host.follow.look("a", True)
    await host.until(lambda: host.steps() == list(range(20)))
    inode = host.path().stat().st_ino
    step = 20
    while host.path().stat().st_ino == inode:
        lines.append(doc(step))
        step += 1
        host.reader.changed.set()
    lines.append(doc(step))
    host.reader.changed.set()
    await host.until(lambda: host.steps() == list(range(step + 1)))
    lines.close()
    await host.follow.stop()


async def test_a_screen_that_comes_back_goes_on_where_it_was(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.job()
    host.write(doc(0))
    host.follow.look("a", True)
    await host.until(lambda: host.steps() == [0] and host.store.runs["a"].whole)
    host.follow.look("a", False)
    await asyncio.sleep(0)
    run = host.store.runs["a"]
    host.write(doc(1))
    host.follow.look("a", True)
    await host.until(lambda: host.steps() == [0, 1])
    assert host.store.runs["a"] is run
    await host.follow.stop()


async def test_an_ended_training_is_read_to_its_end_and_left_alone(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.job(state="exited")
    host.write(*(doc(step) for step in range(4)))
    host.follow.look("a", True)
    await host.until(lambda: host.steps() == [0, 1, 2, 3] and not host.follow._tasks)
    host.job("none", "exited")
    host.follow.look("none", True)
    await host.until(lambda: "none" not in host.follow._tasks)
    assert host.store.runs["none"].problem is None
    await host.follow.stop()


async def test_a_file_that_comes_later_is_no_fault(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.job()
    host.follow.look("a", True)
    await host.until(lambda: "a" in host.store.runs)
    assert host.store.runs["a"].problem is None
    host.write(doc(0))
    await host.until(lambda: host.steps() == [0])
    await host.follow.stop()


async def test_what_cannot_be_used_is_counted_and_the_rest_goes_on(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.job()
    bad = ({"step": 1}, {**doc(1), "step": "x"}, {**doc(1), "wall": [1]}, {**doc(1), "split": "odd"}, {**doc(1), "values": 3},
           {**doc(1), "epoch": 1 << 40}, {**doc(1), "step": -1}, "no json", "[1]")  # fmt: skip
    host.write(doc(0), *bad, doc(2))
    host.follow.look("a", True)
    await host.until(lambda: host.steps() == [0, 2])
    problem = host.store.runs["a"].problem or ""
    assert problem.endswith("recorded steps could not be read")
    assert int(problem.split()[0]) >= len(bad)
    await host.follow.stop()


async def test_what_was_removed_and_what_is_long_unseen_is_forgotten(tmp_path: Path) -> None:
    host = Host(tmp_path)
    for n in range(MOST_RUNS + 2):
        host.job(f"j{n}", "exited")
        host.write(doc(0), id_=f"j{n}")
        host.follow.look(f"j{n}", True)
        await host.until(lambda name=f"j{n}": host.steps(name) == [0])
        host.follow.look(f"j{n}", False)
    assert len(host.store.runs) == MOST_RUNS
    assert "j0" not in host.store.runs
    del host.store.jobs["j5"]
    host.follow.update(host.store.jobs.values())
    assert "j5" not in host.store.runs
    await host.follow.stop()
