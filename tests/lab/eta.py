"""``make eta``: is the estimate of a load right? One profile of the lab is loaded again and again by the product's own launch.

Each second what the screen would tell is taken; once the load is ready, what was told is compared with what came. From a third of
a load on, the predicted total of the second and later ones has to be within 15 % or 10 s, except for a load that reads from the
disk. usage: python -m tests.lab.eta [PROFILE] [LOADS] [--lock FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import os
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from eagletui.commands import Desk, kill, kill_plan, launch, open_desk, plan_launch, profiles
from eagletui.commands.jobs import LIVE, is_ready
from eagletui.hosts.target import parse_target
from eagletui.labparts.paths import find_lab
from eagletui.profiles import Profile
from eagletui.views.loading import eta_of
from eagletui.views.serving import elapsed
from eagletui.watch.eta import temperature
from tests.agent.jobs_harness import free_port

SHARE, SECONDS = 0.15, 10.0
LIMIT = 900.0


@dataclass
class Load:
    """One load: (seconds since the first line, predicted total, its low and high end), each second; and how long it took."""

    told: list[tuple[float, float, float, float]] = field(default_factory=list)
    basis: str = ""
    total: float = 0.0
    kind: str = ""
    busy: tuple[float, float] = (0.0, 0.0)

    @property
    def later(self) -> list[tuple[float, float, float, float]]:
        """From one third of the load on."""
        return [row for row in self.told if row[0] >= self.total / 3]

    @property
    def worst(self) -> float | None:
        """The largest error of the predicted total from one third on, in seconds; None when nothing was predicted."""
        return max((abs(total - self.total) for _, total, _, _ in self.later), default=None)

    @property
    def right(self) -> bool:
        return self.worst is not None and self.worst <= max(SHARE * self.total, SECONDS)

    @property
    def covered(self) -> float:
        """The share of seconds, from one third on, in which the range that was told held the truth."""
        inside = sum(low <= self.total <= high for _, _, low, high in self.later)
        return inside / len(self.later) if self.later else 0.0


async def one(desk: Desk, profile: Profile) -> Load:
    plan = await plan_launch(desk, replace(profile, port=free_port()))
    load = Load(busy=(os.getloadavg()[0], 0.0))
    await launch(desk, plan, {})
    try:
        async with asyncio.timeout(LIMIT):
            while True:
                await asyncio.sleep(1.0)
                job = desk.store.jobs.get(plan.job)
                if job is None:
                    continue
                if job.state not in LIVE:
                    raise SystemExit(f"eta: the load failed: {job.first_error or job.detail}")
                if is_ready(job):
                    break
                now = time.monotonic()
                spent, eta = elapsed(desk.store, job, now), eta_of(desk.store, job, now)
                if spent is not None and eta is not None:
                    load.told.append((spent, spent + eta.seconds, spent + eta.low, spent + eta.high))
                    load.basis = eta.basis
        load.total, load.kind = job.ready_seconds or 0.0, temperature(job) or "-"
    finally:
        await kill(desk, await kill_plan(desk, plan.job), now=True)
    load.busy = (load.busy[0], os.getloadavg()[0])
    return load


async def measure(name: str, loads: int, lock: Path) -> list[Load]:
    out = []
    with tempfile.TemporaryDirectory(prefix="eta-") as folder, lock.open("w") as file:
        for variable in ("EAGLETUI_STATE", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
            os.environ[variable] = str(Path(folder) / variable)
        desk = await open_desk(parse_target("local"), None, {}, ("jobs",))
        try:
            profile = profiles(desk)[0][name]
            for number in range(loads):
                await asyncio.to_thread(fcntl.flock, file, fcntl.LOCK_EX)
                load = await one(desk, profile)
                fcntl.flock(file, fcntl.LOCK_UN)
                out.append(load)
                first = " (first)" if number == 0 else "" if load.right else "  WRONG"
                error = "nothing was predicted" if load.worst is None else f"error at most {load.worst:.1f} s from a third on"
                share = f" ({100 * load.worst / load.total:.0f} %)" if load.worst is not None and load.total else ""
                print(
                    f"load {number + 1}{first}: {load.total:.1f} s, {load.kind}; {error}{share}; in its range {load.covered:.0%};"
                    f" {load.basis}; load average {load.busy[0]:.1f} to {load.busy[1]:.1f}",
                    flush=True,
                )
                if os.environ.get("EAGLETUI_ETA_ROWS"):
                    rows = Path(os.environ["EAGLETUI_ETA_ROWS"])
                    with rows.open("a") as kept:
                        kept.write(
                            f"{number + 1} {load.total:.1f} " + " ".join(f"{t:.0f}:{p:.0f}" for t, p, _, _ in load.told) + "\n"
                        )
        finally:
            await desk.close()
    return out


def main() -> int:
    parser = argparse.ArgumentParser(prog="eta")
    parser.add_argument("profile", nargs="?", default="lab-eagle3")
    parser.add_argument("loads", nargs="?", type=int, default=6)
    parser.add_argument("--lock", type=Path, help="the file whose lock is held while an engine runs (default: the lab's)")
    options = parser.parse_args()
    lab = find_lab()
    if not lab.built:
        print("eta: there is no lab: `make lab` builds it")
        return 1
    loads = asyncio.run(measure(options.profile, options.loads, options.lock or lab.root.with_name(lab.root.name + ".lock")))
    warm = [load for load in loads[1:] if load.kind != "cold"]
    print(f"{sum(load.right for load in warm)} of {len(warm)} warm loads within 15 % or 10 s from a third on")
    return 0 if all(load.right for load in warm) else 1


if __name__ == "__main__":
    sys.exit(main())
