"""Programs of the host that are asked something and end soon: systemctl, podman, docker. The loop never waits for them."""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set

from eagletui.agent.loop import Loop, Timer

MOST = 1 << 18
_running: Set[int] = set()


def running() -> Set[int]:
    """The programs that this process is asking now: its children, and nobody else's business."""
    return _running


class Said(NamedTuple):
    """What a program answered. ``status`` is None when it was cut off for its time, 127 when there is no such program."""

    status: Optional[int]
    out: str = ""
    err: str = ""

    @property
    def ok(self) -> bool:
        return self.status == 0

    def why(self, name: str) -> str:
        """Why it failed, in one line."""
        if self.status is None:
            return "%s did not answer in time" % name
        if self.status == 127 and not self.err.strip():
            return "%s is not installed here" % name
        lines = [line for line in self.err.splitlines() if line.strip()]
        return lines[-1].strip()[:300] if lines else "%s: exit status %d" % (name, self.status)


class Tool:
    """One run of ``argv`` (a list, no shell). ``done(Said)`` is called once, unless `give_up` was. Output beyond
    256 KiB is dropped. ``timeout`` is in seconds; then the program is killed (one that hangs in the kernel is left to itself).
    """

    def __init__(
        self,
        loop: Loop,
        argv: Sequence[str],
        done: Callable[[Said], None],
        timeout: float = 20.0,
        env: Optional[Mapping[str, str]] = None,
    ) -> None:
        self._loop, self._done = loop, done
        self._parts: List[List[bytes]] = [[], []]
        self._status: Optional[int] = None
        self._over = False
        pipes = [os.pipe(), os.pipe()]
        self.pid = os.fork()
        if self.pid == 0:
            _become(argv, pipes[0][1], pipes[1][1], env)
        _running.add(self.pid)
        self._fds: Dict[int, int] = {}
        for at, (read_end, write_end) in enumerate(pipes):
            os.close(write_end)
            os.set_blocking(read_end, False)
            self._fds[read_end] = at
            loop.add_reader(read_end, partial(self._look, read_end))
        self._timer: Timer = loop.call_later(timeout, self._late)
        loop.watch_child(self.pid, self._ended)

    def give_up(self) -> None:
        """Nobody waits for the answer any more; the program is ended."""
        self._done = lambda said: None
        self._kill()

    def _kill(self) -> None:
        if self._status is None:
            try:
                os.kill(self.pid, signal.SIGKILL)  # our own child, not reaped yet: the number is its own
            except ProcessLookupError:
                pass  # it has just ended; its status comes

    def _look(self, fd: int) -> None:
        self._read(fd)

    def _read(self, fd: int) -> bool:
        """Read once; False when nothing is there (yet, or any more)."""
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return False
        if data:
            if sum(map(len, self._parts[self._fds[fd]])) < MOST:
                self._parts[self._fds[fd]].append(data)
            return True
        self._close(fd)
        self._finish()
        return False

    def _close(self, fd: int) -> None:
        if self._fds.pop(fd, None) is not None:
            self._loop.remove_reader(fd)
            os.close(fd)

    def _ended(self, status: int) -> None:
        _running.discard(self.pid)
        self._status = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        for fd in list(self._fds):  # what it wrote last; a grandchild that keeps the pipe open is not waited for
            while fd in self._fds and self._read(fd):
                pass
        self._finish(True)

    def _late(self) -> None:
        if not self._over:
            self._kill()
            self._over = True
            self._timer.cancel()
            self._drop()
            self._done(Said(None, self._text(0), self._text(1)))

    def _finish(self, ended: bool = False) -> None:
        if self._over or self._status is None or (self._fds and not ended):
            return
        self._over = True
        self._timer.cancel()
        self._drop()
        self._done(Said(self._status, self._text(0), self._text(1)))

    def _drop(self) -> None:
        for fd in list(self._fds):
            self._close(fd)

    def _text(self, at: int) -> str:
        return b"".join(self._parts[at]).decode("utf-8", "replace")


def _become(argv: Sequence[str], out: int, err: int, env: Optional[Mapping[str, str]]) -> None:
    """In the child: the program, or status 127."""
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.execvpe(argv[0], list(argv), dict(os.environ if env is None else env))  # noqa: S606 - an argument list, no shell
    finally:
        os._exit(127)
