"""Looking closer at a server: where its processes are (a real py-spy), a stopped one, and one token that comes or does not."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eagletui.cli import why as verb
from eagletui.commands import Desk, kill, kill_plan, launch, plan_launch
from eagletui.commands.why import canary, stacks
from eagletui.hosts.base import HostError
from eagletui.records import JobState
from tests.commands.conftest import fake


async def until(desk: Desk, holds: Callable[[], bool]) -> None:
    """Wait for something that the job table brings."""
    async with asyncio.timeout(60):
        while not holds():
            await desk.watch.sample("jobs", desk.watch.count("jobs") + 1)


BIN = str(Path(sys.executable).parent)


@pytest.fixture(autouse=True)
def spy_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """The py-spy of this environment is found by the agent on its PATH."""
    monkeypatch.setenv("PATH", f"{BIN}:{os.environ['PATH']}")


async def ready(desk: Desk, *flags: str) -> JobState:
    """A stand-in server that is ready, with all its processes known."""
    job = await launch(desk, await plan_launch(desk, fake(*flags)), {})
    count = 1 + int(flags[0].rpartition("=")[2])

    def seen() -> bool:
        found = desk.store.jobs.get(job.id)
        return found is not None and found.health == "ready" and len(found.member_pids) == count

    await until(desk, seen)
    return desk.store.jobs[job.id]


async def test_where_its_processes_are(desk: Desk) -> None:
    job = await ready(desk, "--workers=2")
    looked = await stacks(desk, job)
    assert (looked.tool, looked.why) == (f"{BIN}/py-spy", None)
    assert {process.pid for process in looked.processes} == {pid for pid, _ in job.member_pids}
    worker = next(process for process in looked.processes if process.pid != job.pid)
    assert worker.problem is None
    assert any("worker (" in line and "fake_server.py" in line for line in worker.python), worker.python
    assert worker.threads == 1
    assert sum(count for _, count in worker.waits) == 1
    await kill(desk, await kill_plan(desk, job.id))


async def test_a_stopped_process_is_told_at_once_and_lets_go(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    job = await ready(desk, "--workers=1")
    for pid, _ in job.member_pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        await until(desk, lambda: job.id in desk.store.liveness and desk.store.liveness[job.id].text.startswith("all"))
        found = desk.store.liveness[job.id]
        assert (found.verdict, found.id) == ("stuck", "stopped")
        alert = desk.store.alerts[f"job:{job.id}:hang"]
        assert alert.severity == "bad"
        looked = await stacks(desk, desk.store.jobs[job.id])
        assert {process.state for process in looked.processes} == {"T"}
        assert all(process.waits[0][0] == "stopped" for process in looked.processes)
        rows = list(verb.lines(job, found, looked, None))
        assert rows[0] == "fake: stuck: all its processes are stopped (state T): a debugger or SIGSTOP holds them"
        assert any(row.startswith("  do: kill -CONT") for row in rows)
        token = await canary(desk, job._replace(served_model="fake"), 0.3)
        assert token.alive is False
        assert token.words.startswith("no token within")
    finally:
        for pid, _ in job.member_pids:
            os.kill(pid, signal.SIGCONT)
    await until(desk, lambda: job.id not in desk.store.liveness)
    token = await canary(desk, job)
    assert token.alive is True
    assert "it works" in token.words
    await kill(desk, await kill_plan(desk, job.id))


async def test_a_process_that_is_another_one_now_is_left_out(desk: Desk) -> None:
    job = await ready(desk, "--workers=1")
    (pid, start), *_ = job.member_pids
    looked = await stacks(desk, job._replace(member_pids=((pid, start + 1),)))
    assert looked.processes == ()
    with pytest.raises(HostError, match="no process of fake is known"):
        await stacks(desk, job._replace(member_pids=()))
    await kill(desk, await kill_plan(desk, job.id))


async def test_without_py_spy_the_kernel_still_tells(desk: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    job = await ready(desk, "--workers=1")
    answer: dict[str, Any] = {
        "processes": [{"pid": 7, "comm": "x", "state": "D", "threads": 2, "waits": {"nfs_wait (uninterruptible)": 2}}]
    }

    async def request(method: str, **params: Any) -> Any:
        assert (method, params["processes"]) == ("stacks", [list(key) for key in job.member_pids])
        return {**answer, "tool": None, "why": "py-spy is not installed"}

    monkeypatch.setattr(desk.session, "request", request)
    looked = await stacks(desk, job)
    assert (looked.tool, looked.why) == (None, "py-spy is not installed")
    assert looked.processes[0].waits == (("nfs_wait (uninterruptible)", 2),)
    answer["processes"] = [{"pid": "seven"}]
    with pytest.raises(HostError, match="cannot be used"):
        await stacks(desk, job)
    monkeypatch.undo()
    await kill(desk, await kill_plan(desk, job.id))


async def test_one_token_from_a_server_that_wants_a_key_or_serves_nowhere(desk: Desk) -> None:
    job = JobState("j", "serve", "k", "running", 0.0)
    assert (await canary(desk, job)).alive is None
    token = await canary(desk, job._replace(port=1))
    assert token.alive is False, "which model it serves is not known"
    token = await canary(desk, job._replace(port=1, served_model="k"))
    assert token.alive is None, "it may listen on another address"
    assert token.words.startswith("nobody answers on 127.0.0.1:1")


def test_the_documents_of_an_answer() -> None:
    from eagletui.commands.why import _judged
    from eagletui.hosts.base import HttpAnswer

    def judged(status: int, body: Any) -> Any:
        return _judged(HttpAnswer(status, {}, json.dumps(body).encode()), 1.0)

    assert judged(200, {"usage": {"completion_tokens": 1}, "choices": [{"text": ""}]}).alive is True, "a thought is a token too"
    assert judged(200, {"usage": {"completion_tokens": 0}}).alive is False
    assert judged(200, ["no"]).alive is False
    assert judged(401, {}).alive is None
    assert judged(503, {}).alive is False
