"""A short run of random faults, the same in every run of the tests. `make chaos` is the long one, from a seed of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.run import run, told

SEED, STEPS = 251, 14
# that seed has most kinds of faults in few steps, and short ones


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.fault(52, how="a seeded run of random faults: two clients, a real sshd, a proxy, jobs and stand-in servers")
async def test_a_short_run_violates_nothing(tmp_path: Path) -> None:
    outcome = await run(SEED, tmp_path, minutes=None, steps=STEPS, say=print)
    assert outcome.steps == STEPS
    assert outcome.violations == [], told(outcome)
