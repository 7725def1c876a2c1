"""Adoption: servers on the host that eagletui did not start. Found by their processes, shown like jobs, never signalled here.

For whoever ends one: `find` gives a `Found`. Its ``holder.kind`` says the lever - ``systemd``: ``holder.unit`` (of the user
manager of ``holder.unit_uid`` when that is set), ``docker``/``podman``: ``holder.container`` -, and ``process`` means signals to
``members``: ``found.scanner()``, ``found.spec()`` and ``found.state()`` are what `kill.plan` and `kill.Ladder` take. Ids begin
with `ID_PREFIX`. The state is ``leftover`` when the server itself is dead and others of its processes are left.
"""

from __future__ import annotations

import os
from typing import Dict, Optional

from eagletui.agent import state_dir
from eagletui.agent.adopt.finder import Finder
from eagletui.agent.adopt.found import ID_PREFIX, LEFTOVER, Found, found_of
from eagletui.agent.adopt.holder import DOCKER, PODMAN, PROCESS, SYSTEMD, Holder
from eagletui.agent.adopt.ours import Ours
from eagletui.agent.job_files import Board
from eagletui.agent.members import Key
from eagletui.agent.procfs import Stat
from eagletui.engines.titles import Title, title_of

__all__ = [
    "DOCKER",
    "ID_PREFIX",
    "LEFTOVER",
    "PODMAN",
    "PROCESS",
    "SYSTEMD",
    "Finder",
    "Found",
    "Holder",
    "Title",
    "find",
    "is_found",
    "look",
    "members_of",
    "shared_finder",
    "title_of",
]

_finder: Optional[Finder] = None


def shared_finder() -> Finder:
    """The agent's one finder: what the stream ``jobs`` has looked at need not be looked at again for a kill."""
    global _finder
    if _finder is None:
        _finder = Finder()
    return _finder


def is_found(job: str) -> bool:
    """Whether an id is that of a server that was found, not launched."""
    return job.startswith(ID_PREFIX)


def look() -> Dict[str, Found]:
    """All of them now: {id: `Found`}. Some milliseconds; the first time up to 25 us per process of the host."""
    root = state_dir.locate(os.environ)
    ours = Ours(root, Board(root).look().values())
    found = ((group, found_of(group)) for group in shared_finder().look())
    return {one.id: one for group, one in found if not ours.holds(group, one.holder)}


def find(job: str) -> Optional[Found]:
    """The server with this id as it is at this moment; None when nothing of it runs (any more)."""
    return look().get(job) if is_found(job) else None


def members_of(job: str) -> Dict[Key, Stat]:
    """Its live processes now, {(pid, start): stat}: what a kill would end; empty when there is none."""
    found = find(job)
    return dict(found.scanner().scan()) if found is not None else {}
