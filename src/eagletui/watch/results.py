"""What jobs have left behind, read when a screen wants it: results of benchmarks, verdicts, the record of a pipeline.

A result is read once, when its job has ended; a pipeline's record again whenever its job or one of its steps has moved on.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import Any

from eagletui.hosts.base import HostError
from eagletui.records import BadRecord, JobState, from_doc
from eagletui.records.bench import BenchResult, BenchVerdict
from eagletui.store import PipelineDocs, Store
from eagletui.views.jobs import is_live
from eagletui.watch.follow import PIECE, Reader

RETRY = 1.0
MOST_BYTES = 16 << 20
MOST_RESULTS = 200
"""Results that are read, the newest first."""
BENCH, PIPELINE = "results", "pipeline:"
MEASURED = ("benchmark", "verdict")


class TooLarge(Exception):
    """A file is larger than anything that a job of ours writes."""


class Results:
    """Keeps ``store.bench``, ``store.verdicts`` and ``store.pipelines`` while they are looked at. Topics: bench, pipeline."""

    def __init__(self, reader: Reader, store: Store, *, retry: float = RETRY) -> None:
        self._reader, self._store, self._retry = reader, store, retry
        self._lookers: dict[str, int] = {}
        self._read: set[str] = set()
        self._plans: dict[str, Mapping[str, Any]] = {}
        self._marks: dict[str, object] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def look(self, topic: str, on: bool) -> None:
        """A screen begins or ends to show ``results``, or ``pipeline:JOB``. Lookers are counted."""
        self._lookers[topic] = max(0, self._lookers.get(topic, 0) + (1 if on else -1))
        if self._lookers[topic]:
            self.update(self._store.jobs.values())
            return
        del self._lookers[topic]
        task = self._tasks.pop(topic, None)
        if task is not None:
            task.cancel()

    def update(self, jobs: Iterable[JobState]) -> None:
        """The job table as it is now: read what has ended or moved on, forget what was removed from the host."""
        table = {job.id: job for job in jobs}
        self._forget(table)
        for topic in self._lookers:
            if topic in self._tasks:
                continue
            if topic == BENCH and self._unread(table):
                self._start(topic, self._read_results())
            elif topic.startswith(PIPELINE):
                job = topic.removeprefix(PIPELINE)
                if job in table and self._marks.get(job) != _mark(job, table):
                    self._start(topic, self._read_pipeline(job))

    def _start(self, topic: str, work: Any) -> None:
        task = self._tasks[topic] = asyncio.ensure_future(work)
        task.add_done_callback(lambda done: self._tasks.pop(topic) if self._tasks.get(topic) is done else None)

    def _forget(self, table: Mapping[str, JobState]) -> None:
        for known, topic in ((self._store.bench, "bench"), (self._store.verdicts, "bench"), (self._store.pipelines, "pipeline")):
            gone = [job for job in known if job not in table]
            for job in gone:
                del known[job]
            if gone:
                self._store.changed(topic)
        self._read &= set(table)
        for job in [job for job in self._plans if job not in table]:
            del self._plans[job]
            self._marks.pop(job, None)

    def _unread(self, table: Mapping[str, JobState]) -> list[JobState]:
        # its result is written before its end is judged
        ended = [job for job in table.values() if job.kind in MEASURED and not is_live(job) and job.outcome is not None]
        newest = sorted(ended, key=lambda job: -job.started)[:MOST_RESULTS]
        return [job for job in newest if job.id not in self._read]

    async def _read_results(self) -> None:
        while wanted := self._unread(self._store.jobs):
            job = wanted[0]
            try:
                doc = await self._document(self._place(job.id) + "/result.json")
                self._take(job, doc)
            except HostError as error:
                if error.retry:
                    await asyncio.sleep(self._retry)
                    continue  # the link is down, and the header says so
                if error.kind != "absent":
                    self._complain(job.id, error.why)
            except (BadRecord, ValueError, TypeError, TooLarge) as error:
                self._complain(job.id, f"its result cannot be used: {error}")
            self._read.add(job.id)

    def _take(self, job: JobState, doc: Mapping[str, Any]) -> None:
        if job.kind == "benchmark" and "cells" in doc:
            self._store.bench[job.id] = from_doc(BenchResult, doc)
        elif job.kind == "verdict" and "verdict" in doc:
            self._store.verdicts[job.id] = from_doc(BenchVerdict, doc["verdict"])
        else:
            return  # it ended before there was one; the table of jobs says why
        self._store.result_problems.pop(job.id, None)
        self._store.changed("bench")

    def _complain(self, job: str, why: str) -> None:
        self._store.result_problems[job] = why
        self._store.changed("bench")

    async def _read_pipeline(self, job: str) -> None:
        while True:
            mark = _mark(job, self._store.jobs)
            try:
                if job not in self._plans:
                    spec = await self._document(self._place(job) + "/spec.json")
                    plan = spec.get("pipeline")
                    self._plans[job] = plan if isinstance(plan, dict) else {}
                plan = self._plans[job]
                record: Mapping[str, Any] = {}
                if isinstance(plan.get("dir"), str):
                    record = await self._record(plan["dir"])
                self._store.pipelines[job] = PipelineDocs(plan, record)
            except HostError as error:
                if error.retry:
                    await asyncio.sleep(self._retry)
                    continue  # the link is down, and the header says so
                self._store.pipelines[job] = PipelineDocs(self._plans.get(job, {}), {}, error.why)
            except (ValueError, TooLarge) as error:
                self._store.pipelines[job] = PipelineDocs(self._plans.get(job, {}), {}, f"its record cannot be read: {error}")
            self._marks[job] = mark
            self._store.changed("pipeline")
            if mark == _mark(job, self._store.jobs):
                return

    async def _record(self, directory: str) -> Mapping[str, Any]:
        try:
            return await self._document(directory + "/pipeline.json")
        except HostError as error:
            if error.kind == "absent":
                return {}  # it has not begun yet
            raise

    def _place(self, job: str) -> str:
        info = self._store.info
        if info is None or info.state_dir is None:
            raise HostError("results", "the host has not said where its jobs are", kind="agent")
        return f"{info.state_dir}/jobs/{job}"

    async def _document(self, path: str) -> dict[str, Any]:
        """A JSON object from a file. Raises `HostError`, ``ValueError``, `TooLarge`."""
        chunk = await self._reader.read(path, 0, PIECE)
        data, identity = chunk.data, (chunk.dev, chunk.inode)
        if chunk.size > MOST_BYTES:
            raise TooLarge(f"it has {chunk.size} bytes")
        while len(data) < chunk.size:
            more = await self._reader.read(path, len(data), PIECE, identity=identity)
            if not more.data:
                break
            data += more.data
        doc = json.loads(data)
        if not isinstance(doc, dict):
            raise ValueError("it is no JSON object")
        return doc

    async def stop(self) -> None:
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _mark(job: str, table: Mapping[str, JobState]) -> object:
    """What of a pipeline changes when its record has changed: its state and stage, and the states of its steps and servers."""
    own = table.get(job)
    stage = (own.work.stage, own.work.done) if own is not None and own.work is not None else None
    steps = sorted((one.id, one.state, one.health or "", one.ok is None) for one in table.values() if one.parent == job)
    return own.state if own is not None else None, stage, own.outcome if own is not None else None, steps
