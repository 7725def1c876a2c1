"""Launching and ending from a desk, against a real agent and real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eagletui import commands
from eagletui.agent import procfs
from eagletui.commands import Desk, kill, kill_plan, launch, plan_launch, remove_job, wait_ready
from eagletui.hosts.base import HostError
from eagletui.profiles import Profile, save_profile
from eagletui.records import JobState
from tests.agent.jobs_harness import until
from tests.commands.conftest import fake

CANARY = "canary-3f8e1c"


async def started(desk: Desk, profile: Profile, **secrets: str) -> JobState:
    plan = await plan_launch(desk, profile)
    await launch(desk, plan, secrets)
    return await wait_ready(desk, plan.job, lambda _state: None)


async def test_a_secret_of_the_environment_need_not_be_given(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", CANARY)
    plan = await plan_launch(desk, fake(secrets=("HF_TOKEN",)))
    assert plan.missing == ()
    state = await launch(desk, plan, {})
    assert f"HF_TOKEN={CANARY}".encode() in Path(f"/proc/{state.pid}/environ").read_bytes()


class Lossy:
    """The desk's session, whose connection is lost right after the host has taken up the next ``times`` requests of a method."""

    def __init__(self, desk: Desk, method: str, times: int = 1) -> None:
        self._session, self.method, self.times, self.calls = desk.session, method, times, 0
        desk.session = self  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def request(self, method: str, body: bytes = b"", /, **params: Any) -> Any:
        answer = await self._session.request(method, body, **params)
        if method == self.method:
            self.calls += 1
            if self.times:
                self.times -= 1
                raise HostError(method, "the connection was lost", kind="closed", retry=True)
        return answer


async def test_from_a_profile_to_ready_and_back(desk: Desk, places: Path) -> None:
    profile = fake(secrets=("HF_TOKEN",))
    plan = await plan_launch(desk, profile)
    assert plan.missing == ("HF_TOKEN",)
    assert plan.env["HF_TOKEN"] == "***"
    assert plan.command[:4] == profile.command
    with pytest.raises(HostError, match="no value for HF_TOKEN") as refused:
        await launch(desk, plan, {})
    assert refused.value.kind == "config"
    assert (await launch(desk, plan, {"HF_TOKEN": CANARY})).state == "running"
    seen: list[JobState] = []
    state = await wait_ready(desk, plan.job, seen.append)
    assert state.health == "ready"
    assert state.engine_version == "0.32.0"
    assert seen[-1] == state
    assert state.pid is not None
    assert f"HF_TOKEN={CANARY}".encode() in Path(f"/proc/{state.pid}/environ").read_bytes()
    assert not [path for path in places.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]

    what = await kill_plan(desk, plan.job)
    assert [victim.main for victim in what.processes] == [True, False, False]
    assert what.listening
    assert what.cost == state.ready_seconds
    report = await kill(desk, what)
    assert report.done
    assert report.released == ("3 processes", f"port {profile.port}")
    assert report.gpu_memory is None
    assert not any(procfs.alive(victim.pid, victim.start) for victim in what.processes)
    with pytest.raises(HostError) as nothing:
        await kill_plan(desk, plan.job)
    assert nothing.value.kind == "absent"
    await remove_job(desk, plan.job)
    assert not (places / "jobs" / "jobs" / plan.job).exists()


async def test_what_became_ready_is_the_last_good_one(desk: Desk) -> None:
    profile = fake(description="as it was")
    assert commands.last_good(desk, "fake") is None
    state = await started(desk, profile)
    await desk.close()
    assert commands.last_good(desk, "fake") == profile
    assert state.profile == "fake"


async def test_a_server_launched_elsewhere_is_remembered_when_its_profile_is_unchanged(places: Path) -> None:
    profile = fake()
    save_profile(profile)
    save_profile(replace(profile, name="other", port=(profile.port or 0) + 1))
    desk = await commands.open_desk(commands.desk.Target("local", local=True), None, {}, ("jobs",))
    desk_launched = await started(desk, profile)
    other = desk_launched._replace(id="x", profile="other")
    desk.launched.clear()
    await desk.close()
    (places / "state" / "eagletui" / "last-good" / "local" / "fake.toml").unlink()
    desk.on_ready(desk_launched)
    desk.on_ready(other)
    await desk.close()
    assert commands.last_good(desk, "fake") == profile
    assert commands.last_good(desk, "other") is None


async def test_a_launch_sent_again_starts_nothing_twice(desk: Desk) -> None:
    plan = await plan_launch(desk, fake())
    lossy = Lossy(desk, "launch")
    state = await launch(desk, plan, {})
    assert lossy.calls == 2
    again = await launch(desk, plan, {})
    assert again.pid == state.pid
    await wait_ready(desk, plan.job, lambda _state: None)
    assert len((await kill_plan(desk, plan.job)).processes) == 3


async def test_a_kill_over_a_lost_connection_is_followed_to_its_end(desk: Desk) -> None:
    state = await started(desk, fake())
    plan = await kill_plan(desk, state.id)
    lossy = Lossy(desk, "kill")
    report = await kill(desk, plan)
    assert report.done
    assert lossy.calls <= 2, "sent again at most while the supervisor has not yet said that it ends the job"
    lossy.method, lossy.times = "remove", 1
    await remove_job(desk, state.id)


class Dropping(Lossy):
    """As `Lossy`, but the connection is lost before the host has heard of the request."""

    async def request(self, method: str, body: bytes = b"", /, **params: Any) -> Any:
        if method == self.method:
            self.calls += 1
            if self.calls <= self.times:
                raise HostError(method, "the connection was lost", kind="closed", retry=True)
        return await self._session.request(method, body, **params)


async def test_a_kill_that_never_arrived_is_sent_again_also_to_what_a_dead_server_left(desk: Desk) -> None:
    state = await started(desk, fake("--workers-ignore-term", graces=(1, 1, 10)))
    os.kill(state.pid or 0, signal.SIGKILL)
    await asyncio.to_thread(until, lambda: not procfs.alive(state.pid or 0, state.pid_start or 0))
    while desk.store.jobs[state.id].state != "exited" or not desk.store.jobs[state.id].members:
        await desk.watch.sample("jobs", desk.watch.count("jobs") + 1)
    lossy = Dropping(desk, "kill")
    report = await kill(desk, await kill_plan(desk, state.id))
    assert report.done
    assert report.released[0] == "2 processes"
    assert lossy.calls == 2


async def test_a_kill_sent_again_after_it_was_done_is_no_failure(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is lost when the host has taken the kill up, and nothing in the job's state shows that yet."""
    state = await started(desk, fake())
    plan = await kill_plan(desk, state.id)
    lossy = Lossy(desk, "kill")
    look, looks = commands.kills._look, [0]

    async def old_then_true(at: Desk, job: str) -> Any:
        looks[0] += 1
        if looks[0] == 2:
            async with asyncio.timeout(30):
                while (await look(at, job))[0].state in ("running", "stopping"):
                    await desk.watch.sample("jobs", desk.watch.count("jobs") + 1)
            return state, {}
        return await look(at, job)

    monkeypatch.setattr(commands.kills, "_look", old_then_true)
    report = await kill(desk, plan)
    assert report.done
    assert report.released
    assert lossy.calls == 1


async def test_a_program_that_is_not_there(desk: Desk) -> None:
    plan = await plan_launch(desk, replace(fake(), command=(), args=(), venv="/nowhere/venv"))
    state = await launch(desk, plan, {})
    assert state.state == "failed_to_exec"
    assert "/nowhere/venv/bin/vllm" in (state.first_error or "")
    assert (await wait_ready(desk, plan.job, lambda _state: None)).state == "failed_to_exec"


async def test_a_load_that_fails_tells_its_first_error(desk: Desk) -> None:
    state = await started(desk, fake("--fail", "RuntimeError: no such tensor"))
    assert state.state == "exited"
    assert state.health == "failed"
    assert state.first_error == "RuntimeError: no such tensor"


async def test_a_port_that_is_taken(desk: Desk) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        with pytest.raises(HostError, match=f"port {port}") as foreign:
            await launch(desk, await plan_launch(desk, fake(port=port)), {})
    assert foreign.value.kind == "taken"
    first = await started(desk, fake())
    plan = await plan_launch(desk, fake(port=first.port))
    assert plan.warnings == (f"port {first.port} is listened on by fake ({first.id})",)
    with pytest.raises(HostError, match=f"leased by job {first.id}") as leased:
        await launch(desk, plan, {})
    assert leased.value.kind == "taken"


async def test_a_kill_is_bound_to_what_was_shown(desk: Desk) -> None:
    state = await started(desk, fake())
    plan = await kill_plan(desk, state.id)
    with pytest.raises(HostError) as changed:
        await kill(desk, plan._replace(token="another"))
    assert changed.value.kind == "replaced"
    assert state.pid is not None
    assert state.pid_start is not None
    assert procfs.alive(state.pid, state.pid_start)


@pytest.mark.parametrize("how", ["now", "hurry"])
async def test_what_will_not_end_by_itself_is_hurried(desk: Desk, how: str) -> None:
    state = await started(desk, fake("--ignore-term"))
    plan = await kill_plan(desk, state.id)
    if how == "now":
        report = await kill(desk, plan, now=True)
    else:
        ending = asyncio.create_task(kill(desk, plan))
        async with asyncio.timeout(30):
            while desk.store.jobs[state.id].state != "stopping":
                await desk.watch.sample("jobs", desk.watch.count("jobs") + 1)
        await commands.hurry(desk, state.id)
        report = await ending
    assert report.done
    assert report.rc == -9
    assert (report.seconds or 0) < 30  # the first grace alone is a minute


async def test_what_remains_is_told(desk: Desk) -> None:
    """A process that nobody of the job's holds its port when it is gone."""
    state = await started(desk, fake())
    plan = await kill_plan(desk, state.id)
    taker = socket.socket()
    taker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    assert state.port is not None
    taker.bind(("127.0.0.2", state.port))
    taker.listen()
    try:
        report = await kill(desk, plan)
    finally:
        taker.close()
    assert not report.done
    assert f"pid {os.getpid()}" in " ".join(report.remaining)


async def test_warnings_before_a_launch(desk: Desk) -> None:
    profile = fake("--api-key", "sk-1", host="0.0.0.0", env={"MY_TOKEN": "t"})
    plan = await plan_launch(desk, profile)
    assert len(plan.warnings) == 3
    assert "all interfaces" in plan.warnings[0]
    assert "sk-1" not in repr((plan.command, plan.env, plan.warnings))
    with pytest.raises(HostError, match="the host has 0") as none:
        await plan_launch(desk, replace(fake(), gpus="all"))
    assert none.value.kind == "config"


async def test_a_read_only_desk_changes_nothing(desk: Desk) -> None:
    desk.readonly = True
    plan = await plan_launch(desk, fake())
    for refused in (
        launch(desk, plan, {}),
        kill(desk, commands.kills.KillPlan("a", "a", "t")),
        commands.hurry(desk, "a"),
        remove_job(desk, "a"),
        commands.end_job(desk, "a"),
    ):
        with pytest.raises(HostError, match="read-only"):
            await refused
    assert not [job for job in desk.store.jobs.values() if job.adopted is None], "what else runs here is no job of ours"


async def test_waiting_for_a_job_that_is_not_there(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands.jobs, "FIRST_SECONDS", 0.0)
    with pytest.raises(HostError) as absent:
        await wait_ready(desk, "nothing", lambda _state: None)
    assert absent.value.kind == "absent"
