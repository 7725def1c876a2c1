"""Whose the processes on the cards are: pid and start of a job's members, in whichever order cards and jobs are told."""

from __future__ import annotations

from typing import Any

from eagletui.records import GpuBoard, GpuProcess, GpuSample, JobState
from eagletui.store import Connection, Store
from eagletui.watch.core import Watch
from eagletui.watch.owners import with_owners
from tests.watch.double import INFO, FakeHost

JOB = JobState("j1", "serve", "target", "running", 1.0, member_pids=((100, 7), (101, 9)))


def board(*processes: GpuProcess) -> GpuBoard:
    return GpuBoard(1.0, True, cards=(GpuSample("GPU-a", 0, processes=processes), GpuSample("GPU-b", 1)))


def jobs_on(found: GpuBoard) -> list[str | None]:
    return [process.job for process in found.cards[0].processes or ()]


def test_a_member_is_known_by_pid_and_start() -> None:
    found = with_owners(board(GpuProcess(100, start=7), GpuProcess(101, start=8), GpuProcess(101), GpuProcess(5, start=7)), [JOB])
    assert jobs_on(found) == ["j1", None, None, None]


def test_nothing_new_is_the_same_board_and_an_ended_job_owns_nothing() -> None:
    found = with_owners(board(GpuProcess(100, start=7)), [JOB])
    assert with_owners(found, [JOB]) is found
    assert jobs_on(with_owners(found, [JOB._replace(member_pids=())])) == [None]


async def test_cards_and_jobs_are_joined_whichever_comes_first() -> None:
    host, store = FakeHost(), Store()
    watch = Watch(host, store)
    watch.on_state(Connection("online"), INFO)
    await watch.start()
    cards: dict[str, Any] = {"GPU-a": {"number": 0, "processes": {"100": {"start": 7, "mem": 5}}}}
    jobs: dict[str, Any] = {
        "j1": {"id": "j1", "kind": "serve", "name": "t", "state": "running", "started": 1.0, "member_pids": [[100, 7]]}
    }

    def owner() -> str | None:
        assert store.gpus is not None
        return (store.gpus.cards[0].processes or ())[0].job

    host.push("gpus", {"present": True, "cards": cards})
    assert owner() is None
    before = store.revision["gpus"]
    host.push("jobs", jobs)
    assert owner() == "j1"
    assert store.revision["gpus"] == before + 1
    host.push("gpus", {"present": True, "cards": cards})
    assert owner() == "j1"
    host.push("jobs", {"j1": {**jobs["j1"], "state": "exited", "member_pids": []}})
    assert owner() is None
    await watch.stop()
