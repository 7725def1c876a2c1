"""The trainings of a host: what their jobs recorded in ``samples.jsonl``, into runs (`eagletui.runs`) for the charts.

Only what is looked at is read: the newest part first, so that the numbers are there at once, then the past, then what comes. A
lost connection stops it where it is; it goes on at the same byte, and so does a screen that comes back.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from typing import Any

from eagletui.hosts.base import HostError
from eagletui.records import BadRecord, JobState, from_doc
from eagletui.records.training import TRAIN, VAL, TrainingPoint
from eagletui.runs import Run
from eagletui.store import Store
from eagletui.watch.follow import LineFile, Reader

TAIL_BYTES = 256 * 1024
WAIT = 20.0
RETRY = 1.0
LIVE = frozenset(("launching", "running", "stopping"))
MOST_RUNS = 12
"""Runs that are kept of those that nobody looks at."""
BREATH = 4000
"""Lines after which the loop gets a turn while the past is taken in."""


class Trainings:
    """Keeps ``store.runs`` current for the trainings that are looked at. Topic: ``training``. `stop` before the link closes."""

    def __init__(self, reader: Reader, store: Store, *, retry: float = RETRY, wait: float = WAIT) -> None:
        self._reader, self._store, self._retry, self._wait = reader, store, retry, wait
        self._followers: dict[str, _Follower] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._lookers: dict[str, int] = {}

    def look(self, job: str, on: bool) -> None:
        """A screen begins or ends to show the training ``job``. Lookers are counted."""
        self._lookers[job] = max(0, self._lookers.get(job, 0) + (1 if on else -1))
        if self._lookers[job]:
            self._follow(job)
            return
        del self._lookers[job]
        task = self._tasks.pop(job, None)
        if task is not None:
            task.cancel()
        self._forget_the_oldest()

    def update(self, jobs: Iterable[JobState]) -> None:
        """The job table as it is now: what was removed from the host is forgotten; what began to run again is read on."""
        table = {job.id: job for job in jobs}
        for name in [name for name in self._followers if name not in table]:
            self._forget(name)
        for name in self._lookers:
            job = table.get(name)
            if job is not None and job.state in LIVE and name not in self._tasks:
                self._follow(name)

    def _follow(self, job: str) -> None:
        if job not in self._tasks:
            follower = self._followers.pop(job, None) or _Follower(self._reader, self._store, job)
            self._followers[job] = follower  # the last in order is the newest looked at
            task = self._tasks[job] = asyncio.ensure_future(self._run(follower))
            task.add_done_callback(lambda done: self._tasks.pop(job) if self._tasks.get(job) is done else None)

    def _forget(self, job: str) -> None:
        self._followers.pop(job, None)
        task = self._tasks.pop(job, None)
        if task is not None:
            task.cancel()
        if self._store.runs.pop(job, None) is not None:
            self._store.changed("training")

    def _forget_the_oldest(self) -> None:
        idle = [name for name in self._followers if name not in self._lookers]
        for name in idle[: max(0, len(idle) - MOST_RUNS)]:
            self._forget(name)

    async def _run(self, follower: _Follower) -> None:
        """Read one training until it has ended and all of it is read."""
        while True:
            try:
                if not follower.caught_up:
                    await follower.begin()
                state = self._store.jobs.get(follower.job)
                over = state is not None and state.state not in LIVE
                if not await follower.more(0.0 if over else self._wait) and over:
                    return
            except HostError as error:
                follower.trouble(error)
                state = self._store.jobs.get(follower.job)
                if error.kind == "absent" and state is not None and state.state not in LIVE:
                    return  # it has ended without a single line, or its record is gone
                await asyncio.sleep(self._retry)

    async def stop(self) -> None:
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Follower:
    def __init__(self, reader: Reader, store: Store, job: str) -> None:
        self._reader, self._store, self.job = reader, store, job
        self._file: LineFile | None = None
        self._bad = 0
        self._run = Run(job)
        self.caught_up = False

    def trouble(self, error: HostError) -> None:
        """A read failed. While the link is down the header says so; a file that is not there yet is no fault."""
        if error.retry:
            return
        self._run.problem = None if error.kind == "absent" else f"recorded steps: {error.why}"
        self._publish()

    def _path(self) -> str:
        info = self._store.info
        if info is None or info.state_dir is None:
            raise HostError("samples", "the host has not said where its jobs are", kind="absent")
        return f"{info.state_dir}/jobs/{self.job}/samples.jsonl"

    def _on_bad(self, lines: int) -> None:
        self._bad += lines
        self._run.problem = f"{self._bad} recorded steps could not be read"

    async def begin(self) -> None:
        """The newest part, shown at once; then all of it in order."""
        self._bad, self._run = 0, Run(self.job)
        file = LineFile(self._reader, self._path(), self._on_bad)
        tail = await file.tail(TAIL_BYTES)
        await self._take(self._run, tail)
        self._publish()
        whole = Run(self.job)
        async for values in file.past():
            await self._take(whole, values)
        await self._take(whole, tail)
        whole.whole, whole.problem = True, self._run.problem
        self._run, self._file, self.caught_up = whole, file, True
        self._publish()

    async def more(self, wait: float) -> bool:
        """What has come since; whether anything has."""
        assert self._file is not None
        values = await self._file.follow(wait)
        if await self._take(self._run, values):
            self._publish()
        return bool(values)

    async def _take(self, run: Run, values: list[Any]) -> bool:
        news = False
        for at, value in enumerate(values, 1):
            try:
                news = run.add(_point(value)) or news
            except (BadRecord, TypeError, ValueError, OverflowError):
                self._on_bad(1)  # said on the screen, with how many
            if at % BREATH == 0:
                await asyncio.sleep(0)
        return news

    def _publish(self) -> None:
        self._store.runs[self.job] = self._run
        self._store.changed("training")


def _point(value: Any) -> TrainingPoint:
    """A line as its record, every field of the type that the arrays need. Raises where it is none."""
    point = from_doc(TrainingPoint, value)
    wall, step, epoch = float(point.wall), int(point.step), int(point.epoch)
    known = point.split in (TRAIN, VAL) and isinstance(point.values, dict)
    if not known or not math.isfinite(wall) or not 0 <= step < 1 << 53 or not -1 <= epoch < 1 << 31:
        raise BadRecord("TrainingPoint: out of range")
    return TrainingPoint(wall, step, epoch, point.split, point.values)
