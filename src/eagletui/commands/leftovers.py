"""What ended jobs left in the host's shared memory and temporary files: listed, and removed when asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eagletui.commands.desk import Desk, may_change
from eagletui.hosts.base import Doc


class Left(NamedTuple):
    """A file of a job that has ended, used by nobody. ``size`` in bytes."""

    job: str
    name: str
    path: str
    size: int


class Cleared(NamedTuple):
    """``kept`` are (path, why) of those that stayed."""

    removed: tuple[str, ...]
    kept: tuple[tuple[str, str], ...]


async def leftovers(desk: Desk) -> list[Left]:
    """What is left now. Raises `HostError`."""
    return _entries(await desk.session.request("leftovers"))


async def clear_leftovers(desk: Desk, paths: Sequence[str]) -> Cleared:
    """Remove these, which `leftovers` has shown; each is checked again on the host. Raises `HostError`."""
    may_change(desk, "remove leftovers")
    answer = await desk.session.request("leftovers", remove=list(paths))
    return Cleared(tuple(answer["removed"]), tuple(sorted(answer["kept"].items())))


def _entries(answer: Doc) -> list[Left]:
    return [Left(str(e["job"]), str(e["name"]), str(e["path"]), int(e["size"])) for e in answer["entries"]]
