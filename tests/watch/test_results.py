"""What jobs left behind: results once they are judged, a pipeline's record whenever it has moved on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from eagletui.records import HostInfo, JobState, to_doc
from eagletui.records.bench import BenchVerdict
from eagletui.records.work import Work
from eagletui.store import Store
from eagletui.watch.results import Results
from tests.screens.bench_demo import kept, result
from tests.watch.test_servers import FileReader


class Host:
    def __init__(self, root: Path) -> None:
        self.root, self.reader, self.store = root, FileReader(), Store()
        self.store.info = HostInfo("h", "b", "root", 0, "3", 100, 1.0, 1.0, state_dir=str(root))
        self.results = Results(self.reader, self.store, retry=0.0)
        self.reads: list[str] = []
        read = self.reader.read

        async def counted(path: str, *args: Any, **named: Any) -> Any:
            self.reads.append(Path(path).name)
            return await read(path, *args, **named)

        self.reader.read = counted  # type: ignore[method-assign]

    def job(self, id_: str, kind: str, files: dict[str, Any], **more: Any) -> None:
        place = self.root / "jobs" / id_
        place.mkdir(parents=True, exist_ok=True)
        for name, doc in files.items():
            (place / name).write_text(doc if isinstance(doc, str) else json.dumps(doc))
        ended = {"state": "exited", "ended": 2.0, "outcome": "x", **more}
        self.store.jobs[id_] = JobState(id_, kind, id_, "running", 1.0)._replace(**ended)

    async def quiet(self) -> None:
        for _ in range(2000):
            if not self.results._tasks:
                return
            await asyncio.sleep(0)
        raise AssertionError(self.results._tasks)


def arm() -> dict[str, Any]:
    return to_doc(kept(result("plain", "none", {(1, "as given"): 90.0}, None)))


async def test_results_and_verdicts_are_read_once_when_judged(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.job("b", "benchmark", {"result.json": {**arm(), "ok": True, "why": "x", "pad": "x" * 200_000}})
    host.job("v", "verdict", {"result.json": {"verdict": to_doc(BenchVerdict("it pays", name="plan")), "ok": True}})
    host.job("runs", "benchmark", {"result.json": arm()}, state="running", outcome=None)
    host.job("other", "train", {"result.json": {}})
    host.results.look("results", True)
    await host.quiet()
    assert host.store.bench["b"].arm == "plain"
    assert host.store.verdicts["v"].headline == "it pays"
    assert set(host.store.bench) == {"b"}
    before = len(host.reads)
    host.results.update(host.store.jobs.values())
    await host.quiet()
    assert len(host.reads) == before
    host.job("runs", "benchmark", {"result.json": arm()})
    host.results.update(host.store.jobs.values())
    await host.quiet()
    assert set(host.store.bench) == {"b", "runs"}
    del host.store.jobs["b"]
    host.results.update(host.store.jobs.values())
    assert set(host.store.bench) == {"runs"}
    await host.results.stop()


async def test_nothing_is_read_that_nobody_looks_at_and_a_cut_is_tried_again(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.job("b", "benchmark", {"result.json": arm()})
    host.results.update(host.store.jobs.values())
    assert host.reads == []
    host.reader.down = 2
    host.results.look("results", True)
    await host.quiet()
    assert "b" in host.store.bench
    await host.results.stop()


async def test_a_result_that_cannot_be_used_is_told_and_harms_no_other(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.job("a", "benchmark", {"result.json": "no json"}, started=3.0)
    host.job("b", "benchmark", {"result.json": {**arm(), "cells": 7}}, started=2.5)
    host.job("c", "benchmark", {}, started=2.0)
    host.job("d", "benchmark", {"result.json": {"ok": False, "why": "no server"}}, started=1.5)
    host.job("e", "benchmark", {"result.json": arm()})
    host.results.look("results", True)
    await host.quiet()
    assert set(host.store.bench) == {"e"}
    assert set(host.store.result_problems) == {"a", "b"}
    await host.results.stop()


async def test_the_record_of_a_pipeline_is_read_again_when_it_has_moved_on(tmp_path: Path) -> None:
    host = Host(tmp_path)
    place = tmp_path / "loop"
    place.mkdir()
    plan = {"dir": str(place), "servers": {}, "steps": [{"id": "a"}]}
    host.job("p", "pipeline", {"spec.json": {"pipeline": plan}}, state="running", ended=None, outcome=None)
    host.results.look("pipeline:p", True)
    await host.quiet()
    assert host.store.pipelines["p"].plan == plan
    assert host.store.pipelines["p"].record == {}
    (place / "pipeline.json").write_text(json.dumps({"steps": [{"id": "a", "state": "running"}]}))
    host.results.update(host.store.jobs.values())
    await host.quiet()
    assert host.store.pipelines["p"].record == {}  # nothing has moved that the table of jobs shows
    host.store.jobs["p"] = host.store.jobs["p"]._replace(work=Work("step 1 of 1: a", 0, 1, "steps"))
    host.results.update(host.store.jobs.values())
    await host.quiet()
    assert host.store.pipelines["p"].record["steps"][0]["state"] == "running"
    (place / "pipeline.json").write_text("{")
    host.store.jobs["s"] = JobState("s", "command", "s", "exited", 1.0, ended=2.0, ok=True, parent="p")
    host.results.update(host.store.jobs.values())
    await host.quiet()
    assert "cannot be read" in (host.store.pipelines["p"].problem or "")
    assert host.reads.count("spec.json") == 1
    host.results.look("pipeline:p", False)
    del host.store.jobs["p"]
    host.results.update(host.store.jobs.values())
    assert host.store.pipelines == {}
    await host.results.stop()
