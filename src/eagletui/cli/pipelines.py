"""``eagletui run TARGET PIPELINE --dry-run``: its steps, what is done already, and what the next run would do."""

from __future__ import annotations

import argparse

from eagletui import text
from eagletui.cli.desk import print_json, table
from eagletui.cli.errors import say
from eagletui.commands.pipelines import Ahead
from eagletui.commands.run import RunPlan

TITLE = 60
"""Cells of what a step does; the rest is cut."""


def show_ahead(options: argparse.Namespace, plan: RunPlan, ahead: Ahead) -> None:
    if options.json:
        print_json(
            target=options.target, job=plan.job, name=plan.file.name, kind=plan.file.kind, title=plan.title,
            source=str(plan.file.source), dir=plan.spec["pipeline"]["dir"], steps=[step._asdict() for step in ahead.steps],
            notes=list(ahead.notes), secrets=list(plan.secrets), missing=list(plan.missing), warnings=list(plan.warnings),
            runs_as=plan.runs_as or None,
        )  # fmt: skip
        return
    say(plan.title)
    for note in ahead.notes:
        say(note)
    rows = [("", "STEP", "KIND", "SERVER", "WHAT", "GATES")]
    for number, step in enumerate(ahead.steps, 1):
        state = "done" if step.why is None else f"{number}"
        rows.append((state, step.id, step.kind, step.server or "-", text.fold(step.title, TITLE), "; ".join(step.gates) or "-"))
    print("\n".join(text.clean(line, 1 << 14) for line in table(rows)))
    for step in ahead.steps:
        if step.why not in (None, "not done yet"):
            say(f"{step.id}: {step.why}")
    done = sum(1 for step in ahead.steps if step.why is None)
    say(f"{done} of {len(ahead.steps)} steps are done, {len(ahead.steps) - done} would be run")
