"""``eagletui why TARGET JOB``: does a server work or hang, where its processes are, and with ``--canary`` one token."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Iterator

from eagletui import text
from eagletui.cli.desk import LiveLine, print_json, seated
from eagletui.cli.errors import Exit
from eagletui.commands.find import find_job
from eagletui.commands.why import Canary, Looked, canary, stacks
from eagletui.records import JobState, Liveness

STREAMS = ("jobs", "gpus")


def run(options: argparse.Namespace) -> int:
    return asyncio.run(_why(options))


async def _why(options: argparse.Namespace) -> int:
    async with seated(options, STREAMS) as desk:
        job = find_job(desk.store.jobs.values(), options.job, host=options.target)
        line = LiveLine()
        began = time.monotonic()
        # the patterns need their signs to have lasted: what is judged sooner is only what shows at once
        while (left := options.watch - (time.monotonic() - began)) > 0 and job.id not in desk.store.liveness:
            line.show(f"watching {job.name} for {left:.0f} s more", "watching")
            await asyncio.sleep(min(1.0, left))
        line.end()
        job = desk.store.jobs.get(job.id, job)
        found = desk.store.liveness.get(job.id)
        looked = await stacks(desk, job) if job.member_pids else Looked((), None, "none of its processes runs")
        token = await canary(desk, job) if options.canary else None
    if options.json:
        print_json(
            job=job.id,
            verdict=None if found is None else found._asdict(),
            processes=[process._asdict() for process in looked.processes],
            tool=looked.tool,
            tool_problem=looked.why,
            canary=None if token is None else token._asdict(),
        )
    else:
        sys.stdout.write("".join(text.clean(row, 2000) + "\n" for row in lines(job, found, looked, token)))
    stuck = found is not None and found.verdict in ("stuck", "suspect")
    return Exit.WARNINGS if stuck or (token is not None and token.alive is False) else Exit.OK


def lines(job: JobState, found: Liveness | None, looked: Looked, token: Canary | None) -> Iterator[str]:
    """What was found, as text."""
    if found is None:
        yield f"{job.name}: nothing speaks for a hang"
    else:
        yield f"{job.name}: {found.verdict}: {found.text}"
        yield from (f"  {one}" for one in found.evidence)
        if found.remedy:
            yield f"  do: {found.remedy}"
    if token is not None:
        yield f"one token: {token.words}"
    if looked.why:
        yield looked.why
    for process in looked.processes:
        waits = ", ".join(f"{name} x{count}" for name, count in process.waits[:6])
        yield f"{process.pid} {process.name}  state {process.state}  {text.plural(process.threads, 'thread')}: {waits}"
        if process.problem:
            yield f"  {process.problem}"
        yield from (f"  {row}" for row in process.python or process.kernel)
