"""``eagletui logs TARGET JOB``: the end of a job's log, and with ``-f`` what comes, over any number of reconnects."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Iterable

from eagletui import text
from eagletui.cli.desk import seated
from eagletui.cli.errors import Exit
from eagletui.commands.find import find_job
from eagletui.commands.follow import from_there_on, last_lines
from eagletui.engines.stream import Line, LineSplitter

LONGEST = 20_000
"""Cells of one line; a longer one is cut with a mark."""


def run(options: argparse.Namespace) -> int:
    return asyncio.run(_logs(options))


async def _logs(options: argparse.Namespace) -> int:
    async with seated(options) as desk:
        job = find_job(desk.store.jobs.values(), options.job, host=options.target)
        out = _Raw() if options.raw else _Clean()
        data, last = await last_lines(desk, job, options.lines)
        out.write(data)
        if options.follow:
            async for piece in from_there_on(desk, job, last):
                out.write(piece)
        out.finish()
    return Exit.OK


class _Raw:
    """The bytes as the job wrote them."""

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(sys.stdout.fileno(), view) :]

    def finish(self) -> None:
        pass


class _Clean(_Raw):
    """Whole lines without anything that could steer the terminal; a bar that is written over becomes lines."""

    def __init__(self) -> None:
        self._splitter = LineSplitter()

    def write(self, data: bytes) -> None:
        self._print(self._splitter.feed(data))

    def finish(self) -> None:
        self._print(self._splitter.finish())

    def _print(self, lines: Iterable[Line]) -> None:
        cleaned = "".join(text.clean(data, LONGEST).rstrip() + "\n" for _, data, _ in lines)
        super().write(cleaned.encode(sys.stdout.encoding or "utf-8", "replace"))
