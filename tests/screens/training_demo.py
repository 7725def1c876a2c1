"""Stores of a training in each of its states, filled through the run's own code from made-up steps."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import cache
from typing import Any

from eagletui.records import JobState
from eagletui.records.bench import BenchVerdict, BreakEven
from eagletui.records.training import TRAIN, VAL, TrainingPoint
from eagletui.records.work import Counter, Work
from eagletui.runs import Run
from eagletui.store import Store
from tests.screens.demo import BOOT, HOSTILE, base_store

STEPS_AN_EPOCH = 900


def train(id_: str = "tr", name: str = "drafter-10k", **more: Any) -> JobState:
    now = time.time()
    work = Work(
        "training epoch 3 of 5", 2250, 4500, "steps", 0.41, 5480.0, "rate of last 10 min",
        (Counter("checkpoints", 2), Counter("unreadable", 0, "", True)),
    )  # fmt: skip
    job = JobState(id_, "train", name, "running", now - 6000, BOOT - 6000, work=work, model="/shared/kimi-k2.5-int4", members=3)
    return job._replace(**more)


def values(step: int, quality: float = 1.0, at: int = 3, noise: float = 1.0) -> dict[str, float]:
    """What the trainer logs of one step: the better, the further it is."""
    wave = noise * (math.sin(step * 1.7) + math.sin(step * 0.31) + math.sin(step * 0.053)) / 3
    learned = quality * (1 - math.exp(-step / 1400))
    out: dict[str, float] = {}
    joint, total = 1.0, 0.0
    for n in range(at):
        loss = 3.4 + 0.1 * n + 6.5 * math.exp(-step / 160) - 1.1 * learned + 0.25 * wave
        conditional = min(0.95, max(0.01, 0.1 + (0.52 - 0.05 * n) * learned + 0.05 * wave))
        joint *= conditional
        total += loss
        out |= {f"loss_{n}": loss, f"cond_acc_{n}": conditional, f"full_acc_{n}": joint}
    return {"loss": total, **out, "lr": 1e-3 * min(1.0, step / 200), "tokens_per_s": 8123.0 + 300 * wave, "step_ms": 2440.0,
            "fetch_frac": 0.06 + 0.02 * wave}  # fmt: skip


@cache
def step_values(step: int, quality: float = 1.0, noise: float = 1.0) -> dict[str, float]:
    return values(step, quality, 3, noise)


def fill(run: Run, steps: int, quality: float = 1.0, wall: float | None = None, **more: Any) -> Run:
    """``steps`` steps, with a validation after each epoch."""
    end = time.time() if wall is None else wall
    for step in range(1, steps + 1):
        at = end - 2.44 * (steps - step)
        run.add(TrainingPoint(at, step, (step - 1) // STEPS_AN_EPOCH, TRAIN, step_values(step, quality) | more))
        if step % STEPS_AN_EPOCH == 0:
            found = {k: v for k, v in step_values(step, 0.93 * quality, 0.0).items() if "_" in k or k == "loss"}
            run.add(TrainingPoint(at + 1, step, (step - 1) // STEPS_AN_EPOCH, VAL, found))
    run.whole = True
    return run


def verdict() -> BenchVerdict:
    return BenchVerdict(
        "", (), (BreakEven(1, k=3, cost=2.2, needed_length=2.2, needed=0.4, possible=True),), name="baseline", wall=1.7e9
    )


def training_store(*jobs: JobState, known: bool = True, steps: int = 2250, **more: Any) -> Store:
    """A training in its third epoch, an earlier one beside it, and the break-even of this host."""
    store = base_store()
    store.clock_offset = 0.0
    now = time.time()
    old = train("old", "from-scratch", state="exited", started=now - 200_000, ended=now - 170_000, rc=0, ok=True, work=None,
                outcome="4 of 4 epochs, validation loss 9.12, predicted length 1.62", members=0)  # fmt: skip
    for job in jobs or (train(), old):
        store.jobs[job.id] = job
        store.runs[job.id] = fill(Run(job.id), steps if job.id == "tr" else 2000, 1.0 if job.id == "tr" else 0.7,
                                  now - (0 if job.ended is None else now - job.ended), **more)  # fmt: skip
    if known:
        store.verdicts["plan"] = verdict()
    store.jobs_boot, store.jobs_seen = BOOT, time.monotonic()
    return store


def overlaid_store() -> Store:
    store = training_store()
    store.overlaid = ("old",)
    return store


def starting_store() -> Store:
    """A training that loads its model still."""
    work = Work("loading the target's embeddings")
    store = training_store(train(work=work))
    store.runs["tr"] = Run("tr", whole=True)
    return store


def troubled_store() -> Store:
    """A training that starves, and whose loss is no number any more."""
    trouble = (
        "loss: it is not a number since step 1,812: the checkpoint of epoch 2 is the last good one",
        "data: 61 % of a step waits for data: the disk is too slow",
    )
    return training_store(train(troubles=trouble), fetch_frac=0.61)


def ended_store() -> Store:
    now = time.time()
    job = train(
        state="exited",
        ended=now - 60,
        rc=0,
        ok=None,
        outcome="stopped on request after epoch 3 of 5: it was saved, and can go on",
        work=None,
    )
    return training_store(job)


def failed_store() -> Store:
    now = time.time()
    error = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"
    job = train(state="exited", ended=now - 60, rc=1, ok=False, outcome="failed in epoch 1 of 5", first_error=error, work=None)
    store = training_store(job)
    store.runs["tr"] = Run("tr", whole=True)
    return store


def hostile_training_store() -> Store:
    """Every text of a training tries to take the terminal over."""
    bad = HOSTILE
    work = Work(bad, 1.0, 2.0, bad, 1.0, 3.0, bad, (Counter(bad, 1.0, bad, True),))
    store = training_store(
        train(name=bad, work=work, troubles=(bad,)), train("o", bad, state="exited", outcome=bad, ok=False, first_error=bad)
    )
    store.runs["tr"].problem = bad
    store.verdicts["plan"] = store.verdicts["plan"]._replace(name=bad)
    store.overlaid = ("o",)
    return store


def no_training_store() -> Store:
    store = base_store()
    store.jobs_seen = time.monotonic()
    return store


TRAINING_STORES: dict[str, Callable[[], Store]] = {
    "training": training_store,
    "training-overlaid": overlaid_store,
    "training-starting": starting_store,
    "training-troubled": troubled_store,
    "training-ended": ended_store,
    "training-failed": failed_store,
    "training-hostile": hostile_training_store,
    "training-none": no_training_store,
}
