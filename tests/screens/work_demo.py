"""Stores of jobs that are no servers, and of pipelines, in each of their states."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from eagletui.records import JobState
from eagletui.records.work import Counter, Work
from eagletui.store import PipelineDocs, Store
from tests.screens.demo import BOOT, HOSTILE, base_store, board_store
from tests.screens.serving_demo import serve
from tests.screens.training_demo import train

SYNTH = Work(
    "asking", 9412, 25000, "rows", 1.37, 11400.0, "rate of last 10 min",
    (Counter("failed", 0, "", True), Counter("truncated", 214), Counter("tok/s", 812.4)),
)  # fmt: skip
STEPS = (
    ("synth-10", "synthesise", "10", "target", ({"key": "truncated_share", "most": 0.2},)),
    ("prepare-10", "prepare", "10", None, ()),
    ("extract-10", "extract", "10", "target", ({"key": "sane", "least": 1},)),
    ("synth", "synthesise", "all", "target", ({"key": "truncated_share", "most": 0.2}, {"key": "failed_share", "most": 0.01})),
    ("prepare", "prepare", "all", None, ()),
    ("extract", "extract", "all", "extract", ()),
    ("train", "train", "all", None, ({"key": "predicted_length", "least": 1.3},)),
    ("bench", "benchmark", "all", "with", ()),
    ("verdict", "verdict", None, None, ()),
)


def job(id_: str, kind: str, name: str, state: str = "running", **more: Any) -> JobState:
    now = time.time()
    base = JobState(id_, kind, name, state, now - 7100, BOOT - 7100, log=f"/root/.eagletui/jobs/{id_}/log", log_size=90_000)
    return base._replace(**more)


def plan() -> dict[str, Any]:
    steps = [
        {"id": id_, "kind": kind, "stage": stage, "server": server, "gates": list(gates), "spec": {}}
        for id_, kind, stage, server, gates in STEPS
    ]
    servers = {"target": {"port": 8000}, "extract": {"port": 8001}, "with": {"port": 8002}}
    return {"dir": "/data/loop/k25", "servers": servers, "steps": steps}


def record(at: int, failed: str = "", gate: bool = False) -> dict[str, Any]:
    """The record of a pipeline that is at its step ``at``."""
    now = time.time()
    out: list[dict[str, Any]] = []
    for number, (id_, kind, stage, server, _) in enumerate(STEPS):
        entry: dict[str, Any] = {"id": id_, "kind": kind, "stage": stage, "server": server, "state": "waiting"}
        if number < at:
            figures = {"truncated_share": 0.1, "failed_share": 0.0, "sane": 1.0}
            entry |= {"state": "done", "job": f"loop-{id_}-1", "attempt": 1, "seconds": 60.0 * (number + 1)}
            entry |= {"why": "10 rows, 0 failed", "figures": figures}
        elif number == at:
            entry |= {"state": "running", "job": f"loop-{id_}-2", "attempt": 2, "started": now - 7100}
            if failed:
                entry |= {"state": "failed", "why": failed, "seconds": 812.0, "gate": gate}
        out.append(entry)
    servers = {"target": {"state": "stopped" if failed else "ready", "job": "loop-server-target-1", "port": 8000}}
    return {
        "version": 1,
        "job": "loop",
        "name": "loop-k25",
        "state": "failed" if failed else "running",
        "steps": out,
        "servers": servers,
    }


def pipeline_jobs(at: int = 3, **more: Any) -> dict[str, JobState]:
    now = time.time()
    work = Work(f"step {at + 1} of 9: {STEPS[at][0]}, 9412 of 25000 rows", at, len(STEPS), "steps")
    found = [job("loop", "pipeline", "loop-k25", work=work, started=now - 9000, started_boot=BOOT - 9000, **more)]
    for number, (id_, kind, _, _, _) in enumerate(STEPS[:at]):
        began = now - 8900 + 100 * number
        found.append(
            job(f"loop-{id_}-1", kind, id_, "exited", started=began, ended=began + 60, rc=0, ok=True, parent="loop",
                outcome="10 rows, 0 failed, 1 truncated")
        )  # fmt: skip
    id_, kind = STEPS[at][:2]
    found.append(job(f"loop-{id_}-2", kind, id_, parent="loop", work=SYNTH))
    found.append(serve("target", id="loop-server-target-1", parent="loop"))
    return {one.id: one for one in found}


def pipeline_store() -> Store:
    """A pipeline that makes answers; three steps are done."""
    store = base_store()
    store.jobs = pipeline_jobs()
    store.pipelines["loop"] = PipelineDocs(plan(), record(3))
    store.jobs_boot, store.jobs_seen = BOOT, time.monotonic()
    return store


def pipeline_failed_store() -> Store:
    """One that a gate stopped."""
    store = pipeline_store()
    why = "truncated_share is 0.42, at most 0.2 allowed"
    words = f"step synth: {why} - raise max_tokens; run it again to go on here"
    now = time.time()
    store.jobs["loop"] = store.jobs["loop"]._replace(state="exited", ended=now - 60, rc=1, ok=False, outcome=words, work=None)
    step = store.jobs["loop-synth-2"]
    store.jobs["loop-synth-2"] = step._replace(
        state="exited", ended=now - 61, rc=0, ok=True, work=None, outcome="25,000 rows, 0 failed, 10,500 truncated"
    )
    del store.jobs["loop-server-target-1"]
    store.pipelines["loop"] = PipelineDocs(plan(), record(3, why, True))
    return store


def pipeline_unread_store() -> Store:
    """One whose record has not come yet."""
    store = pipeline_store()
    store.pipelines.clear()
    return store


def pipeline_hostile_store() -> Store:
    store = pipeline_store()
    bad = HOSTILE
    store.jobs = {id_: one._replace(name=bad, kind=one.kind if id_ == "loop" else bad, troubles=(bad,), detail=bad, outcome=bad)
                  for id_, one in store.jobs.items()}  # fmt: skip
    steps = [
        {"id": bad, "kind": bad, "stage": bad, "server": bad, "gates": [{"key": bad, "most": bad}, 3]},
        7,
        {"id": 4, "needs": 3},
    ]
    entries = [{"id": bad, "state": "failed", "why": bad, "job": bad, "seconds": "x", "figures": {bad: bad}}, None]
    store.pipelines["loop"] = PipelineDocs(
        {"dir": bad, "steps": steps, "servers": {bad: {"port": bad}, "b": 7}},
        {"steps": entries, "servers": {bad: {"state": bad, "why": bad}}},
        bad,
    )
    return store


def work_store() -> Store:
    """Jobs of every kind and end, with a pipeline among them."""
    store = board_store(seconds=3)
    now = time.time()
    store.jobs |= pipeline_jobs()
    done = ("prepare", "prepare-10k", "exited")
    lost = ("synthesise", "synth-test", "exited")
    load = Work("downloading", 214e9, 547e9, "bytes", 458e6, 730.0, "rate of last 10 min")
    more = (
        job("syn", "synthesise", "synth-25k", work=SYNTH),
        job("dl", "download", "kimi-k2.5", work=load),
        train("tr2", "drafter-20k"),
        job("ok", *done, ended=now - 300, rc=0, ok=True, outcome="9,998 rows, 2 dropped, 12.1 M tokens"),
        job("bad", *lost, ended=now - 200, rc=0, ok=False, outcome="0 of 25,000 rows: every request failed"),
        job(
            "cut",
            "train",
            "drafter-cut",
            "exited",
            ended=now - 100,
            rc=0,
            ended_by="root",
            outcome="stopped on request in epoch 2",
        ),
    )
    store.jobs |= {one.id: one for one in more}
    return store


WORK_STORES: dict[str, Callable[[], Store]] = {
    "work": work_store,
    "pipeline": pipeline_store,
    "pipeline-failed": pipeline_failed_store,
    "pipeline-unread": pipeline_unread_store,
    "pipeline-hostile": pipeline_hostile_store,
}
