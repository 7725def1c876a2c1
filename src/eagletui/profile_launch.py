"""From a profile to what a host is asked to run: the exact command, the environment, the job's spec, and how they are shown."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from eagletui.engines.command import Command, serve_command
from eagletui.jobs.base import redact_argv, redact_env
from eagletui.jobs.kinds import kind
from eagletui.profiles import Profile
from eagletui.text import plural


class NoSuchCards(ValueError):
    """A profile asks for cards that the host does not have; the text says which, and what is there."""


def choose_cards(profile: Profile, uuids: Sequence[str]) -> tuple[str, ...] | None:
    """The UUIDs of the cards a profile runs on, from the host's cards in NVML's order; None when it leaves the choice open.

    A number takes the first ones. Raises `NoSuchCards`.
    """
    return cards_of(profile.gpus, uuids, f"profile {profile.name}")


def cards_of(wanted: str | int | Sequence[int | str] | None, uuids: Sequence[str], whose: str) -> tuple[str, ...] | None:
    """The UUIDs that ``wanted`` ("all", a number, or indexes and UUIDs) means among a host's; None for None."""
    if wanted is None:
        return None
    there = f"the host has {len(uuids)}"
    if wanted == "all":
        if not uuids:
            raise NoSuchCards(f"{whose}: gpus = all, and {there}")
        return tuple(uuids)
    if isinstance(wanted, int):
        if wanted > len(uuids):
            cards_are = plural(wanted, "card is", "cards are")
            raise NoSuchCards(f"{whose}: {cards_are} wanted, and {there}")
        return tuple(uuids[:wanted])
    cards = []
    for card in wanted:
        if isinstance(card, int):
            if card >= len(uuids):
                raise NoSuchCards(f"{whose}: card {card} is wanted, and {there}")
            card = uuids[card]
        elif card.startswith("GPU-") and card not in uuids:
            raise NoSuchCards(f"{whose}: card {card} is wanted, and the host does not have it")
        cards.append(card)
    return tuple(cards)


def command_of(profile: Profile, uuids: Sequence[str] = ()) -> Command:
    """The engine's argument list and the variables to add to the environment; secrets are not in it.

    Some of a host's cards are named by NVML's index, with the order of CUDA set to match: older engines read
    CUDA_VISIBLE_DEVICES as numbers and fail on UUIDs. Raises `CommandError` and `NoSuchCards`.
    """
    cards = choose_cards(profile, uuids)
    if cards is None or profile.gpus == "all":
        return serve_command(profile.as_dict())
    names = card_names(cards, uuids)
    command = serve_command(profile.as_dict(), names)
    return command._replace(env={**_ORDER, **command.env})


_ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def card_names(cards: Sequence[str], uuids: Sequence[str]) -> list[str]:
    """What CUDA_VISIBLE_DEVICES calls these cards: NVML's index, which needs the order of CUDA set to match."""
    return [str(uuids.index(card)) if card in uuids else card for card in cards]


def card_env(cards: Sequence[str], uuids: Sequence[str]) -> dict[str, str]:
    """The variables that show a program these cards alone."""
    return {**_ORDER, "CUDA_VISIBLE_DEVICES": ",".join(card_names(cards, uuids))}


def launch_spec(profile: Profile, job: str, uuids: Sequence[str] = ()) -> dict[str, Any]:
    """The spec of a job with the id ``job`` that serves ``profile`` on a host whose cards are ``uuids``.

    Secrets are sent beside it, never in it. Raises `BadJob` and `NoSuchCards`.
    """
    cards = choose_cards(profile, uuids)
    if profile.container:
        # podman's names of the cards: NVML's numbers are always among them, UUIDs only with newer toolkits
        names = card_names(cards or (), uuids)
        devices = names if profile.container == "podman" else list(cards or ())
        return kind("serve").spec({**profile.as_dict(), "devices": devices}, job, cards or ())
    spec = kind("serve").spec(profile.as_dict(), job, cards or ())
    # the kind names cards by uuid; see `command_of`
    spec["env"] = {**spec["env"], **command_of(profile, uuids).env}
    return spec


def shown(profile: Profile, uuids: Sequence[str] = ()) -> str:
    """The exact command and environment as shell text, one variable a line; secrets by name alone."""
    spec = launch_spec(profile, profile.name, uuids)
    lines = [f"cd {shlex.quote(spec['cwd'])}"]
    lines += [f"{name}={shlex.quote(value)}" for name, value in redact_env(spec["env"]).items()]
    lines += [f"{name}=(from your environment)" for name in profile.secrets]
    lines.append(shlex.join(redact_argv(spec["argv"])))
    return "\n".join(lines)
