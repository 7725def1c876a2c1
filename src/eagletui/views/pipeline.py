"""A pipeline as its screen shows it: its steps with what became of each, and its servers. Pure functions.

The documents come from the host as they are: nothing in them is taken for what it should be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from eagletui.jobs import gates
from eagletui.records import JobState
from eagletui.store import PipelineDocs, Store
from eagletui.views.jobs import is_live


class Step(NamedTuple):
    """One step. ``state``: waiting, running, done, failed, ended. ``job`` is the id of its (last) job; ``why`` how it ended.

    ``gates`` are the bounds that it has to keep, in words, ``figures`` the numbers that these are about. ``now`` is its job as
    it runs.
    """

    id: str
    kind: str = ""
    state: str = "waiting"
    stage: str | None = None
    server: str | None = None
    job: str | None = None
    why: str = ""
    seconds: float | None = None
    started: float | None = None
    gates: tuple[str, ...] = ()
    figures: tuple[tuple[str, float], ...] = ()
    gate_failed: bool = False
    needs: tuple[str, ...] = ()
    attempt: int = 0
    now: JobState | None = None


class PipelineServer(NamedTuple):
    """A server that steps need. ``state``: not started, starting, ready, stopped; ``steps`` are the ids of those that need it."""

    name: str
    state: str = "not started"
    job: str | None = None
    port: int | None = None
    why: str = ""
    steps: tuple[str, ...] = ()
    now: JobState | None = None


STATES = ("waiting", "running", "done", "failed", "ended")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and value == value and abs(value) != float("inf")
    return float(value) if good else None


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _entries(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else []


def steps_of(docs: PipelineDocs | None, jobs: Mapping[str, JobState], job: str) -> list[Step]:
    """The steps in their order. Before the documents have come, the jobs that the pipeline has started."""
    if docs is None or not docs.plan:
        children = sorted(
            (one for one in jobs.values() if one.parent == job and one.kind != "serve"), key=lambda one: one.started
        )
        return [_of_child(one) for one in children]
    record = {_text(entry.get("id")): entry for entry in _entries(docs.record.get("steps"))}
    return [_step(entry, _table(record.get(_text(entry.get("id")))), jobs) for entry in _entries(docs.plan.get("steps"))]


def _of_child(job: JobState) -> Step:
    state = "running" if is_live(job) else "done" if job.ok else "failed" if job.ok is False else "ended"
    seconds = job.ended - job.started if job.ended is not None else None
    return Step(job.name, job.kind, state, job=job.id, why=job.outcome or "", seconds=seconds, started=job.started, now=job)


def _step(plan: Mapping[str, Any], known: Mapping[str, Any], jobs: Mapping[str, JobState]) -> Step:
    state = _text(known.get("state"))
    id_ = _text(known.get("job")) or None
    now = jobs.get(id_) if id_ is not None else None
    bounds = tuple(filter(None, (_bound(gate) for gate in _entries(plan.get("gates")))))
    wanted = [_text(gate.get("key")) for gate in _entries(plan.get("gates"))]
    numbers = _table(known.get("figures"))
    figures = tuple((key, value) for key in wanted if (value := _number(numbers.get(key))) is not None)
    attempt = _number(known.get("attempt"))
    return Step(
        _text(plan.get("id")),
        _text(plan.get("kind")),
        state if state in STATES else "waiting",
        _text(plan.get("stage")) or None,
        _text(plan.get("server")) or None,
        id_,
        _text(known.get("why")),
        _number(known.get("seconds")),
        _number(known.get("started")),
        bounds,
        figures,
        known.get("gate") is True,
        tuple(_text(one) for one in plan.get("needs") or ()) if isinstance(plan.get("needs"), list) else (),
        int(attempt) if attempt is not None else 0,
        now,
    )


def _bound(gate: Mapping[str, Any]) -> str:
    try:
        return gates.bound(gate)
    except (TypeError, ValueError, KeyError):
        return ""  # no bound that the runner would have taken: it has refused the pipeline, and says so


def servers_of(docs: PipelineDocs | None, jobs: Mapping[str, JobState], job: str) -> list[PipelineServer]:
    """The servers by name, with the steps that need each."""
    if docs is None or not docs.plan:
        children = [one for one in jobs.values() if one.parent == job and one.kind == "serve"]
        return [PipelineServer(one.name, one.health or one.state, one.id, one.port, now=one) for one in children]
    known = _table(docs.record.get("servers"))
    out = []
    for name, spec in _table(docs.plan.get("servers")).items():
        entry, id_ = _table(known.get(name)), _text(_table(known.get(name)).get("job")) or None
        port = _number(_table(spec).get("port"))
        users = tuple(_text(step.get("id")) for step in _entries(docs.plan.get("steps")) if step.get("server") == name)
        state = _text(entry.get("state")) or "not started"
        now = jobs.get(id_) if id_ is not None else None
        out.append(PipelineServer(str(name), state, id_, int(port) if port else None, _text(entry.get("why")), users, now))
    return out


def waits_for(step: Step, steps: Sequence[Step]) -> str:
    """What a step that waits is waiting for, in words."""
    before = steps[: next((at for at, one in enumerate(steps) if one.id == step.id), 0)]
    stopped = next((one for one in before if one.state in ("failed", "ended")), None)
    if stopped is not None:
        return f"behind {stopped.id}"
    running = next((one for one in before if one.state == "running"), None)
    return f"for {running.id}" if running is not None else "for its turn"


def pipeline_job(store: Store) -> JobState | None:
    """The pipeline to show: the one that was opened, else the newest that runs, else the newest."""
    order = sorted(
        (job for job in store.jobs.values() if job.kind == "pipeline"), key=lambda job: (not is_live(job), -job.started)
    )
    return next((job for job in order if job.id == store.pipeline), order[0] if order else None)


def choose_pipeline(store: Store, job: str) -> None:
    store.pipeline = job
    store.changed("pipeline")
