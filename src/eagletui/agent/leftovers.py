"""What a job leaves in /dev/shm, /tmp and its own places for such files, and who still uses it. Nothing that anybody maps or
holds open is ever removed.

Two kinds of evidence. ``used``: members were seen to map it, to write to it or to have it bound (the supervisor looks now and
then, so this is known after they died as well, with the file's number: another file of that name is not the job's). ``since``:
made by the job's user since its start, under a name that engines use, and used by nobody. Such a file may also be another
engine's, caught between making and mapping it; so it is removed only when no other engine of any kind runs.
"""

from __future__ import annotations

import os
import re
import stat
from typing import Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional, Set, Tuple

from eagletui.agent import procfs

SHM, TMP = "/dev/shm", "/tmp"
PLACES: Tuple[str, ...] = (SHM, TMP)
# where engines are told to put their sockets and temporary files
_SAY_WHERE = ("TMPDIR", "TEMP", "TMP", "VLLM_RPC_BASE_PATH")
# what engines and their libraries name their segments and sockets; anything else is not ours to judge
_SHM_NAMES = re.compile(r"(psm_|sem\.mp-|sem\.loky-|nccl-|torch_|sglang_|sgl|vllm)")
_TMP_NAMES = re.compile(r"(vllm_dist_|sgl-)")
_SOCKET_NAMES = re.compile(r"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$|sgl-)")
_TEMPORARY = re.compile(r"tmp[a-z0-9_]{8}$")  # Python's tempfile: anybody's, so only what a member was seen to use
# what prometheus_client counts in, a file for each process, in a temporary directory that SGLang makes for them
_COUNTS = re.compile(r"(?:counter|histogram|summary|gauge_[a-z]+)_[0-9]+\.db$")
# what all containers of a user share: it is in use while any of them runs, and podman is lost without it
_SHARED = re.compile(r"libpod_(?:rootless_)?lock")
USED, SINCE = "used", "since"
Number = Tuple[int, int]
"""(device, inode)."""


class Leftover(NamedTuple):
    """A file that may be the job's; ``why`` is `USED` or `SINCE`, ``number`` its (device, inode)."""

    path: str
    size: int
    why: str
    number: Number = (0, 0)


def places(env: Mapping[str, str]) -> Tuple[str, ...]:
    """The directories where a job with this environment leaves such files."""
    found = list(PLACES)
    for name in _SAY_WHERE:
        path = env.get(name) or ""
        if os.path.isabs(path) and os.path.isdir(path):
            path = os.path.realpath(path)
            if path not in found and path != "/":
                found.append(path)
    return tuple(found)


def engine_name(path: str, socket: bool = True) -> bool:
    """Whether a path is named as engines name what they make there; a ``socket``, or a file."""
    directory, name = os.path.split(path)
    if directory == SHM:
        return _SHM_NAMES.match(name) is not None
    return (_TMP_NAMES.match(name) or (_SOCKET_NAMES.match(name) if socket else None)) is not None


def is_counts(path: str) -> bool:
    """Whether a path is that of a process's counts, one directory deeper than everything else here."""
    directory, name = os.path.split(path)
    return _COUNTS.match(name) is not None and _TEMPORARY.match(os.path.basename(directory)) is not None


def used_paths(pids: Iterable[int], where: Iterable[str] = PLACES, written: bool = False) -> Set[str]:
    """Files in these directories that the processes map, hold open (``written``: for writing only), or have bound as a socket."""
    found: Set[str] = set()
    inside = tuple(place + "/" for place in where)
    sockets = _sockets()
    for pid in pids:
        text = procfs.read_text("%s/%d/maps" % (procfs.PROC, pid), 1 << 25) or ""
        for line in text.splitlines():
            at = line.find("/")
            if at >= 0 and line.startswith(inside, at):
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
                if path.startswith(inside):
                    found.add(path)
            elif path.startswith(inside) and not (written and _only_read(pid, name)):
                found.add(path)
    return found


def _only_read(pid: int, fd: str) -> bool:
    for line in (procfs.read_text("%s/%d/fdinfo/%s" % (procfs.PROC, pid, fd)) or "").splitlines():
        if line.startswith("flags:"):
            return int(line.split()[1], 8) & os.O_ACCMODE == os.O_RDONLY
    return True  # closed meanwhile: nothing says that it was written to


def _sockets() -> Dict[str, str]:
    """{inode: path} of the unix sockets that are bound to a path."""
    text = procfs.read_text("%s/net/unix" % procfs.PROC, 1 << 24) or ""
    return {fields[6]: fields[7] for fields in (line.split(None, 7) for line in text.splitlines()[1:]) if len(fields) == 8}


def note(pids: Iterable[int], where: Iterable[str] = PLACES) -> Dict[str, Number]:
    """{path: number} of what these processes use there now and may leave behind."""
    found = {}
    for path in used_paths(pids, where, written=True):
        try:
            info = os.lstat(path)
        except OSError:
            continue  # deleted, and only held open: it goes by itself
        if _may_be_left(path, info, USED):
            found[path] = (info.st_dev, info.st_ino)
    return found


def _may_be_left(path: str, info: os.stat_result, why: str) -> bool:
    """Whether a file there is of a kind that engines leave, judged by its name and nature."""
    socket = stat.S_ISSOCK(info.st_mode)
    if (not socket and not stat.S_ISREG(info.st_mode)) or _SHARED.match(os.path.basename(path)):
        return False
    if engine_name(path, socket):
        return True
    if why != USED:
        return False
    # a socket that a member has bound is its own, whatever its name; an open file in /tmp may be anything, an operator's own
    # output too: there the name must be a temporary one
    return socket or os.path.dirname(path) == SHM or _TEMPORARY.match(os.path.basename(path)) is not None or is_counts(path)


def find(
    pids: Iterable[int],
    uid: int,
    since: float,
    known: Optional[Mapping[str, Number]] = None,
    where: Iterable[str] = PLACES,
) -> List[Leftover]:
    """The job's files that are there now. ``known`` are those its members were seen to use before, ``since`` is Unix time."""
    members, where = set(pids), tuple(where)
    ours = note(members, where)
    others = used_paths((pid for pid in procfs.pids() if pid not in members), where)
    found: List[Leftover] = []
    for directory in where:
        try:
            entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
        except OSError:
            continue  # no such place here
        for entry in entries:
            path = entry.path
            was_used = path in ours or path in (known or ())
            if not was_used and not engine_name(path):
                continue
            try:
                info = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # removed meanwhile
            if info.st_uid != uid or info.st_ctime < since or path in others:
                continue
            number = (info.st_dev, info.st_ino)
            why = USED if path in ours or (known or {}).get(path) == number else SINCE
            if _may_be_left(path, info, why):
                found.append(Leftover(path, info.st_blocks * 512, why, number))
    return found + _counts({**(known or {}), **ours}, uid, where, others)


def _counts(used: Mapping[str, Number], uid: int, where: Iterable[str], others: Set[str]) -> List[Leftover]:
    """Those of the files that members used which hold counts; of these only the very file is a job's."""
    found = []
    for path, number in sorted(used.items()):
        if not is_counts(path) or os.path.dirname(os.path.dirname(path)) not in where or path in others:
            continue
        try:
            info = os.lstat(path)
        except OSError:
            continue  # it has gone
        if info.st_uid == uid and stat.S_ISREG(info.st_mode) and number == (info.st_dev, info.st_ino):
            found.append(Leftover(path, info.st_blocks * 512, USED, number))
    return found


def remove(
    files: Mapping[str, str],
    uid: int,
    where: Iterable[str] = PLACES,
    numbers: Optional[Mapping[str, Number]] = None,
) -> Dict[str, str]:
    """Remove what nobody uses any more of ``{path: USED or SINCE}``. {path: "" when it has gone, else why it stays}.

    Only what lies in the directories ``where`` is touched; a path with a number in ``numbers`` only while it is that very file.
    The directory of counts goes with the last of them.
    """
    where = tuple(where)
    wanted = {
        path: why
        for path, why in files.items()
        if os.path.dirname(path) in where or (is_counts(path) and os.path.dirname(os.path.dirname(path)) in where)
    }
    if not wanted:
        return {}
    in_use: FrozenSet[str] = frozenset(used_paths(procfs.pids(), where))
    # in a container the files may be the host's, and their users are not to be seen
    alone = sees_all_processes() and not any(engine_name(path) for path in in_use)
    said = {}
    for path, why in wanted.items():
        said[path] = _remove(path, uid, path in in_use, why == USED or alone, (numbers or {}).get(path))
    return said


_HOST_PIDS = 0xEFFFFFFC
"""The inode of the first pid namespace (the kernel's ``PROC_PID_INIT_INO``)."""


def sees_all_processes() -> bool:
    """Whether this process is in the host's own pid namespace."""
    try:
        return os.stat("%s/self/ns/pid" % procfs.PROC).st_ino == _HOST_PIDS
    except OSError:
        return False  # no namespaces to be seen: then nothing says that all processes are


def _remove(path: str, uid: int, in_use: bool, sure: bool, number: Optional[Number]) -> str:
    try:
        info = os.lstat(path)
        if in_use:
            return "in use by another process"
        if info.st_uid != uid or not (stat.S_ISREG(info.st_mode) or stat.S_ISSOCK(info.st_mode)):
            return "not the job's any more"
        if number is not None and number != (info.st_dev, info.st_ino):
            return "not the job's any more"
        if not sure:
            return "it may be another engine's"
        os.unlink(path)
        if is_counts(path):
            _remove_empty(os.path.dirname(path))
    except FileNotFoundError:
        return ""
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _remove_empty(directory: str) -> None:
    try:
        os.rmdir(directory)
    except OSError:
        pass  # others are in it, or it is not ours: it stays, and is no file of anybody's counts
