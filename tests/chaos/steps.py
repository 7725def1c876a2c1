"""What people do in the chaos run, and what goes wrong meanwhile. All that is random is drawn from the seed before it is done."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections.abc import Awaitable, Callable, Sequence

from eagletui.agent.job_files import shim_lives
from eagletui.agent.syscalls import signal_process
from eagletui.commands import kill, kill_plan, launch, remove_job
from eagletui.hosts.base import Host, HostError
from tests.chaos.world import PATIENCE, Client, Late, Record, World, expected, until

FLOOD = 400_000
"""Lines of a flood: 25 MB, six times what a log may keep."""


class Draw:
    """The choices of one step: always the same number of them, whatever comes of the step."""

    def __init__(self, rng: random.Random) -> None:
        self.floats = [rng.random() for _ in range(12)]
        self.at = 0

    def one(self) -> float:
        self.at += 1
        return self.floats[(self.at - 1) % len(self.floats)]

    def of(self, choices: Sequence[object]) -> int:
        return int(self.one() * len(choices))


# ------------------------------------------------------------------------------------------------------------- what people do


def lost(error: HostError) -> bool:
    """Whether a failure comes from the network, or from a client that crashed under it: what was asked may be done or not."""
    return error.retry or error.kind == "closed"


def _running(world: World) -> list[Record]:
    table = world.table()
    return [record for record in world.records.values() if not record.removed and table.get(record.id)]


def _add(world: World, draw: Draw, port: int | None, status: int | None = None) -> Record:
    number = len(world.records)
    record = Record(f"chaos-{number:04d}-{draw.one() * 1e6:06.0f}", world.truth, port, status)
    world.records[record.id] = record
    return record


async def _launch(client: Client, record: Record) -> str:
    """Launch as the commands do, over whatever happens to the link; the host's refusal is an answer."""
    desk = await client.online()
    try:
        await launch(desk, record.plan(client.name), {})
    except HostError as error:
        if error.kind == "taken":
            if record.accepted is None:
                record.accepted = False
            return "refused"
        if lost(error):
            return "unknown"  # it may run or not: what the host says later must be true
        raise
    record.accepted = True
    return "launched"


async def launch_job(world: World, draw: Draw) -> str:
    """A plain job that writes 200 lines and exits with a status of its own."""
    return await _launch(world.clients[draw.of(world.clients)], _add(world, draw, None, int(draw.one() * 4)))


async def launch_writer(world: World, draw: Draw) -> str:
    """A plain job that goes on until it is ended."""
    if len(_running(world)) >= 8:
        return await end_job(world, draw)
    return await _launch(world.clients[draw.of(world.clients)], _add(world, draw, None))


async def launch_server(world: World, draw: Draw) -> str:
    """A server on one of three ports, whether that is free or not."""
    port = world.ports[draw.of(world.ports)]
    taken = [record for record in _running(world) if record.port == port]
    said = await _launch(world.clients[draw.of(world.clients)], _add(world, draw, port))
    if taken and said == "launched" and all(world.main_lives(record) for record in taken):
        raise Late(f"port {port} was given to a second server while {taken[0].id} serves there")
    return said


async def launch_twice(world: World, draw: Draw) -> str:
    """The same launch from both clients in the same moment: one job."""
    record = _add(world, draw, None)
    said = await asyncio.gather(*(_launch(client, record) for client in world.clients))
    return "+".join(sorted(said))


async def race_for_a_port(world: World, draw: Draw) -> str:
    """Two servers for one port in the same moment: at most one gets it."""
    port = world.ports[draw.of(world.ports)]
    records = [_add(world, draw, port) for _ in world.clients]
    said = await asyncio.gather(*(_launch(client, record) for client, record in zip(world.clients, records, strict=True)))
    if said.count("launched") > 1:
        raise Late(f"port {port} was given to two servers at once")
    return "+".join(sorted(said))


async def end_job(world: World, draw: Draw) -> str:
    """End a job with proof, gently or at once."""
    running = _running(world)
    now = draw.one() < 0.3
    if not running:
        return "nothing to end"
    record, client = running[draw.of(running)], world.clients[draw.of(world.clients)]
    record.signals |= {signal.SIGTERM, signal.SIGKILL}
    desk = await client.online()
    for _ in range(5):
        try:
            report = await kill(desk, await kill_plan(desk, record.id), now=now)
        except HostError as error:
            if error.kind == "absent":
                return "had ended"
            if error.kind == "replaced" or lost(error):
                desk = await client.online()
                continue  # another list, or the network: a person looks again
            raise
        if not report.done:
            raise Late(f"{record.id} was not ended: {report.remaining}")
        # the report comes when the host has looked: from then on nothing may live
        if world.living(record):
            raise Late(f"{record.id} is reported as ended and lives: {world.living(record)}")
        return "ended now" if now else "ended"
    return "not ended for the network"


async def let_it_exit(world: World, draw: Draw) -> str:
    """A job exits by itself, with a status that only it knows."""
    table = world.table()
    running = [record for record in _running(world) if world.main_lives(record, table)]
    status = int(draw.one() * 200)
    if not running:
        return "none runs"
    record = running[draw.of(running)]
    record.order(f"quit {status}")
    await until(lambda: not world.main_lives(record), PATIENCE, f"{record.id} exits")
    return "exited"


async def kill_main(world: World, draw: Draw) -> str:
    """SIGKILL to a job's main process from outside: its worker stays."""
    table = world.table()
    running = [record for record in _running(world) if world.main_lives(record, table)]
    if not running:
        return "none runs"
    record = running[draw.of(running)]
    record.signals.add(signal.SIGKILL)
    pid = record.starts[0]
    start = dict(world.living(record)).get(pid)
    if start is not None:
        signal_process(pid, start, signal.SIGKILL)
    await until(lambda: not world.main_lives(record), PATIENCE, f"{record.id} dies")
    return "killed"


async def flood(world: World, draw: Draw) -> str:
    """A job writes six times what its log may keep, as fast as it can, while a client reads it."""
    table = world.table()
    running = [record for record in _running(world) if world.main_lives(record, table)]
    if not running:
        return "none runs"
    record, client = running[draw.of(running)], world.clients[draw.of(world.clients)]
    desk = await client.online()
    log = world.state / "jobs" / record.id / "log"
    before = log.stat().st_size
    record.order(f"flood {FLOOD}")
    await until(lambda: log.stat().st_size > before + FLOOD * 64 // 2 or not world.main_lives(record), PATIENCE, "the flood")
    with contextlib.suppress(HostError):  # the link may be the fault of this step; what was read is checked where it is read
        await read_log(world, record, desk.session, 16)
    return "flooded"


async def read_log(world: World, record: Record, host: Host, pieces: int) -> None:
    """Read a log over the session and compare every byte with what the job wrote. Raises `Late` for a wrong one."""
    path = str(world.state / "jobs" / record.id / "log")
    at = -65536 * pieces
    for _ in range(pieces):
        chunk = await host.read(path, at)
        if not chunk.data:
            return
        if chunk.data != expected(record.id, chunk.offset, chunk.offset + len(chunk.data)):
            raise Late(f"{record.id}: what was read at {chunk.offset} is not what the job wrote")
        at = chunk.offset + len(chunk.data)


async def follow(world: World, draw: Draw) -> str:
    """Read a log from its end over the session."""
    records = [record for record in world.records.values() if record.starts and not record.removed]
    if not records:
        return "no job"
    record, client = records[draw.of(records)], world.clients[draw.of(world.clients)]
    desk = await client.online()
    try:
        await read_log(world, record, desk.session, 8)
    except HostError as error:
        if not lost(error) and error.kind not in ("absent", "replaced"):
            raise
        return "not for the network"
    return "read"


async def forget(world: World, draw: Draw) -> str:
    """Remove an ended job."""
    table = world.table()
    ended = [one for one in world.records.values() if one.accepted and not one.removed and not table.get(one.id)]
    if not ended:
        return "none has ended"
    record, client = ended[draw.of(ended)], world.clients[draw.of(world.clients)]
    desk = await client.online()
    try:
        await remove_job(desk, record.id)
    except HostError as error:
        if lost(error) or error.kind == "absent":
            record.removed = not (world.state / "jobs" / record.id).exists()
            return "not for the network"
        if "still runs" in error.why:
            return "its supervisor is about to end"
        raise
    record.removed = True
    return "removed"


ACTIONS: tuple[tuple[int, Callable[[World, Draw], Awaitable[str]]], ...] = (
    (3, launch_job), (4, launch_writer), (4, launch_server), (2, launch_twice), (2, race_for_a_port), (5, end_job),
    (2, let_it_exit), (2, kill_main), (2, flood), (3, follow), (1, forget),
)  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ what goes wrong


async def nothing(world: World, draw: Draw) -> None:
    """All is well."""


async def cut(world: World, draw: Draw) -> None:
    """A client's connections are reset."""
    world.clients[draw.of(world.clients)].proxy.reset()


async def close(world: World, draw: Draw) -> None:
    """A client's connections are ended in good order."""
    world.clients[draw.of(world.clients)].proxy.cut()


async def freeze(world: World, draw: Draw) -> None:
    """Nothing passes for up to 18 s: half-open for both sides."""
    proxy = world.clients[draw.of(world.clients)].proxy
    proxy.freeze()
    await asyncio.sleep(1 + 17 * draw.one() ** 3)  # the fault itself, not a wait for something
    proxy.thaw()


async def refuse(world: World, draw: Draw) -> None:
    """The network refuses connections for a while."""
    proxy = world.clients[draw.of(world.clients)].proxy
    await proxy.refuse()
    await asyncio.sleep(3 * draw.one())  # the fault itself
    await proxy.start()


async def restart_sshd(world: World, draw: Draw) -> None:
    """sshd is restarted, and both clients' connections go."""
    await world.sshd.stop()
    for client in world.clients:
        client.proxy.reset()
    await asyncio.sleep(draw.one())  # the fault itself
    await world.start_sshd()


async def kill_agent(world: World, draw: Draw) -> None:
    """SIGKILL to an agent, or a helper of it."""
    agents = world.agents()
    if agents:
        signal_process(*agents[draw.of(agents)], signal.SIGKILL)


async def stop_agent(world: World, draw: Draw) -> None:
    """An agent is stopped for a while."""
    agents = world.agents()
    if agents:
        chosen = agents[draw.of(agents)]
        signal_process(*chosen, signal.SIGSTOP)
        await asyncio.sleep(8 * draw.one())  # the fault itself
        signal_process(*chosen, signal.SIGCONT)


async def kill_shim(world: World, draw: Draw) -> None:
    """SIGKILL to the supervisor of a job."""
    records = [record for record in world.records.values() if shim_lives(world.job(record).stored_state() or {})]
    if not records:
        return
    record = records[draw.of(records)]
    state = world.job(record).stored_state() or {}
    record.shim_killed = True
    signal_process(state["shim_pid"], state["shim_start"], signal.SIGKILL)


async def crash(world: World, draw: Draw) -> None:
    """A client goes without a word, and another one comes."""
    await world.clients[draw.of(world.clients)].crash()


FAULTS: tuple[tuple[int, Callable[[World, Draw], Awaitable[None]]], ...] = (
    (4, nothing), (4, cut), (2, close), (3, freeze), (2, refuse), (2, restart_sshd), (3, kill_agent), (1, stop_agent),
    (3, kill_shim), (1, crash),
)  # fmt: skip


def pick(table: Sequence[tuple[int, Callable[..., object]]], where: float) -> Callable[..., object]:
    """The entry of a weighted table at ``where``, 0 to 1."""
    at = where * sum(weight for weight, _ in table)
    for weight, entry in table:
        at -= weight
        if at < 0:
            return entry
    return table[-1][1]
