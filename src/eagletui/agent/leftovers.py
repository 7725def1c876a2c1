"""What a job leaves in /dev/shm and /tmp, and who still uses it. Nothing that anybody maps or holds open is ever removed."""

from __future__ import annotations

import os
import re
import stat
from typing import Dict, Iterable, List, NamedTuple, Set

from eagletui.agent import procfs

SHM, TMP = "/dev/shm", "/tmp"  # noqa: S108 - the engines' own places, looked at only
# what engines and their libraries name their segments and sockets; anything else is not ours to judge
_SHM_NAMES = re.compile(r"(psm_|sem\.mp-|sem\.loky-|nccl-|torch_|sglang_|sgl|vllm)")
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_TMP_NAMES = re.compile(r"(%s$|vllm_dist_|sgl-)" % _UUID)


class Leftover(NamedTuple):
    """A file of the job. ``why``: ``used`` (a member maps it or has it open), ``since`` (made by its user since its start)."""

    path: str
    size: int
    why: str


def used_paths(pids: Iterable[int]) -> Set[str]:
    """Files below /dev/shm and /tmp that these processes map or hold open."""
    found = set()
    for pid in pids:
        text = procfs.read_text("%s/%d/maps" % (procfs.PROC, pid), 1 << 25) or ""
        for line in text.splitlines():
            at = line.find("/")
            if at >= 0:
                path = line[at:]
                if path.startswith((SHM + "/", TMP + "/")):
                    found.add(path)
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
            if path.startswith((SHM + "/", TMP + "/")):
                found.add(path)
    return found


def bound_sockets() -> Set[str]:
    """Paths of the unix sockets that some live process has bound."""
    text = procfs.read_text("%s/net/unix" % procfs.PROC, 1 << 24) or ""
    return {fields[7] for fields in (line.split(None, 7) for line in text.splitlines()[1:]) if len(fields) == 8}


def find(pids: Iterable[int], uid: int, since: float) -> List[Leftover]:
    """The job's files now: used by its members, or made by its user since ``since`` (Unix time) under an engine's names."""
    used = used_paths(pids)
    found: Dict[str, Leftover] = {}
    for directory, names in ((SHM, _SHM_NAMES), (TMP, _TMP_NAMES)):
        try:
            entries = list(os.scandir(directory))
        except OSError:
            continue  # no such place here
        for entry in entries:
            try:
                info = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # removed meanwhile
            if not (stat.S_ISREG(info.st_mode) or stat.S_ISSOCK(info.st_mode)) or info.st_uid != uid or info.st_ctime < since:
                continue
            # in /tmp a member's open file may be anything (an operator's own output): there the name must be an engine's too
            if entry.path in used and (directory == SHM or names.match(entry.name)):
                found[entry.path] = Leftover(entry.path, info.st_blocks * 512, "used")
            elif names.match(entry.name):
                found[entry.path] = Leftover(entry.path, info.st_blocks * 512, "since")
    return [found[path] for path in sorted(found)]


def remove(paths: Iterable[str], uid: int) -> Dict[str, str]:
    """Remove what nobody maps, holds or has bound. {path: "" when it has gone, else why it stays}."""
    wanted = [p for p in paths if os.path.dirname(p) in (SHM, TMP)]
    if not wanted:
        return {}
    in_use = used_paths(procfs.pids()) | bound_sockets()
    out = {}
    for path in wanted:
        try:
            info = os.lstat(path)
            if path in in_use:
                out[path] = "in use"
            elif info.st_uid != uid or not (stat.S_ISREG(info.st_mode) or stat.S_ISSOCK(info.st_mode)):
                out[path] = "not the job's any more"
            else:
                os.unlink(path)
                out[path] = ""
        except FileNotFoundError:
            out[path] = ""
        except OSError as error:
            out[path] = error.strerror or str(error)
    return out
