"""``eagletui lab up|status|down|remove``: the tiny real engine on this machine."""

from __future__ import annotations

import argparse
import asyncio
import sys

from eagletui import lab
from eagletui.commands import Desk, end_job, open_desk
from eagletui.hosts.base import HostError
from eagletui.hosts.target import parse_target
from eagletui.labparts.report import TerminalReporter
from eagletui.records import JobState

JOBS_SECONDS = 8.0
"""How long the list of jobs may take to come."""


def run(options: argparse.Namespace) -> int:
    reporter = _Reporter(sys.stdout, sys.stderr)
    if options.action == "up":
        return lab.up(options.dir, reporter=reporter, train=options.train)
    if options.action == "status":
        return lab.status(options.dir, reporter=reporter)
    if options.action == "remove":
        return lab.remove(options.dir, reporter=reporter, confirm=(lambda _question: True) if options.yes else _ask)
    return asyncio.run(_down(options.dir, reporter))


class _Reporter(TerminalReporter):
    """Errors begin with the program's name, as everywhere."""

    def error(self, text: str) -> None:
        super().error(f"eagletui: {text}")


def _ask(question: str) -> bool:
    """A question on the terminal; without one, or at its end, the answer is no."""
    if not sys.stdin.isatty():
        return False
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


async def _down(root: str | None, reporter: TerminalReporter) -> int:
    desk = await open_desk(parse_target("local"), None, {}, ("jobs",))
    try:
        async with asyncio.timeout(JOBS_SECONDS):
            await desk.watch.sample("jobs")
        return await lab.down(list(desk.store.jobs.values()), lambda job: _stop(desk, job), reporter=reporter, root=root)
    except TimeoutError:
        raise HostError("lab down", "the list of jobs did not come", "see `eagletui status local`", kind="agent") from None
    finally:
        await desk.close()


async def _stop(desk: Desk, job: JobState) -> str | None:
    try:
        return await end_job(desk, job.id)
    except HostError as error:
        return str(error)
