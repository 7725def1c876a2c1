"""kill -9 of whatever belongs to a pipeline, at random moments, and run again: the same steps, each of its rows once."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eagletui.agent import procfs
from eagletui.agent.syscalls import signal_process
from tests.agent.jobs_harness import Jobs
from tests.pipeline.harness import Pipelines

ROUNDS = 3


@pytest.fixture
def pipes(jobs: Jobs, tmp_path: Path) -> Iterator[Pipelines]:
    found = Pipelines(jobs, tmp_path)
    yield found
    found.clean()


def _kill(state: dict[str, Any], what: str) -> bool:
    """kill -9 of a job's main process or its supervisor; False where there is none."""
    pid, start = state.get(what), state.get("pid_start" if what == "pid" else "shim_start")
    return bool(pid and start and signal_process(pid, start, signal.SIGKILL))


def _quiet(pipes: Pipelines, job: str) -> None:
    """Until neither the runner nor its supervisor lives: only then may another run begin."""
    state = pipes.jobs.job(job).stored_state() or {}
    for what, since in (("pid", "pid_start"), ("shim_pid", "shim_start")):
        if state.get(what):
            pipes.until(lambda w=what, s=since: not procfs.alive(state[w], state[s]), f"{what} of {job} ends")  # type: ignore[misc]


@pytest.mark.parametrize("seed", [3])
def test_kill_at_any_moment_and_run_again(pipes: Pipelines, seed: int) -> None:
    rng = random.Random(seed)
    names = ("one", "two", "three")
    steps = [pipes.step(name, rows=4, pace=0.1, server="target" if name == "two" else None) for name in names]
    servers = {"target": pipes.server()}
    hurt = dict.fromkeys(names, 0)
    for _ in range(ROUNDS):
        job = pipes.run(steps, servers)
        time.sleep(rng.uniform(0.0, 2.5))  # the moment of the kill is the test's input, not a wait for something
        running = next((name for name in names if pipes.entry(name).get("state") == "running"), None)
        whom = rng.choice(["runner", "runner", "supervisor", "step", "step's supervisor"])
        if whom == "runner":
            _kill(pipes.jobs.state(job), "pid")
        elif whom == "supervisor":
            _kill(pipes.jobs.state(job), "shim_pid")
        elif running is not None:
            state = pipes.jobs.state(pipes.entry(running).get("job") or "none")
            hurt[running] += _kill(state, "pid" if whom == "step" else "shim_pid")
        _quiet(pipes, job)
    job = pipes.run(steps, servers)
    _quiet(pipes, job)
    assert pipes.over(job).get("ok") is True, pipes.log(job)
    for name in names:
        assert pipes.rows(name) == [f"{name} {row}" for row in range(4)]
        # begun once, and once more for each time that the step itself was hit: never because others were
        assert 1 <= pipes.starts(name) <= 1 + hurt[name], (name, pipes.starts(name), hurt)
    assert [entry["state"] for entry in pipes.record()["steps"]] == ["done"] * 3
    assert not [one for one in pipes.all_jobs() if pipes.jobs.members(one)], "nothing is left running"
