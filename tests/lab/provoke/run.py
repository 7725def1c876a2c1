"""Run one case: what preflight finds, then the failing launch itself, then what diagnose says of it."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import io
import json
import os
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, nullcontext, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagletui import cli
from eagletui.commands import Desk, kill, kill_plan, launch, plan_launch
from eagletui.commands.diagnose import diagnose_job
from eagletui.commands.jobs import LIVE, is_ready, news
from eagletui.commands.preflight import preflight
from eagletui.hosts.base import HostError
from eagletui.labparts.running import Child
from eagletui.profile_launch import command_of
from eagletui.profiles import Profile
from eagletui.records import JobState
from tests.lab.provoke.acts import another
from tests.lab.provoke.case import Case, World

LIMIT = 600.0
"""Generous: a launch that fails late has loaded everything, on a busy machine."""


@dataclass
class Outcome:
    """What was told. ``found`` are preflight's findings that block or warn, ``causes`` diagnose's of the job, ``of_log`` of its
    log alone. ``problem`` in words when the case did not come to its end.
    """

    case: Case
    found: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    of_log: tuple[str, ...] = ()
    title: str = ""
    ready: bool = False
    problem: str = ""

    @property
    def preflight(self) -> str:
        """The finding that names the failure, else the first; "" for none."""
        return next((id_ for id_ in self.found if id_ in self.case.preflight), self.found[0] if self.found else "")

    @property
    def diagnosed(self) -> str:
        return self.causes[0] if self.causes else ""

    @property
    def wrong(self) -> list[str]:
        """What is not as the case wants it."""
        out = [self.problem] if self.problem else []
        if not self.case.diagnosed:
            if not self.ready:
                out.append(f"it did not come up: {list(self.causes)}")
        elif self.diagnosed not in self.case.diagnosed:
            out.append(f"diagnosed as {list(self.causes)}, not {' or '.join(self.case.diagnosed)}")
        if self.of_log and self.of_log[0] not in (*self.case.diagnosed, *self.causes[:1]):
            out.append(f"its log alone is diagnosed as {list(self.of_log)}")
        return out + self.missed

    @property
    def missed(self) -> list[str]:
        """What preflight should have found."""
        if self.case.preflight and not set(self.found) & set(self.case.preflight):
            return [f"preflight found {list(self.found)}, not {' or '.join(self.case.preflight)}"]
        return []


HOLD = 240.0


class Turn:
    """One engine at a time on a small machine: the lock of a file, given to others after `HOLD` seconds at the latest."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("w")
        self.since: float | None = None

    async def take(self) -> None:
        """Wait for the lock, unless it is ours for a while still."""
        if self.since is not None and time.monotonic() - self.since > HOLD:
            fcntl.flock(self.file, fcntl.LOCK_UN)
            self.since = None
            await asyncio.sleep(0.5)  # who waits wakes up and takes it
        if self.since is None:
            await asyncio.to_thread(fcntl.flock, self.file, fcntl.LOCK_EX)
            self.since = time.monotonic()


async def look(desk: Desk, case: Case, world: World) -> Outcome:
    """Preflight alone: nothing is launched."""
    outcome = Outcome(case)
    with case.around(world) if case.around is not None and case.around is not another else nullcontext():
        found = await preflight(desk, case.profile(world))
    outcome.found = tuple(f.id for severity in ("block", "warn") for f in found.report.of(severity))
    return outcome


async def again(desk: Desk, case: Case, world: World, kept: Path) -> Outcome:
    """Preflight, and the log of an earlier run judged by today's catalogue: nothing is launched."""
    outcome = await look(desk, case, world)
    told = _diagnosed(kept)
    outcome.causes = outcome.of_log = tuple(cause["id"] for cause in told["causes"])
    outcome.title = told["causes"][0]["title"] if told["causes"] else told["outcome"]
    outcome.ready = told["outcome"] in ("ready", "stopped")
    return outcome


async def run(desk: Desk, case: Case, world: World, kept: Path) -> Outcome:
    """The whole case; its log goes to ``kept``."""
    outcome = Outcome(case)
    with ExitStack() as stack:
        if case.around is not None:
            await asyncio.to_thread(stack.enter_context, case.around(world))
        try:
            async with asyncio.timeout(LIMIT):
                profile = case.profile(world)
                found = await preflight(desk, profile)
                outcome.found = tuple(f.id for severity in ("block", "warn") for f in found.report.of(severity))
                plan = await plan_launch(desk, profile)
                async with _ended(desk, plan.job):
                    await launch(desk, plan, {})
                    state = await _over(desk, plan.job, case, world)
                    outcome.ready = is_ready(state)
                    diagnosis = await diagnose_job(desk, state)
                    outcome.causes = tuple(cause.id for cause in diagnosis.causes)
                    outcome.title = diagnosis.causes[0].title if diagnosis.causes else diagnosis.outcome
                    if state.log and os.path.exists(state.log):
                        shutil.copyfile(state.log, kept)
                        outcome.of_log = tuple(cause["id"] for cause in _diagnosed(kept)["causes"])
        except TimeoutError:
            outcome.problem = f"not over within {LIMIT:.0f} s"
        except HostError as error:
            if error.kind == "taken":  # a launch looks at the port and does not begin: so as a person in a shell would start it
                told = await asyncio.to_thread(_in_shell, profile, world, kept)
                outcome.causes = outcome.of_log = tuple(cause["id"] for cause in told["causes"])
                outcome.title = told["causes"][0]["title"] if told["causes"] else told["outcome"]
            else:
                outcome.problem = f"{error.step}: {error.why}"
    return outcome


def _in_shell(profile: Profile, world: World, kept: Path) -> dict[str, Any]:
    """What is diagnosed of the log of a server that is started without eagletui, once it has ended by itself."""
    kept.unlink(missing_ok=True)
    argv, env = command_of(profile)
    child = Child(argv, kept, env={**os.environ, **env}, cwd=Path(profile.cwd or world.folder))
    try:
        if child.poll(LIMIT) is None:
            return {"causes": [], "outcome": f"it did not end within {LIMIT:.0f} s"}
    finally:
        child.stop()
    return _diagnosed(kept)


async def _over(desk: Desk, job: str, case: Case, world: World) -> JobState:
    """The state after the launch has failed; what the case does to it is done on the way."""
    acted = case.act is None
    while True:
        state = desk.store.jobs.get(job)
        if state is not None:
            if not acted and case.act is not None:
                acted = case.act(world, state)
            if state.state not in LIVE:
                return state
            if is_ready(state) and not case.diagnosed:
                return state
            if acted and case.act is None and is_ready(state):
                raise HostError("launch", "it is ready: nothing failed", kind="ready")
        await news(desk, "jobs", 1.0)


@contextlib.asynccontextmanager
async def _ended(desk: Desk, job: str) -> AsyncIterator[None]:
    """Whatever is left of the job is ended."""
    try:
        yield
    finally:
        try:
            await kill(desk, await kill_plan(desk, job), now=True)
        except HostError as error:
            if error.kind != "absent":
                raise


def _diagnosed(log: Path) -> dict[str, Any]:
    """What ``eagletui diagnose LOG --json`` prints."""
    out = io.StringIO()
    with redirect_stdout(out):
        cli.main(["diagnose", str(log), "--json"])
    return dict(json.loads(out.getvalue()))
