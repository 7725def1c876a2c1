"""What the verbs about jobs share: a desk with the job table, the words for a job, a live line of progress."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shutil
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, TextIO

from eagletui import __version__, text
from eagletui.cli.errors import say
from eagletui.cli.parser import given_by
from eagletui.commands import Desk, open_desk
from eagletui.hosts.base import HostError
from eagletui.hosts.prompts import TerminalPrompter
from eagletui.hosts.target import parse_target
from eagletui.records import JobState

FIRST = 8.0
"""How long the job table may take to come."""


@contextlib.asynccontextmanager
async def seated(options: argparse.Namespace, streams: tuple[str, ...] = ("jobs",)) -> AsyncIterator[Desk]:
    """A desk at the target, once its job table is there. Raises `HostError`."""
    desk = await open_desk(parse_target(options.target), TerminalPrompter(), given_by(options), streams)
    try:
        try:
            async with asyncio.timeout(FIRST):
                await desk.watch.sample("jobs")
        except TimeoutError:
            raise HostError("jobs", "the host's list of jobs did not come", "try again", kind="agent") from None
        refused = desk.store.alerts.get("stream:jobs")
        if refused is not None:
            raise HostError("jobs", refused.text, refused.remedy or "", kind="agent")
        yield desk
    finally:
        await desk.close()


def print_json(**document: Any) -> None:
    print(json.dumps({"version": __version__, **document}, indent=2, allow_nan=False))


def table(rows: Iterable[Iterable[str]]) -> list[str]:
    """Rows as columns that are as wide as their widest cell; everything is made safe to print."""
    cleaned = [[text.clean(cell) for cell in row] for row in rows]
    widths = [max(text.cells(cell) for cell in column) for column in zip(*cleaned, strict=True)] if cleaned else []
    return ["  ".join(text.pad(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cleaned]


class LiveLine:
    """One line that is written over on a terminal; elsewhere a new line whenever its ``key`` changes, else one in 30 s.

    On a terminal it is cut to the width between two words. ``clock`` is monotonic, in seconds.
    """

    EVERY = 30.0

    def __init__(self, out: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.out, self._clock = out or sys.stderr, clock
        self.live = self.out.isatty()
        self._told = float("-inf")
        self._key: object = None
        self._open = False

    def show(self, line: str, key: object) -> None:
        if self.live:
            width = shutil.get_terminal_size().columns - 1
            self.out.write("\r\x1b[K" + text.fold_words(text.clean(line), width))
            self._open = True
        elif key != self._key or self._clock() - self._told >= self.EVERY:
            self.out.write(text.clean(line) + "\n")
            self._key, self._told = key, self._clock()
        self.out.flush()

    def end(self) -> None:
        """Take the live line away, so that what is printed next begins a line."""
        if self._open:
            self.out.write("\r\x1b[K")
            self.out.flush()
            self._open = False


TICK = 0.5


async def followed(
    desk: Desk,
    state: JobState,
    wait: Callable[[Callable[[JobState], None]], Awaitable[JobState]],
    progress: Callable[[Desk, JobState], str],
    stage: Callable[[Desk, JobState], object],
    otherwise: str,
) -> JobState:
    """Tell in a live line how far a job is until ``wait`` has its end; that state. Who stops that is told ``otherwise``."""
    line = LiveLine()
    line.show(f"{state.name} ({state.id}) runs as pid {state.pid}", "started")

    def show() -> None:
        now = desk.store.jobs.get(state.id)
        if now is not None:
            line.show(progress(desk, now), stage(desk, now))

    async def tick() -> None:
        while True:
            await asyncio.sleep(TICK)
            show()

    ticking = asyncio.create_task(tick())
    try:
        return await wait(lambda _state: show())
    except asyncio.CancelledError:
        line.end()
        say(otherwise)
        raise
    finally:
        ticking.cancel()
        line.end()
