"""The serving jobs of a host: their scrapes, as the shim on the host recorded them, into windows and chart series.

One task a server reads its ``samples.jsonl``: the newest part first, so that the numbers are there at once, then the past for
the charts, then what comes. A lost connection stops it where it is; it goes on at the same byte.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import Any

from eagletui.hosts.base import HostError
from eagletui.records import BadRecord, JobState, ServerSample, ServerView, from_doc
from eagletui.store import Store
from eagletui.views.loading import running_phase
from eagletui.views.serving import is_busy, is_loading, select_anew
from eagletui.watch.eta import estimate, usual
from eagletui.watch.follow import LineFile, Reader
from eagletui.watch.windows import Scrapes, window

TAIL_BYTES = 512 * 1024
WAIT = 20.0
RETRY = 1.0
POINTS = 2400
LOAD_POINTS = 900
SERIES = ("prompt", "generated", "running", "waiting", "kv", "rate", "length", "drafted", "accepted")


class Servers:
    """Follows every serving job that has been ready. `update` with each job table; `stop` before the session closes."""

    def __init__(self, reader: Reader, store: Store, *, retry: float = RETRY) -> None:
        self._reader, self._store, self._retry = reader, store, retry
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._done: set[str] = set()
        self._usual_of: tuple[tuple[str, float | None, bool], ...] = ()

    def update(self, jobs: Iterable[JobState], boot: float) -> None:
        """The job table as it is now, at host time ``boot``: start to follow new servers, renew the estimates."""
        jobs = list(jobs)
        self._store.jobs_boot, self._store.jobs_seen = boot, time.monotonic()
        select_anew(self._store, jobs)
        self._follow_loads(jobs, boot)
        self._estimate(jobs, boot)
        for job in jobs:
            if job.ready_seconds is None or job.id in self._tasks or job.id in self._done:
                continue
            if job.state in ("running", "stopping"):
                self.follow(job.id)
        known = {job.id for job in jobs}
        for name in [name for name in self._tasks if name not in known]:
            self._tasks.pop(name).cancel()
            self._forget(name)

    def follow(self, job: str) -> None:
        """Read a job's recorded scrapes; also for one that has ended, when a screen wants its charts."""
        if job not in self._tasks:
            self._tasks[job] = asyncio.ensure_future(self._follow(job))

    def _follow_loads(self, jobs: Sequence[JobState], boot: float) -> None:
        """What a load has read and how far its bar is, as series; they go once it is ready."""
        loading = [job for job in jobs if is_loading(job)]
        for job in loading:
            phase = running_phase(job)
            self._store.track(("job", job.id, "bytes_read"), boot, job.bytes_read, LOAD_POINTS)
            self._store.track(("job", job.id, "cpu"), boot, job.cpu, LOAD_POINTS)
            if phase is not None and phase.done is not None:
                self._store.track(("job", job.id, f"{phase.id} {phase.role}"), boot, phase.done, LOAD_POINTS)
        names = {job.id for job in loading}
        state = tuple((job.id, job.ready_seconds, bool(job.phases)) for job in jobs)
        if state != self._usual_of:  # what earlier loads took changes only when there is another job, or another was ready
            self._usual_of = state
            self._store.usual = {job.id: found for job in jobs if job.phases and (found := usual(job, jobs))}
        self._store.drop_series(lambda key: key[0] != "job" or key[1] in names)

    def on_reboot(self) -> None:
        """Nothing runs any more that ran before, and what was measured counts in another boot's seconds."""
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()
        self._store.servers.clear()
        self._store.etas = {}
        self._store.changed("servers")

    def _forget(self, job: str) -> None:
        self._done.discard(job)
        self._store.servers.pop(job, None)
        self._store.last_busy.pop(job, None)
        self._store.drop_series(lambda key: key[:2] != ("server", job))
        self._store.changed("servers")

    def _estimate(self, jobs: Sequence[JobState], boot: float) -> None:
        etas = {}
        for job in jobs:
            if job.state == "running" and job.health == "loading" and job.started_boot is not None:
                eta = estimate(job, max(0.0, boot - job.started_boot), jobs)
                if eta is not None:
                    etas[job.id] = eta
        if etas != self._store.etas:
            self._store.etas = etas
            self._store.changed("jobs")

    async def stop(self) -> None:
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -------------------------------------------------------------------------------------------------------- one server

    async def _follow(self, job: str) -> None:
        follower = _Follower(self._reader, self._store, job)
        while not follower.caught_up:
            try:
                await follower.begin()
            except HostError as error:
                follower.trouble(error)
                await asyncio.sleep(self._retry)
        while True:
            try:
                await follower.more()
            except HostError as error:
                follower.trouble(error)
                await asyncio.sleep(self._retry)
            state = self._store.jobs.get(job)
            if state is not None and state.state not in ("launching", "running", "stopping") and not follower.had_news:
                self._done.add(job)
                self._tasks.pop(job, None)
                return


class _Follower:
    def __init__(self, reader: Reader, store: Store, job: str) -> None:
        self._reader, self._store, self._job = reader, store, job
        self._scrapes = Scrapes()
        self._problem: str | None = None
        self._bad = 0
        self._file: LineFile | None = None
        self._charted: ServerSample | None = None
        self._busy: ServerView | None = None
        self.caught_up = False
        self.had_news = False

    def trouble(self, error: HostError) -> None:
        """A read failed. While the link is down the header says so; anything else is said with the numbers."""
        if not error.retry and error.kind != "absent":
            self._problem = f"recorded samples: {error.why}"
            self._publish()

    def _on_bad(self, lines: int) -> None:
        self._bad += lines
        self._problem = f"{self._bad} recorded samples could not be read"

    def _samples(self, values: Iterable[Any]) -> list[ServerSample]:
        found = []
        for value in values:
            try:
                found.append(from_doc(ServerSample, value))
            except BadRecord:
                self._on_bad(1)
        return found

    async def begin(self) -> None:
        info = self._store.info
        if info is None or info.state_dir is None:
            raise HostError("samples", "the host has not said where its jobs are", kind="absent")
        file = LineFile(self._reader, f"{info.state_dir}/jobs/{self._job}/samples.jsonl", self._on_bad)
        tail = self._samples(await file.tail(TAIL_BYTES))
        for sample in tail:
            self._scrapes.add(sample)
        self._look_back(tail)
        self._publish()
        past: list[ServerSample] = []
        async for values in file.past():
            past.extend(self._samples(values))
            if len(past) > 2 * POINTS:
                past = past[:1] + past[1::2]
        if past:
            self._scrapes.older(past[0])
            self._look_back(past + tail)
        self._store.drop_series(lambda key: key[:2] != ("server", self._job))
        for sample in past + tail:
            self._chart(sample)
        self._file, self.caught_up = file, True
        self._publish()

    async def more(self) -> None:
        assert self._file is not None
        fresh = self._samples(await self._file.follow(WAIT))
        self.had_news = bool(fresh)
        for sample in fresh:
            newest = self._scrapes.newest
            if newest is not None and sample.boot <= newest.boot:
                continue
            self._take(sample)
            self._chart(sample)
        if fresh:
            self._publish()

    def _take(self, sample: ServerSample) -> None:
        """A scrape into the windows; the last view with work in it stays for when the server is idle."""
        before = self._scrapes.newest
        self._scrapes.add(sample)
        if is_busy(before, sample):
            self._busy = self._scrapes.view(self._job)

    def _look_back(self, samples: Sequence[ServerSample]) -> None:
        """Find the last view with work in it among what was recorded before we came."""
        last = next(
            (i for i in range(len(samples) - 1, -1, -1) if is_busy(samples[i - 1] if i else None, samples[i])),
            None,
        )
        if last is None:
            return
        scrapes = Scrapes()
        for sample in samples[: last + 1]:
            scrapes.add(sample)
        self._busy = scrapes.view(self._job)

    def _chart(self, sample: ServerSample) -> None:
        """One point of each series: what happened since the point before."""
        before, self._charted = self._charted, sample
        if before is None:
            return
        step = window("", before, sample)
        spoken = step.acceptance
        points = {
            "prompt": step.prompt_per_s,
            "generated": step.generated_per_s,
            "running": sample.running,
            "waiting": sample.waiting,
            "kv": sample.kv,
            "rate": spoken.rate if spoken else None,
            "length": spoken.length if spoken else None,
            "drafted": spoken.drafted_per_s if spoken else None,
            "accepted": spoken.accepted_per_s if spoken else None,
        }
        for name in SERIES:
            self._store.track(("server", self._job, name), sample.boot, points[name], POINTS)

    def _publish(self) -> None:
        view = self._scrapes.view(self._job, self._problem)
        if view is not None:
            self._store.servers[self._job] = view
            if self._busy is not None:
                self._store.last_busy[self._job] = self._busy
            self._store.changed("servers")
