"""What holds a process: a systemd unit, a container of docker or podman, or nothing but its parent. From /proc alone.

A control group alone proves little. What was started from an ssh session may lie in ``ssh.service``; that is not its unit. So a
unit counts only when its main process is the server, or a plain wrapper (a shell, ``numactl`` ...) that started it.
"""

from __future__ import annotations

import os
import re
from typing import Dict, List, NamedTuple, Optional, Sequence

from eagletui.agent import procfs
from eagletui.agent.members import cgroup_pids
from eagletui.agent.procfs import Stat

PROCESS, SYSTEMD, DOCKER, PODMAN = "process", "systemd", "docker", "podman"
_PODMAN = re.compile(r"/libpod-([0-9a-f]{64})(?:\.scope)?(?=/|$)")
_DOCKER = re.compile(r"/(?:docker-([0-9a-f]{64})\.scope|docker/([0-9a-f]{64}))(?=/|$)")
_USER_MANAGER = re.compile(r"/user@(\d+)\.service/")
_WRAPPERS = re.compile(
    r"(?:sh|bash|dash|zsh|fish|ksh|env|nice|ionice|chrt|taskset|numactl|timeout|time|stdbuf|setsid|nohup|setpriv|sudo|su|"
    r"runuser|conda|mamba|micromamba|uv|uvx|poetry|pixi|tini|dumb-init|catatonit|docker-init|catchsegv|python[\d.]*)$"
)


class Holder(NamedTuple):
    """What holds a server, and so what ends it for good.

    ``kind`` is process, systemd, docker or podman. ``unit`` is the systemd unit, of the user's own manager when ``unit_uid`` is
    that user's id. ``container`` is the whole id of the container, ``name`` its name where /proc tells it, ``owner`` the user
    whose (rootless) engine it belongs to when that is not root. ``cgroup`` is the path of its control group: the unit's or
    container's, whose processes are all the server's; None for a mere process.
    """

    kind: str = PROCESS
    unit: Optional[str] = None
    unit_uid: Optional[int] = None
    container: Optional[str] = None
    name: Optional[str] = None
    cgroup: Optional[str] = None
    owner: Optional[int] = None


def paths_of(text: str) -> Dict[str, str]:
    """``/proc/PID/cgroup``: {controllers ("" is the unified hierarchy): path}."""
    out = {}
    for line in text.splitlines():
        _number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if path:
            out[controllers] = path
    return out


def container_in(paths: Dict[str, str]) -> Optional[Holder]:
    """The container that control-group paths name; its ``cgroup`` is the path down to the container's own group."""
    for path in sorted(paths.values(), key=len, reverse=True):
        for kind, pattern in ((PODMAN, _PODMAN), (DOCKER, _DOCKER)):
            match = pattern.search(path)
            if match is not None:
                return Holder(kind, container=next(filter(None, match.groups())), cgroup=path[: match.end()])
    return None


def unit_in(paths: Dict[str, str]) -> Optional[Holder]:
    """The service that control-group paths name; a session's or any other scope is none."""
    for name in ("name=systemd", ""):
        path = paths.get(name, "")
        user = _USER_MANAGER.search(path)
        parts = path.split("/")
        first = path[: user.end()].count("/") if user is not None else 1
        for at in range(first, len(parts)):
            if parts[at].endswith(".service"):
                uid = int(user.group(1)) if user is not None else None
                return Holder(SYSTEMD, parts[at], uid, cgroup="/".join(parts[: at + 1]))
    return None


def holder_of(stat: Stat, chain: Sequence[Stat]) -> Holder:
    """What holds the process ``stat``; ``chain`` are its ancestors, its parent first, as far as /proc shows them."""
    paths = paths_of(procfs.read_text("%s/%d/cgroup" % (procfs.PROC, stat.pid)) or "")
    own = container_in(paths_of(procfs.read_text("%s/self/cgroup" % procfs.PROC) or ""))
    container = container_in(paths) or _by_ancestors(chain)
    if container is not None and (own is None or own.container != container.container):
        # when we are in that container ourselves its engine is out of reach: here it is a process like any other
        return _monitored(container, chain)
    unit = unit_in(paths)
    if unit is not None and unit.cgroup is not None and _is_main(stat, chain, unit.cgroup):
        return unit
    return Holder()


def _by_ancestors(chain: Sequence[Stat]) -> Optional[Holder]:
    """A container without a control group of its own, known by its monitor."""
    for ancestor in chain:
        argv = procfs.argv(ancestor.pid) if ancestor.comm in ("conmon", "containerd-shim") else []
        value = _option(argv, "-c" if ancestor.comm == "conmon" else "-id")
        if ancestor.comm == "conmon" and value:
            return Holder(PODMAN, container=value)
        if value and _option(argv, "-namespace") == "moby":
            return Holder(DOCKER, container=value)
    return None


def _monitored(container: Holder, chain: Sequence[Stat]) -> Holder:
    """With what podman's monitor shows: the container's name in its argv, and by its user whose engine it is."""
    for ancestor in chain:
        if ancestor.comm == "conmon":
            uid = procfs.uid_of(ancestor.pid)
            return container._replace(name=_option(procfs.argv(ancestor.pid), "-n"), owner=uid or None)
    return container


def _option(argv: List[str], name: str) -> Optional[str]:
    return argv[argv.index(name) + 1] if name in argv[:-1] else None


def _is_main(stat: Stat, chain: Sequence[Stat], cgroup: str) -> bool:
    """Whether the unit's main process - the oldest of its processes that the manager started - is this one or its wrapper."""
    line = [stat, *chain]
    inside = set(cgroup_pids(cgroup))
    started = [one for one in line if one.pid in inside]
    if not started or any(_WRAPPERS.match(os.path.basename(one.comm)) is None for one in started[1:]):
        return False
    manager = started[-1].ppid
    for pid in inside:
        other = procfs.read_stat(pid)
        if other is not None and other.ppid == manager and (other.start, other.pid) < (started[-1].start, started[-1].pid):
            return False
    return True
