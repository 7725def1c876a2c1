"""``eagletui leftovers TARGET``: what ended jobs left in the host's shared memory and /tmp; with ``--remove`` it goes."""

from __future__ import annotations

import argparse
import asyncio

from eagletui import text
from eagletui.cli.desk import print_json, seated, table
from eagletui.cli.errors import Exit, say
from eagletui.commands.leftovers import Cleared, clear_leftovers, leftovers


def run(options: argparse.Namespace) -> int:
    return asyncio.run(_leftovers(options))


async def _leftovers(options: argparse.Namespace) -> int:
    async with seated(options) as desk:
        found = await leftovers(desk)
        done = Cleared((), ())
        if options.remove and found:
            done = await clear_leftovers(desk, [entry.path for entry in found])
    if options.json:
        entries = [entry._asdict() for entry in found if entry.path not in done.removed]
        kept = [{"path": path, "why": why} for path, why in done.kept]
        print_json(target=options.target, leftovers=entries, removed=list(done.removed), kept=kept)
    elif not found:
        print("nothing is left of jobs that have ended")
    else:
        rows = [(text.size(entry.size), entry.path, entry.job) for entry in found]
        print("\n".join(text.clean(line) for line in table([("SIZE", "FILE", "JOB"), *rows])))
        if options.remove:
            print(f"removed {text.plural(len(done.removed), 'file')}")
        for path, why in done.kept:
            say(text.clean(f"{path} stays: {why}"))
    return Exit.WARNINGS if done.kept else Exit.OK
