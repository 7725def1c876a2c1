"""``eagletui diagnose LOG`` and ``diagnose --job JOB HOST``: why a launch failed, with the lines that show it and what to do."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterator, Sequence

from eagletui import text
from eagletui.cli.errors import Exit
from eagletui.cli.logfile import read_file
from eagletui.engines.diagnosis.report import diagnosis_json
from eagletui.hosts.base import HostError
from eagletui.records import Cause

WIDTH = 110
SAYS = {
    "failed": "failed",
    "loading": "still loading where the log ends; no failure in it",
    "ready": "ready; no failure in it",
    "stopped": "ended in good order; no failure in it",
}


def run(options: argparse.Namespace) -> int:
    if options.job is not None:
        return asyncio.run(_job(options))
    reader = read_file(options.log, "diagnose")
    outcome, causes = reader.diagnosis()
    return told(options.json, options.log, reader.engine, outcome, causes)


async def _job(options: argparse.Namespace) -> int:
    from eagletui.cli.desk import seated
    from eagletui.commands.diagnose import diagnose_job
    from eagletui.commands.find import find_job

    options.target = options.log
    if options.log == "-":
        raise HostError("diagnose", "--job needs the host, not -", "eagletui diagnose --job JOB HOST", kind="config")
    async with seated(options) as desk:
        job = find_job(desk.store.jobs.values(), options.job, host=options.target)
        found = await diagnose_job(desk, job)
    return told(options.json, f"{job.name} ({job.id})", found.engine, found.outcome, found.causes)


def told(as_json: bool, name: str, engine: str | None, outcome: str, causes: Sequence[Cause]) -> int:
    """Print it; the exit code says whether something failed."""
    if as_json:
        print(json.dumps(diagnosis_json(engine, outcome, causes), indent=2, allow_nan=False))
    else:
        print("\n".join(lines(name, engine, outcome, causes)))
    return Exit.WARNINGS if outcome == "failed" else Exit.OK


def lines(name: str, engine: str | None, outcome: str, causes: Sequence[Cause]) -> Iterator[str]:
    """The diagnosis as text: the likeliest cause in full, others shorter."""
    yield text.clean(f"{name}: {engine or 'no engine that is known'}, {SAYS.get(outcome, outcome)}")
    for number, cause in enumerate(causes):
        yield ""
        head = "why" if number == 0 else "or"
        sure = "" if cause.id == "unknown" else f"   ({round(100 * cause.confidence)} % sure, {cause.id})"
        yield text.clean(f"{head}: {cause.title}{sure}")
        if cause.cause:
            yield from _folded("     ", cause.cause)
        for place in cause.evidence[: 5 if number == 0 else 1]:
            where = f"line {place.line}" if place.line else f"byte {place.offset}"
            yield text.fold(text.clean(f"     {where}: {place.text}"), WIDTH)
        yield from _folded(" do: ", cause.remedy)


def _folded(head: str, words: str) -> Iterator[str]:
    room = WIDTH - len(head)
    line = ""
    for word in text.clean(words).split():
        if line and len(line) + 1 + len(word) > room:
            yield head + line
            head, line = " " * len(head), word
        else:
            line = f"{line} {word}" if line else word
    if line:
        yield head + line
