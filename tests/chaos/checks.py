"""What must hold after every step of the chaos run, and at its end. Each check yields violations in words; none is a success."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Iterator
from typing import Any

from eagletui.agent import procfs
from eagletui.agent.job_files import shim_lives
from eagletui.agent.ports import why_taken
from tests.chaos.world import Late, Record, World, expected, until

ENDED = ("exited", "oom", "failed_to_exec")
SETTLE = 90.0
STRAY = 75.0
"""Seconds after which no agent may be left: 60 s without a frame, and room for a busy machine."""
MORE_MEMORY, MORE_FILES = 96 << 20, 24


def in_short(state: dict[str, Any]) -> str:
    names = ("state", "health", "rc", "members", "pid", "detail", "ended_by")
    return str({name: state[name] for name in names if state.get(name) is not None})


def after_each(world: World) -> Iterator[str]:
    """What may be looked at any time: nothing was doubled, nothing wrong is told, nobody else was hurt."""
    for canary in world.canaries:
        if canary.trouble:
            yield canary.trouble
    table = world.table()
    for record in world.records.values():
        if len(record.starts) > 1:
            yield f"{record.id}: started {len(record.starts)} times"
        if record.accepted is False and record.starts:
            yield f"{record.id}: was refused, and runs"
        if not record.removed:
            yield from _state(world, record, world.main_lives(record, table))


def _state(world: World, record: Record, lived: bool) -> Iterator[str]:
    # /proc is looked at before the state is read, and again when both disagree: the job may end in between
    state = world.job(record).state()
    if state is None:
        if record.accepted:
            yield f"{record.id}: was launched, and the host does not know it"
        return
    yield from exit_status(record, state)
    if state["state"] in ENDED and lived and world.main_lives(record):
        yield f"{record.id}: is told as ended and runs: {in_short(state)}"


def exit_status(record: Record, state: dict[str, Any]) -> Iterator[str]:
    """The exit status is the true one, or not told."""
    rc, end = state.get("rc"), record.end
    if rc is None:
        return
    if rc < 0 and -rc not in record.signals:
        yield f"{record.id}: signal {-rc} is told as its end, and nobody sent it: {in_short(state)}"
    if rc >= 0 and end is None:
        yield f"{record.id}: exit status {rc} is told, and it never exited: {in_short(state)}"
    if rc >= 0 and end is not None and rc != end["rc"]:
        yield f"{record.id}: exit status {rc} is told, and it was {end['rc']}"


def log_bytes(world: World, record: Record) -> Iterator[str]:
    """The log's bytes from its floor to its end are those that the job wrote."""
    state = world.job(record).stored_state() or {}
    path = world.state / "jobs" / record.id / "log"
    if not path.exists():
        if record.starts:
            yield f"{record.id}: has no log"
        return
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        floor = int(state.get("log_floor") or 0)
        if not shim_lives(state):
            # the last word of a supervisor that was killed may be older than its last hole
            floor = max(floor, os.lseek(file.fileno(), 0, os.SEEK_DATA) if size else 0)
        file.seek(floor)
        data = file.read(size - floor)
    if data != expected(record.id, floor, size):
        yield f"{record.id}: bytes {floor} to {size} of its log are not those it wrote"
    if record.end is not None and record.end["bytes"] != size:
        yield f"{record.id}: wrote {record.end['bytes']} bytes, and its log has {size}"


async def settled(world: World) -> list[str]:
    """With the network whole again both clients come online, and show of every job what is true, within `SETTLE` seconds."""
    found = []
    for client in world.clients:
        try:
            desk = await client.online()
        except Exception as error:
            found.append(f"client {client.name} does not come back: {error!r}")
            continue
        for record in world.records.values():
            try:
                await until(lambda r=record, d=desk: not list(_shown(world, r, d.store.jobs.get(r.id))), SETTLE, "")  # type: ignore[misc]
            except Late:
                found += [f"client {client.name}: {text}" for text in _shown(world, record, desk.store.jobs.get(record.id))]
    return found


def _shown(world: World, record: Record, job: Any) -> Iterator[str]:
    """What a client's table says wrongly of a job."""
    if record.removed:
        if job is not None:
            yield f"{record.id} was removed and is shown"
        return
    if job is None:
        if record.starts:
            yield f"{record.id} is not shown"
        return
    lives, rest = world.main_lives(record), world.living(record)
    if lives and job.state not in ("running", "stopping", "launching") and not (job.state == "lost_supervisor" and job.members):
        yield f"{record.id} runs and is shown as {job.state}"
    if not lives and job.state in ("running", "launching"):
        yield f"{record.id} is gone and is shown as {job.state}"
    if not rest and job.members:
        yield f"{record.id} has no process and is shown with {job.members}"
    if rest and not job.members:
        yield f"{record.id} has {len(rest)} processes and is shown without: {job.state}"
    if job.state == "lost_supervisor" and not record.shim_killed:
        yield f"{record.id} is shown as lost, and nobody killed its supervisor"


def own_use() -> tuple[int, int]:
    """(resident bytes, open files) of this process, which holds both clients."""
    stat = procfs.read_stat(os.getpid())
    assert stat is not None
    return stat.rss * procfs.PAGE_SIZE, len(os.listdir("/proc/self/fd"))


def grown(before: tuple[int, int], after: tuple[int, int]) -> Iterator[str]:
    """Whether the clients hold much more than they did."""
    if after[0] - before[0] > MORE_MEMORY:
        yield f"the clients' memory grew from {before[0] >> 20} to {after[0] >> 20} MiB"
    if after[1] - before[1] > MORE_FILES:
        yield f"the clients' open files grew from {before[1]} to {after[1]}"


async def nothing_left(world: World) -> list[str]:
    """After every job was ended: no process, port, lease or supervisor; and once the clients have gone, no agent."""
    found = []
    for record in world.records.values():
        try:
            await until(lambda r=record: not world.living(r), SETTLE, "")  # type: ignore[misc]
        except Late:
            found.append(f"{record.id}: {len(world.living(record))} processes are left")
    for port in world.ports:
        if why_taken(port):
            found.append(f"port {port} is not free: {why_taken(port)}")
    try:
        await until(lambda: not world.shims(), SETTLE, "")
    except Late:
        found.append(f"{len(world.shims())} supervisors are left: {[procfs.cmdline(pid) for pid, _ in world.shims()]}")
    found += held_leases(world)
    for client in world.clients:
        await client.close()
    try:
        await until(lambda: not world.agents(), STRAY, "")
    except Late:
        found.append(f"{len(world.agents())} agents are left")
    return found


def held_leases(world: World) -> Iterator[str]:
    """A lease that somebody holds although no job runs any more."""
    for path in sorted((world.state / "leases").glob("*")):
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield f"the lease {path.name} is still held"


async def lag(worst: list[float]) -> None:
    """Note how late the event loop came at worst."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + 0.1
        await asyncio.sleep(0.1)
        worst[0] = max(worst[0], loop.time() - due)
