"""Programs whose output is read as it comes (journalctl, docker, podman, py-spy): children that neither block nor outlive us.

`tool.Tool` is for those that are asked something and end soon.
"""

from __future__ import annotations

import os
import signal
from typing import Callable, Dict, List, Mapping, Optional

from eagletui.agent import procfs, syscalls
from eagletui.agent.loop import Loop, Timer

_PIECE = 64 * 1024
_MOST_ERRORS = 4096
NOT_FOUND = 127


class Child:
    """A running program. ``data`` gets what it prints, ``ended(status, errors)`` comes once: its exit status (negative for a
    signal, `NOT_FOUND` when there is no such program), and what it wrote to stderr. With ``merged`` that goes to ``data`` too.

    After ``seconds`` it is killed. ``uid`` runs it as that user (root only), with that user's home and runtime directory.
    """

    def __init__(
        self,
        loop: Loop,
        argv: List[str],
        data: Callable[[bytes], None],
        ended: Callable[[int, str], None],
        seconds: Optional[float] = None,
        merged: bool = False,
        uid: Optional[int] = None,
    ) -> None:
        self._loop, self._data, self._ended = loop, data, ended
        self._errors = b""
        self._status: Optional[int] = None
        self.overdue = False
        env = _environment(uid)
        syscalls.load()
        parent = os.getpid()
        self._out, out = os.pipe()
        self._err, err = os.pipe()
        pid = os.fork()
        if pid == 0:
            _become(argv, env, out, out if merged else err, parent, uid)
        self.pid = pid
        os.close(out)
        os.close(err)
        for fd in (self._out, self._err):
            os.set_blocking(fd, False)
        loop.add_reader(self._out, self._readable)
        loop.add_reader(self._err, self._complaint)
        loop.watch_child(pid, self._reaped)
        self._timer: Optional[Timer] = loop.call_later(seconds, self._late) if seconds is not None else None

    @property
    def errors(self) -> str:
        """What it has written to stderr so far (the end of it)."""
        return self._errors.decode("utf-8", "replace").strip()

    def close(self) -> None:
        """End it and hear no more of it."""
        self._data, self._ended = (lambda data: None), (lambda status, errors: None)
        self._kill()

    def _late(self) -> None:
        self.overdue = True
        self._kill()

    def _kill(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._status is None:
            try:
                os.kill(self.pid, signal.SIGKILL)  # not reaped yet: the pid is still this child's
            except ProcessLookupError:
                pass  # it has been reaped elsewhere
        self._stop_reading()

    def _stop_reading(self) -> None:
        for name in ("_out", "_err"):
            fd = getattr(self, name)
            if fd >= 0:
                self._loop.remove_reader(fd)
                os.close(fd)
                setattr(self, name, -1)

    def _readable(self) -> None:
        try:
            data = os.read(self._out, _PIECE)
        except BlockingIOError:
            return
        if data:
            self._data(data)
            return
        self._loop.remove_reader(self._out)
        os.close(self._out)
        self._out = -1
        self._finish()

    def _complaint(self) -> None:
        try:
            data = os.read(self._err, _PIECE)
        except BlockingIOError:
            return
        if data:
            self._errors = (self._errors + data)[-_MOST_ERRORS:]
            return
        self._loop.remove_reader(self._err)
        os.close(self._err)
        self._err = -1
        self._finish()

    def _reaped(self, status: int) -> None:
        self._status = status
        if self._timer is not None:
            self._timer.cancel()
        self._finish()

    def _finish(self) -> None:
        """It has ended, and all that it wrote has been read. What it left running may hold its pipes: that is not waited for."""
        if self._status is None:
            return
        if self._out >= 0 or self._err >= 0:
            if not self.overdue:
                self._loop.call_later(0.5, self._give_up)
                return
            self._stop_reading()
        status, ended = self._status, self._ended
        self._ended = lambda status, errors: None
        code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status) if status >= 0 else -1
        ended(code, self.errors)

    def _give_up(self) -> None:
        self.overdue = True
        self._finish()


def _environment(uid: Optional[int]) -> Dict[str, str]:
    env = dict(os.environ)
    if uid is not None and uid != os.geteuid():
        env = {"PATH": env.get("PATH", ""), "HOME": _home(uid), "XDG_RUNTIME_DIR": "/run/user/%d" % uid}
    env["PATH"] = env.get("PATH") or "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    env.update(LC_ALL="C.UTF-8", SYSTEMD_COLORS="0", SYSTEMD_PAGER="")
    return env


def _home(uid: int) -> str:
    for line in (procfs.read_text("/etc/passwd") or "").splitlines():
        fields = line.split(":")
        if len(fields) > 5 and fields[2] == str(uid):
            return fields[5]
    return "/"


def _become(argv: List[str], env: Mapping[str, str], out: int, err: int, parent: int, uid: Optional[int]) -> None:
    """The child's side of the fork: never returns."""
    try:
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.closerange(3, 4096)
        if uid is not None and uid != os.geteuid():
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
        syscalls.die_with_parent()
        if os.getppid() != parent:
            os._exit(1)  # the agent died in this very moment
        os.execvpe(argv[0], argv, dict(env))  # noqa: S606 - an argument list, no shell
    finally:
        os._exit(NOT_FOUND)
