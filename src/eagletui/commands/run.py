"""Jobs from job files: planned, launched, followed to their end. A launch that is sent twice starts once, as a server's does."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from eagletui.commands.desk import Desk, may_change
from eagletui.commands.jobs import LIVE, busy_cards, host_cards, new_id, secret_values, send_launch, wait_until
from eagletui.commands.survival import prospect
from eagletui.hosts.base import HostError
from eagletui.jobfiles import PIPELINE, BadJobFile, JobFile, find_job_file
from eagletui.jobs.base import HIDDEN, BadJob, redact_argv, redact_env, secret_name
from eagletui.jobs.kinds import kind
from eagletui.pipelines import cards_used, compile_pipeline
from eagletui.profile_launch import NoSuchCards, card_env, cards_of
from eagletui.profiles import load_profiles
from eagletui.records import GpuSample, JobState

LEFT_SECONDS, JUDGE_SECONDS = 20.0, 150.0
"""How long processes that an ended job leaves behind are waited for, and how long its supervisor's look at the result is."""


class RunPlan(NamedTuple):
    """What running a job file would start, to be looked at first.

    ``job`` is the id it will have, ``title`` one line that says what runs. ``command`` and ``env`` are as they may be shown.
    ``secrets`` are the names that it asks for, ``missing`` those without a value in this machine's environment. ``warnings`` do
    not forbid it; ``busy`` are those that a person has to confirm. ``runs_as`` says in words how the host would run it.
    """

    file: JobFile
    job: str
    spec: dict[str, Any]
    title: str
    command: tuple[str, ...]
    env: dict[str, str]
    secrets: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    busy: tuple[str, ...] = ()
    runs_as: str = ""


def job_file(desk: Desk, word: str, changes: tuple[str, ...] = ()) -> JobFile:
    """The job file that ``word`` means here. Reads files. Raises `HostError` of kind config, and `BadJobFile`."""
    try:
        return find_job_file(word, desk.place, changes)
    except BadJob as error:
        raise HostError("job file", str(error), f"`eagletui run {desk.place}` lists them", kind="config") from None


async def plan_run(desk: Desk, file: JobFile) -> RunPlan:
    """What running ``file`` here would start. Raises `HostError` of kind config, and `BadJobFile`."""
    chained = file.kind == PIPELINE
    wanted = None if chained else file.values.get("gpus")
    cards = await host_cards(desk, chained or wanted is not None)
    uuids = [card.uuid for card in cards]
    if chained:
        known, _ = await asyncio.to_thread(load_profiles, desk.place)
        file = replace(file, values=await asyncio.to_thread(compile_pipeline, file, known, uuids))
    job = new_id(file.name)
    try:
        chosen = cards_of(wanted, uuids, f"job file {file.name}")
        spec = kind(file.kind).spec({**file.values, "operator": desk.operator}, job, chosen or ())
    except (BadJob, NoSuchCards) as error:
        board = desk.store.gpus
        why = str(error)
        if isinstance(error, NoSuchCards) and board is not None and board.problem:
            why += f" ({board.problem})"
        raise HostError("job file", f"{file.source}: {why}", "see docs/jobs.md", kind="config") from None
    if chosen is not None and wanted != "all":
        spec["env"] = {**card_env(chosen, uuids), **spec["env"]}
    return await planned(desk, file, spec, cards)


async def planned(desk: Desk, file: JobFile, spec: dict[str, Any], cards: Sequence[GpuSample]) -> RunPlan:
    """What is to be known before the job of ``spec``, made from ``file``, is started; ``cards`` are the host's."""
    secrets = tuple(spec.get("secrets") or ())
    ahead = await prospect(desk)
    busy = busy_cards(cards, cards_used(spec) if file.kind == PIPELINE else spec.get("gpus") or ())
    named = [name for name in spec["env"] if secret_name(name)]
    warnings = [f'{", ".join(named)} stands in [env] of {file.source}: put the name into "secrets" instead'] if named else []
    if redact_argv(spec["argv"]) != list(spec["argv"]):
        warnings.append("a key stands on the command line, where everybody on the host can read it")
    return RunPlan(
        file,
        spec["id"],
        spec,
        kind(file.kind).title(spec),
        tuple(redact_argv(spec["argv"])),
        {**redact_env(spec["env"]), **dict.fromkeys(secrets, HIDDEN)},
        secrets,
        tuple(name for name in secrets if not os.environ.get(name)),
        (*warnings, *busy, *ahead.warnings),
        busy,
        ahead.runs_as,
    )


async def run_job(desk: Desk, plan: RunPlan, secrets: Mapping[str, str]) -> JobState:
    """Start the job of ``plan``; its state once its main process runs (or could not be executed: ``failed_to_exec``).

    ``secrets`` holds a value for each name in ``plan.missing``. Raises `HostError`: kind taken when a port or card is.
    """
    may_change(desk, "run")
    values = secret_values("run", plan.secrets, secrets, "set it in your environment, or run it in a terminal, which asks")
    return await send_launch(desk, plan.spec, values)


async def wait_over(desk: Desk, job: str, on_change: Callable[[JobState], None]) -> JobState:
    """Follow a job until it has ended and was judged; its state then. Raises `HostError` as `wait_ready` does."""
    ended: float | None = None

    def over(state: JobState) -> bool:
        nonlocal ended
        if state.state in LIVE:
            return False
        now = time.monotonic()
        ended = now if ended is None else ended
        # it is judged when no process of it is left; one that leaves a process behind may never be, as one without a supervisor
        judged = state.outcome is not None or state.state not in ("exited", "oom")
        return judged or now - ended > (LEFT_SECONDS if state.members else JUDGE_SECONDS)

    return await wait_until(desk, job, on_change, over)


__all__ = ["BadJobFile", "RunPlan", "job_file", "plan_run", "planned", "run_job", "wait_over"]
