"""Starting the job's main process: own session, signals as at login, output on the log, and a failure told in words."""

from __future__ import annotations

import errno
import json
import os
import signal
from typing import Callable, Mapping, Optional, Sequence

from eagletui.agent import limits
from eagletui.jobs.hidden import filled


class SpawnFailed(Exception):
    """The program could not be started; the text names what is missing."""


def open_log(path: str) -> int:
    """The job's log for appending, 0600. Raises `OSError`."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def spawn(
    argv: Sequence[str],
    cwd: str,
    env: Mapping[str, str],
    log_fd: int,
    keep: Sequence[int] = (),
    cgroup: Optional[str] = None,
    announce: Optional[Callable[[int], None]] = None,
) -> int:
    """Fork and exec; returns the pid once the program runs. ``keep`` are descriptors it inherits (the leases).

    ``cgroup`` is a control group's directory the process moves to first. ``announce(pid)`` is called before the program may
    run: should we die before that has been noted, it never runs. Raises `SpawnFailed`; then nothing is left. Arguments that
    were hidden get their values from ``env``.
    """
    argv, env = filled(argv, env)
    read_end, write_end = os.pipe()
    may_run, let_run = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(let_run)
        _child(argv, cwd, env, log_fd, keep, cgroup, write_end, may_run)
    os.close(write_end)
    os.close(may_run)
    try:
        if announce is not None:
            announce(pid)
        os.write(let_run, b"x")
    except BrokenPipeError:
        pass  # it has failed already, and says why below
    finally:
        os.close(let_run)  # also when announcing failed: then it ends by itself
    told = b""
    while True:
        part = os.read(read_end, 65536)
        if not part:
            break
        told += part
    os.close(read_end)
    if told:
        os.waitpid(pid, 0)
        what = json.loads(told.decode("utf-8"))
        raise SpawnFailed(_words(str(what["step"]), int(what["errno"]), argv[0], cwd))
    return pid


def _child(
    argv: Sequence[str],
    cwd: str,
    env: Mapping[str, str],
    log_fd: int,
    keep: Sequence[int],
    cgroup: Optional[str],
    write_end: int,
    may_run: int,
) -> None:
    """In the child: becomes the program, or tells why not and ends."""
    step = "session"
    try:
        os.setsid()
        if not os.read(may_run, 1):
            os._exit(127)  # the supervisor has died, and nobody would know of us
        limits.the_jobs()
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        for number in signal.valid_signals() if hasattr(signal, "valid_signals") else range(1, signal.NSIG):
            if number not in (signal.SIGKILL, signal.SIGSTOP):
                try:
                    signal.signal(number, signal.SIG_DFL)
                except (OSError, ValueError):
                    pass  # one of the C library's own signals
        if cgroup is not None:
            try:
                with open(cgroup + "/cgroup.procs", "w", encoding="ascii") as file:
                    file.write(str(os.getpid()))
            except OSError:
                pass  # it stays in the unit's own group, where it is found as well
        step = "output"
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(log_fd, 1)
        os.dup2(log_fd, 2)
        for fd in keep:
            os.set_inheritable(fd, True)
        step = "cwd"
        os.chdir(cwd)
        step = "exec"
        os.execvpe(argv[0], list(argv), dict(env))  # noqa: S606 - an argument list, no shell
    except BaseException as error:  # noqa: BLE001 - whatever it is, the parent must hear of it and the child must end
        code = error.errno if isinstance(error, OSError) and error.errno else errno.EINVAL
        os.write(write_end, json.dumps({"step": step, "errno": code}).encode())
    finally:
        os._exit(127)


def _words(step: str, code: int, program: str, cwd: str) -> str:
    if step == "cwd":
        return "%s: %s" % ("no such directory" if code == errno.ENOENT else "working directory", cwd) + (
            "" if code == errno.ENOENT else " (%s)" % os.strerror(code)
        )
    if step == "exec":
        if code == errno.ENOENT:
            if os.sep in program and os.path.exists(program):
                return "%s: the interpreter named in its first line is missing" % program
            return "no such file: %s" % program if os.sep in program else "no such program in PATH: %s" % program
        if code == errno.EACCES:
            return "permission denied: %s is not executable" % program
        if code == errno.ENOEXEC:
            return "%s is no program (no first line that names its interpreter)" % program
        return "%s: %s" % (program, os.strerror(code))
    return "%s: %s" % (step, os.strerror(code))
