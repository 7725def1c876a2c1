"""What the screen of benchmarks shows, worked out of the results and verdicts that are known. Pure functions."""

from __future__ import annotations

from eagletui.records import JobState
from eagletui.store import Store
from eagletui.views.training import BreakEvenLine


def break_even_line(store: Store, job: JobState) -> BreakEvenLine | None:
    """The length that a drafter needs on this host: by the newest verdict, at its lowest load. None where nobody measured."""
    del job
    for verdict in sorted(store.verdicts.values(), key=lambda one: -(one.wall or 0.0)):
        for known in sorted(verdict.break_even, key=lambda one: one.concurrency):
            if known.needed_length is not None:
                return BreakEvenLine(known.needed_length, known.cost, f"at c{known.concurrency}, {verdict.name}".rstrip(", "))
        loads = [load for comparison in verdict.comparisons for load in comparison.loads if load.needed_length is not None]
        for load in sorted(loads, key=lambda one: one.concurrency):
            assert load.needed_length is not None
            return BreakEvenLine(load.needed_length, load.cost, f"at c{load.concurrency}, {verdict.name}".rstrip(", "))
    return None
