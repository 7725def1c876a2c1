"""A job that was planned: what would run, whether it may, its course and its end, told by every verb that starts one."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex

from eagletui import text
from eagletui.cli.desk import followed, print_json
from eagletui.cli.errors import Exit, say
from eagletui.cli.snapshot import as_plain
from eagletui.commands import Desk
from eagletui.commands.run import RunPlan, wait_over
from eagletui.records import JobState
from eagletui.views.serving import elapsed
from eagletui.views.work import outcome_words, work_words

NAME = 24
"""Cells of the job's name in the line of progress."""


async def sure(plan: RunPlan) -> bool:
    """Whether to start it although its cards are in use: a terminal is asked."""
    from eagletui.cli.jobs import confirmed

    question = "; ".join(plan.busy) + " - run it all the same?"
    return await confirmed(question, "run: not tried, its cards are in use - free them, or run it with --force")


def show_plan(options: argparse.Namespace, plan: RunPlan) -> None:
    """What would run, as text or JSON."""
    if options.json:
        print_json(
            target=options.target, job=plan.job, name=plan.file.name, kind=plan.file.kind, title=plan.title,
            source=str(plan.file.source), cwd=plan.spec.get("cwd"), command=list(plan.command), env=plan.env,
            gpus=list(plan.spec.get("gpus") or ()), secrets=list(plan.secrets), missing=list(plan.missing),
            warnings=list(plan.warnings), runs_as=plan.runs_as or None,
        )  # fmt: skip
        return
    if plan.runs_as:
        say(f"runs {'' if plan.runs_as.startswith(('in ', 'as ')) else 'as '}{plan.runs_as}")
    say(plan.title)
    print(text.clean(f"cd {shlex.quote(str(plan.spec['cwd']))}"))
    for name, value in plan.env.items():
        shown = (
            ("(from your environment)" if os.environ.get(name) else "(is asked for)")
            if name in plan.secrets
            else shlex.quote(value)
        )
        print(text.clean(f"{name}={shown}"))
    print(text.clean(shlex.join(plan.command), 1 << 16))


# ----------------------------------------------------------------------------------------------------------- following it


async def followed_job(desk: Desk, state: JobState) -> JobState:
    """The job as it ended, its progress told meanwhile; as it is when it is not waited for any longer."""
    otherwise = f"run: not waited for; {state.name} goes on: eagletui logs {desk.target} {state.id} -f"
    return await followed(desk, state, lambda show: wait_over(desk, state.id, show), progress, stage, otherwise)


def progress(desk: Desk, job: JobState) -> str:
    """One line: for how long it has run, how far it is, how fast, how long yet, what it counts, what needs a person."""
    link = desk.store.connection
    if link.state not in ("online", "stale"):
        return f"{job.name}  {link.state}: {link.why or 'no connection'}"
    parts = [text.fold(job.name, NAME), text.clock(elapsed(desk.store, job, asyncio.get_running_loop().time()))]
    parts += work_words(job.work) if job.work is not None else []
    if job.state != "running":
        parts.append(job.detail or job.state)
    return "  ".join([*parts, *(f"! {trouble}" for trouble in job.troubles)])


def stage(desk: Desk, job: JobState) -> str:
    """What it is at, in words, without what changes all the time: a new one is told at once where no line is written over."""
    link = desk.store.connection
    if link.state not in ("online", "stale"):
        return link.state
    return (job.work.stage or "" if job.work is not None else "").partition(":")[0] or job.state


def told(options: argparse.Namespace, state: JobState) -> int:
    """Say how it stands with the job; the exit code that says so too."""
    outcome, code = _outcome(state)
    if options.json:
        print_json(target=options.target, outcome=outcome, job=as_plain(state))
        return code
    name = f"{state.name} ({state.id})"
    if outcome == "started":
        print(text.clean(f"{name}: started as pid {state.pid}"))
    elif outcome == "ok":
        took = f" in {text.duration(state.ended - state.started)}" if state.ended is not None else ""
        print(text.clean(f"{name}: {outcome_words(state) or 'ended'}{took}"))
    else:
        why = text.clean(state.outcome or "", 4096) or state.first_error or state.detail or state.state.replace("_", " ")
        words = "failed" if outcome == "failed" else outcome
        say(f"run: {name} {words}: {why} - eagletui logs {options.target} {state.id}")
    return code


def _outcome(state: JobState) -> tuple[str, Exit]:
    """How it stands with a job in one word, and the exit code that says so."""
    if state.state in ("launching", "running", "stopping"):
        return "started", Exit.OK
    if state.ok:
        return "ok", Exit.OK
    if state.ok is None and state.ended_by:
        return "ended", Exit.ENDED
    if state.ok is None and state.state == "exited" and state.rc == 0:
        return "unknown", Exit.WARNINGS
    return "failed", Exit.WARNINGS
