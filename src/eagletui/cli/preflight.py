"""``eagletui preflight TARGET PROFILE``: what would stop this launch, told before it is tried."""

from __future__ import annotations

import argparse
import asyncio
import shutil

from eagletui.cli.desk import print_json, seated
from eagletui.cli.errors import Exit
from eagletui.cli.findings import conclusion, lines
from eagletui.cli.launch import profile_named
from eagletui.commands.preflight import preflight
from eagletui.engines.preflight.findings import BLOCKED, CLEAR, Report, as_doc

WIDEST = 110


def run(options: argparse.Namespace) -> int:
    return asyncio.run(_preflight(options))


async def _preflight(options: argparse.Namespace) -> int:
    async with seated(options, ("jobs", "gpus")) as desk:
        found = await preflight(desk, await asyncio.to_thread(profile_named, desk, options))
    if options.json:
        print_json(target=options.target, profile=found.profile.name, **as_doc(found.report))
    else:
        width = min(shutil.get_terminal_size().columns, WIDEST)
        for line in lines(found.report, width, everything=options.all):
            print(line)
        print(conclusion(found))
    return code(found.report)


def code(report: Report) -> Exit:
    """0 clear, 1 warnings, 2 blocked."""
    return {BLOCKED: Exit.USAGE, CLEAR: Exit.OK}.get(report.verdict, Exit.WARNINGS)
