"""``eagletui phases LOG``: what an engine's log says of its load. Reads a file on this machine; no host is asked."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import BinaryIO

from eagletui import text
from eagletui.cli.desk import table
from eagletui.cli.errors import Exit
from eagletui.engines.events import PHASE_LABELS, Summary
from eagletui.engines.reader import phases_json, read_log
from eagletui.hosts.base import HostError

PIECE = 1 << 20


def run(options: argparse.Namespace) -> int:
    try:
        if options.log == "-":
            summary = read_log(_pieces(sys.stdin.buffer))
        else:
            with open(options.log, "rb") as file:
                summary = read_log(_pieces(file))
    except OSError as error:
        raise HostError("phases", f"{options.log}: {error.strerror}", "give the path of an engine's log", kind="config") from None
    if options.json:
        print(json.dumps(phases_json(summary), indent=2, allow_nan=False))
    else:
        print("\n".join(lines(summary)))
    return Exit.OK


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while data := file.read(PIECE):
        yield data


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
