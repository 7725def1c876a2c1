"""The agent's way out: a non-blocking descriptor, and two queues. Telemetry and short answers overtake bodies between frames."""

from __future__ import annotations

import os
from collections import deque
from typing import Callable, Deque

from eagletui.agent.loop import Loop

_JOIN = 64 * 1024


class Output:
    """Writes whole frames in order of urgency. ``on_closed(why)`` is called once when nobody reads any more."""

    def __init__(self, loop: Loop, fd: int, on_closed: Callable[[str], None]) -> None:
        self._loop, self._fd, self._on_closed = loop, fd, on_closed
        os.set_blocking(fd, False)
        self._urgent: Deque[bytes] = deque()
        self._bulk: Deque[bytes] = deque()
        self._current = memoryview(b"")
        self._waiting = self._closed = False
        self.queued = 0  # bytes not yet given to the kernel

    def send(self, frame: bytes, urgent: bool = True) -> None:
        """Queue one whole frame (or several that belong together, as bytes)."""
        if self._closed:
            return
        (self._urgent if urgent else self._bulk).append(frame)
        self.queued += len(frame)
        if not self._waiting:
            self._flush()

    def _next(self) -> bytes:
        if self._urgent:
            pieces = [self._urgent.popleft()]
            size = len(pieces[0])
            while self._urgent and size + len(self._urgent[0]) <= _JOIN:
                pieces.append(self._urgent.popleft())
                size += len(pieces[-1])
            return b"".join(pieces)
        return self._bulk.popleft() if self._bulk else b""

    def _flush(self) -> None:
        while True:
            if not self._current:
                self._current = memoryview(self._next())
                if not self._current:
                    break
            try:
                done = os.write(self._fd, self._current)
            except BlockingIOError:
                if not self._waiting:
                    self._waiting = True
                    self._loop.add_writer(self._fd, self._flush)
                return
            except OSError as error:
                self.close()
                self._on_closed("the connection is closed: %s" % (error.strerror or error))
                return
            self._current = self._current[done:]
            self.queued -= done
        if self._waiting:
            self._waiting = False
            self._loop.remove_writer(self._fd)

    def close(self) -> None:
        """Send nothing more; what is queued is dropped."""
        self._closed = True
        self._urgent.clear()
        self._bulk.clear()
        self._current = memoryview(b"")
        self.queued = 0
        if self._waiting:
            self._waiting = False
            self._loop.remove_writer(self._fd)
