"""Jobs from a desk: launch from a profile, wait until ready, end with proof, remove; and the profiles themselves.

A launch has an id before it is sent, so that sending it again after a lost connection starts nothing twice. A kill is bound to
the very processes that were shown, and its end is told only after NVML has seen the memory come back.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets as randomness
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from eagletui import profiles as stored
from eagletui.commands.desk import Desk, may_change
from eagletui.commands.survival import prospect
from eagletui.config import Notice
from eagletui.engines.command import parse_command
from eagletui.hosts.base import HostError
from eagletui.jobs.base import HIDDEN, BadJob, redact_argv, redact_env, secret_name
from eagletui.jobs.container import gives_cards, own_network, with_log
from eagletui.profile_launch import NoSuchCards, launch_spec
from eagletui.profiles import Profile
from eagletui.records import GpuSample, JobState, from_doc

LAUNCH_SECONDS = 90.0
"""How long a launch is sent again over lost connections, before it is told as failed."""
FIRST_SECONDS = 8.0
"""How long the first sample of the cards, or the first sight of a job, may take."""
STEP_SECONDS = 2.0
LIVE = ("launching", "running", "stopping")
BUSY_BYTES = 1 << 30
_ANY_ADDRESS = ("0.0.0.0", "::", "*")  # noqa: S104 - where a server listens is compared, nothing is bound


class LaunchPlan(NamedTuple):
    """What a launch would run, to be looked at first.

    ``job`` is the id it will have. ``command`` and ``env`` are as they may be shown: without the values of secrets. ``secrets``
    are the names that the profile asks for, ``missing`` those without a value in this machine's environment. ``warnings`` do
    not forbid the launch. ``runs_as`` says in words how the host would run it, ``about`` what else a person should read first.
    ``busy`` are those warnings that a person has to confirm: cards that somebody else's processes use.
    """

    profile: Profile
    job: str
    spec: dict[str, Any]
    command: tuple[str, ...]
    env: dict[str, str]
    secrets: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    runs_as: str = ""
    about: tuple[str, ...] = ()
    busy: tuple[str, ...] = ()


# ------------------------------------------------------------------------------------------------------------- profiles


def profiles(desk: Desk) -> tuple[dict[str, Profile], list[Notice]]:
    """The profiles for this host by name, and what is wrong with those left out. Reads files."""
    return stored.load_profiles(desk.place)


def save_profile(desk: Desk, profile: Profile, everywhere: bool) -> Path:
    """Keep a profile among the user's: for this host, or for ``everywhere``; the file. Raises `HostError` of kind config."""
    try:
        return stored.save_profile(profile, None if everywhere else desk.place)
    except OSError as error:
        raise _config("save profile", f"{error.filename}: {error.strerror}") from None


def last_good(desk: Desk, name: str) -> Profile | None:
    """The profile ``name`` as it was when a server launched from it here last became ready."""
    return stored.last_good(desk.place, name)


def _config(step: str, why: str, remedy: str = "") -> HostError:
    return HostError(step, why, remedy, kind="config")


# --------------------------------------------------------------------------------------------------------------- launch


def new_id(name: str) -> str:
    """An id that sorts by time and says what it is: ``20261129-184512-lab-eagle3-x7f2``."""
    word = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:32].strip("-") or "job"
    tail = "".join(randomness.choice("abcdefghijkmnpqrstuvwxyz23456789") for _ in range(4))
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{word}-{tail}"


async def plan_launch(desk: Desk, profile: Profile) -> LaunchPlan:
    """What launching ``profile`` here would run. Raises `HostError` of kind config when no command can be made of it."""
    if profile.unit is not None:
        from eagletui.commands.unit import plan_unit

        return await plan_unit(desk, profile)
    cards = await host_cards(desk, profile.gpus is not None)
    board = desk.store.gpus
    job = new_id(profile.name)
    try:
        spec = launch_spec(profile, job, [card.uuid for card in cards])
    except (BadJob, NoSuchCards, ValueError) as error:
        why = str(error)
        if isinstance(error, NoSuchCards) and board is not None and board.problem:
            why += f" ({board.problem})"
        raise _config("launch", why, "change the profile") from None
    spec["operator"] = desk.operator
    ahead = await prospect(desk)
    env = {**redact_env(spec["env"]), **dict.fromkeys(profile.secrets, HIDDEN)}
    busy = busy_cards(cards, spec.get("gpus") or ())
    log = f"{(desk.store.info.state_dir if desk.store.info is not None else None) or ''}/jobs/{job}/log"
    return LaunchPlan(
        profile,
        job,
        spec,
        with_log(redact_argv(spec["argv"]), log),
        env,
        profile.secrets,
        tuple(name for name in profile.secrets if not os.environ.get(name)),
        (*_warnings(desk, profile, spec, cards), *busy, *ahead.warnings),
        ahead.runs_as if spec.get("container") is None else f"in a container of {profile.container}, from {profile.image}",
        busy=busy,
    )


async def host_cards(desk: Desk, wanted: bool) -> list[GpuSample]:
    """The host's cards in NVML's order, as far as they are known; where they are ``wanted`` their first sample is waited for."""
    if wanted and desk.store.gpus is None:
        await news(desk, "gpus", FIRST_SECONDS)
    board = desk.store.gpus
    return sorted(board.cards, key=lambda card: card.number) if board is not None else []


def _warnings(desk: Desk, profile: Profile, spec: Mapping[str, Any], cards: Sequence[GpuSample]) -> list[str]:
    out = []
    box = spec.get("container") or {}
    facts = parse_command(box.get("program") or spec["argv"])
    if (facts.host if facts is not None else profile.host) in _ANY_ADDRESS:
        out.append("listens on all interfaces: whoever reaches the host can use it")
    if redact_argv(spec["argv"]) != list(spec["argv"]):
        out.append('a key stands on the command line, where everybody on the host can read it: put its variable into "secrets"')
    elif redact_argv(profile.args) != list(profile.args):
        out.append(
            'a key stands in the arguments of the profile\'s file: put its variable into "secrets" instead (vLLM: VLLM_API_KEY)'
        )
    named = [name for name in profile.env if secret_name(name)]
    if named:
        out.append(f'{", ".join(named)} stands in [env] of the profile\'s file: put the name into "secrets" instead')
    port = spec.get("port")
    for other in desk.store.jobs.values():
        if port is not None and other.port == port and (other.state in LIVE or other.members):
            out.append(f"port {port} is {'listened on' if other.listening else 'leased'} by {other.name} ({other.id})")
    if box and profile.gpus is None and cards and not gives_cards(profile.container_args):
        out.append('the container gets no card: add gpus = "all", or which of them')
    if box and own_network(profile.container_args):
        out.append(f"the container has a network of its own: its port {port} has to be published under the same number")
    return out


def busy_cards(cards: Sequence[GpuSample], wanted: Sequence[str]) -> tuple[str, ...]:
    """Of these cards, those that somebody's processes use, or that are lost, in words."""
    return tuple(words for card in cards if card.uuid in wanted and (words := _busy(card)))


def _busy(card: GpuSample) -> str | None:
    if card.lost is not None:
        return f"card {card.number} is lost: {card.lost}"
    held = [process for process in card.processes or () if (process.mem or 0) >= BUSY_BYTES]
    if not held:
        return None
    whose = ", ".join(f"{process.job or process.user or '?'} (pid {process.pid})" for process in held[:3])
    return f"card {card.number} is in use: {sum(p.mem or 0 for p in held) / (1 << 30):.1f} GiB by {whose}"


async def launch(desk: Desk, plan: LaunchPlan, secrets: Mapping[str, str]) -> JobState:
    """Start the job of ``plan``; its state once its main process runs (or could not be executed: ``failed_to_exec``).

    ``secrets`` holds a value for each name in ``plan.missing``; the others come from this machine's environment. Over lost
    connections the same launch is sent again, with the same id, for `LAUNCH_SECONDS`.

    Raises `HostError`: kind taken when a port or card is, config for a missing secret.
    """
    may_change(desk, "launch")
    if plan.profile.unit is not None:
        from eagletui.commands.unit import start_unit

        return await start_unit(desk, plan)
    values = secret_values("launch", plan.secrets, secrets, "set it in your environment, or type it in the launch form")
    desk.launched[plan.job] = plan.profile
    try:
        return await send_launch(desk, plan.spec, values)
    except HostError:
        desk.launched.pop(plan.job, None)
        raise


def secret_values(step: str, names: Sequence[str], given: Mapping[str, str], remedy: str) -> dict[str, str]:
    """A value for each name, from ``given`` or this machine's environment. Raises `HostError` of kind config for one without."""
    values = {name: given.get(name) or os.environ.get(name) or "" for name in names}
    without = [name for name, value in values.items() if not value]
    if without:
        raise _config(step, f"no value for {', '.join(without)}", remedy)
    return values


async def send_launch(desk: Desk, spec: Mapping[str, Any], secrets: Mapping[str, str]) -> JobState:
    """Have the host start what ``spec`` says, once, over lost connections too, for `LAUNCH_SECONDS`. Raises `HostError`."""
    deadline = time.monotonic() + LAUNCH_SECONDS
    while True:
        try:
            return from_doc(JobState, await desk.session.request("launch", spec=spec, secrets=secrets))
        except HostError as error:
            if not error.retry or time.monotonic() > deadline:
                raise _taken(error) from None
            await desk.session.wait_online(max(0.0, deadline - time.monotonic()))


def _taken(error: HostError) -> HostError:
    """The host's refusal to launch is no refused connection."""
    if error.kind != "refused" or error.retry:
        return error
    return HostError(error.step, error.why, error.remedy, kind="taken")


async def wait_ready(desk: Desk, job: str, on_change: Callable[[JobState], None]) -> JobState:
    """Follow a job until its server is ready, or it has ended; its state then. ``on_change`` hears of every new state.

    Raises `HostError` when the job is not there (any more), or the connection needs a person.
    """
    return await wait_until(desk, job, on_change, lambda state: is_ready(state) or state.state not in LIVE)


async def wait_until(desk: Desk, job: str, on_change: Callable[[JobState], None], enough: Callable[[JobState], bool]) -> JobState:
    """Follow a job until ``enough`` holds of its state; that state. Otherwise as `wait_ready`."""
    seen: JobState | None = None
    unseen_since = time.monotonic()
    while True:
        state = desk.store.jobs.get(job)
        if state is not None:
            if state != seen:
                on_change(state)
            seen = state
            if enough(state):
                return state
        elif desk.store.connection.state in ("online", "stale") and (
            seen is not None or time.monotonic() - unseen_since > FIRST_SECONDS
        ):
            raise HostError("wait", f"there is no job {job} on this host any more", kind="absent")
        link = desk.store.connection
        if link.state in ("blocked", "closed"):
            raise HostError(link.step or "connection", link.why or "closed", link.remedy)
        await news(desk, "jobs", STEP_SECONDS)


def is_ready(state: JobState) -> bool:
    """Whether the server of a job has answered and still runs."""
    return state.state == "running" and state.health == "ready"


async def news(desk: Desk, stream: str, seconds: float) -> None:
    """Wait for the next push of a stream, at most ``seconds``."""
    with contextlib.suppress(TimeoutError):  # the caller looks at the store again in any case
        async with asyncio.timeout(seconds):
            await desk.watch.sample(stream, desk.watch.count(stream) + 1)
