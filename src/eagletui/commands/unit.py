"""Launching by an existing systemd unit: shown with what the unit itself runs, started by systemd, then found like any server."""

from __future__ import annotations

import shlex
import time
from typing import Any

from eagletui.commands.desk import Desk
from eagletui.commands.jobs import LAUNCH_SECONDS, LaunchPlan, new_id
from eagletui.engines.command import parse_command
from eagletui.hosts.base import HostError
from eagletui.profiles import Profile
from eagletui.records import JobState, from_doc


async def plan_unit(desk: Desk, profile: Profile) -> LaunchPlan:
    """What launching this profile of a unit would do. Raises `HostError` (absent: the host has no such unit)."""
    user = profile.unit_scope == "user"
    doc = await desk.session.request("unit", unit=profile.unit, user=user)
    command = ("systemctl", *(["--user"] if user else []), "start", str(profile.unit))
    about = [f"ExecStart  {doc['exec'] or '-'}"]
    if doc["user"]:
        about.append(f"User       {doc['user']}")
    about += [f"file       {path}" for path in (doc["file"], *doc["more"]) if path]
    if doc["restart"] not in ("", "no"):
        about.append(f"Restart    {doc['restart']}")
    about.append("it is shown like a server that was found, and ended by systemctl stop")
    spec: dict[str, Any] = {
        "cwd": "/",
        "unit": profile.unit,
        "name": profile.name,
        "engine": profile.engine,
        "model": profile.model,
    }
    spec.update(env={}, port=profile.port, gpus=[])
    return LaunchPlan(
        profile, new_id(profile.name), spec, command, {}, warnings=tuple(_warnings(profile, doc)), about=tuple(about),
        runs_as=f"as the {'user' if user else 'system'}'s unit {profile.unit}",
    )  # fmt: skip


def _warnings(profile: Profile, doc: dict[str, Any]) -> list[str]:
    out = []
    if doc["active"] in ("active", "activating", "reloading"):
        out.append(f"{profile.unit} is {doc['active']} already (main process {doc['pid']})")
    try:
        words = shlex.split(doc["exec"])
    except ValueError:
        words = doc["exec"].split()
    facts = parse_command(words)
    if facts is None:
        return out
    for what, said, unit in (
        ("model", profile.model, facts.model),
        ("port", profile.port, facts.port),
        ("k", profile.k, facts.k),
    ):
        if said is not None and unit is not None and said != unit:
            out.append(f"the profile says {what} {said}, the unit's ExecStart {unit}: the unit decides")
    return out


async def start_unit(desk: Desk, plan: LaunchPlan) -> JobState:
    """Have systemd start it; the state of the server that is found in it. Raises `HostError` (kind taken: it runs already)."""
    profile = plan.profile
    deadline = time.monotonic() + LAUNCH_SECONDS
    again = False
    while True:
        try:
            doc = await desk.session.request("unit_start", unit=profile.unit, user=profile.unit_scope == "user", again=again)
            state = from_doc(JobState, doc)
            desk.launched[state.id] = profile
            return state
        except HostError as error:
            if not error.retry or time.monotonic() > deadline:
                raise
            again = True  # whether it was started before the connection was lost shows in the unit itself
            await desk.session.wait_online(max(0.0, deadline - time.monotonic()))
