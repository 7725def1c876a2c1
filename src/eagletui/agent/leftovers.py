"""What a job leaves in /dev/shm and /tmp, and who still uses it. Nothing that anybody maps or holds open is ever removed.

Two kinds of evidence. ``used``: members were seen to map it, have it open or have it bound (the supervisor looks now and then, so
this is known after they died as well). ``since``: made by the job's user since its start, under a name that engines use, and
used by nobody. Such a file may also be another engine's, caught between making and mapping it; so it is removed only
when no other engine of any kind runs.
"""

from __future__ import annotations

import os
import re
import stat
from typing import Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Set

from eagletui.agent import procfs

SHM, TMP = "/dev/shm", "/tmp"
# what engines and their libraries name their segments and sockets; anything else is not ours to judge
_SHM_NAMES = re.compile(r"(psm_|sem\.mp-|sem\.loky-|nccl-|torch_|sglang_|sgl|vllm)")
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_TMP_NAMES = re.compile(r"(%s$|vllm_dist_|sgl-)" % _UUID)
USED, SINCE = "used", "since"


class Leftover(NamedTuple):
    """A file that may be the job's; ``why`` is `USED` or `SINCE`."""

    path: str
    size: int
    why: str


def engine_name(path: str) -> bool:
    """Whether a path is one that engines make in /dev/shm or /tmp."""
    directory, name = os.path.split(path)
    names = {SHM: _SHM_NAMES, TMP: _TMP_NAMES}.get(directory)
    return names is not None and names.match(name) is not None


def used_paths(pids: Iterable[int]) -> Set[str]:
    """Files below /dev/shm and /tmp that these processes map, hold open, or have bound as a socket."""
    found: Set[str] = set()
    sockets = _sockets()
    for pid in pids:
        text = procfs.read_text("%s/%d/maps" % (procfs.PROC, pid), 1 << 25) or ""
        for line in text.splitlines():
            at = line.find("/")
            if at >= 0 and line.startswith((SHM + "/", TMP + "/"), at):
                found.add(line[at:])
        directory = "%s/%d/fd" % (procfs.PROC, pid)
        try:
            names = os.listdir(directory)
        except OSError:
            continue  # gone, or another user's
        for name in names:
            try:
                path = os.readlink("%s/%s" % (directory, name))
            except OSError:
                continue  # closed meanwhile
            if path.startswith("socket:["):
                path = sockets.get(path[8:-1], "")
            if path.startswith((SHM + "/", TMP + "/")):
                found.add(path)
    return found


def _sockets() -> Dict[str, str]:
    """{inode: path} of the unix sockets that are bound to a path."""
    text = procfs.read_text("%s/net/unix" % procfs.PROC, 1 << 24) or ""
    return {fields[6]: fields[7] for fields in (line.split(None, 7) for line in text.splitlines()[1:]) if len(fields) == 8}


def find(pids: Iterable[int], uid: int, since: float, known: Iterable[str] = ()) -> List[Leftover]:
    """The job's files that are there now. ``known`` are those its members were seen to use before, ``since`` is Unix time."""
    members = set(pids)
    ours = used_paths(members) | set(known)
    others = used_paths(pid for pid in procfs.pids() if pid not in members)
    found: List[Leftover] = []
    for directory in (SHM, TMP):
        try:
            entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
        except OSError:
            continue  # no such place here
        for entry in entries:
            try:
                info = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # removed meanwhile
            if not _plain(info) or info.st_uid != uid or info.st_ctime < since or entry.path in others:
                continue
            # in /tmp a member's open file may be anything (an operator's own output): there the name must be an engine's too
            if entry.path in ours and (directory == SHM or engine_name(entry.path)):
                found.append(Leftover(entry.path, info.st_blocks * 512, USED))
            elif engine_name(entry.path):
                found.append(Leftover(entry.path, info.st_blocks * 512, SINCE))
    return found


def _plain(info: os.stat_result) -> bool:
    return stat.S_ISREG(info.st_mode) or stat.S_ISSOCK(info.st_mode)


def remove(files: Mapping[str, str], uid: int) -> Dict[str, str]:
    """Remove what nobody uses any more of ``{path: USED or SINCE}``. {path: "" when it has gone, else why it stays}."""
    wanted = {path: why for path, why in files.items() if os.path.dirname(path) in (SHM, TMP)}
    if not wanted:
        return {}
    in_use: FrozenSet[str] = frozenset(used_paths(procfs.pids()))
    alone = not any(engine_name(path) for path in in_use)
    return {path: _remove(path, uid, path in in_use, why == USED or alone) for path, why in wanted.items()}


def _remove(path: str, uid: int, in_use: bool, sure: bool) -> str:
    try:
        info = os.lstat(path)
        if in_use:
            return "in use by another process"
        if info.st_uid != uid or not _plain(info):
            return "not the job's any more"
        if not sure:
            return "it may be another engine's"
        os.unlink(path)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return error.strerror or str(error)
    return ""
