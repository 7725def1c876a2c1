"""``eagletui jobs|kill|remove|profiles``: what runs on a host and ran before, and ending it."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Sequence

from eagletui import text
from eagletui.cli.desk import LiveLine, print_json, seated, table
from eagletui.cli.errors import Exit, say
from eagletui.cli.snapshot import as_plain
from eagletui.cli.words import doing_words, job_words
from eagletui.commands import Desk, kill, kill_plan, may_change, pids_id, remove_job
from eagletui.commands.find import find_job, is_live
from eagletui.hosts.base import HostError
from eagletui.hosts.target import parse_target
from eagletui.profiles import load_profiles
from eagletui.records import JobState, KillPlan, KillReport
from eagletui.views.adopted import holder_words
from eagletui.views.serving import complaints

FIRST = 3
"""How many of the files that a kill frees are named."""
CARDS_SECONDS = 8.0
"""How long the first sample of the cards may take."""
TRIES = 3
"""How often a kill is confirmed anew, when the processes change between the list and the answer."""


def run(options: argparse.Namespace) -> int:
    if options.verb == "profiles":
        return _profiles(options)
    return asyncio.run({"jobs": _jobs, "kill": _kill, "remove": _remove}[options.verb](options))


# ----------------------------------------------------------------------------------------------------------------- jobs


async def _jobs(options: argparse.Namespace) -> int:
    async with seated(options) as desk:
        jobs = sorted(desk.store.jobs.values(), key=lambda job: (not is_live(job), -job.started))
        if options.json:
            print_json(target=options.target, jobs=[as_plain(job) for job in jobs])
        else:
            print("\n".join((*_table(jobs), *_threats(jobs))) or "no jobs")
    return Exit.OK


def _table(jobs: Iterable[JobState]) -> list[str]:
    rows = [("ID", "NAME", "STATE", "STARTED", "TOOK", "WHAT")]
    for job in jobs:
        what = " ".join(part for part in (job.engine or job.kind, f":{job.port}" if job.port else "") if part)
        took = text.duration(job.ended - job.started) if job.ended is not None else ""
        started = time.strftime("%m-%d %H:%M", time.localtime(job.started))
        why = "; ".join(part for part in (holder_words(job), doing_words(job), *complaints(job)) if part)
        rows.append((job.id, job.name, job_words(job), started, took, text.fold(f"{what}  {text.clean(why)}".rstrip(), 100)))
    return table(rows) if len(rows) > 1 else []


def _threats(jobs: Iterable[JobState]) -> Iterator[str]:
    """What would end a job that runs, although nobody asked for it."""
    for job in jobs:
        if is_live(job) and job.survival:
            yield text.clean(f"! {job.name}: {job.survival}")


# ----------------------------------------------------------------------------------------------------------------- kill


async def _kill(options: argparse.Namespace) -> int:
    async with seated(options, ("jobs", "gpus")) as desk:
        may_change(desk, "kill")
        if bool(options.pid) == bool(options.job):
            raise HostError("kill", "either a job or processes (--pid) are ended", "see eagletui kill --help", kind="config")
        job = None if options.pid else find_job(desk.store.jobs.values(), options.job, host=options.target)
        if job is None or job.gpus or job.adopted:
            await _cards_seen(desk)
        for _ in range(TRIES):
            try:
                plan = await kill_plan(desk, job.id if job is not None else pids_id(options.pid))
            except HostError as error:
                if error.kind != "absent" or job is None:
                    raise
                return _nothing_to_end(options, job)
            if not options.json:
                print("\n".join(plan_lines(plan)))
            if not await _agreed(options, plan):
                return Exit.USAGE
            try:
                return _told(options, await _followed(desk, plan, options.now))
            except HostError as error:
                if error.kind != "replaced":
                    raise
                say(str(error))
        name = job.name if job is not None else "these processes"
        raise HostError("kill", f"the processes of {name} change all the time", "try --yes", kind="config")


async def _cards_seen(desk: Desk) -> None:
    """The processes on the cards, when there are cards at all: whose memory has to come back."""
    with contextlib.suppress(TimeoutError):  # no sample: the plan then says nothing of memory
        async with asyncio.timeout(CARDS_SECONDS):
            await desk.watch.sample("gpus")


async def _agreed(options: argparse.Namespace, plan: KillPlan) -> bool:
    """Whether a person, or the command line, has said yes to exactly this."""
    if plan.confirm is None:
        otherwise = "kill: this is no terminal to ask in - give --yes to end it without a question"
        return True if options.yes else await confirmed(f"end {plan.name}?", otherwise)
    if options.confirm is not None:
        if str(options.confirm).split() == plan.confirm.split():
            return True
        say(text.clean(f"kill: {plan.because}: --confirm is {options.confirm!r}, it would have to be {plan.confirm!r}"))
        return False
    if options.yes or not sys.stdin.isatty():
        say(text.clean(f"kill: {plan.because}: a yes is not enough - add --confirm {shlex.quote(plan.confirm)}"))
        return False
    print(text.clean(f"{plan.because}: type {plan.confirm} to go on: "), end="", flush=True)
    typed: str = await asyncio.to_thread(sys.stdin.readline)
    return typed.split() == plan.confirm.split()


def _nothing_to_end(options: argparse.Namespace, job: JobState) -> int:
    if options.json:
        return _told(options, KillReport(job.id, True, rc=job.rc))
    print(text.clean(f"nothing of {job.name} ({job.id}) runs"))
    return Exit.OK


def plan_lines(plan: KillPlan) -> Iterator[str]:
    """What a kill would end and free, how, and what it costs."""
    yield text.clean(f"{plan.name} ({plan.job}), up {text.duration(plan.uptime)}")
    if plan.because:
        yield text.clean(f"  {plan.because}" + (f" (held by {plan.adopted})" if plan.adopted not in (None, "process") else ""))
    yield from (
        "  " + line
        for line in table(
            (str(victim.pid), "main" if victim.main else "", text.size(victim.rss), text.fold(text.clean(victim.command), 90))
            for victim in plan.processes
        )
    )
    freed = [f"GPU memory {text.size(plan.gpu_memory)}"] if plan.gpu_memory else []
    freed += [f"port {plan.port}"] if plan.listening else []
    freed += _some(plan.shm, "segment of shared memory", "segments of shared memory")
    freed += _some(plan.tmp, "temporary file", "temporary files")
    for at, item in enumerate(freed):
        yield ("  frees " if at == 0 else "        ") + text.clean(item)
    for suspect in plan.suspects:
        yield text.clean(
            f"  on its cards, not its own, left alone: pid {suspect.pid} {suspect.user or ''} {suspect.command or ''}"
        )
    for victim in plan.processes:
        if victim.waiting_on is not None:
            yield text.clean(f"  pid {victim.pid} is uninterruptible, waiting on {victim.waiting_on}: it ends when that is over")
    if plan.lever is not None:
        yield text.clean(f"  ended by {plan.lever}" + (f"; {plan.note}" if plan.note else ""))
    elif plan.only:
        yield "  ended by signals to exactly these, not to their children"
    if plan.cost is not None:
        yield f"  loading it took {text.duration(plan.cost)}"


def _some(paths: Sequence[str], one: str, many: str) -> list[str]:
    """``12 temporary files: a, b, c and 9 more``, nothing when there is none."""
    more = f" and {len(paths) - FIRST:,} more" if len(paths) > FIRST else ""
    return [f"{text.plural(len(paths), one, many)}: {', '.join(paths[:FIRST])}{more}"] if paths else []


async def confirmed(question: str, otherwise: str) -> bool:
    """Whether a person says yes; ``otherwise`` tells what to do where nobody can be asked."""
    if not sys.stdin.isatty():
        say(otherwise)
        return False
    print(f"{text.clean(question)} [y/N] ", end="", flush=True)
    # a thread, so that the connection stays alive meanwhile
    answer = await asyncio.to_thread(sys.stdin.readline)
    return answer.strip().lower() in ("y", "yes")


async def _followed(desk: Desk, plan: KillPlan, now: bool) -> KillReport:
    line = LiveLine()

    def show(topic: str) -> None:
        job = desk.store.jobs.get(plan.job)
        if topic == "jobs" and job is not None and job.state == "stopping" and job.detail:
            line.show(job.detail, job.detail.partition(",")[0])

    unlisten = desk.store.listen(show)
    try:
        return await kill(desk, plan, now=now)
    except asyncio.CancelledError:
        line.end()
        say(f"kill: not waited for; {plan.name} goes on ending: eagletui jobs {desk.target}")
        raise
    finally:
        unlisten()
        line.end()


def _told(options: argparse.Namespace, report: KillReport) -> int:
    if options.json:
        print_json(target=options.target, **as_plain(report))
    else:
        for item in report.released:
            print(f"released: {text.clean(item)}")
        if report.gpu_memory and report.done:
            print(text.clean(report.gpu_memory))
        for item in report.remaining:
            print(f"REMAINS:  {text.clean(item)}")
        print(f"{'ended' if report.done else 'not all of it ended'} after {report.seconds or 0:.1f} s")
    return Exit.OK if report.done else Exit.WARNINGS


async def _remove(options: argparse.Namespace) -> int:
    async with seated(options) as desk:
        job = find_job(desk.store.jobs.values(), options.job, strict=True, host=options.target)
        await remove_job(desk, job.id)
        print(text.clean(f"removed {job.name} ({job.id}) and its log"))
    return Exit.OK


# ------------------------------------------------------------------------------------------------------------- profiles


def _profiles(options: argparse.Namespace) -> int:
    found, notices = load_profiles(parse_target(options.target).host)
    if options.json:
        print_json(
            target=options.target,
            profiles=[{**profile.as_dict(), "source": profile.source} for profile in found.values()],
            notices=[{**notice._asdict(), "file": str(notice.file)} for notice in notices],
        )
        return Exit.OK
    print("\n".join(table((profile.name, profile.engine, profile.description, profile.source) for profile in found.values())))
    for notice in notices:
        say(f"{notice.file}:{notice.line or 1}: {notice.what} - {notice.remedy}")
    return Exit.OK
