"""The real SGLang through the commands, as vLLM: launched, followed until it is ready, measured, ended with proof."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from eagletui.app import EagleApp
from eagletui.commands import Desk, kill, kill_plan, launch, open_desk, plan_launch, wait_ready
from eagletui.hosts.target import parse_target
from eagletui.records import JobState
from eagletui.views.serving import choose
from tests.agent.jobs_harness import Jobs, free_port
from tests.lab.sglang_server import Sglang
from tests.lab.story import started, states_of, when
from tests.screens.conftest import screen_text

LIMIT = 900
PROMPTS = ("The capital of France is", "Write a short story about a robot.", "def fib(n):", "Water boils at")

pytestmark = pytest.mark.timeout(LIMIT)


@pytest.fixture
async def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    for name in ("EAGLETUI_STATE", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    left = Jobs(tmp_path / "EAGLETUI_STATE")
    opened = await open_desk(parse_target("local"), None, {}, ("jobs", "host"))
    yield opened
    await opened.close()
    place = tmp_path / "EAGLETUI_STATE" / "jobs"
    left.launched = [path.name for path in place.iterdir()] if place.is_dir() else []
    left.clean()


async def generate(desk: Desk, port: int, text: str, tokens: int) -> dict[str, Any]:
    """One answer of SGLang's own endpoint: its account of the request, which counts the verify steps."""
    body = {"text": text, "sampling_params": {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}}
    headers = {"Content-Type": "application/json"}
    answer = await desk.session.http(port, "/generate", "POST", json.dumps(body).encode(), headers, 300)
    assert answer.status == 200, answer.body
    meta: dict[str, Any] = json.loads(answer.body)["meta_info"]
    return meta


async def counted(desk: Desk, job: str, tokens: float) -> Any:
    """The newest scrape once the server has counted so many generated tokens."""
    async with asyncio.timeout(120):
        await when(
            desk.store, lambda: (v := desk.store.servers.get(job)) is not None and (v.sample.generated_tokens or 0) >= tokens
        )
    return desk.store.servers[job].sample


async def drawn(desk: Desk, key: str, *wanted: str) -> None:
    """The screen of that key holds these texts, sooner or later."""
    app = EagleApp(desk.store, desk)
    async with app.run_test(size=(160, 50)) as pilot:
        await pilot.press(key)
        text = ""
        for _ in range(600):
            await pilot.pause(0.1)
            text = re.sub(r"\s+", " ", screen_text(app))
            if all(part in text for part in wanted):
                return
        pytest.fail(f"not drawn: {[part for part in wanted if part not in text]}\n{screen_text(app)}")


async def test_a_drafter_is_served_by_sglang_measured_and_ended(sglang: Sglang, desk: Desk, tmp_path: Path) -> None:
    profile = sglang.profile(tmp_path, free_port(), name="sgl-eagle3")
    assert profile.port is not None
    plan = await plan_launch(desk, profile)
    with states_of(desk, "sgl-eagle3") as states:
        job = (await launch(desk, plan, {})).id
        async with asyncio.timeout(LIMIT - 200):
            state = await wait_ready(desk, job, lambda _state: None)
            assert (state.state, state.health) == ("running", "ready"), state
            await when(desk.store, lambda: bool(desk.store.jobs[job].smoke_tokens_per_s))
    assert_load(states, desk.store.jobs[job], sglang, profile.port)

    # the counters, in the definition common to both engines, are what SGLang says of each request
    first = await counted(desk, job, 16)
    metas = [await generate(desk, profile.port, prompt, 60) for prompt in PROMPTS]
    tokens = sum(meta["completion_tokens"] for meta in metas)
    after = await counted(desk, job, first.generated_tokens + tokens)
    steps = sum(meta["spec_verify_ct"] for meta in metas)
    assert after.generated_tokens - first.generated_tokens == tokens == 60 * len(PROMPTS)
    assert after.verify_steps - first.verify_steps == steps
    assert after.drafted - first.drafted == 3 * steps
    assert (after.engine, after.k, after.acceptance_from) == ("sglang", 3, "derived")
    # one token of each request is its prefill's, one of each step the bonus; the rest was drafted
    assert after.accepted - first.accepted == tokens - len(PROMPTS) - steps
    length = 1 + (after.accepted - first.accepted) / steps
    told = sum(meta["spec_accept_length"] * meta["spec_verify_ct"] for meta in metas) / steps
    assert abs(length - told) < 0.1, (length, told, metas)
    window = desk.store.servers[job].window("10 m")
    assert window is not None
    assert window.acceptance is not None
    choose(desk.store, job)  # other servers of this machine are found, and may be newer
    await drawn(desk, "3", "● ready", "SGLang 0.5.23", "weights drafter", "tok/s in")
    await drawn(desk, "4", "generation", "tok/s", "TTFT")
    await drawn(desk, "5", "acceptance", "length", "drafted")

    # ended while a request is under way: it drains or is cut, and everything is gone in either case
    asking = asyncio.create_task(generate(desk, profile.port, PROMPTS[1], 400))
    await when(desk.store, lambda: (desk.store.servers[job].sample.running or 0) > 0)
    doomed = await kill_plan(desk, job)
    commands = " ".join(victim.command for victim in doomed.processes)
    assert "sglang::scheduler" in commands
    assert "sglang::detokenizer" in commands
    report = await kill(desk, doomed)
    assert report.done, report
    assert f"port {profile.port}" in report.released
    await asyncio.gather(asking, return_exceptions=True)
    assert [victim for victim in doomed.processes if started(victim.pid) == victim.start] == []
    assert [path for path in (*doomed.shm, *doomed.tmp) if os.path.exists(path)] == []
    async with asyncio.timeout(60):
        await when(desk.store, lambda: desk.store.jobs[job].state == "exited")
    assert desk.store.jobs[job].health == "gone"
    assert (desk.store.jobs[job].detail or "").startswith("ended by")


def assert_load(states: list[JobState], ready: JobState, sglang: Sglang, port: int) -> None:
    """What was shown while it loaded, and once it was ready."""
    order = list(dict.fromkeys((phase.id, phase.role) for phase in ready.phases))
    wanted = [("weights", "target"), ("weights", "drafter"), ("kv", None), ("warmup", None), ("ready", None)]
    assert [key for key in order if key in wanted] == wanted, order
    assert len({state.phase for state in states}) > 4, "phases are seen as they happen"
    # its port is open, and its list of models answers, before the warm-up is over: that was not taken for ready
    early = [state for state in states if state.listening and state.health == "loading"]
    assert early, "the port was not seen open before ready"
    assert (ready.engine, ready.engine_version, ready.k, ready.port) == ("sglang", "0.5.23", 3, port)
    assert ready.served_model == str(sglang.lab.model)
    assert ready.max_model_len == 8192
    assert ready.listening
    assert ready.first_error is None
    assert (ready.smoke_problem, ready.metrics_problem) == (None, None)
