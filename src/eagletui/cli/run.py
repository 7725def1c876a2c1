"""``eagletui run TARGET JOBFILE``: start a job from a job file, with ``--wait`` follow it. Without a file: list them."""

from __future__ import annotations

import argparse
import asyncio

from eagletui.cli.desk import print_json, seated, table
from eagletui.cli.errors import Exit, say
from eagletui.cli.pipelines import show_ahead
from eagletui.cli.started import followed_job, show_plan, sure, told
from eagletui.commands import may_change
from eagletui.commands.pipelines import look_ahead
from eagletui.commands.run import BadJobFile, job_file, plan_run, run_job
from eagletui.hosts.prompts import TerminalPrompter
from eagletui.hosts.target import parse_target
from eagletui.jobfiles import PIPELINE, load_job_files


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
            show_plan(options, plan)
            return Exit.OK
        if plan.busy and not options.force and not await sure(plan):
            return Exit.USAGE
        prompter = TerminalPrompter()
        secrets = {name: await prompter.secret(f"{name} (not shown, kept nowhere)") or "" for name in plan.missing}
        state = await run_job(desk, plan, secrets)
        if options.wait and state.state != "failed_to_exec":
            state = await followed_job(desk, state)
        return told(options, state)
