"""Where eagletui keeps its jobs on the host, and how files there are written: temp + fsync + rename, or append only.

The directory is made at the first launch, 0700, files 0600. One that is not ours, or that others may write, is refused.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from typing import Any, Dict, List, Mapping, Optional

ROOT_DIR = "/var/lib/eagletui"
_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "lustre", "beegfs", "ceph")


class StateError(Exception):
    """The state directory cannot be used; the text says why, ``remedy`` what to do."""

    def __init__(self, why: str, remedy: str = "") -> None:
        super().__init__(why)
        self.why, self.remedy = why, remedy


def locate(environ: Mapping[str, str], uid: Optional[int] = None) -> str:
    """The state directory: ``$EAGLETUI_STATE``, else for root /var/lib/eagletui, else under ``$XDG_STATE_HOME``."""
    override = environ.get("EAGLETUI_STATE")
    if override:
        return os.path.abspath(override)
    if (os.geteuid() if uid is None else uid) == 0:
        return ROOT_DIR
    base = environ.get("XDG_STATE_HOME") or ""
    if not os.path.isabs(base):
        base = os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".local", "state")
    return os.path.join(base, "eagletui")


def problem(root: str) -> Optional[str]:
    """Why jobs cannot be kept under ``root``, in one line; None when they can. A directory that is not there yet is fine
    when it can be made."""
    try:
        info = os.lstat(root)
    except FileNotFoundError:
        parent = os.path.dirname(root)
        while parent != "/" and not os.path.exists(parent):
            parent = os.path.dirname(parent)
        return None if os.access(parent, os.W_OK | os.X_OK) else "%s cannot be made: %s is not writable" % (root, parent)
    except OSError as error:
        return "%s: %s" % (root, error.strerror)
    if not stat.S_ISDIR(info.st_mode):
        return "%s is not a directory" % root
    if info.st_uid != os.geteuid():
        return "%s belongs to user %d, not to us" % (root, info.st_uid)
    if info.st_mode & 0o022:
        return "%s may be written by others (mode %o)" % (root, stat.S_IMODE(info.st_mode))
    if not os.access(root, os.W_OK | os.X_OK):
        return "%s is not writable" % root
    return None


_REMEDIES = {
    errno.ENOSPC: "free space there, or set EAGLETUI_STATE on the host to a directory on another disk",
    errno.EROFS: "set EAGLETUI_STATE on the host to a directory that can be written",
    errno.EACCES: "set EAGLETUI_STATE on the host to a directory of yours",
    errno.EIO: "the disk fails: look at dmesg, and set EAGLETUI_STATE on the host to a directory on another one",
}
_REMEDIES[errno.EDQUOT] = _REMEDIES[errno.ENOSPC]
_REMEDIES[errno.EPERM] = _REMEDIES[errno.EACCES]


def remedy(error: OSError) -> str:
    """What to do about a file that cannot be written; empty where nothing general can be said."""
    return _REMEDIES.get(error.errno or 0, "")


def warning(root: str) -> Optional[str]:
    """What is doubtful about ``root`` without forbidding its use: a network file system (locks and punched holes)."""
    kind = filesystem(root)
    if kind in _NETWORK:
        return "%s lies on %s: locks and bounded logs may not work there" % (root, kind)
    return None


def filesystem(path: str) -> Optional[str]:
    """The type of the file system that holds ``path`` (or its nearest parent that exists), from /proc/self/mountinfo."""
    while path != "/" and not os.path.exists(path):
        path = os.path.dirname(path)
    path = os.path.realpath(path)
    best, kind = "", None
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                left, _, right = line.partition(" - ")
                mount = left.split()[4].replace("\\040", " ")
                if (path == mount or path.startswith(mount.rstrip("/") + "/")) and len(mount) >= len(best):
                    best, kind = mount, right.split()[0]
    except (OSError, IndexError):
        return None  # not told: nothing to warn of
    return kind


def create(root: str) -> None:
    """Make the directory where it is missing, and check it. Raises `StateError`."""
    try:
        os.makedirs(os.path.dirname(root), mode=0o755, exist_ok=True)
        try:
            os.mkdir(root, 0o700)
        except FileExistsError:
            pass  # checked below
    except OSError as error:
        raise StateError("%s cannot be made: %s" % (root, error.strerror), "set EAGLETUI_STATE to a directory of yours") from None
    why = problem(root)
    if why:
        raise StateError(why, "make it yours alone: chown, and chmod 700")
    for name in ("jobs", "leases"):
        try:
            os.mkdir(os.path.join(root, name), 0o700)
        except FileExistsError:
            pass  # the second launch
        except OSError as error:
            raise StateError("%s: %s" % (os.path.join(root, name), error.strerror)) from None


def job_dir(root: str, job: str) -> str:
    """The directory of a job. Raises `StateError` for an id that is no plain name."""
    if not isinstance(job, str) or not _JOB_ID.fullmatch(job) or ".." in job:
        raise StateError("%r is not a job id" % (job,), "letters, digits, '.', '_' and '-', at most 64")
    return os.path.join(root, "jobs", job)


def job_ids(root: str) -> List[str]:
    """The ids of all jobs kept here, in no order; empty when there is no directory yet."""
    try:
        return [name for name in os.listdir(os.path.join(root, "jobs")) if _JOB_ID.fullmatch(name)]
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EACCES, errno.ENOTDIR):
            return []
        raise


def read_json(path: str) -> Optional[Dict[str, Any]]:
    """A JSON object; None when the file is not there. Raises `StateError` when it cannot be read or is none."""
    try:
        with open(path, "rb") as file:
            doc = json.loads(file.read().decode("utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateError("%s: %s" % (path, error.strerror)) from None
    except ValueError as error:
        raise StateError("%s is damaged: %s" % (path, error)) from None
    if not isinstance(doc, dict):
        raise StateError("%s is damaged: not an object" % path)
    return doc


def write_json(path: str, doc: Mapping[str, Any], sync: bool = True) -> None:
    """Replace the file at once, or not at all: a reader sees the old object or the new one. ``sync`` waits for the disk.

    Raises `OSError`; then the old file stays as it was.
    """
    temp = "%s.%d.tmp" % (path, os.getpid())
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        try:
            data = json.dumps(doc, separators=(",", ":"), allow_nan=False).encode()
            while data:
                data = data[os.write(fd, data) :]
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temp, path)
    except BaseException:
        try:
            os.unlink(temp)
        except OSError:
            pass  # what matters is the first error, raised below
        raise
    if sync:
        sync_directory(os.path.dirname(path))


def sync_directory(path: str) -> None:
    """Make the names in a directory durable; some file systems cannot, and need not."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(fd)


def remove_tree(path: str) -> None:
    """Delete a job's directory. It is renamed first, so that a half-deleted job is never seen. Raises `OSError`."""
    import shutil  # with its compressors 1 MB, which the shim should not pay

    gone = "%s.removed.%d~" % (path, os.getpid())
    os.rename(path, gone)
    shutil.rmtree(gone)
