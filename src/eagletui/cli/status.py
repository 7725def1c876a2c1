"""``eagletui status TARGET``: one snapshot, as text or as JSON."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json

from eagletui.cli.errors import Exit
from eagletui.cli.parser import given_by
from eagletui.cli.snapshot import as_lines, as_object
from eagletui.commands import Desk, open_desk
from eagletui.hosts.prompts import TerminalPrompter
from eagletui.hosts.target import parse_target

FIRST = 8.0
"""Seconds to wait for the first sample of each stream; a hanging driver must not hold the snapshot up for ever."""
SECOND = 1.5
"""Seconds after it for the second samples, and the servers' scrapes. With the host's come its rates (cpu, network, disks), with
the cards' their memory errors, remapped rows and recovery action."""
STREAMS = ("host", "gpus", "jobs")
INTERVALS = {"host": 0.7, "gpus": 0.7, "jobs": 0.7}


def run(options: argparse.Namespace) -> int:
    return asyncio.run(_status(options))


async def _status(options: argparse.Namespace) -> int:
    given = {**given_by(options), "intervals": INTERVALS}
    desk = await open_desk(parse_target(options.target), TerminalPrompter(), given, STREAMS, patience=False)
    try:
        await _sample(desk)
    finally:
        await desk.close()
    if options.json:
        print(json.dumps(as_object(desk.store), indent=2, allow_nan=False))
    else:
        print("\n".join(as_lines(desk.store)))
    return Exit.OK


async def _sample(desk: Desk) -> None:
    # a stream that stays silent is shown as not available, with the alert that says so
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FIRST):
            await asyncio.gather(*(desk.watch.sample(name, 1) for name in STREAMS))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SECOND):
            await asyncio.gather(desk.watch.sample("host", 2), _cards(desk), _found(desk), _servers(desk))


async def _cards(desk: Desk) -> None:
    """Wait for the cards' second sample, where there are any: without a driver it comes after a minute."""
    board = desk.store.gpus
    if board is not None and board.cards:
        await desk.watch.sample("gpus", 2)


async def _found(desk: Desk) -> None:
    """Wait until the agent has looked into the logs of the servers that it found: it knew none of them before."""
    if any(job.adopted is not None for job in desk.store.jobs.values()):
        await desk.watch.sample("jobs", 2)


async def _servers(desk: Desk) -> None:
    """Wait until the recorded scrapes of every server that is ready have been read."""
    wanted = {job.id for job in desk.store.jobs.values() if job.state == "running" and job.health == "ready"}
    changed = asyncio.Event()
    unlisten = desk.store.listen(lambda topic: changed.set() if topic == "servers" else None)
    try:
        while wanted - desk.store.servers.keys():
            changed.clear()
            await changed.wait()
    finally:
        unlisten()
