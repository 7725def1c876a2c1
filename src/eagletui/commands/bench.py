"""Benchmarks from a desk: plans compiled and started, results and verdicts found and fetched, two results compared."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from eagletui.bench_plans import BadPlan, NoSuchCards, Plan, aba, compile_plan, read_plan
from eagletui.commands.desk import Desk
from eagletui.commands.find import find_job
from eagletui.commands.jobs import host_cards, new_id, profiles
from eagletui.commands.run import RunPlan, planned
from eagletui.hosts.base import HostError
from eagletui.jobfiles import PIPELINE, JobFile
from eagletui.jobs.base import BadJob
from eagletui.jobs.bench.cells import merged
from eagletui.jobs.bench.compare import compare
from eagletui.jobs.kinds import kind
from eagletui.records import BadRecord, JobState, from_doc
from eagletui.records.bench import BenchResult, BenchVerdict, Comparison, LoadVerdict

LARGEST = 64 << 20
PIECE = 1 << 16
KINDS = ("benchmark", "verdict")


class Found(NamedTuple):
    """What a word led to: a verdict, the arms' results, or both."""

    verdict: BenchVerdict | None
    results: tuple[BenchResult, ...]


class Regression(NamedTuple):
    """A load at which the second result is slower than the first, beyond what chance explains."""

    arm: str
    load: LoadVerdict


# ------------------------------------------------------------------------------------------------------------------ a plan


async def plan_bench(desk: Desk, path: str, synthetic: bool, changes: Sequence[str] = ()) -> tuple[Plan, RunPlan]:
    """What running the plan at ``path`` here would start. Raises `BadPlan`, and `HostError` of kind config."""
    there, _ = await asyncio.to_thread(profiles, desk)
    plan = await asyncio.to_thread(read_plan, Path(path), there, synthetic, changes)
    cards = await host_cards(desk, True)
    uuids = [card.uuid for card in cards]
    try:
        pipeline = compile_plan(plan, uuids, load_seconds(desk.store.jobs.values(), plan))
        values = {"name": plan.name, "pipeline": pipeline, "operator": desk.operator}
        spec = kind(PIPELINE).spec(values, new_id(plan.name))
    except (BadJob, NoSuchCards, ValueError) as error:
        raise HostError("bench", f"{plan.source}: {error}", "see docs/bench.md", kind="config") from None
    return plan, await planned(desk, JobFile(plan.name, PIPELINE, values, plan.source, plan.text), spec, cards)


def load_seconds(jobs: Any, plan: Plan) -> float | None:
    """What the load of this plan's model took on this host at the longest of the last five times; None where it never did."""
    models = {arm.profile.model for arm in plan.arms}
    loads = [
        (job.started, job.ready_seconds)
        for job in jobs
        if job.kind == "serve" and job.model in models and job.ready_seconds is not None
    ]
    return max((seconds for _, seconds in sorted(loads)[-5:]), default=None)


def order_words(desk: Desk, plan: Plan) -> str:
    """In which order the arms are measured, and why."""
    seconds = load_seconds(desk.store.jobs.values(), plan)
    known = "no load of this model is known here" if seconds is None else f"a load takes {seconds:.0f} s here"
    if aba(plan, seconds):
        return f"without a drafter first and last ({known})"
    return f"each arm once, in passes; a drift shows between the first and the last ({known})"


# ----------------------------------------------------------------------------------------------------------------- results


def listed(desk: Desk) -> list[JobState]:
    """The host's benchmarks and verdicts, newest first."""
    return sorted((job for job in desk.store.jobs.values() if job.kind in KINDS), key=lambda job: -job.started)


async def fetch(desk: Desk, word: str) -> Found:
    """The result or verdict that ``word`` names on the host: a job, or an absolute path. Raises `HostError`."""
    path = word if word.startswith("/") else await _path_of(desk, word)
    return await _gathered(path, lambda at: _remote(desk, at))


async def _path_of(desk: Desk, word: str) -> str:
    job = find_job(desk.store.jobs.values(), word, host=str(desk.target))
    answer = await desk.session.request("job", job=job.id)
    spec: Mapping[str, Any] = answer.get("spec") or {}
    path = spec["pipeline"]["dir"] if spec.get("pipeline") else spec.get("output")
    if job.kind not in (*KINDS, "pipeline") or not path:
        raise HostError("bench", f"{job.name} is no benchmark", "`eagletui bench list` names them", kind="config")
    return str(path)


async def _remote(desk: Desk, path: str) -> Any | None:
    """The JSON of a file on the host; None when it is not there."""
    (stat,) = await desk.session.request("stat", paths=[path])
    if stat is None or stat.get("mode", 0) & 0o170000 == 0o040000:
        return None
    if stat["size"] > LARGEST:
        raise HostError("bench", f"{path} has {stat['size']} bytes", "that is no result of a benchmark", kind="config")
    data = b""
    while len(data) < stat["size"]:
        chunk = await desk.session.read(path, len(data), PIECE)
        if not chunk.data:
            break
        data += chunk.data
    return _json(data, path)


async def read_local(word: str) -> Found:
    """The result or verdict in a file or directory of this machine. Raises `HostError`."""

    async def local(path: str) -> Any | None:
        return await asyncio.to_thread(_local, path)

    return await _gathered(word, local)


def _local(path: str) -> Any | None:
    file = Path(path).expanduser()
    if not file.is_file():
        return None
    try:
        return _json(file.read_bytes(), path)
    except OSError as error:
        raise HostError("bench", f"{path}: {error.strerror}", "check its owner and mode", kind="config") from None


def _json(data: bytes, path: str) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        remedy = "name a result.json, a verdict.json or a plan's output"
        raise HostError("bench", f"{path} is no JSON", remedy, kind="config") from None


async def _gathered(path: str, read: Any) -> Found:
    """From a file, or from the output of a benchmark or of a plan."""
    place = path.rstrip("/")
    doc = await read(place)
    if doc is not None:
        return _found(doc, place)
    verdict = await read(f"{place}/verdict.json")
    if verdict is not None:
        found = _found(verdict, f"{place}/verdict.json")
        record = await read(f"{place}/pipeline.json")
        steps = record.get("steps") if isinstance(record, dict) else None
        blocks: dict[str, list[BenchResult]] = {}
        for step in steps if isinstance(steps, list) else ():
            doc = await read(f"{place}/arms/{step.get('id')}/result.json")
            for one in _found(doc, place).results if doc is not None else ():
                blocks.setdefault(one.arm, []).append(one)
        # an arm that was measured first and last is one arm, as in the verdict
        return Found(found.verdict, tuple(merged(results) for results in blocks.values()))
    result = await read(f"{place}/result.json")
    if result is not None:
        return _found(result, f"{place}/result.json")
    why = f"{path}: there is neither result.json nor verdict.json"
    raise HostError("bench", why, "name a result or its directory", kind="config")


def _found(doc: Any, path: str) -> Found:
    for cls in (BenchResult, BenchVerdict):
        key = "cells" if cls is BenchResult else "headline"
        if isinstance(doc, dict) and key in doc:
            try:
                if cls is BenchResult:
                    return Found(None, (from_doc(BenchResult, doc),))
                return Found(from_doc(BenchVerdict, doc), ())
            except BadRecord as error:
                raise HostError("bench", f"{path}: {error}", "it may be of another version", kind="config") from None
    raise HostError("bench", f"{path} is no result of a benchmark", "name a result.json or a verdict.json", kind="config")


# -------------------------------------------------------------------------------------------------------------- comparing


def compared(first: Found, second: Found) -> list[Comparison]:
    """Each arm of the second against the arm of the same name of the first; of single results, one against the other.

    Raises `HostError` when nothing can be paired.
    """
    if not first.results or not second.results:
        raise HostError("bench", "a verdict alone cannot be compared", "name results, or the output of a plan", kind="config")
    if len(first.results) == len(second.results) == 1:
        pairs = [(first.results[0], second.results[0])]
    else:
        names = {result.arm: result for result in first.results}
        pairs = [(names[result.arm], result) for result in second.results if result.arm in names]
    if not pairs:
        raise HostError("bench", "the two have no arm of the same name", "compare single results", kind="config")
    return [compare(a, b) for a, b in pairs]


def regressions(comparisons: Sequence[Comparison], noise: float = 0.03) -> list[Regression]:
    """Loads that became slower: the whole interval below 1, and by more than ``noise`` (0.03: 3 %)."""
    return [
        Regression(one.other, load)
        for one in comparisons
        for load in one.loads
        if load.gain is not None and not load.problems and load.pays == "no" and load.gain < 1 - noise
    ]


__all__ = [
    "BadPlan", "Found", "Regression", "compared", "fetch", "listed", "order_words", "plan_bench", "read_local", "regressions",
]  # fmt: skip
