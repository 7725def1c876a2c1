"""A server that stops working while it is asked: how soon is it told, is no token proof of it, and does it recover?"""

from __future__ import annotations

import asyncio
import json
import signal
import time
import urllib.request
from dataclasses import dataclass, replace

from eagletui.agent.syscalls import signal_process
from eagletui.commands import Desk, kill, kill_plan, launch, plan_launch, wait_ready
from eagletui.commands.jobs import is_ready, news
from eagletui.commands.why import canary
from eagletui.hosts.base import HostError
from eagletui.records import JobState
from tests.lab.provoke.acts import member
from tests.lab.provoke.case import World

MARKS = {"vllm": "EngineCor", "sglang": "scheduler"}
"""By engine what stands in the name of the process that makes the tokens."""
PATTERN = "stopped"
TOKENS = 200
LIMIT = 600.0


@dataclass
class Stuck:
    """``told`` and ``cleared``: seconds from the signal to the verdict and its end. ``problem``: how it went otherwise."""

    engine: str
    pattern: str = ""
    told: float = 0.0
    cleared: float = 0.0
    token: str = ""
    problem: str = ""

    @property
    def line(self) -> str:
        if self.problem:
            return f"stuck/{self.engine}: WRONG: {self.problem}"
        return (
            f"stuck/{self.engine}: told as {self.pattern} after {self.told:.1f} s, {self.token};"
            f" goes on: told {self.cleared:.1f} s after it was let go, and its answer came"
        )


async def stuck(desk: Desk, engine: str, world: World) -> Stuck:
    """Stop the process that makes tokens with a request under way, and let it go on again."""
    out = Stuck(engine)
    stage = "the load"
    profile = world.vllm() if engine == "vllm" else world.sgl(drafter=None)
    plan = await plan_launch(desk, replace(profile, smoke=False))
    await launch(desk, plan, {})
    try:
        async with asyncio.timeout(LIMIT * 2):
            state = await wait_ready(desk, plan.job, lambda state: None)
            if not is_ready(state):
                out.problem = f"it did not come up: {state.first_error}"
                return out
            stage = "the request"
            answer = asyncio.create_task(asyncio.to_thread(_ask, str(state.served_model or profile.model), world.port))
            await _until(desk, lambda: (view := desk.store.servers.get(plan.job)) is not None and bool(view.sample.running))
            victim = member(desk.store.jobs[plan.job], MARKS[engine])
            if victim is None or answer.done():
                out.problem = f"no request is under way in a process {MARKS[engine]}"
                return out
            stage = "being told"
            signal_process(*victim, signal.SIGSTOP)
            began = time.monotonic()
            try:
                await _until(desk, lambda: plan.job in desk.store.liveness)
                out.told, out.pattern = time.monotonic() - began, desk.store.liveness[plan.job].id
                if out.pattern != PATTERN:
                    out.problem = f"told as {out.pattern}"
                out.token = "no token within 5 s" if (await _token(desk, desk.store.jobs[plan.job])) is False else "a token came"
            finally:
                signal_process(*victim, signal.SIGCONT)
            stage = "going on"
            began = time.monotonic()
            await _until(desk, lambda: plan.job not in desk.store.liveness)
            out.cleared = time.monotonic() - began
            stage = "the answer"
            made = await answer
            if made != TOKENS:
                out.problem = f"{made} of {TOKENS} tokens came"
    except TimeoutError:
        out.problem = f"{stage} did not come to its end in time"
    finally:
        try:
            await kill(desk, await kill_plan(desk, plan.job), now=True)
        except HostError as error:
            out.problem = out.problem or f"{error.step}: {error.why}"
    return out


async def _until(desk: Desk, condition: object) -> None:
    async with asyncio.timeout(LIMIT):
        while not condition():  # type: ignore[operator]
            await news(desk, "jobs", 1.0)


async def _token(desk: Desk, job: JobState) -> bool | None:
    return (await canary(desk, job, 5.0)).alive


def _ask(model: str, port: int) -> int:
    """One long request; how many tokens came."""
    body = {"model": model, "prompt": "Once upon a time", "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=LIMIT) as answer:
        return int(json.load(answer)["usage"]["completion_tokens"])
