"""The agent's and the shim's event loop: selectors, timers and children, in one thread. No asyncio: it costs 25 ms to import.

Callbacks must not block. An exception in a callback is handed to ``on_error`` (name of what failed, the error) and the loop
goes on.
"""

from __future__ import annotations

import heapq
import os
import selectors
import signal
import time
from typing import Any, Callable, Dict, FrozenSet, List, Optional, Tuple

CLOCK_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_now() -> float:
    """Seconds since the host's boot; goes on during suspend and never jumps."""
    return time.clock_gettime(CLOCK_BOOTTIME)


class Timer:
    """A callback due at a time; `cancel` takes it back."""

    __slots__ = ("callback", "cancelled", "due")

    def __init__(self, due: float, callback: Callable[[], None]) -> None:
        self.due, self.callback, self.cancelled = due, callback, False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """Readers, writers, timers and child exits. `run` returns after `stop`."""

    def __init__(self, on_error: Callable[[str, Exception], None]) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: List[Tuple[float, int, Timer]] = []
        self._sequence = 0
        self._running = False
        self._on_error = on_error
        self._children: Dict[int, Callable[[int], None]] = {}
        self._wake_read, self._wake_write = os.pipe()
        for fd in (self._wake_read, self._wake_write):
            os.set_blocking(fd, False)
        self.add_reader(self._wake_read, self._woken)

    def now(self) -> float:
        return time.monotonic()

    def complain(self, what: str, error: Exception) -> None:
        """Hand an error that a callback has dealt with to ``on_error``, so that its place is kept."""
        self._on_error(what, error)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(time.monotonic() + max(0.0, seconds), callback)
        self._sequence += 1
        heapq.heappush(self._timers, (timer.due, self._sequence, timer))
        return timer

    def add_reader(self, fd: int, callback: Callable[[], None]) -> None:
        self._set(fd, selectors.EVENT_READ, callback)

    def add_writer(self, fd: int, callback: Callable[[], None]) -> None:
        self._set(fd, selectors.EVENT_WRITE, callback)

    def remove_reader(self, fd: int) -> None:
        self._unset(fd, selectors.EVENT_READ)

    def remove_writer(self, fd: int) -> None:
        self._unset(fd, selectors.EVENT_WRITE)

    def _set(self, fd: int, event: int, callback: Callable[[], None]) -> None:
        try:
            key = self._selector.get_key(fd)
        except KeyError:
            self._selector.register(fd, event, {event: callback})
            return
        key.data[event] = callback
        self._selector.modify(fd, key.events | event, key.data)

    def _unset(self, fd: int, event: int) -> None:
        try:
            key = self._selector.get_key(fd)
        except KeyError:
            return
        key.data.pop(event, None)
        if key.events & ~event:
            self._selector.modify(fd, key.events & ~event, key.data)
        else:
            self._selector.unregister(fd)

    def watch_child(self, pid: int, callback: Callable[[int], None]) -> None:
        """Call ``callback(wait status)`` once the child has ended; it is reaped here."""
        if signal.getsignal(signal.SIGCHLD) != self._child_signal:
            signal.signal(signal.SIGCHLD, self._child_signal)
        self._children[pid] = callback
        self._wake()  # it may have ended before the handler stood

    def watches(self, pid: int) -> bool:
        """Whether this child's status is waited for here: nobody else may take it."""
        return pid in self._children

    @property
    def watched(self) -> FrozenSet[int]:
        """The children whose end somebody waits for."""
        return frozenset(self._children)

    def _child_signal(self, _number: int, _frame: Any) -> None:
        self._wake()

    def _wake(self) -> None:
        try:
            os.write(self._wake_write, b".")
        except BlockingIOError:
            pass  # the pipe is full of wake-ups already

    def _woken(self) -> None:
        while True:
            try:
                if not os.read(self._wake_read, 4096):
                    break
            except BlockingIOError:
                break
        for pid, callback in list(self._children.items()):
            try:
                done, status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                done, status = pid, -1  # reaped elsewhere: the status is not known
            if done:
                del self._children[pid]
                self.guard("child %d" % pid, lambda c=callback, s=status: c(s))  # type: ignore[misc]

    def guard(self, what: str, callback: Callable[[], None]) -> None:
        """Run a callback; an exception goes to ``on_error``."""
        try:
            callback()
        except Exception as error:  # noqa: BLE001 - one source's failure must not end the others; it is reported
            self._on_error(what, error)

    def stop(self) -> None:
        self._running = False
        self._wake()

    def run(self) -> None:
        self._running = True
        while self._running:
            for key, events in self._selector.select(self._timeout()):
                for event in (selectors.EVENT_READ, selectors.EVENT_WRITE):
                    callback = key.data.get(event)
                    if events & event and callback is not None:
                        self.guard("fd %d" % key.fd, callback)
            self._run_timers()

    def _timeout(self) -> Optional[float]:
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        if not self._timers:
            return None
        return max(0.0, self._timers[0][0] - time.monotonic())

    def _run_timers(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            if not timer.cancelled:
                self.guard("timer", timer.callback)

    def close(self) -> None:
        if signal.getsignal(signal.SIGCHLD) == self._child_signal:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a later child must not wake a loop that is closed
        self._selector.close()
        os.close(self._wake_read)
        os.close(self._wake_write)
