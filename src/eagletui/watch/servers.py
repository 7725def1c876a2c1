"""The serving jobs of a host: their scrapes, as the shim on the host recorded them, into windows and chart series.

One task a server reads its ``samples.jsonl``: the newest part first, so that the numbers are there at once, then the past for
the charts, then what comes. A lost connection stops it where it is; it goes on at the same byte. A server that was only found
is scraped by the agent while it runs: its charts begin with the connection and have a gap where there was none, but what it did
since it was started is known from its counters.
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
GAP = 15.0
"""Seconds between two scrapes of a server that was found from which on the charts have a gap: nobody scraped it then."""
_COUNTERS = (
    "prompt_tokens", "generated_tokens", "verify_steps", "drafted", "accepted", "prefix_queries", "prefix_hits", "preemptions",
    "finished", "ttft_sum", "itl_sum", "decoded_tokens", "prefilled_tokens",
)  # fmt: skip
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
            if not _recorded(job) or job.id in self._tasks or job.id in self._done:
                continue
            if job.state in ("running", "stopping"):
                self.follow(job.id)
        known = {job.id for job in jobs}
        for name in [name for name in {*self._tasks, *self._store.servers} if name not in known]:
            task = self._tasks.pop(name, None)
            if task is not None:
                task.cancel()
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
                follower.had_news = False
                follower.trouble(error)
                await asyncio.sleep(self._retry)
            state = self._store.jobs.get(job)
            if state is not None and state.state not in ("launching", "running", "stopping") and not follower.had_news:
                self._done.add(job)
                self._tasks.pop(job, None)
                return


def _recorded(job: JobState) -> bool:
    """Whether there are scrapes to follow: of a job of ours since it was ready, of a server that was found where it has any."""
    return job.ready_seconds is not None if job.adopted is None else job.samples is not None and job.health == "ready"


def from_the_start(sample: ServerSample, job: JobState) -> ServerSample | None:
    """What a scrape would have shown when the server had just been started: its counters at zero. None when that is not known."""
    if job.started_boot is None or job.started_boot >= sample.boot:
        return None
    zero: dict[str, Any] = {name: 0.0 for name in _COUNTERS if getattr(sample, name) is not None}
    for name in ("ttft", "itl"):
        found = getattr(sample, name)
        if found is not None:
            zero[name] = tuple((bound, 0.0) for bound, _count in found)
    if sample.per_position is not None:
        zero["per_position"] = tuple(0.0 for _ in sample.per_position)
    kept: dict[str, Any] = {
        "engine": sample.engine,
        "k": sample.k,
        "acceptance_from": sample.acceptance_from,
        "start_time": sample.start_time,
    }
    wall = sample.wall - (sample.boot - job.started_boot)
    return ServerSample(job.started_boot, wall, running=0.0, waiting=0.0, **zero, **kept)


class _Follower:
    def __init__(self, reader: Reader, store: Store, job: str) -> None:
        self._reader, self._store, self._job = reader, store, job
        self._scrapes = Scrapes()
        self._problem: str | None = None
        self._bad = 0
        self._file: LineFile | None = None
        self._charted: ServerSample | None = None
        self._busy: ServerView | None = None
        self._counted = False
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
            if isinstance(value, dict) and value.get("job", self._job) != self._job:
                continue  # another agent gave this path to another server: the next table of jobs names the right one
            try:
                found.append(from_doc(ServerSample, value))
            except BadRecord:
                self._on_bad(1)
        return found

    async def begin(self) -> None:
        file = LineFile(self._reader, self._path(), self._on_bad)
        tail = self._samples(await file.tail(TAIL_BYTES))
        self._count_from_the_start(tail)
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

    def _path(self) -> str:
        job, info = self._store.jobs.get(self._job), self._store.info
        if job is not None and job.adopted is not None:
            if job.samples is None:
                raise HostError("samples", "nothing of this server has been scraped yet", kind="absent")
            return job.samples
        if info is None or info.state_dir is None:
            raise HostError("samples", "the host has not said where its jobs are", kind="absent")
        return f"{info.state_dir}/jobs/{self._job}/samples.jsonl"

    def _count_from_the_start(self, samples: Sequence[ServerSample]) -> None:
        """Nobody scraped a server that was found before us, but all its counters began at zero."""
        job = self._store.jobs.get(self._job)
        if job is None or job.adopted is None or not samples or self._counted:
            return
        self._counted = True
        zero = from_the_start(samples[0], job)
        if zero is not None:
            self._scrapes.older(zero)

    async def more(self) -> None:
        assert self._file is not None
        if self._path() != self._file.path:
            self._file = LineFile(self._reader, self._path(), self._on_bad)  # another agent, another place
        fresh = self._samples(await self._file.follow(WAIT))
        self._count_from_the_start(fresh)
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
        job = self._store.jobs.get(self._job)
        if job is not None and job.adopted is not None and sample.boot - before.boot > GAP:
            for name in SERIES:
                self._store.track(("server", self._job, name), before.boot + 1.0, None, POINTS)
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
