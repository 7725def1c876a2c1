"""The real engine through the commands: launched, followed until ready, measured, ended with proof."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from eagletui.commands import kill, kill_plan, last_good, launch, open_desk, plan_launch, profiles, wait_ready
from eagletui.hosts.target import parse_target
from eagletui.labparts.paths import Lab
from eagletui.records import JobState
from tests.agent.jobs_harness import Jobs, free_port


async def test_a_drafter_is_served_measured_and_ended(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        assert state.health == "ready", state.first_error
        assert state.smoke_tokens_per_s is None or state.smoke_tokens_per_s > 0
        seen = list(dict.fromkeys(phase.id for step in states for phase in step.phases))
        assert [name for name in seen if name in ("config", "workers", "weights", "kv", "api")] == [
            "config", "workers", "weights", "kv", "api",
        ]  # fmt: skip
        assert ("weights", "drafter") in [(phase.id, phase.role) for phase in state.phases]

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

        what = await kill_plan(desk, plan.job)
        assert len(what.processes) >= 3
        report = await kill(desk, what)
        assert report.done, report.remaining
        assert f"port {state.port}" in report.released
        assert not [path for path in what.shm if os.path.exists(path)]
    finally:
        await desk.close()
        left.clean()
    assert last_good(desk, "lab-eagle3") == profile
