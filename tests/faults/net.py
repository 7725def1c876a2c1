"""What the tests of a faulty network share: a session over a proxy, what it told, and a log that is followed over everything."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from eagletui.connection import Connection
from eagletui.hosts.base import HostError, Push
from eagletui.hosts.session import Session

PATIENCE = 120.0
"""Seconds after which a test gives up; nothing is measured by it."""


class Watcher:
    """Keeps the states and pushes of a session with the time at which they came; waits for what a test expects of them."""

    def __init__(self) -> None:
        self.states: list[tuple[float, Connection]] = []
        self.pushes: list[tuple[float, Push]] = []
        self._news = asyncio.Event()

    def state(self, state: Connection) -> None:
        self.states.append((time.monotonic(), state))
        self._news.set()

    def push(self, push: Push) -> None:
        self.pushes.append((time.monotonic(), push))
        self._news.set()

    @property
    def names(self) -> list[str]:
        """The states, each once when it holds on."""
        names = [state.state for _, state in self.states]
        return [name for i, name in enumerate(names) if not i or names[i - 1] != name]

    async def until(self, what: Callable[[], bool], limit: float = PATIENCE) -> float:
        """When it became so."""
        async with asyncio.timeout(limit):
            while not what():
                self._news.clear()
                await self._news.wait()
        return time.monotonic()

    async def becomes(self, state: str) -> float:
        """Wait until the session is in that state; when."""
        return await self.until(lambda: bool(self.states) and self.states[-1][1].state == state)

    async def more(self, count: int = 2) -> float:
        """Wait until that many pushes have come from now on; when."""
        wanted = len(self.pushes) + count
        return await self.until(lambda: len(self.pushes) >= wanted)


class Followed:
    """A file that is read to its end and on, over every loss of the connection. ``digest`` is of all bytes that came."""

    def __init__(self, session: Session, path: Path) -> None:
        self._session, self._path = session, str(path)
        self.size = 0
        self.lost = 0
        self.digest = hashlib.sha256()
        self.grown = asyncio.Event()

    async def run(self) -> None:
        """Read for ever; cancel it."""
        identity: tuple[int, int] | None = None
        while True:
            try:
                chunk = await self._session.read(self._path, self.size, 65536, wait=5.0, identity=identity)
            except HostError as error:
                if not error.retry:
                    raise
                self.lost += 1
                continue
            assert chunk.offset == self.size
            identity = (chunk.dev, chunk.inode)
            self.size += len(chunk.data)
            self.digest.update(chunk.data)
            self.grown.set()

    async def reaches(self, size: int, limit: float = PATIENCE) -> None:
        async with asyncio.timeout(limit):
            while self.size < size:
                self.grown.clear()
                await self.grown.wait()


async def until(what: Callable[[], bool], limit: float = PATIENCE) -> float:
    """Wait for what nobody tells of; when it became so."""
    async with asyncio.timeout(limit):
        while not what():  # noqa: ASYNC110 - looked at from outside
            await asyncio.sleep(0.02)
    return time.monotonic()


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Lag:
    """How late the event loop ran at most, in seconds: a key that is pressed waits that long."""

    def __init__(self) -> None:
        self.most = 0.0
        self._task = asyncio.create_task(self._measure())

    async def _measure(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            self.most = max(self.most, time.monotonic() - before - 0.01)

    def end(self) -> float:
        self._task.cancel()
        return self.most


def part(values: Sequence[float], share: float) -> float:
    """The percentile, 0 to 1."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def within(seconds: float) -> float:
    """What a figure must stay below here: twice what it should be, more where other work holds the processors."""
    return seconds * max(2.0, 1.5 * os.getloadavg()[0] / (os.cpu_count() or 1))


def alive(pid: int) -> bool:
    """Whether there is such a process that is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def gone(pid: int, limit: float) -> float:
    """Seconds until the process has gone; fails after ``limit``."""
    begun = time.monotonic()
    while alive(pid):
        assert time.monotonic() - begun < limit, f"process {pid} is still there after {limit:g} s"
        await asyncio.sleep(0.1)
    return time.monotonic() - begun


def say(text: str) -> None:
    """A figure for who reads the run with -s, or the report of a failure."""
    text = f"{text} [load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores]"
    print(f"\n  {text}", end="", flush=True)
    if path := os.environ.get("EAGLETUI_FIGURES"):
        with open(path, "a") as file:
            file.write(text + "\n")
