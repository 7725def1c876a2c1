"""A few threads for what may block on a disk or a dead network file system, so that the loop never does.

Started when first used, at most `LIMIT`; they are daemons, so one that hangs in the kernel does not keep the agent alive.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from typing import Any, Callable, Deque, Optional, Tuple

from eagletui.agent.loop import Loop

LIMIT = 4
Done = Callable[[Any, Optional[BaseException]], None]


class Workers:
    """Runs functions in threads and gives their result, or the exception they raised, to a callback on the loop."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._todo: Deque[Tuple[Callable[[], Any], Done]] = deque()
        self._finished: Deque[Tuple[Done, Any, Optional[BaseException]]] = deque()
        self._ready = threading.Semaphore(0)
        self._threads = self._busy = 0
        self._wake_read, self._wake_write = os.pipe()
        for fd in (self._wake_read, self._wake_write):
            os.set_blocking(fd, False)
        loop.add_reader(self._wake_read, self._collect)

    def run(self, work: Callable[[], Any], done: Done) -> None:
        """Call ``work()`` in a thread, then ``done(result, None)`` or ``done(None, error)`` on the loop."""
        self._busy += 1
        self._todo.append((work, done))
        if self._threads < min(self._busy, LIMIT):
            self._threads += 1
            sys.setswitchinterval(0.001)  # a busy thread must hand over to the loop at once: telemetry waits for it
            threading.Thread(target=self._thread, daemon=True).start()
        self._ready.release()

    def _thread(self) -> None:
        while True:
            self._ready.acquire()
            work, done = self._todo.popleft()
            try:
                self._finished.append((done, work(), None))
            except BaseException as error:  # noqa: BLE001 - handed to the loop, which answers with it
                self._finished.append((done, None, error))
            try:
                os.write(self._wake_write, b".")
            except BlockingIOError:
                pass  # the pipe is full of wake-ups already

    def _collect(self) -> None:
        try:
            os.read(self._wake_read, 4096)
        except BlockingIOError:
            pass  # an earlier turn took the wake-up and its result
        while self._finished:
            done, result, error = self._finished.popleft()
            self._busy -= 1
            self._loop.guard("the answer of a worker", lambda d=done, r=result, e=error: d(r, e))  # type: ignore[misc]


_pools: "dict[int, Workers]" = {}


def workers(loop: Loop) -> Workers:
    """The pool of a loop, made on first use."""
    pool = _pools.get(id(loop))
    if pool is None:
        pool = _pools[id(loop)] = Workers(loop)
    return pool
