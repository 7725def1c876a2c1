"""What is true of a job after the fact, and the stream that tells it. Never a guess."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eagletui.agent import procfs, state_dir
from eagletui.agent.calls import CallError
from eagletui.agent.job_files import NEWEST, Board, Job
from eagletui.agent.jobs_source import JobsSource
from eagletui.agent.loop import Loop
from eagletui.agent.members import here
from eagletui.agent.source import Context
from eagletui.records import JobState, from_doc
from tests.agent.jobs_harness import Jobs


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    root = tmp_path / "state"
    monkeypatch.setenv("EAGLETUI_STATE", str(root))
    state_dir.create(str(root))
    found = Jobs(root)
    yield found
    found.clean()


GONE = (999_999, 7)


def write(jobs: Jobs, job: str, main: tuple[int, int] | None = GONE, here_: Any = None, exit_: Any = None, **fields: Any) -> Job:
    """A job's files as a shim that is dead would have left them."""
    directory = jobs.root / "jobs" / job
    directory.mkdir()
    boot_id, namespace, first = here_ or here()
    state = {
        "id": job,
        "kind": "serve",
        "name": job,
        "state": "running",
        "health": "ready",
        "started": time.time(),
        "boot_id": boot_id,
    }
    state.update({"shim_pid": GONE[0], "shim_start": GONE[1], "members": 3, "cpu": 5.0, "rss": 100, **fields})
    origin = {"boot_id": boot_id, "pid_ns": namespace, "pid1_start": first, "shim": list(GONE), "main": main, "log": None}
    (directory / "state.json").write_text(json.dumps(state))
    (directory / "shim.json").write_text(json.dumps(origin))
    (directory / "spec.json").write_text(json.dumps({"id": job, "kind": "serve", "argv": ["x"], "env": {}}))
    if exit_:
        (directory / "exit.json").write_text(json.dumps(exit_))
    return Job(str(directory))


def test_after_a_reboot(jobs: Jobs) -> None:
    _, namespace, first = here()
    job = write(jobs, "a", main=(1, 0), here_=("another-boot", namespace, first))
    state = job.state()
    assert state is not None
    assert (state["state"], state["health"]) == ("lost_reboot", "gone")
    assert not {"rc", "members", "cpu", "rss"} & set(state)
    with pytest.raises(CallError, match="the host was rebooted while it ran"):
        jobs.call("kill_plan", job="a")


@pytest.mark.parametrize("change", ["namespace", "first"])
def test_after_a_container_was_restarted(jobs: Jobs, change: str) -> None:
    boot_id, namespace, first = here()
    there = (boot_id, namespace + (change == "namespace"), first + (change == "first"))
    # the pid of the main process is in use here, by somebody else
    stat = procfs.read_stat(os.getpid())
    assert stat is not None
    state = write(jobs, "a", main=(stat.pid, stat.start), here_=there).state()
    assert state is not None
    assert state["state"] == "lost_container"
    with pytest.raises(CallError, match="another container"):
        jobs.call("kill_plan", job="a")


def test_without_supervisor_and_main_process(jobs: Jobs) -> None:
    state = write(jobs, "a").state()
    assert state is not None
    assert state["state"] == "lost_supervisor"
    assert state["detail"] == "gone, exit status unknown: the supervisor died"
    assert "rc" not in state


def test_an_exit_that_was_written_is_known(jobs: Jobs) -> None:
    state = write(jobs, "a", exit_={"rc": 3, "wall": 5.0, "oom": False}).state()
    assert state is not None
    assert (state["state"], state["rc"], state["ended"]) == ("exited", 3, 5.0)
    assert "members" not in state
    state = write(jobs, "b", exit_={"rc": -9, "wall": 5.0, "oom": True}).state()
    assert state is not None
    assert (state["state"], state["rc"]) == ("oom", -9)


def test_a_main_process_that_lives_without_its_supervisor(jobs: Jobs) -> None:
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        stat = procfs.read_stat(process.pid)
        assert stat is not None
        state = write(jobs, "a", main=(stat.pid, stat.start)).state()
        assert state is not None
        assert state["state"] == "lost_supervisor"
        assert state["detail"].startswith("running, its exit status will be unknown")
        assert (state["health"], state["members"], state["pid"]) == ("ready", 1, stat.pid)
    finally:
        process.kill()
        process.wait()
    # the same number with another start is not that process
    state = write(jobs, "b", main=(os.getpid(), 1)).state()
    assert state is not None
    assert state["detail"].startswith("gone")


def test_a_damaged_state_is_told_and_hides_no_other(jobs: Jobs) -> None:
    write(jobs, "good", state="exited", rc=0)
    (jobs.root / "jobs" / "bad").mkdir()
    (jobs.root / "jobs" / "bad" / "state.json").write_text("{")
    (jobs.root / "jobs" / "half").mkdir()
    answer = jobs.call("jobs")
    assert list(answer["jobs"]) == ["good"]
    assert "is damaged" in answer["problems"]["bad"]


def test_the_newest_are_listed(jobs: Jobs) -> None:
    for number in range(NEWEST + 5):
        write(jobs, f"j{number}", state="exited", rc=0, started=float(number), exit_={"rc": 0})
    found = Board(str(jobs.root)).look()
    assert len(found) == NEWEST
    assert "j4" not in found
    assert f"j{NEWEST + 4}" in found


def test_an_ended_job_is_read_once(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    write(jobs, "a", state="exited", rc=0)
    path = jobs.root / "jobs" / "a" / "state.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "members": 0}))
    board = Board(str(jobs.root))
    board.look()
    monkeypatch.setattr(Job, "stored_state", lambda self: pytest.fail("read again"))
    assert board.look()["a"]["rc"] == 0


def test_remove(jobs: Jobs) -> None:
    write(jobs, "a")
    assert jobs.call("remove", job="a") == {}
    assert os.listdir(jobs.root / "jobs") == []
    with pytest.raises(CallError, match="there is no job 'a'"):
        jobs.call("remove", job="a")
    spec = jobs.spec("sleep", "600")
    jobs.launch(spec)
    with pytest.raises(CallError, match="still runs"):
        jobs.call("remove", job=spec["id"])
    with pytest.raises(CallError, match="not a job id"):
        jobs.call("remove", job="../x")


def test_what_a_request_shows_holds_no_secret(jobs: Jobs) -> None:
    spec = jobs.spec("sleep", "600", "--api-key", "sk-123", "--token=abc")
    spec["argv"] = ["sh", "-c", "exec sleep 600", "--api-key", "sk-123", "--token=abc"]
    jobs.launch(spec)
    answer = jobs.call("job", job=spec["id"])
    assert answer["spec"]["argv"][-3:] == ["--api-key", "***", "--token=***"]
    assert answer["state"]["command"] == answer["spec"]["argv"]
    assert answer["directory"] == str(jobs.root / "jobs" / spec["id"])


def test_the_stream_tells_jobs_as_records(jobs: Jobs) -> None:
    spec = jobs.spec("sh", "-c", "echo hello; exec sleep 600")
    jobs.launch(spec)
    write(jobs, "old", state="exited", rc=0, started=1.0, members=0)
    errors: list[Exception] = []
    loop = Loop(lambda what, error: (errors.append(error), loop.stop())[0])
    docs: list[dict[str, Any]] = []

    def publish(doc: dict[str, Any]) -> None:
        docs.append(doc)
        if doc.get(spec["id"], {}).get("log_size") and len(docs) >= 3:
            loop.stop()

    source = JobsSource(Context(loop, publish, lambda name: None, lambda text: None))
    source.start(0.1, {})
    loop.call_later(20, loop.stop)
    loop.run()
    source.stop()
    loop.close()
    assert not errors
    last = docs[-1]
    # an engine that happens to run on this machine is found as well
    assert {name for name in last if not name.startswith("found-")} == {spec["id"], "old"}
    state = from_doc(JobState, last[spec["id"]])
    assert (state.state, state.log_size) == ("running", 6)
    assert state.log_age is not None
    assert "null" not in json.dumps({name: last[name] for name in (spec["id"], "old")})
