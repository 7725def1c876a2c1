"""``eagletui launch TARGET PROFILE``: start a server from a profile, and with ``--wait`` follow it until it is ready."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import time
from difflib import get_close_matches

from eagletui import text
from eagletui.cli.desk import followed, print_json, seated
from eagletui.cli.errors import Exit, say
from eagletui.cli.findings import tell
from eagletui.cli.snapshot import as_plain
from eagletui.cli.words import eta_words
from eagletui.commands import Desk, LaunchPlan, launch, may_change, plan_launch, profiles, wait_ready
from eagletui.commands.jobs import is_ready
from eagletui.commands.preflight import preflight
from eagletui.engines.events import PHASE_LABELS
from eagletui.engines.preflight.findings import BLOCKED
from eagletui.hosts.base import HostError
from eagletui.hosts.prompts import TerminalPrompter
from eagletui.profiles import Profile, with_changes
from eagletui.records import JobState
from eagletui.views.causes import why_failed
from eagletui.views.loading import eta_of, running_phase, silence
from eagletui.views.serving import elapsed, since_jobs

NAME = 24
"""Cells of the job's name in the line of progress."""


def run(options: argparse.Namespace) -> int:
    return asyncio.run(_launch(options))


async def _launch(options: argparse.Namespace) -> int:
    async with seated(options, ("jobs", "gpus")) as desk:
        if not options.dry_run:
            may_change(desk, "launch")
        plan = await plan_launch(desk, await asyncio.to_thread(profile_named, desk, options))
        for warning in plan.warnings:
            say(f"warning: {warning}")
        if options.dry_run:
            _show(options, plan)
            return Exit.OK
        if not await _checked(desk, options, plan) or not await _undisturbed(options, plan):
            return Exit.USAGE
        secrets = {name: os.environ.get(name) or await _asked(name) for name in plan.secrets}
        state = await launch(desk, plan, secrets)
        if state.survival and state.survival not in plan.warnings:
            say(f"warning: {state.survival}")
        if options.wait and state.state != "failed_to_exec":
            state = await _followed(desk, state)
        return _told(options, state)


async def _checked(desk: Desk, options: argparse.Namespace, plan: LaunchPlan) -> bool:
    """Look before the load: what would stop it is told, and stops it unless it is forced."""
    try:
        found = await preflight(desk, plan.profile, plan)
    except HostError as error:
        if error.kind != "agent":
            raise
        say(f"warning: what would stop this launch could not be looked at: {error.why}")
        return True
    tell(found.report)
    if found.report.verdict != BLOCKED or options.force:
        return True
    say("launch: not tried, see above - mend it, or launch with --force")
    return False


async def _undisturbed(options: argparse.Namespace, plan: LaunchPlan) -> bool:
    """Whether nobody else is on the cards, or a person says yes all the same."""
    if not plan.busy or options.force:
        return True
    from eagletui.cli.jobs import confirmed

    question = "; ".join(plan.busy) + " - launch all the same?"
    return await confirmed(question, "launch: not tried, its cards are in use - free them, or launch with --force")


def profile_named(desk: Desk, options: argparse.Namespace) -> Profile:
    """The profile that ``options`` name, with their changes. Raises `HostError` of kind config."""
    found, notices = profiles(desk)
    profile = found.get(options.profile)
    if profile is not None:
        try:
            return with_changes(profile, options.set)
        except ValueError as error:
            raise HostError("--set", str(error), "see docs/profiles.md", kind="config") from None
    for notice in notices:
        if notice.file.stem == options.profile:
            raise HostError("profile", f"{notice.file}:{notice.line or 1}: {notice.what}", notice.remedy, kind="config")
    near = get_close_matches(options.profile, found, 1)
    remedy = f"did you mean {near[0]!r}?" if near else f"`eagletui profiles {desk.target}` lists them"
    raise HostError("profile", f"there is no profile {options.profile!r} for {desk.target}", remedy, kind="config")


async def _asked(name: str) -> str:
    return await TerminalPrompter().secret(f"{name} (not shown, kept nowhere)") or ""


def _show(options: argparse.Namespace, plan: LaunchPlan) -> None:
    if options.json:
        shown = {key: plan.spec.get(key) for key in ("name", "engine", "model", "drafter", "k", "port", "gpus", "cwd")}
        print_json(
            target=options.target, job=plan.job, **shown, command=list(plan.command), env=plan.env, secrets=list(plan.secrets),
            missing=list(plan.missing), warnings=list(plan.warnings), runs_as=plan.runs_as or None, about=list(plan.about),
        )  # fmt: skip
        return
    if plan.runs_as:
        say(f"runs {'' if plan.runs_as.startswith(('in ', 'as ')) else 'as '}{plan.runs_as}")
    for line in plan.about:
        say(line)
    print(text.clean(f"cd {shlex.quote(str(plan.spec['cwd']))}"))
    for name, value in plan.env.items():
        shown_value = "(from your environment)" if name in plan.secrets else shlex.quote(value)
        print(text.clean(f"{name}={shown_value}"))
    print(text.clean(shlex.join(plan.command), 1 << 16))


# ----------------------------------------------------------------------------------------------------------- following it


async def _followed(desk: Desk, state: JobState) -> JobState:
    otherwise = f"launch: not waited for; {state.name} goes on loading: eagletui logs {desk.target} {state.id} -f"
    return await followed(desk, state, lambda show: wait_ready(desk, state.id, show), progress, stage, otherwise)


def progress(desk: Desk, job: JobState) -> str:
    """One line: what a load is at, how far, for how long, and how long it may still take."""
    now = time.monotonic()
    link = desk.store.connection
    if link.state not in ("online", "stale"):
        return f"{job.name}  {link.state}: {link.why or 'no connection'}"
    parts = [text.fold(job.name, NAME), text.clock(elapsed(desk.store, job, now))]
    phase = running_phase(job)
    eta = eta_of(desk.store, job, now) if job.health != "ready" else None
    if eta is not None:  # before what may be cut off on a narrow terminal
        parts.append(eta_words(eta))
    parts.append(stage(desk, job))
    if phase is not None and phase.total and phase.done is not None and job.health != "ready":
        parts.append(f"{phase.done:.0f}/{phase.total:.0f} {phase.unit or ''}".rstrip())
    quiet = silence(job, since_jobs(desk.store, now) or 0.0)
    if quiet is not None and quiet.too_long and job.health != "ready":
        parts.append(f"silent for {text.duration(quiet.seconds)}")
    if eta is not None:
        parts.append(f"({eta.basis})")
    return "  ".join(parts)


def stage(desk: Desk, job: JobState) -> str:
    """What a load is at, in words."""
    link = desk.store.connection
    if link.state not in ("online", "stale"):
        return link.state
    phase = running_phase(job)
    if job.health == "ready" or phase is None:
        return job.health or job.state
    return PHASE_LABELS.get(phase.id, phase.id) + (f" ({phase.role})" if phase.role else "")


def _told(options: argparse.Namespace, state: JobState) -> int:
    failed = state.state not in ("launching", "running") or (options.wait and not is_ready(state))
    if options.json:
        outcome = "failed" if failed else "ready" if is_ready(state) else "started"
        print_json(target=options.target, outcome=outcome, job=as_plain(state))
    elif not failed:
        where = f" on port {state.port}" if state.port else ""
        took = f"ready in {text.duration(state.ready_seconds)}" if is_ready(state) else f"started as pid {state.pid}"
        print(text.clean(f"{state.name} ({state.id}): {took}{where}"))
    if failed:
        if state.rc is not None and state.rc != 127:
            end = f"ended with status {state.rc}" if state.rc >= 0 else f"ended by signal {-state.rc}"
        else:
            end = state.state.replace("_", " ")
        why = why_failed(state) or state.detail or end
        say(f"launch: {state.name} ({state.id}) failed: {why} - eagletui diagnose {options.target} --job {state.id}")
    return Exit.WARNINGS if failed else Exit.OK
