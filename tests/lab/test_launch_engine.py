"""The real engine through the commands: launched, ready, measured; then its server is killed, and what stays is ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from eagletui.agent import procfs
from eagletui.agent.syscalls import signal_process
from eagletui.commands import kill, kill_plan, last_good, launch, open_desk, plan_launch, profiles, wait_ready
from eagletui.hosts.target import parse_target
from eagletui.labparts.paths import Lab
from eagletui.records import JobState
from tests.agent.jobs_harness import Jobs, free_port
from tests.lab.story import opened, started, when


@pytest.mark.fault(30, how="SIGKILL to the API server of the real vLLM with a drafter, after it has served")
async def test_a_drafter_is_served_measured_killed_and_cleared(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EAGLETUI_STATE", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    desk = await open_desk(parse_target("local"), None, {}, ("jobs",))
    left = Jobs(tmp_path / "EAGLETUI_STATE")
    try:
        profile = replace(profiles(desk)[0]["lab-eagle3"], port=free_port())
        plan = await plan_launch(desk, profile)
        left.launched.append(plan.job)
        await launch(desk, plan, {})
        states: list[JobState] = []
        state = await wait_ready(desk, plan.job, states.append)
        assert (state.state, state.health, state.listening) == ("running", "ready", True), state.first_error
        seen = list(dict.fromkeys(phase.id for step in states for phase in step.phases))
        assert [name for name in seen if name in ("config", "workers", "weights", "kv", "api")] == [
            "config", "workers", "weights", "kv", "api",
        ]  # fmt: skip
        assert ("weights", "drafter") in [(phase.id, phase.role) for phase in state.phases]
        assert all((phase.seconds or 0) >= 0 for phase in state.phases)

        async with asyncio.timeout(120):
            await when(desk.store, lambda: bool(desk.store.jobs[plan.job].smoke_tokens_per_s))
        state = desk.store.jobs[plan.job]
        assert (state.engine_version, state.max_model_len, state.served_model) == ("0.32.0", 1024, str(lab.model))
        assert (state.bytes_read or 0) > 100e6
        assert (state.rss or 0) > 100e6
        assert state.first_error is None
        assert state.shim_pid is not None
        assert int(procfs.status(state.shim_pid)["VmRSS"].split()[0]) < 24_000

        assert state.port is not None
        body = {"model": str(lab.model), "prompt": "The capital of France is", "max_tokens": 24, "temperature": 0}
        headers = {"Content-Type": "application/json"}
        answer = await desk.session.http(state.port, "/v1/completions", "POST", json.dumps(body).encode(), headers, 120)
        assert answer.status == 200
        async with asyncio.timeout(60):
            while (view := desk.store.servers.get(plan.job)) is None or not view.sample.drafted:
                await desk.watch.sample("jobs", desk.watch.count("jobs") + 1)
        assert view.sample.k == 3
        assert view.sample.drafted == 3 * (view.sample.verify_steps or 0)
        assert last_good(desk, "lab-eagle3") == profile

        # the server dies of a SIGKILL: its engine stays for a moment or for good, and the end is told as what it is
        before = await kill_plan(desk, plan.job)
        assert before.listening
        assert len(before.processes) >= 3
        files = {*before.shm, *before.tmp}.union(*(opened(victim.pid) for victim in before.processes))
        files = {path for path in files if "/EAGLETUI_STATE/" not in path}  # its log and lease are its supervisor's, and stay
        main = next(victim for victim in before.processes if victim.main)
        signal_process(main.pid, main.start, signal.SIGKILL)
        async with asyncio.timeout(60):
            await when(desk.store, lambda: desk.store.jobs[plan.job].state == "exited")
        over = desk.store.jobs[plan.job]
        assert (over.rc, over.health, over.ended_by) == (-9, "failed", None)
        if over.members:
            assert "left behind: pid " in (over.detail or "")
            report = await kill(desk, await kill_plan(desk, plan.job))
            assert report.done, report.remaining
            assert f"port {state.port}" in report.released
        async with asyncio.timeout(120):
            await when(desk.store, lambda: desk.store.jobs[plan.job].members == 0)
        over = desk.store.jobs[plan.job]
        assert (over.state, over.rc, over.health, over.ended_by) == ("exited", -9, "failed", None)
        assert [victim for victim in before.processes if started(victim.pid) == victim.start] == []
        assert sorted(path for path in files if os.path.exists(path)) == []
    finally:
        await desk.close()
        left.clean()
