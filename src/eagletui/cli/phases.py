"""``eagletui phases LOG``: what an engine's log says of its load. Reads a file on this machine; no host is asked."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

from eagletui import text
from eagletui.cli.desk import table
from eagletui.cli.errors import Exit
from eagletui.cli.logfile import read_file
from eagletui.engines.events import PHASE_LABELS, Summary
from eagletui.engines.reader import phases_json


def run(options: argparse.Namespace) -> int:
    summary = read_file(options.log, "phases").summary()
    if options.json:
        print(json.dumps(phases_json(summary), indent=2, allow_nan=False))
    else:
        print("\n".join(lines(summary)))
    return Exit.OK


def lines(summary: Summary) -> Iterator[str]:
    """The summary as text."""
    engine = " ".join(part for part in (summary.engine, summary.engine_version) if part) or "no engine that is known"
    yield text.clean(
        f"{engine}: {summary.outcome}" + (f" in {text.clock(summary.ready_seconds)}" if summary.ready_seconds else "")
    )
    if summary.model:
        drafter = f" + {summary.drafter}" if summary.drafter else ""
        yield text.clean(f"{summary.model}{drafter}")
    rows = []
    for phase in summary.phases:
        counted = f"{phase.done:.0f}/{phase.total:.0f} {phase.unit or ''}" if phase.total and phase.done is not None else ""
        took = f"{phase.seconds:.1f} s" if phase.seconds is not None else "" if phase.id == "ready" else "not finished"
        rows.append(("", text.clock(phase.start), PHASE_LABELS.get(phase.id, phase.id), phase.role or "", took, counted))
    yield from table(rows)
    if summary.failure is not None:
        yield text.clean(f"line {summary.failure.line}: {summary.failure.text}")
    for cause in summary.causes[:1]:
        if cause.id != "unknown":
            yield text.clean(f"why: {cause.title} - {cause.remedy}")
