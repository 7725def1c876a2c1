"""A timer that repeats without drift, and skips turns that were missed (a suspended host, a stopped agent)."""

from __future__ import annotations

from typing import Callable, Optional

from eagletui.agent.loop import Loop, Timer


class Ticker:
    """Calls ``callback`` every ``interval`` seconds from `start` to `stop`, the first time after ``delay``."""

    def __init__(self, loop: Loop, callback: Callable[[], None]) -> None:
        self._loop, self._callback = loop, callback
        self._timer: Optional[Timer] = None
        self._due = self.interval = 0.0

    def start(self, interval: float, delay: float = 0.0) -> None:
        """Start, or go on with another interval."""
        self.stop()
        self.interval = max(0.02, interval)
        self._due = self._loop.now() + delay
        self._timer = self._loop.call_later(delay, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        now = self._loop.now()
        self._due = max(self._due + self.interval, now + self.interval / 2)
        self._timer = self._loop.call_later(self._due - now, self._tick)
        self._callback()
