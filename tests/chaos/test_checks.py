"""The chaos run finds what it is there to find: every check is shown something that is wrong."""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from eagletui.agent.members import here
from eagletui.records import JobState
from tests.agent.jobs_harness import until
from tests.chaos.checks import _shown, after_each, exit_status, grown, held_leases, log_bytes
from tests.chaos.stand_in import LINE, line, lines
from tests.chaos.steps import ACTIONS, FAULTS, Draw, pick
from tests.chaos.world import Canary, Record, World, expected


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    (tmp_path / "host" / "jobs").mkdir(parents=True, mode=0o700)
    (tmp_path / "truth").mkdir()
    made = World(tmp_path)
    yield made
    for canary in made.canaries:
        canary.end()


def record(world: World, name: str = "chaos-1") -> Record:
    made = Record(name, world.truth, None, None, accepted=True)
    world.records[name] = made
    return made


def state(world: World, one: Record, **fields: Any) -> None:
    """What the host says of it; its supervisor is one that is long gone."""
    folder = world.state / "jobs" / one.id
    folder.mkdir(exist_ok=True)
    boot, namespace, first = here()
    doc = {"id": one.id, "kind": "command", "name": one.id, "state": "exited", "boot_id": boot, "shim_pid": 4_190_000}
    (folder / "state.json").write_text(json.dumps({**doc, "shim_start": 1, **fields}))
    origin = {"boot_id": boot, "pid_ns": namespace, "pid1_start": first, "shim": [4_190_000, 1]}
    (folder / "shim.json").write_text(json.dumps(origin))


def test_a_log_is_what_was_written(world: World) -> None:
    one = record(world)
    state(world, one)
    path = world.state / "jobs" / one.id / "log"
    text = lines(one.id, 0, 100)
    assert len(line(one.id, 5)) == LINE
    assert expected(one.id, 70, 700) == text[70:700]
    path.write_bytes(text)
    assert list(log_bytes(world, one)) == []
    for wrong in (text[:-1] + b"x", text[LINE:], text[:640] + text[704:], text + text[-LINE:], text[:9] + b"\0" + text[10:]):
        path.write_bytes(wrong)
        assert list(log_bytes(world, one)), wrong[-80:]
    path.write_bytes(text[:-LINE])
    (world.truth / f"{one.id}.ends").write_text(json.dumps({"rc": 0, "bytes": len(text)}))
    assert list(log_bytes(world, one)) == [f"{one.id}: wrote {len(text)} bytes, and its log has {len(text) - LINE}"]


def test_an_exit_status_is_the_true_one_or_none(world: World) -> None:
    one = record(world)
    assert list(exit_status(one, {"rc": None})) == []
    assert list(exit_status(one, {"rc": 0})), "it never exited"
    assert list(exit_status(one, {"rc": -9})), "nobody sent that"
    one.signals.add(signal.SIGKILL)
    assert list(exit_status(one, {"rc": -9})) == []
    (world.truth / f"{one.id}.ends").write_text(json.dumps({"rc": 3, "bytes": 0}))
    assert list(exit_status(one, {"rc": 3})) == []
    assert list(exit_status(one, {"rc": 0}))


def test_what_runs_twice_or_unasked_or_unknown_is_found(world: World) -> None:
    one = record(world)
    assert list(after_each(world)) == [f"{one.id}: was launched, and the host does not know it"]
    state(world, one)
    (world.truth / f"{one.id}.starts").write_text("11\n12\n")
    assert list(after_each(world)) == [f"{one.id}: started 2 times"]
    one.accepted = False
    assert len(list(after_each(world))) == 2


def test_a_canary_that_is_signalled_or_dies_is_found(world: World) -> None:
    world.canaries = [Canary(world.truth, "canary", True)]
    canary = world.canaries[0]
    until(canary.path.exists)
    assert list(after_each(world)) == []
    os.kill(canary.child.pid, signal.SIGTERM)
    until(lambda: canary.trouble)
    assert list(after_each(world)) == ["the canary got signals ['15']"]
    os.kill(canary.child.pid, signal.SIGKILL)
    canary.child.wait()
    assert list(after_each(world)) == ["the canary was ended: -9"]


def test_what_a_client_shows_wrongly_is_found(world: World) -> None:
    one = record(world)
    (world.truth / f"{one.id}.starts").write_text("4190001\n")
    job = JobState(one.id, "command", one.id, "exited", 1.0)
    assert list(_shown(world, one, job)) == []
    assert list(_shown(world, one, None))
    assert list(_shown(world, one, job._replace(state="running")))
    assert list(_shown(world, one, job._replace(members=2)))
    assert list(_shown(world, one, job._replace(state="lost_supervisor")))
    one.removed = True
    assert list(_shown(world, one, job))


def test_a_lease_that_is_held_is_found(world: World) -> None:
    (world.state / "leases").mkdir()
    path = world.state / "leases" / "port-1"
    path.touch()
    assert list(held_leases(world)) == []
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert list(held_leases(world)) == ["the lease port-1 is still held"]


def test_growth_is_found() -> None:
    assert list(grown((50 << 20, 20), (60 << 20, 25))) == []
    assert len(list(grown((50 << 20, 20), (500 << 20, 200)))) == 2


def test_a_seed_fixes_every_step() -> None:
    def steps(seed: int) -> list[Any]:
        rng = random.Random(seed)
        out: list[Any] = []
        for _ in range(50):
            out.append(
                (pick(ACTIONS, rng.random()), pick(FAULTS, rng.random()), rng.random(), Draw(rng).floats, Draw(rng).floats)
            )
        return out

    assert steps(7) == steps(7)
    assert steps(7) != steps(8)
    drawn = {entry for seed in range(40) for step in steps(seed) for entry in step[:2]}
    assert drawn == {entry for table in (ACTIONS, FAULTS) for _, entry in cast(Any, table)}
    assert {Draw(random.Random(seed)).of("abc") for seed in range(40)} == {0, 1, 2}
