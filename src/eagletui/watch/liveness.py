"""Whether each server works or hangs, judged anew with every job table, and what of it needs a person."""

from __future__ import annotations

from collections.abc import Iterator

from eagletui.store import Store
from eagletui.views.liveness import live
from eagletui.watch.alerts import Sign

SEVERITY = {"stuck": "bad", "suspect": "warn"}
"""What becomes an alert; a slow phase is told on its screen, and work needs nobody."""


def judge_all(store: Store, now: float) -> None:
    """Judge every server; ``now`` by this machine's monotonic clock. Old data is not judged: what it says was then."""
    found = {}
    if store.connection.state == "online" and not {"jobs", "gpus"} & store.old:
        for job in store.jobs.values():
            verdict = live(store, job, now) if job.kind == "serve" or job.health is not None else None
            if verdict is not None:
                found[job.id] = verdict
    if found != store.liveness:
        store.liveness = found
        store.changed("jobs")


def liveness_signs(store: Store) -> Iterator[Sign]:
    """The alerts: one a server, whichever pattern it shows."""
    for name, verdict in store.liveness.items():
        severity = SEVERITY.get(verdict.verdict)
        if severity is None or name not in store.jobs or verdict.id == "no-answer":  # that one is an alert of its own
            continue
        yield Sign(f"job:{name}:hang", severity, f"{store.jobs[name].name}: {verdict.text}", verdict.remedy, "job")
