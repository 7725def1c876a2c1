"""This package as files on the host, for programs of ours that run under an engine's python: ``STATE/code/<hash>/eagletui/``.

Records, arithmetic, engines and jobs are unpacked, whether this agent runs from memory or from an installation. A directory is
whole or not there (written beside, then renamed); it stays as long as a job that uses it lives, and a day longer.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from typing import Dict, Mapping, NamedTuple

from eagletui.agent import bundle

ROOMS = ("engines", "jobs", "records")
SINGLE = ("eagletui", "eagletui.speculation")
USED = ".used"
KEPT = 86400.0


class Code(NamedTuple):
    """``path`` is what belongs on ``PYTHONPATH``; while ``fd`` is open (in us, or in who inherited it) it is not removed."""

    path: str
    fd: int


def unpack(root: str) -> Code:
    """Have the package as files under the state directory ``root``. Raises `OSError`."""
    for _ in range(3):
        try:
            return _unpacked(root)
        except FileNotFoundError:
            continue  # another supervisor, of another version, has just forgotten it
    return _unpacked(root)


def _unpacked(root: str) -> Code:
    files = sources()
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(b"%s\0%s\0" % (name.encode(), files[name]))
    base = os.path.join(root, "code")
    os.makedirs(base, mode=0o700, exist_ok=True)
    path = os.path.join(base, digest.hexdigest()[:16])
    if not _whole(path, files):
        _write(path, files)
    fd = os.open(os.path.join(path, USED), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_SH)
    try:
        os.utime(path)
        if not _whole(path, files):
            raise FileNotFoundError(2, "it is being removed", path)
    except OSError:
        os.close(fd)
        raise
    _forget_old(base, path)
    return Code(path, fd)


def sources() -> Dict[str, bytes]:
    """What is unpacked: path below ``PYTHONPATH`` -> content."""
    if bundle.IMPORTER is not None:
        modules = {name: text.encode() for name, text in bundle.IMPORTER.modules.items() if _wanted(name)}
        packages = {name.rpartition(".")[0] for name in modules}
        return {name.replace(".", "/") + ("/__init__.py" if name in packages else ".py"): text for name, text in modules.items()}
    import eagletui

    found: Dict[str, bytes] = {}
    top = os.path.dirname(os.path.abspath(eagletui.__file__))
    for directory, _, names in os.walk(top):
        for name in names:
            path = os.path.relpath(os.path.join(directory, name), os.path.dirname(top))
            module = path[: -len(".py")].replace("/", ".")
            if name.endswith(".py") and _wanted(module[: -len(".__init__")] if name == "__init__.py" else module):
                with open(os.path.join(directory, name), "rb") as file:
                    found[path] = file.read()
    return found


def _wanted(module: str) -> bool:
    return module in SINGLE or (module.startswith("eagletui.") and module.split(".")[1] in ROOMS)


def _whole(path: str, files: Mapping[str, bytes]) -> bool:
    """Whether every file is there in its length: a crash of the host may have left empty ones."""
    try:
        return all(os.path.getsize(os.path.join(path, name)) == len(text) for name, text in files.items())
    except OSError:
        return False  # not there yet, or not all of it: written below


def _write(path: str, files: Mapping[str, bytes]) -> None:
    import shutil

    temp = "%s.%d.tmp" % (path, os.getpid())
    try:
        for name, text in files.items():
            full = os.path.join(temp, name)
            os.makedirs(os.path.dirname(full), mode=0o700, exist_ok=True)
            with open(full, "wb") as file:
                file.write(text)
        if os.path.lexists(path) and not _whole(path, files):
            os.rename(path, "%s.%d.broken.tmp" % (path, os.getpid()))
        try:
            os.rename(temp, path)
        except OSError:
            if not _whole(path, files):  # else another supervisor was faster
                raise
    finally:
        for left in (temp, "%s.%d.broken.tmp" % (path, os.getpid())):
            shutil.rmtree(left, ignore_errors=True)


def _forget_old(base: str, current: str) -> None:
    """Remove what no job has used for a day. What cannot be removed stays for the next time."""
    import shutil

    for entry in list(os.scandir(base)):
        try:
            if not entry.is_dir(follow_symlinks=False) or entry.path == current:
                continue
            if time.time() - entry.stat(follow_symlinks=False).st_mtime < KEPT or _used(entry.path):
                continue
        except FileNotFoundError:
            continue  # another supervisor has just removed it
        shutil.rmtree(entry.path, ignore_errors=True)


def _used(path: str) -> bool:
    """Whether a job that lives holds this directory."""
    try:
        fd = os.open(os.path.join(path, USED), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False  # never finished
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
