"""Benchmark results for tests: from recorded results of vLLM's tool, and made up request by request."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eagletui.jobs.bench.cells import pooled
from eagletui.jobs.bench.passes import Run, from_vllm, with_drafts
from eagletui.records.bench import (
    BenchCell,
    BenchPass,
    BenchRequests,
    BenchResult,
    BenchServer,
    BenchSettings,
    SpecCounts,
    Timing,
)

DATA = Path(__file__).parent.parent / "data" / "bench"


def recorded(name: str) -> dict[str, Any]:
    """A recorded result file."""
    doc: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text())
    return doc


def recorded_arm(arm: str, role: str, files: dict[int, str], length: float | None = None) -> BenchResult:
    """An arm from recorded results: concurrency -> file."""
    drafter = None if role == "none" else "/drafter"
    cells = []
    for concurrency, name in files.items():
        doc = recorded(name)
        run = Run(doc["num_prompts"], concurrency, 256, drafter is not None, 3)
        one = with_drafts(from_vllm(doc, run), run)._replace(number=1)
        cells.append(pooled(BenchCell(concurrency, prompts=doc["num_prompts"], prompts_hash="same", passes=(one,))))
    server = BenchServer("vllm", "/m", 8000, drafter=drafter, k=3 if drafter else None, role=role, synthetic_length=length)
    return BenchResult(arm, server, BenchSettings(256, 0.0, 0), tuple(cells))


def requests(
    seed: int, count: int, step: float, length: float = 1.0, noise: float = 0.0, fixed: Sequence[int] | None = None
) -> list[tuple[float, float]]:
    """(latency, tokens) of ``count`` requests of a server with this step time (seconds) and acceptance length."""
    lengths = fixed or tokens(count)
    chance = random.Random(seed)
    return [(n * step / length * (1 + noise * chance.uniform(-1, 1)), float(n)) for n in lengths]


def tokens(count: int, seed: int = 1) -> list[int]:
    chance = random.Random(seed)
    return [chance.randint(20, 200) for _ in range(count)]


def made_pass(
    number: int = 1,
    step: float = 0.010,
    length: float = 1.0,
    k: int | None = None,
    concurrency: int = 1,
    count: int = 24,
    noise: float = 0.02,
    positions: Sequence[float] | None = None,
    texts: Sequence[str] | None = None,
    **more: Any,
) -> BenchPass:
    """A pass at a server with this step time and acceptance length."""
    found = requests(number, count, step * concurrency**0.5, length, noise)
    seconds = sum(latency for latency, _ in found) / concurrency
    total = int(sum(n for _, n in found))
    spec = None
    if k is not None:
        steps = total / length
        joint = positions or [(length - 1) / k] * k
        spec = SpecCounts(steps, steps * k, steps * (length - 1), tuple(share * steps for share in joint))
    itl = Timing(1000 * seconds * concurrency * length / total, observations=round(total / length))
    return BenchPass(
        number,
        seconds=seconds,
        asked=count,
        completed=count,
        prompt_tokens=50 * count,
        output_tokens=total,
        tokens_per_s=total / seconds,
        in_flight=float(concurrency),
        tpot=Timing(1000 * seconds * concurrency / total, observations=count),
        ttft=Timing(30.0, observations=count),
        itl=itl,
        spec=spec,
        requests=BenchRequests(
            tuple(latency for latency, _ in found),
            (0.03,) * count,
            tuple(int(n) for _, n in found),
            tuple(texts or [f"{i:016x}" for i in range(count)]),
        ),
    )._replace(**more)


def made_cell(concurrency: int = 1, passes: int = 3, context: str = "as given", **more: Any) -> BenchCell:
    found = tuple(made_pass(n, concurrency=concurrency, **more) for n in range(1, passes + 1))
    return pooled(BenchCell(concurrency, context, None, 24, "hash", found))


def made_arm(arm: str, role: str, cells: Sequence[BenchCell], k: int | None = None, **server: Any) -> BenchResult:
    facts = BenchServer("vllm", "/m", 8000, drafter=f"/{arm}" if k else None, k=k, role=role)._replace(**server)
    return BenchResult(arm, facts, BenchSettings(256, 0.0, 0), tuple(cells))
