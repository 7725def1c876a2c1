"""Stores of benchmarks in each of their states; verdicts are made by the project's own arithmetic from made-up cells."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

from eagletui.jobs.bench.cells import pooled
from eagletui.jobs.bench.judge import Arm, verdict
from eagletui.jobs.bench.stats import mean
from eagletui.records.bench import (
    BenchCell,
    BenchPass,
    BenchRequests,
    BenchResult,
    BenchServer,
    BenchSettings,
    BenchVerdict,
    BreakEven,
    CurvePoint,
    SpecCounts,
    Timing,
)
from eagletui.records.work import Counter, Work
from eagletui.store import Store
from tests.screens.demo import HOSTILE, base_store
from tests.screens.work_demo import job

LOADS = (1, 4, 16)
PLACES = ("as given", "4096 tokens")
PROMPTS = 32


def cell(concurrency: int, context: str, speed: float, length: float | None, number: int = 3, problem: str = "") -> BenchCell:
    passes = []
    for at in range(1, number + 1):
        pace = speed * (1 + 0.01 * (at - 2))
        tokens = tuple(180 + 7 * (n % 11) for n in range(PROMPTS))
        per = concurrency / pace
        latency = tuple(one * per * (1 + 0.03 * ((n * at) % 5 - 2)) for n, one in enumerate(tokens))
        step = 1000 * per * (length or 1.0)
        steps = sum(tokens) / (length or 1.0)
        spec = None
        if length is not None:
            joint = tuple(steps * (length - 1) * share for share in (0.7, 0.22, 0.08))
            spec = SpecCounts(steps, 3 * steps, sum(joint), joint)
        total = sum(tokens)
        requests = BenchRequests(latency, tuple(0.061 for _ in tokens), tokens, tuple(f"t{n}" for n in range(PROMPTS)))
        one = BenchPass(at, "a", "vllm bench serve", seconds=total / pace, asked=PROMPTS, completed=PROMPTS, output_tokens=total)
        one = one._replace(
            tokens_per_s=pace,
            ttft=Timing(61.0, observations=PROMPTS),
            tpot=Timing(1000 * per, observations=PROMPTS),
            itl=Timing(step, observations=round(steps)),
            e2el=Timing(1000 * (mean(latency) or 0.0), observations=PROMPTS),
        )
        passes.append(one._replace(spec=spec, problems=(problem,) if problem else (), requests=requests))
    return pooled(BenchCell(concurrency, context, 512.0, PROMPTS, "5f1c", tuple(passes)))


def result(arm: str, role: str, speeds: dict[tuple[int, str], float], length: float | None, **more: Any) -> BenchResult:
    drafter = None if role == "none" else f"/data/drafters/{arm}"
    argv = ["vllm", "serve", "/shared/kimi-k2.5-int4", "--tensor-parallel-size", "8"]
    if drafter:
        argv += ["--speculative-config", f'{{"method":"eagle3","model":"{drafter}","num_speculative_tokens":3}}']
    server = BenchServer(
        "vllm", "/shared/kimi-k2.5-int4", 8000, "kimi", drafter, 3 if drafter else None, role, "0.18.1", tuple(argv),
        {"VLLM_USE_V1": "1"} if drafter else {}, "ab12", "flushed",
    )  # fmt: skip
    cells = tuple(cell(c, where, speed, length) for (c, where), speed in speeds.items())
    settings = BenchSettings(256, 0.0, 0, prompts_file="/data/prompts.jsonl", prompts_file_hash="5f1c")
    return BenchResult(arm, server, settings, cells, time.time() - 3600, 812.0, {"vllm": "0.18.1"})._replace(**more)


@cache
def arms() -> tuple[BenchResult, ...]:
    plain = {(c, where): 91.0 * c**0.8 / (1 + at) for c in LOADS for at, where in enumerate(PLACES)}
    ratio = {1: 0.67, 4: 0.98, 16: 1.21}
    trained = {(c, where): plain[c, where] * ratio[c] for c in LOADS for where in PLACES if (c, where) != (16, PLACES[1])}
    poor = {(c, where): plain[c, where] * 0.61 for c in LOADS for where in PLACES}
    return (
        result("no drafter", "none", plain, None),
        result("pretrained", "pretrained", poor, 1.31),
        result("trained", "trained", trained, 1.45),
    )


@cache
def judged() -> BenchVerdict:
    """What the arms say."""
    return verdict([Arm(one, ()) for one in arms()], "k25-plan", {}, time.time() - 500)


def kept(one: BenchResult) -> BenchResult:
    """As the job's record has it: without the single requests."""
    cells = (c._replace(passes=tuple(p._replace(requests=None) for p in c.passes)) for c in one.cells)
    return one._replace(cells=tuple(cells))


def bench_store() -> Store:
    """A plan of three arms that has ended, and one arm that is measured now."""
    store = base_store()
    now = time.time()
    found = arms()
    store.jobs["plan"] = job("plan", "pipeline", "k25-plan", "exited", ended=now - 500, rc=0, ok=True, outcome="5 steps")
    for at, one in enumerate(found):
        id_ = f"b{at}"
        ended = job(id_, "benchmark", one.arm, "exited", parent="plan", started=now - 9000 + at, ended=now - 600, rc=0, ok=True)
        store.jobs[id_] = ended._replace(outcome="6 of 6 loads measured", model=one.server.model)
        store.bench[id_] = kept(one)._replace(wall=now - 3600 + 60 * at)
    store.jobs["v"] = job("v", "verdict", "verdict", "exited", parent="plan", ended=now - 500, rc=0, ok=True, outcome="x")
    store.verdicts["v"] = judged()
    work = Work("c4, pass 2 of 3", 120, 440, "requests", 0.9, 355.0, "rate of last 5 min", (Counter("left out", 0, "", True),))
    store.jobs["run"] = job("run", "benchmark", "sglang-arm", work=work)
    store.jobs_seen = time.monotonic()
    return store


def two_verdicts_store() -> Store:
    """Besides the plan, the break-even that was measured before any training."""
    store = bench_store()
    points = tuple(CurvePoint(x, x, 2.2, x / 2.2 + 0.02) for x in (1.5, 2.0, 2.5, 3.0))
    known = BreakEven(1, k=3, cost=2.2, needed_length=2.2, needed=0.4, possible=True, best_gain=1.82, points=points,
                      sentence="at concurrency 1 a drafter of this shape needs 40 % acceptance to pay")  # fmt: skip
    store.jobs["v0"] = store.jobs["v"]._replace(id="v0", parent=None)
    words = "before any training: a drafter needs 40 % acceptance here"
    store.verdicts["v0"] = BenchVerdict(words, (), (known,), name="break-even", wall=time.time() - 90_000)
    return store


def only_results_store() -> Store:
    store = bench_store()
    store.verdicts.clear()
    return store


def bench_running_store() -> Store:
    store = base_store()
    store.jobs["run"] = bench_store().jobs["run"]
    store.jobs_seen = time.monotonic()
    return store


def bench_none_store() -> Store:
    store = base_store()
    store.jobs_seen = time.monotonic()
    return store


def bench_hostile_store() -> Store:
    """Every text of a benchmark tries to take the terminal over."""
    store = two_verdicts_store()
    bad = HOSTILE
    for id_, one in list(store.bench.items()):
        server = one.server._replace(
            engine=bad, model=bad, drafter=bad, version=bad, argv=(bad, bad), environment={bad: bad}, prefix_cache=bad
        )
        cells = tuple(c._replace(context=bad, problems=(bad,), notes=(bad,)) for c in one.cells)
        settings = one.settings._replace(prompts_file=bad, prompts_file_hash=bad)
        store.bench[id_] = one._replace(arm=bad, server=server, cells=cells, versions={bad: bad}, settings=settings)
    found = store.verdicts["v"]
    comparisons = []
    for one in found.comparisons:
        launch = tuple(d._replace(what=bad, base=bad, other=bad) for d in one.launch)
        loads = tuple(load._replace(context=bad, sentence=bad, notes=(bad,)) for load in one.loads)
        comparisons.append(one._replace(base=bad, other=bad, notes=(bad,), launch=launch, loads=loads))
    store.verdicts["v"] = found._replace(headline=bad, name=bad, suspects=(bad,), arms=(bad,), comparisons=tuple(comparisons))
    store.result_problems["b0"] = bad
    for id_ in list(store.jobs):
        store.jobs[id_] = store.jobs[id_]._replace(name=bad)
    return store


BENCH_STORES: dict[str, Callable[[], Store]] = {
    "bench": bench_store,
    "bench-two": two_verdicts_store,
    "bench-results": only_results_store,
    "bench-running": bench_running_store,
    "bench-none": bench_none_store,
    "bench-hostile": bench_hostile_store,
}
