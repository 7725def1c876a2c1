"""Exit codes, and how an exception becomes one line on stderr."""

from __future__ import annotations

import enum
import os
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from eagletui import __version__
from eagletui.hosts.base import HostError
from eagletui.paths import state_dir
from eagletui.text import clean


class Exit(enum.IntEnum):
    """What each exit code means; docs/commands.md is written from these."""

    OK = 0
    WARNINGS = 1
    USAGE = 2
    CONNECTION = 3
    HOST = 4
    INTERNAL = 5
    ENDED = 6
    INTERRUPTED = 130

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]


_MEANINGS = {
    Exit.OK: "done, nothing to complain about",
    Exit.WARNINGS: "done, with warnings (`doctor`, `preflight`); a step failed or was refused, or the answer is no (`lab`); the"
    " server has failed (`launch`) or the job has (`run --wait`), the log tells of a failure (`diagnose`); something remains"
    " (`kill`)",
    Exit.USAGE: "wrong arguments or configuration; or something is in the way: a check failed (`doctor`), the launch"
    " would not come up (`preflight`, `launch`), a port or card is taken (`launch`), it was not confirmed or is not"
    " allowed (`kill`)",
    Exit.CONNECTION: "the host could not be reached, or did not let us in",
    Exit.HOST: "the host was reached but cannot do it (no usable python3, a request refused)",
    Exit.INTERNAL: "an error of eagletui itself; the line names a crash log",
    Exit.ENDED: "somebody ended the job before it was done (`run --wait`)",
    Exit.INTERRUPTED: "interrupted with ctrl+c",
}

_ON_THE_HOST = frozenset(("no-python", "old-python", "minimal-python", "agent", "absent", "denied", "replaced", "protocol"))


def exit_of(error: HostError) -> Exit:
    """The exit code of a failure told by the hosts' layer."""
    if error.kind in ("config", "taken"):
        return Exit.USAGE
    return Exit.HOST if error.kind in _ON_THE_HOST else Exit.CONNECTION


def explain(error: BaseException, arguments: Sequence[str]) -> Exit:
    """Tell ``error`` in one line on stderr and return the exit code. Anything unforeseen leaves a crash log."""
    if isinstance(error, KeyboardInterrupt):
        return Exit.INTERRUPTED
    if isinstance(error, HostError):
        say(str(error))
        return exit_of(error)
    if isinstance(error, BrokenPipeError):
        # the reader of our output (head, less) has left; without this, Python would complain once more while it exits
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    say(f"internal error: {type(error).__name__}: {error} - {_keep(error, arguments)}")
    return Exit.INTERNAL


def say(line: str) -> None:
    """One line on stderr, safe to print whatever a host has put into it."""
    print(f"eagletui: {' '.join(clean(line).split())}", file=sys.stderr)


def _keep(error: BaseException, arguments: Sequence[str]) -> str:
    """Write the crash log; words that say where it is."""
    text = "".join(traceback.format_exception(error))
    head = f"eagletui {__version__}, Python {sys.version.split()[0]}, {sys.platform}\narguments: {list(arguments)}\n\n"
    try:
        path = _write(state_dir() / "crashes", head + text)
    except OSError as problem:
        return f"no crash log could be written ({problem.strerror}: {problem.filename})"
    return f"details are in {path}; please report it with that file"


def _write(folder: Path, text: str) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / time.strftime(f"%Y%m%d-%H%M%S-{os.getpid()}.log")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    return path
