"""What dead jobs left becomes an alert with its remedy; what the agent could not find out becomes one too."""

from __future__ import annotations

from typing import Any

from eagletui.hosts.base import HostError
from eagletui.records import GpuBoard, GpuProcess, GpuSample, JobState
from eagletui.records.jobs import PROBLEMS
from eagletui.store import Store
from eagletui.watch.core import Watch
from eagletui.watch.leftovers import AFTER_AN_END, EVERY, process_signs
from tests.watch.double import FakeHost

RUNS = {"id": "a", "kind": "serve", "name": "ours", "state": "running", "started": 1.0, "health": "ready", "members": 3}
ENDED = {**RUNS, "state": "exited", "ended": 1_700_000_000.0, "rc": 0, "ended_by": "ann", "health": "gone", "members": 0}
FILES = [
    {"job": "a", "name": "ours", "path": "/dev/shm/psm_1", "size": 2 << 30},
    {"job": "a", "name": "ours", "path": "/tmp/vllm_dist_1", "size": 0},
]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def watched(host: FakeHost, clock: Clock) -> tuple[Watch, Store]:
    store = Store()
    watch = Watch(host, store, clock=clock, patience=False)
    await watch.start(("jobs",))
    return watch, store


async def push(host: FakeHost, watch: Watch, doc: dict[str, Any]) -> None:
    """What is asked because of the first push is told with the second."""
    host.push("jobs", doc)
    await watch._leftovers.settled()
    host.push("jobs", doc)


async def test_files_of_ended_jobs_are_an_alert_until_they_are_gone() -> None:
    host, clock = FakeHost(), Clock()
    asked: list[int] = []
    entries: list[dict[str, Any]] = []

    def answer() -> dict[str, Any]:
        asked.append(1)
        return {"entries": list(entries), "removed": [], "kept": {}}

    host.answers["leftovers"] = answer
    watch, store = await watched(host, clock)
    await push(host, watch, {"a": RUNS})
    assert (len(asked), "leftovers:files" in store.alerts) == (1, False)
    entries[:] = FILES
    await push(host, watch, {"a": ENDED})
    assert len(asked) == 1, "what has just ended is given a moment to clear up"
    clock.now += AFTER_AN_END
    await push(host, watch, {"a": ENDED})
    alert = store.alerts["leftovers:files"]
    assert alert.text == "ended jobs left 2 files (2.00 GiB) in /dev/shm, /tmp"
    assert "--remove" in (alert.remedy or "")
    entries.clear()
    clock.now += EVERY
    await push(host, watch, {"a": ENDED})
    assert len(asked) == 3
    clock.now += 60
    await push(host, watch, {"a": ENDED})
    assert "leftovers:files" not in store.alerts
    await watch.stop()


async def test_a_host_without_jobs_of_ours_is_not_asked_and_a_refusal_is_told() -> None:
    host, clock = FakeHost(), Clock()
    watch, store = await watched(host, clock)
    found = {**RUNS, "id": "found-1-0", "adopted": "process"}
    await push(host, watch, {"found-1-0": found})
    assert not store.alerts
    host.answers["leftovers"] = _refuse
    await push(host, watch, {"a": RUNS})
    assert "not yours" in store.alerts["leftovers:unknown"].text
    await watch.stop()


def _refuse() -> None:
    raise HostError("leftovers", "the state directory is not yours", "chown", kind="agent")


async def test_what_the_agent_could_not_find_out_is_told() -> None:
    host = FakeHost()
    watch, store = await watched(host, Clock())
    host.push("jobs", {PROBLEMS: {"looking for servers among all processes": "OSError: no"}})
    assert store.jobs == {}
    alert = store.alerts["problem:looking for servers among all processes"]
    assert alert.text == "looking for servers among all processes: OSError: no"
    await watch.stop()


def board(job: str) -> GpuBoard:
    process = GpuProcess(41, "C", mem=78 << 30, job=job)
    return GpuBoard(1.0, cards=(GpuSample(0, "GPU-1", "H200", processes=(process,)),), present=True)


def test_processes_of_a_dead_server_are_told_with_what_they_hold() -> None:
    store = Store()
    left = JobState("found-1-0", "serve", "k2", "leftover", 1.0, adopted="process", members=2)
    assert [(sign.severity, sign.text) for sign in process_signs(store, left)] == [
        ("warn", "k2: left are 2 processes of a dead server")
    ]
    store.gpus = board("found-1-0")
    (sign,) = process_signs(store, left)
    assert (sign.severity, sign.text) == (
        "bad",
        "k2: left are 2 processes of a dead server, holding 78 GiB of the cards' memory",
    )
    assert "k on the Jobs screen" in (sign.remedy or "")


def test_processes_that_a_job_of_ours_left_are_told_and_those_being_ended_are_not() -> None:
    store = Store()
    store.gpus = board("a")
    left = JobState("a", "serve", "ours", "exited", 1.0, ended=2.0, rc=-9, health="failed", members=1)
    (sign,) = process_signs(store, left)
    assert sign.text == "ours has ended, and left 1 process, holding 78 GiB of the cards' memory"
    assert not list(process_signs(store, left._replace(state="stopping")))
    assert not list(process_signs(store, left._replace(members=0)))
    assert not list(process_signs(store, left._replace(state="running", ended=None)))
