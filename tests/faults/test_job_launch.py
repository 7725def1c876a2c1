"""A launch that is cut, at any byte and at any step, and sent again: one process, and a state that is true."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eagletui.agent import frames, launch, procfs, state_dir, supervisor
from eagletui.agent import shim as shim_module
from eagletui.agent.frames import Frame
from tests.agent.jobs_harness import Jobs, until
from tests.agent.process import Agent
from tests.faults.seeds import seeded

SECRET = {"HF_TOKEN": "hf_of_a_cut_launch"}


def marked(jobs: Jobs, mark: Path, **more: Any) -> dict[str, Any]:
    """A job whose every start leaves its pid in ``mark``, and says whether it got its secret."""
    return jobs.spec("bash", "-c", f'echo "$$ ${{#HF_TOKEN}}" >> {mark}; exec sleep 300', **more)


def started_once(jobs: Jobs, spec: dict[str, Any], state: dict[str, Any], mark: Path) -> None:
    assert state["state"] == "running", state
    until(lambda: mark.exists() and mark.read_text().endswith("\n"))
    assert mark.read_text().split("\n") == [f"{state['pid']} {len(SECRET['HF_TOKEN'])}", ""]
    assert len(jobs.members(spec["id"])) == 1


@pytest.mark.fault(1, how="a local agent's stdin cut at sampled bytes of the launch frame")
def test_a_launch_cut_at_any_byte_and_sent_again_starts_once(jobs: Jobs, tmp_path: Path) -> None:
    rng = seeded("bytes of the launch frame")
    for number in range(6):
        mark = tmp_path / f"mark-{number}"
        spec = marked(jobs, mark)
        jobs.launched.append(spec["id"])
        data = frames.encode(Frame(frames.REQUEST, 1, {"method": "launch", "params": {"spec": spec, "secrets": SECRET}}))
        at = {0: 0, 1: len(data), 2: len(data) - 1}.get(number, rng.randrange(1, len(data)))
        print(f"cut at byte {at} of {len(data)}")
        first = Agent().start()
        first.write(data[:at])
        first.close()  # the pipe's end, and SIGKILL to its session while it may be about to launch
        second = Agent().start()
        state = second.result("launch", spec=spec, secrets=SECRET)
        second.close()
        started_once(jobs, spec, state, mark)


# where the agent dies: the functions that a launch goes through, killed on the way in or right behind
STEPS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "before the directory": lambda patch: _dies(patch, launch.os, "mkdir", before=True),
    "after the directory": lambda patch: _dies(patch, launch.os, "mkdir"),
    "before spec.json": lambda patch: _dies(patch, state_dir, "write_json", before=True),
    "after spec.json": lambda patch: _dies(patch, state_dir, "write_json"),
    "before the fork": lambda patch: _dies(patch, launch, "fork_detached", before=True),
    "after the fork, before the secrets": lambda patch: _dies(patch, launch, "fork_detached"),
    "after the secrets": lambda patch: _dies(patch, launch.os, "write"),
}


def _dies(patch: pytest.MonkeyPatch, place: Any, name: str, *, before: bool = False) -> None:
    real = getattr(place, name)

    def dying(*args: Any, **more: Any) -> Any:
        if not before:
            real(*args, **more)
        os.kill(os.getpid(), signal.SIGKILL)

    patch.setattr(place, name, dying)


def _in_a_child(work: Callable[[], None]) -> int:
    """Run ``work`` in a forked process; its wait status. It stands for an agent that dies."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return os.waitpid(pid, 0)[1]


@pytest.mark.fault(2, how="the agent SIGKILLs itself at each step of a launch")
@pytest.mark.parametrize("step", STEPS)
def test_an_agent_that_dies_within_a_launch(step: str, jobs: Jobs, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    spec = marked(jobs, mark)
    jobs.launched.append(spec["id"])

    def dying_launch() -> None:
        with pytest.MonkeyPatch.context() as patch:
            STEPS[step](patch)
            jobs.call("launch", spec=spec, secrets=SECRET)

    assert os.WTERMSIG(_in_a_child(dying_launch)) == signal.SIGKILL
    started_once(jobs, spec, jobs.launch(spec, secrets=SECRET), mark)


SHIM_STEPS = ("announced", "running")


@pytest.mark.fault(2, how="the supervisor SIGKILLs itself between fork and exec, and between exec and state.json")
@pytest.mark.parametrize("step", SHIM_STEPS)
def test_a_supervisor_that_dies_around_the_start_is_told_and_nothing_runs_twice(step: str, jobs: Jobs, tmp_path: Path) -> None:
    """Before its pid has been noted the program never runs; afterwards it is known which process it is."""
    mark = tmp_path / "mark"
    spec = marked(jobs, mark)
    jobs.launched.append(spec["id"])
    directory = Path(state_dir.job_dir(str(jobs.root), spec["id"]))
    state_dir.create(str(jobs.root))
    directory.mkdir(mode=0o700)
    state_dir.write_json(str(directory / "spec.json"), spec)

    def supervise() -> None:
        os.setsid()
        with pytest.MonkeyPatch.context() as patch:
            if step == "announced":
                _dies(patch, shim_module.Shim, "_note_main", before=True)
            else:
                _dies(patch, shim_module, "spawn")
            loop = shim_module.Loop(lambda what, error: None)
            shim_module.Shim(loop, str(directory), spec, {"PATH": os.environ["PATH"], **SECRET}, []).start()

    assert os.WTERMSIG(_in_a_child(supervise)) == signal.SIGKILL
    if step == "announced":
        until(lambda: not jobs.members(spec["id"]))
        state = jobs.launch(spec, secrets=SECRET)
        assert (state["state"], state.get("pid")) == ("lost_supervisor", None), state
        assert not mark.exists()
        return
    until(lambda: mark.exists() and mark.read_text().endswith("\n"))
    (pid,) = {int(line.split()[0]) for line in mark.read_text().splitlines()}
    state = jobs.launch(spec, secrets=SECRET)
    assert (state["state"], state["pid"]) == ("lost_supervisor", pid)
    assert state["detail"] == "running, its exit status will be unknown: the supervisor died"
    assert "rc" not in state
    assert len(mark.read_text().splitlines()) == 1
    assert jobs.kill(spec["id"], now=True)["result"]["remaining"] == []
    assert not procfs.alive(pid, jobs.job(spec["id"]).origin().main[1])  # type: ignore[union-attr, index]


@pytest.mark.fault(2, how="two agents send one launch in the same moment, again and again")
def test_the_same_launch_from_many_agents_at_once(jobs: Jobs, tmp_path: Path) -> None:
    for number in range(2):
        mark = tmp_path / f"mark-{number}"
        spec = marked(jobs, mark)
        jobs.launched.append(spec["id"])
        agents = [Agent().start() for _ in range(3)]
        ids = [agent.request("launch", spec=spec, secrets=SECRET) for agent in agents]
        pids = set()
        for agent, id_ in zip(agents, ids, strict=True):
            while (frame := agent.next()).id != id_:
                pass
            assert frame.kind == frames.RESPONSE, frame.head
            pids.add(frame.head["result"]["pid"])
            agent.close()
        assert len(pids) == 1
        started_once(jobs, spec, jobs.state(spec["id"]), mark)


@pytest.mark.fault(2, how="as above, the file of secrets of a cut launch in a unit")
def test_the_secrets_of_a_launch_that_was_cut_off_do_not_stay(tmp_path: Path) -> None:
    old = Path(supervisor.write_secrets(str(tmp_path), "one", SECRET))
    os.utime(old, (1, 1))
    new = Path(supervisor.write_secrets(str(tmp_path), "two", SECRET))
    assert not old.exists()
    assert new.stat().st_mode & 0o777 == 0o600
