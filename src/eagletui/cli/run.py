"""``eagletui run TARGET JOBFILE``: start a job from a job file, with ``--wait`` follow it. Without a file: list them."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex

from eagletui import text
from eagletui.cli.desk import followed, print_json, seated, table
from eagletui.cli.errors import Exit, say
from eagletui.cli.pipelines import show_ahead
from eagletui.cli.snapshot import as_plain
from eagletui.commands import Desk, may_change
from eagletui.commands.pipelines import look_ahead
from eagletui.commands.run import BadJobFile, RunPlan, job_file, plan_run, run_job, wait_over
from eagletui.hosts.prompts import TerminalPrompter
from eagletui.hosts.target import parse_target
from eagletui.jobfiles import PIPELINE, load_job_files
from eagletui.records import JobState
from eagletui.views.serving import elapsed
from eagletui.views.work import outcome_words, work_words

NAME = 24
"""Cells of the job's name in the line of progress."""


def run(options: argparse.Namespace) -> int:
    try:
        return _listed(options) if options.jobfile is None else asyncio.run(_run(options))
    except BadJobFile as error:
        for notice in error.notices:
            say(str(notice))
        return Exit.USAGE


def _listed(options: argparse.Namespace) -> int:
    found, notices = load_job_files(parse_target(options.target).host)
    if options.json:
        files = [
            {"name": file.name, "kind": file.kind, "description": file.description, "source": str(file.source)}
            for file in found.values()
        ]
        broken = [{**notice._asdict(), "file": str(notice.file)} for notice in notices]
        print_json(target=options.target, files=files, notices=broken)
        return Exit.OK
    rows = [(file.name, file.kind, file.description, str(file.source)) for file in found.values()]
    print("\n".join(table([("NAME", "KIND", "WHAT", "FILE"), *rows])) if rows else "no job files")
    for notice in notices:
        say(str(notice))
    return Exit.OK


async def _run(options: argparse.Namespace) -> int:
    async with seated(options, ("jobs", "gpus")) as desk:
        if not options.dry_run:
            may_change(desk, "run")
        file = await asyncio.to_thread(job_file, desk, options.jobfile, tuple(options.set))
        plan = await plan_run(desk, file)
        for warning in plan.warnings:
            say(f"warning: {warning}")
        if options.dry_run and file.kind == PIPELINE:
            show_ahead(options, plan, await look_ahead(desk, plan.spec))
            return Exit.OK
        if options.dry_run:
            _show(options, plan)
            return Exit.OK
        if plan.busy and not options.force and not await _sure(plan):
            return Exit.USAGE
        prompter = TerminalPrompter()
        secrets = {name: await prompter.secret(f"{name} (not shown, kept nowhere)") or "" for name in plan.missing}
        state = await run_job(desk, plan, secrets)
        if options.wait and state.state != "failed_to_exec":
            state = await _followed(desk, state)
        return _told(options, state)


async def _sure(plan: RunPlan) -> bool:
    from eagletui.cli.jobs import confirmed

    question = "; ".join(plan.busy) + " - run it all the same?"
    return await confirmed(question, "run: not tried, its cards are in use - free them, or run it with --force")


def _show(options: argparse.Namespace, plan: RunPlan) -> None:
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


async def _followed(desk: Desk, state: JobState) -> JobState:
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


def _told(options: argparse.Namespace, state: JobState) -> int:
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
