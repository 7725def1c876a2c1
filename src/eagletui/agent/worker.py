"""A forked child for calls that may hang or crash: NVML, and file systems that have gone. The agent's loop never waits for it.

Parent and child speak JSON objects with a length before each, over two pipes. Before each call that may hang the child writes
into a `Cell` (memory that both share) what it is about to do, so that a hang or a crash can be told by name. The child is killed
when an answer is overdue; while one cannot be killed (uninterruptible sleep) it is `hanging`, and its owner starts no second one.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import struct
from typing import Any, Callable, Dict, Optional, Tuple

from eagletui.agent.loop import Loop, Timer

_LENGTH = struct.Struct(">I")
_hanging: Dict[int, str] = {}  # killed children that are not dead yet: pid -> label
Answer = Callable[[Dict[str, Any]], Dict[str, Any]]


def hanging(label: str) -> bool:
    """True while a killed child of this label lives on inside the kernel."""
    return label in _hanging.values()


class Cell:
    """What the child is doing now: a number (card, index of a mount; -1 for none) and the call's name."""

    _FORM = struct.Struct("=i60s")

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, self._FORM.size)  # anonymous and shared: it survives the fork
        self.note(-1, "")

    def note(self, number: int, call: str) -> None:
        self._FORM.pack_into(self._memory, 0, number, call.encode("ascii", "replace"))

    def read(self) -> Tuple[int, str]:
        number, call = self._FORM.unpack_from(self._memory, 0)
        return number, call.rstrip(b"\0").decode("ascii", "replace")


class Worker:
    """One child, one question at a time.

    ``make(cell)`` runs in the child and returns the function that answers. ``gone(why)`` is called once, when the child has ended
    and is reaped: ``why`` says how, and `crashed` is True when a call brought it down.
    """

    def __init__(self, loop: Loop, label: str, make: Callable[[Cell], Answer], gone: Callable[[str], None]) -> None:
        self._loop, self.label, self._gone = loop, label, gone
        self.cell = Cell()
        self.asked: Optional[float] = None
        self.killed = self.crashed = False
        self._overdue: Optional[Callable[[], None]] = None
        self._deadline: Optional[Timer] = None
        self._got: Optional[Callable[[Dict[str, Any]], None]] = None
        self._buffer = bytearray()
        question_read, self._write = os.pipe()
        self._read, answer_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            _child(make, self.cell, question_read, answer_write)
        self.pid = pid
        os.close(question_read)
        os.close(answer_write)
        os.set_blocking(self._read, False)
        loop.add_reader(self._read, self._readable)
        loop.watch_child(pid, self._ended)
        self._open = True

    @property
    def busy(self) -> bool:
        return self._got is not None

    @property
    def stuck(self) -> bool:
        """Killed, and still not dead."""
        return self.killed

    def waited(self) -> float:
        """Seconds since the question that is not answered yet; 0 when there is none."""
        return 0.0 if self.asked is None else self._loop.now() - self.asked

    def ask(
        self, question: Dict[str, Any], got: Callable[[Dict[str, Any]], None], seconds: float, overdue: Callable[[], None]
    ) -> None:
        """Ask; ``got`` has the answer. After ``seconds`` the child is killed and ``overdue`` called. Not while busy."""
        if self.busy or self.killed or not self._open:
            raise RuntimeError("the worker is busy or has ended")
        data = json.dumps(question, separators=(",", ":")).encode()
        self._got, self._overdue, self.asked = got, overdue, self._loop.now()
        self._deadline = self._loop.call_later(seconds, self._late)
        try:
            os.write(self._write, _LENGTH.pack(len(data)) + data)  # small, and the pipe is empty: it cannot block
        except BrokenPipeError:
            pass  # the child has just died: `_ended` tells

    def _late(self) -> None:
        overdue = self._overdue
        self.kill()
        if overdue is not None:
            overdue()

    def kill(self) -> None:
        """End the child now; ``gone`` follows when it is dead."""
        if not self.killed and self._open:
            self.killed = True
            _hanging[self.pid] = self.label
            os.kill(self.pid, signal.SIGKILL)  # not reaped yet, so the pid is still this child's
        self._got = None
        if self._deadline is not None:
            self._deadline.cancel()

    def close(self) -> None:
        """Forget the child: it ends itself, or is killed when it hangs. ``gone`` is not called any more."""
        self._gone = lambda why: None
        if self.busy:
            self.kill()
        self._got = None
        self._close_pipes()

    def _close_pipes(self) -> None:
        if self._write >= 0:
            self._loop.remove_reader(self._read)
            os.close(self._read)
            os.close(self._write)
            self._read = self._write = -1

    def _readable(self) -> None:
        data = os.read(self._read, 1 << 16)
        if not data:
            self._loop.remove_reader(self._read)  # it has ended: `_ended` follows
            return
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if len(self._buffer) < _LENGTH.size + length:
                return
            text = bytes(self._buffer[_LENGTH.size : _LENGTH.size + length])
            del self._buffer[: _LENGTH.size + length]
            got, self._got, self.asked = self._got, None, None
            if self._deadline is not None:
                self._deadline.cancel()
            if got is not None:
                got(json.loads(text.decode("ascii")))

    def _ended(self, status: int) -> None:
        call = self.cell.read()[1]
        _hanging.pop(self.pid, None)
        why = "the helper process ended"
        if status >= 0 and os.WIFSIGNALED(status):
            name = _signal_name(os.WTERMSIG(status))
            why = "the helper process was ended by %s" % name
            self.crashed = name in ("SIGSEGV", "SIGBUS", "SIGABRT", "SIGFPE", "SIGILL")
        elif status > 0:
            why = "the helper process ended with status %d" % os.WEXITSTATUS(status)
        if call and not self.killed:
            why += " in %s" % call
        if self._deadline is not None:
            self._deadline.cancel()
        self._open = self.killed = False
        self._got = self.asked = None
        self._close_pipes()
        self._gone(why)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal %d" % number


def _child(make: Callable[[Cell], Answer], cell: Cell, read_fd: int, write_fd: int) -> None:
    """The child's life: never returns into the agent's code."""
    status = 1
    try:
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        _keep_only(read_fd, write_fd)
        answer = make(cell)
        while True:
            head = _exactly(read_fd, _LENGTH.size)
            if head is None:
                break
            question = _exactly(read_fd, _LENGTH.unpack(head)[0])
            if question is None:
                break
            data = json.dumps(answer(json.loads(question.decode("ascii"))), separators=(",", ":")).encode("ascii")
            cell.note(-1, "")
            view = memoryview(_LENGTH.pack(len(data)) + data)
            while view:
                view = view[os.write(write_fd, view) :]
        status = 0
    finally:
        os._exit(status)  # also after an exception: the parent sees status 1 and starts a new child


def _keep_only(*keep: int) -> None:
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > 2 and fd not in keep:
            try:
                os.close(fd)
            except OSError:
                pass  # the descriptor of this very listing


def _exactly(fd: int, length: int) -> Optional[bytes]:
    data = b""
    while len(data) < length:
        more = os.read(fd, length - len(data))
        if not more:
            return None
        data += more
    return data
