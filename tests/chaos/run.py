"""The chaos run: from one seed, what two people do and what goes wrong meanwhile, with a check after every step.

    python -m tests.chaos [--seed N] [--minutes M | --steps N]

The seed fixes which step is which, with all its choices; when things happen is the machine's. It is printed first. The exit
status is 1 when anything was violated.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from eagletui.hosts.base import HostError
from tests.chaos import checks
from tests.chaos.steps import ACTIONS, FAULTS, Draw, end_job, forget, pick
from tests.chaos.world import Late, World

STEP_LIMIT = 150.0
SETTLE_EVERY = 20
MOST_JOBS = 150
"""Ended jobs above this are removed: a host shows the newest 200."""


class Outcome(NamedTuple):
    """``violations`` in words; ``tally`` counts what was done, what went wrong meanwhile, and how it came out."""

    seed: int
    steps: int
    violations: list[str]
    tally: Counter[str]
    seconds: float
    lag: float


async def waiting(task: asyncio.Task[str]) -> str:
    """Where every task of this process stands; then ``task`` is given up."""
    places = []
    for each in asyncio.all_tasks() - {asyncio.current_task()}:
        inner, chain = each.get_coro(), []
        while (frame := getattr(inner, "cr_frame", None)) is not None:
            chain.append(f"{frame.f_code.co_name}:{frame.f_lineno}")
            inner = getattr(inner, "cr_await", None)
        places.append(f"{each.get_name()} {' > '.join(chain)}")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return "".join(f"\n    {place}" for place in sorted(places))


async def one_step(
    world: World, number: int, rng: random.Random, tally: Counter[str], verbose: Callable[[str], None] | None
) -> list[str]:
    """One thing that is done, and one that goes wrong while it is; the violations."""
    action, fault = pick(ACTIONS, rng.random()), pick(FAULTS, rng.random())
    if verbose is not None:
        verbose(f"step {number}: {action.__name__} with {fault.__name__}")
    pause, of_action, of_fault = rng.random(), Draw(rng), Draw(rng)
    if sum(not record.removed for record in world.records.values()) > MOST_JOBS:
        action = forget
    found = []

    async def both() -> str:
        doing = asyncio.create_task(action(world, of_action))  # type: ignore[arg-type]
        try:
            await asyncio.sleep(pause**3)  # when it goes wrong: early in most steps
            await fault(world, of_fault)  # type: ignore[misc]
            return await doing
        finally:
            doing.cancel()

    task = asyncio.create_task(both())
    try:
        await asyncio.wait([task], timeout=STEP_LIMIT)
        if not task.done():
            where = await waiting(task)
            said = "not finished"
            found.append(f"{action.__name__} with {fault.__name__} did not finish in {STEP_LIMIT:.0f} s: {where}")
        else:
            said = task.result()
    except (Late, HostError) as error:
        said = "failed"
        found.append(f"{action.__name__} with {fault.__name__}: {error}")
    if verbose is not None:
        verbose(f"step {number}: {action.__name__} with {fault.__name__}: {said}")
    tally[f"{action.__name__}: {said}"] += 1
    tally[f"fault {fault.__name__}"] += 1
    found += checks.after_each(world)
    return [f"step {number}: {text}" for text in found]


async def close_down(world: World, rng: random.Random) -> list[str]:
    """The end: all is well again, both clients know the truth, every log is whole, everything is ended, nothing is left."""
    found = [f"at the end: {text}" for text in await checks.settled(world)]
    while any(world.living(record) for record in world.records.values()):
        said = await end_job(world, Draw(rng))
        if said == "not ended for the network":
            found.append("at the end: a job cannot be ended although all is well")
            break
    found += [f"at the end: {text}" for text in await checks.nothing_left(world)]
    for record in world.records.values():
        if not record.removed:
            wrong = await asyncio.to_thread(lambda r=record: list(checks.log_bytes(world, r)))  # type: ignore[misc]
            found += [f"at the end: {text}" for text in wrong]
    return found + [f"at the end: {text}" for text in checks.after_each(world)]


async def run(
    seed: int, root: Path, *, minutes: float | None, steps: int | None, say: Callable[[str], None], verbose: bool = False
) -> Outcome:
    """A whole run under ``root``, for so many minutes or steps."""
    rng, tally, violations = random.Random(seed), Counter[str](), list[str]()
    began, number, worst = time.monotonic(), 0, [0.0]
    world = World(root)
    lag = asyncio.create_task(checks.lag(worst))
    before: tuple[int, int] | None = None
    try:
        await world.begin()
        while (steps is None or number < steps) and (minutes is None or time.monotonic() - began < minutes * 60):
            number += 1
            found = await one_step(world, number, rng, tally, say if verbose else None)
            if number % SETTLE_EVERY == 0:
                found += [f"step {number}: {text}" for text in await checks.settled(world)]
                if before is None:
                    before = checks.own_use()
                use = checks.own_use()
                say(f"step {number}: {len(world.records)} jobs, {use[0] >> 20} MiB, {use[1]} files, {len(violations)} violations")
            for text in found:
                if text.partition(": ")[2] not in {old.partition(": ")[2] for old in violations}:
                    violations.append(text)
                    say(f"VIOLATED {text}")
        after = checks.own_use()
        violations += await close_down(world, rng)
        if before is not None:
            violations += checks.grown(before, after)
    finally:
        lag.cancel()
        await world.end()
    return Outcome(seed, number, violations, tally, time.monotonic() - began, worst[0])


def told(outcome: Outcome) -> str:
    """The tally of a run."""
    lines = [f"{count:6} {what}" for what, count in sorted(outcome.tally.items())]
    lines += [f"VIOLATED {text}" for text in outcome.violations]
    lines.append(
        f"seed {outcome.seed}: {outcome.steps} steps in {outcome.seconds / 60:.1f} min, {len(outcome.violations)} violations; "
        f"the event loop was {outcome.lag * 1000:.0f} ms late at worst"
    )
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="random faults from a seed, with checks")
    parser.add_argument("--seed", type=int, help="repeat this run (default: a new one)")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--keep", action="store_true", help="leave the folder of a run that failed")
    parser.add_argument("--verbose", action="store_true", help="tell every step")
    options = parser.parse_args(argv)
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    minutes = 10.0 if options.minutes is None and options.steps is None else options.minutes
    print(f"seed {seed}", flush=True)
    root = Path(tempfile.mkdtemp(prefix="et-chaos-"))
    outcome = None
    try:
        say = lambda text: print(text, flush=True)  # noqa: E731
        outcome = asyncio.run(run(seed, root, minutes=minutes, steps=options.steps, say=say, verbose=options.verbose))
    finally:
        if options.keep and (outcome is None or outcome.violations):
            print(f"kept: {root}", flush=True)
        else:
            shutil.rmtree(root)
    print(told(outcome))
    return 1 if outcome.violations else 0
