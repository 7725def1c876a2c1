"""What dead jobs have left on the host - processes, the cards' memory, files - as alerts that say what clears it.

Processes are in the job table. Files are asked for when the host is first seen, whenever a job has ended, and now and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from eagletui.hosts.base import HostError
from eagletui.records import JobState
from eagletui.store import Store
from eagletui.text import plural, size
from eagletui.views.adopted import leftover_words, memory_held
from eagletui.watch.alerts import Sign

EVERY = 300.0
AFTER_AN_END = 5.0
"""Seconds that a job which has just ended is given to clear up behind itself."""


class Asker(Protocol):
    """The part of a session that this needs."""

    async def request(self, method: str, body: bytes = b"", /, **params: Any) -> Any: ...


class Files(NamedTuple):
    """Files of ended jobs that nobody uses: how many, their bytes, and the directories they lie in."""

    number: int
    size: int
    places: tuple[str, ...]


class Leftovers:
    """`update` with each document of the jobs; `signs` are what needs a person. ``clock`` is one that only goes forward."""

    def __init__(self, session: Asker, store: Store, clock: Callable[[], float]) -> None:
        self._session, self._store, self._clock = session, store, clock
        self._over: frozenset[str] | None = None
        self._due = 0.0
        self._asking: asyncio.Task[None] | None = None
        self.files: Files | None = None
        self.problem: str | None = None

    def update(self, jobs: Mapping[str, JobState]) -> None:
        """Ask for the files, when it is time."""
        now = self._clock()
        over = frozenset(job.id for job in jobs.values() if job.adopted is None and job.state not in ("running", "launching"))
        if self._over is not None and over - self._over:
            self._due = min(self._due, now + AFTER_AN_END)
        self._over = over
        if now >= self._due and self._asking is None and any(job.adopted is None for job in jobs.values()):
            self._due = now + EVERY
            self._asking = asyncio.ensure_future(self._ask())

    async def _ask(self) -> None:
        try:
            entries = (await self._session.request("leftovers"))["entries"]
            places = sorted({str(entry["path"]).rpartition("/")[0] for entry in entries})
            self.files = Files(len(entries), sum(int(entry["size"]) for entry in entries), tuple(places))
            self.problem = None
        except HostError as error:
            # a lost connection says so itself, and a host without the agent has no jobs: asked again later
            self.problem = None if error.retry or error.kind in ("closed", "limited") else error.why
        finally:
            self._asking = None

    async def settled(self) -> None:
        """Wait for the answer that is under way."""
        if self._asking is not None:
            await asyncio.gather(self._asking, return_exceptions=True)

    def signs(self) -> Iterator[Sign]:
        """What is left now."""
        for job in self._store.jobs.values():
            yield from process_signs(self._store, job)
        if self.files is not None and self.files.number:
            where = ", ".join(self.files.places[:3])
            yield Sign(
                "leftovers:files",
                "warn",
                f"ended jobs left {plural(self.files.number, 'file')} ({size(self.files.size)}) in {where}",
                "eagletui leftovers HOST lists them, with --remove it clears them",
                "job",
            )
        if self.problem is not None:
            yield Sign("leftovers:unknown", "warn", f"what ended jobs left is not known: {self.problem}", None, "job")

    async def stop(self) -> None:
        """Give up what is under way."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)


def process_signs(store: Store, job: JobState) -> Iterator[Sign]:
    """Of a job, or of a server that was found: whether it is dead and some of its processes are not."""
    if not job.members or job.state == "stopping":
        return
    key, remedy = f"job:{job.id}:left", "k on the Jobs screen ends them (7, k); it shows them first"
    if job.state == "leftover":
        held = memory_held(store, job)
        yield Sign(key, "bad" if held else "warn", f"{job.name}: left are {leftover_words(store, job)}", remedy, "job")
    elif job.ended is not None and job.adopted is None:
        held = memory_held(store, job)
        words = plural(job.members, "process", "processes") + (f", holding {size(held)} of the cards' memory" if held else "")
        # a job whose main process has just ended takes the rest along a moment later
        yield Sign(key, "bad" if held else "warn", f"{job.name} has ended, and left {words}", remedy, "job", after=AFTER_AN_END)
