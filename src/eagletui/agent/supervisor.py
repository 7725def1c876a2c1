"""Starting a supervisor's process, or the helper that takes a dead one's place: this very code, in a unit or forked."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from typing import List, Mapping, Optional

from eagletui.agent import bundle, units
from eagletui.agent.loop import Loop
from eagletui.agent.tool import Said, Tool

UNIT_START = 10.0
SECRETS_AGE = 600.0
_FROM_SOURCE = (
    "import sys;sys.path.insert(0,sys.argv[1]);from importlib import import_module;"
    "sys.exit(import_module(sys.argv[2]).main(sys.argv[3:]))"
)


def shim_argv(root: str, *args: str) -> List[str]:
    """The command line of a supervisor. Raises `OSError`."""
    return own_argv(root, "eagletui.agent.shim_main", *args)


def own_argv(root: str, module: str, *args: str) -> List[str]:
    """The command line of a program of our own: this very code, kept in the state directory. Raises `OSError`."""
    if not bundle.BLOB:
        import eagletui

        source = os.path.dirname(os.path.dirname(os.path.abspath(eagletui.__file__)))
        return [sys.executable, "-I", "-S", "-c", _FROM_SOURCE, source, module, *args]
    directory = os.path.join(root, "code")
    os.makedirs(directory, mode=0o700, exist_ok=True)
    path = os.path.join(directory, hashlib.sha256(bundle.BLOB).hexdigest()[:16] + ".blob")
    if not os.path.exists(path):
        bundle.write_blob(path)
        _forget_old(directory, path)
    return [sys.executable, "-I", "-S", "-c", bundle.LOADER, path, module, *args]


def _forget_old(directory: str, current: str) -> None:
    """Remove the code of versions not used for a day; a running shim has read its own already."""
    for entry in os.scandir(directory):
        if entry.is_file() and entry.path != current and time.time() - entry.stat().st_mtime > 86400:
            os.unlink(entry.path)  # directories beside it are `code_dir`'s


def fork_detached(argv: List[str], stdin: int, keep: Optional[int] = None) -> int:
    """Start a process that is nobody's child and in a session of its own. Returns the pid of the one in between, to be reaped."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(stdin, 0)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        if keep is not None:
            os.set_inheritable(keep, True)
        os.execv(argv[0], argv)  # noqa: S606 - an argument list, no shell
    finally:
        os._exit(127)


def write_secrets(directory: str, job: str, secrets: Mapping[str, str]) -> str:
    """A 0600 file in a memory-backed directory, which the shim removes before it does anything else; its path."""
    for entry in os.scandir(directory):
        # of launches that were cut off there and never sent again
        try:
            if entry.name.endswith(".secrets") and time.time() - entry.stat(follow_symlinks=False).st_mtime > SECRETS_AGE:
                os.unlink(entry.path)
        except FileNotFoundError:
            pass  # its supervisor has just taken it
    path = os.path.join(directory, job + ".secrets")
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass  # the usual case
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(json.dumps({"secrets": dict(secrets)}).encode())
    return path


def start_helper(loop: Loop, root: str, job: str, directory: str) -> None:
    """Have a process end a job whose supervisor is dead. It outlives us and our session as well as that did. Raises `OSError`."""
    argv = shim_argv(root, "reap", directory)

    def fork() -> None:
        nothing = os.open(os.devnull, os.O_RDWR)
        try:
            between = fork_detached(argv, nothing)
        finally:
            os.close(nothing)
        loop.watch_child(between, lambda status: None)

    def found(way: units.Way) -> None:
        if way.runner == units.PROCESS:
            fork()
            return
        name = "eagletui-%s-end-%d.service" % (job, time.time() * 1000)
        command = units.unit_argv(way.runner, job, argv, os.environ, (180,), name)
        Tool(loop, command, answered, UNIT_START, units.unit_environ(os.environ))

    def answered(said: Said) -> None:
        if not said.ok:
            fork()  # no bus after all

    units.find_way(loop, found)
