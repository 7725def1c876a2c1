"""Files on the host: read (also waiting for growth), stat, list, write. What touches a disk runs in a worker thread."""

from __future__ import annotations

import errno
import os
import stat as modes
from itertools import islice
from typing import Any, Dict, List, Optional, Tuple

from eagletui.agent.calls import Call, CallError, Handler
from eagletui.agent.workers import workers

MAX_READ = 64 * 1024
MAX_LIST = 10000
_POLL_FIRST, _POLL_LAST = 0.1, 0.25


def failure(step: str, path: str, error: OSError) -> CallError:
    """An `OSError` in words, with its kind."""
    why = {
        errno.ENOENT: "no such file",
        errno.ENOTDIR: "no such file",
        errno.EACCES: "permission denied",
        errno.EPERM: "permission denied",
        errno.EISDIR: "it is a directory",
        errno.ENOSPC: "no space left on its disk",
        errno.EROFS: "its file system is read-only",
    }.get(error.errno or 0, (error.strerror or str(error)).lower())
    kinds = {errno.ENOENT: "absent", errno.ENOTDIR: "absent", errno.EACCES: "denied", errno.EPERM: "denied"}
    return CallError("%s %s" % (step, path), why, kind=kinds.get(error.errno or 0, "agent"))


def absolute(call: Call, name: str = "path") -> str:
    """The parameter that names a file: an absolute path, or one that starts with ``~``."""
    path = os.path.expanduser(call.text(name))
    if not os.path.isabs(path) or "\0" in path:
        raise CallError("request", "%r is not an absolute path" % path)
    return path


def in_worker(call: Call, step: str, path: str, work: Any) -> None:
    """Answer ``call`` with what ``work()`` returns in a thread: a result, or a result and a body."""

    def done(result: Any, error: Optional[BaseException]) -> None:
        if error is None:
            call.reply(*result) if isinstance(result, tuple) else call.reply(result)
        else:
            answer_error(call, step, path, error)

    workers(call.loop).run(work, done)


def answer_error(call: Call, step: str, path: str, error: BaseException) -> None:
    if isinstance(error, OSError):
        error = failure(step, path, error)
    if isinstance(error, CallError):
        call.fail(error.step, error.why, error.remedy, error.kind)
    else:
        call.fail("%s %s" % (step, path), "the agent failed: %s: %s" % (type(error).__name__, error), "please report this")


def open_regular(path: str, step: str) -> Tuple[int, os.stat_result]:
    """Open a file for reading, without waiting on a pipe or taking a terminal. Raises `OSError` or `CallError`."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    info = os.fstat(fd)
    if not modes.S_ISREG(info.st_mode):
        os.close(fd)
        what = "it is a directory" if modes.S_ISDIR(info.st_mode) else "it is not a regular file"
        raise CallError("%s %s" % (step, path), what)
    return fd, info


def floor_of(fd: int, size: int) -> int:
    """The first offset that still holds data: logs are bounded by punching holes at their start."""
    try:
        return os.lseek(fd, 0, os.SEEK_DATA)
    except OSError as error:
        return size if error.errno == errno.ENXIO else 0  # nothing but a hole; or a file system that cannot tell


# --------------------------------------------------------------------------------------------------------------- read


class _Reading:
    """One `read`: tries, and while there is nothing new tries again until its time is over."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.path = absolute(call)
        self.offset = int(call.number("offset", 0, float("-inf")))
        self.limit = int(call.number("limit", MAX_READ, 1, MAX_READ))
        wait = call.number("wait", 0, 0, 300)
        identity = call.params.get("identity")
        self.identity = tuple(identity) if isinstance(identity, (list, tuple)) else None
        try:
            self.before = bytes.fromhex(call.text("before", ""))
        except ValueError:
            raise CallError("request", "'before' should be bytes in hexadecimal") from None
        self.until = call.loop.now() + wait
        self.pause = _POLL_FIRST
        self.timer: Any = None
        call.on_cancel = self.stop
        self.start()

    def stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()

    def start(self) -> None:
        workers(self.call.loop).run(self.attempt, self.done)

    def attempt(self) -> Tuple[Dict[str, Any], bytes]:
        fd, info = open_regular(self.path, "read")
        try:
            if self.identity is not None and self.identity != (info.st_dev, info.st_ino):
                why = "the path names another file than before (it was rotated or replaced)"
                raise CallError("read %s" % self.path, why, "read it from its start", "replaced")
            floor = floor_of(fd, info.st_size)
            offset = max(floor, info.st_size + self.offset if self.offset < 0 else self.offset)
            at = offset - len(self.before)
            if self.before and at >= floor and offset <= info.st_size and os.pread(fd, len(self.before), at) != self.before:
                why = "it was truncated and written anew"
                raise CallError("read %s" % self.path, why, "read it from its start", "replaced")
            data = os.pread(fd, self.limit, offset)
        finally:
            os.close(fd)
        head = {
            "offset": offset,
            "size": info.st_size,
            "dev": info.st_dev,
            "inode": info.st_ino,
            "floor": floor,
            "mtime": info.st_mtime,
        }
        return head, data

    def done(self, result: Any, error: Optional[BaseException]) -> None:
        if error is not None:
            answer_error(self.call, "read", self.path, error)
            return
        head, data = result
        cut = head["offset"] > head["size"]  # truncated below what was read: the client must know at once
        if data or cut or self.call.loop.now() >= self.until:
            self.call.reply(head, data)
        elif not self.call.answered:
            if self.offset < 0:
                self.offset = head["offset"]  # wait for what comes after the end as it is now
            self.timer = self.call.loop.call_later(min(self.pause, max(0.0, self.until - self.call.loop.now())), self.start)
            self.pause = min(self.pause * 1.5, _POLL_LAST)


def read(call: Call) -> None:
    _Reading(call)


# ------------------------------------------------------------------------------------------------- stat, list, write


def stat(call: Call) -> None:
    paths = call.params.get("paths")
    if not isinstance(paths, list) or not all(isinstance(p, str) for p in paths):
        raise CallError("request", "'paths' should be a list of paths")
    wanted = [os.path.expanduser(p) for p in paths]
    in_worker(call, "stat", "", lambda: [_stat(path) for path in wanted])


def _stat(path: str) -> Optional[Dict[str, Any]]:
    try:
        info = os.stat(path)
    except (OSError, ValueError):
        return None  # that is the answer: it cannot be seen
    return {
        "size": info.st_size,
        "mtime": info.st_mtime,
        "dev": info.st_dev,
        "inode": info.st_ino,
        "mode": info.st_mode,
        "uid": info.st_uid,
    }


def list_(call: Call) -> None:
    path = absolute(call)
    limit = int(call.number("limit", 1000, 1, MAX_LIST))
    in_worker(call, "list", path, lambda: _list(path, limit))


def _list(path: str, limit: int) -> Dict[str, Any]:
    entries: List[Dict[str, Any]] = []
    with os.scandir(path) as found:
        for entry in islice(found, limit):
            try:
                info = entry.stat()
            except OSError:
                info = entry.stat(follow_symlinks=False)  # a link to nowhere
            kind = "dir" if modes.S_ISDIR(info.st_mode) else "file" if modes.S_ISREG(info.st_mode) else "other"
            if modes.S_ISLNK(info.st_mode):
                kind = "link"
            name = entry.name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            entries.append({"name": name, "kind": kind, "size": info.st_size, "mtime": info.st_mtime})
        cut = next(found, None) is not None
    entries.sort(key=lambda e: e["name"])
    return {"entries": entries, "cut": cut}


def write(call: Call) -> None:
    path = absolute(call)
    expect = call.params.get("expect_sha")
    if expect is not None and not isinstance(expect, str):
        raise CallError("request", "'expect_sha' should be text")
    mode = call.params.get("mode")
    if mode is not None and (not isinstance(mode, int) or not 0 <= mode <= 0o777):
        raise CallError("request", "'mode' should be a number of at most 0o777")
    in_worker(call, "write", path, lambda: _write(path, call.body, expect, mode))


def _write(path: str, data: bytes, expect: Optional[str], mode: Optional[int]) -> Dict[str, str]:
    """Replace a file whole: temp + fsync + rename beside it, with the owner and mode it had."""
    import hashlib  # here: it maps libcrypto, 4 MB that watching does not need

    path = os.path.realpath(path)
    before: Optional[os.stat_result] = None
    try:
        fd, before = open_regular(path, "write")
    except FileNotFoundError:
        current = ""
    else:
        with os.fdopen(fd, "rb") as file:
            current = hashlib.sha256(file.read()).hexdigest() if expect is not None else ""
    if expect is not None and expect != current:
        why = "it is not there" if before is None else "it exists already" if not expect else "it was changed meanwhile"
        raise CallError("write %s" % path, why, "look at it again", "replaced")
    temp = os.path.join(os.path.dirname(path), ".%s.%d.tmp" % (os.path.basename(path)[:200], os.getpid()))
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            if before is not None and (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
                os.fchown(fd, before.st_uid, before.st_gid)
            os.fchmod(fd, mode if mode is not None else modes.S_IMODE(before.st_mode) if before is not None else 0o600)
            os.fsync(fd)
        os.rename(temp, path)
    except OSError:
        os.unlink(temp)
        raise
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return {"sha": hashlib.sha256(data).hexdigest()}


METHODS: Dict[str, Handler] = {"read": read, "stat": stat, "list": list_, "write": write}
