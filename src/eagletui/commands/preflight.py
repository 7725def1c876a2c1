"""Preflight from a desk: one request for facts, judged here, together with the cards and jobs that the desk has before it."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import NamedTuple

from eagletui.commands.desk import Desk
from eagletui.commands.jobs import LaunchPlan, plan_launch
from eagletui.engines.preflight.findings import BLOCK, Finding, Report, ordered
from eagletui.engines.preflight.judge import judge
from eagletui.engines.preflight.launch import launch_of, wanted
from eagletui.hosts.base import HostError
from eagletui.profiles import Profile

SECONDS = 20.0
"""How long the host may take for the facts. It bounds itself at about two; a disk that hangs does not."""
CARDS_SECONDS = 4.0


class Preflight(NamedTuple):
    """What stands in the way of a profile. ``plan`` is what a launch would run, None when none can be made."""

    profile: Profile
    plan: LaunchPlan | None
    report: Report


async def preflight(desk: Desk, profile: Profile, plan: LaunchPlan | None = None) -> Preflight:
    """Judge a launch of ``profile`` here (``plan`` where it was made already). Raises `HostError` when the host cannot be asked.

    Nothing on the host is changed by it.
    """
    await _cards(desk)
    first: list[Finding] = []
    spec = plan.spec if plan is not None else None
    if spec is None:
        try:
            plan = await plan_launch(desk, profile)
            spec = plan.spec
        except HostError as error:
            if error.kind != "config" or profile.gpus is None:
                raise
            # the cards alone may be what is wrong: the rest is worth knowing all the same
            spec = (await plan_launch(desk, replace(profile, gpus=None))).spec
            remedy = "change `gpus` in the profile" if error.remedy == "change the profile" else error.remedy
            first.append(Finding("cards", BLOCK, "the cards that are wanted are not there", error.why, "", remedy, "memory"))
    launch = launch_of(spec)
    try:
        async with asyncio.timeout(SECONDS):
            facts = await desk.session.request("facts", **wanted(launch))
    except TimeoutError:
        why = f"the host did not answer within {SECONDS:.0f} s"
        raise HostError("preflight", why, "is a disk or a network file system hanging there?", kind="agent") from None
    report = judge(launch, facts, desk.store.gpus, desk.store.jobs, desk.settings.gpus)
    if first:
        # without its cards, that none is there is told once
        rest = [finding for finding in report.findings if finding.id not in ("no-cards", "too-few-cards")]
        report = report._replace(findings=ordered([*first, *rest]))
    return Preflight(profile, plan, report)


async def _cards(desk: Desk) -> None:
    """The first sample of the cards, when this desk watches them; without one their checks say nothing."""
    if desk.store.gpus is None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CARDS_SECONDS):
                await desk.watch.sample("gpus")
