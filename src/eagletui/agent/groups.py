"""The control group of a job in a unit: a group of its own below the supervisor's, so that one write can end all of it."""

from __future__ import annotations

import os
from typing import Any, Mapping, NamedTuple, Optional

from eagletui.agent import procfs

BASES = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
NAME = "/job"


class Group(NamedTuple):
    """``path`` is the job's control group as /proc names it, ``directory`` where it lies when it is the job's alone,
    ``kill`` its cgroup.kill where the kernel has that (5.14, version 2)."""

    path: Optional[str] = None
    directory: Optional[str] = None
    kill: Optional[str] = None


def make(spec: Mapping[str, Any]) -> Group:
    """The group for the job of the supervisor that we are. Empty outside a unit: the group is then shared with others."""
    if not spec.get("unit"):
        return Group()
    own = procfs.cgroup(os.getpid())
    if not own or own == "/" or not own.endswith("/" + str(spec["unit"])):
        return Group()
    for base in BASES:
        if os.path.exists(base + own + "/cgroup.procs"):
            try:
                os.mkdir(base + own + NAME)
            except FileExistsError:
                pass  # an earlier supervisor of this unit's made it
            except OSError:
                break
            return found(own + NAME)
    return Group(own)  # no delegation: the unit's group is the job's, and holds us as well


def found(path: Optional[str]) -> Group:
    """A job's group that was noted earlier, as it is now; only a group that `make` made is the job's alone."""
    for base in BASES:
        directory = base + (path or "")
        if path and path.endswith(NAME) and os.path.exists(directory + "/cgroup.procs"):
            kill = directory + "/cgroup.kill"
            return Group(path, directory, kill if os.path.exists(kill) else None)
    return Group(path)
