"""How many requests are in flight: more while that brings more tokens a second and nothing queues, fewer when it does not.

Doubled at first, then by an eighth; halved when the server fails or refuses, down to what it can take when requests wait in its
queue. Pure: the caller brings the clock and the figures.
"""

from __future__ import annotations

from typing import Optional

WINDOW = 4.0
"""Seconds between two looks."""
HOLD = 60.0
"""Seconds until a step that had brought nothing is tried again."""
GAIN = 1.03
"""What a step up has to bring."""
PAUSE = 5.0
"""Seconds after a cut in which a further failure cuts no more: it is of the same time."""


class Concurrency:
    """``limit`` is how many requests may be in flight, at most ``most``."""

    def __init__(self, most: int, start: int = 8) -> None:
        self.most = max(1, most)
        self.limit = max(1, min(start, self.most))
        self._doubling = True
        self._before: Optional[float] = None
        self._stepped_from: Optional[int] = None
        self._hold_until = 0.0
        self._cut_at: Optional[float] = None

    def look(self, now: float, rate: Optional[float], waiting: Optional[float], full: bool) -> Optional[str]:
        """A window is over. ``rate``: tokens a second in it, None when unknown; ``waiting``: requests in the server's queue, None
        when unknown; ``full``: as many as allowed were in flight. Returns what was changed, in words.
        """
        if waiting:
            self._doubling = False
            self._stepped_from = None
            self._hold_until = now + HOLD
            fewer = max(1, self.limit - int(waiting))
            return self._set(fewer, "%d wait in the server's queue" % waiting)
        stepped = self._stepped_from
        if stepped is not None and rate is not None and self._before is not None:
            self._stepped_from = None
            if rate < self._before * GAIN:
                self._doubling = False
                self._hold_until = now + HOLD
                words = "%.0f tok/s at %d, %.0f at %d" % (self._before, stepped, rate, self.limit)
                return self._set(stepped, words)
        if not full or self.limit >= self.most or now < self._hold_until:
            return None
        self._before, self._stepped_from = rate, self.limit
        step = self.limit if self._doubling else max(1, self.limit // 8)
        return self._set(min(self.most, self.limit + step), "%.0f tok/s" % rate if rate is not None else "nothing waits")

    def trouble(self, now: float, why: str) -> Optional[str]:
        """The server failed or refused a request. Returns what was changed, in words."""
        if self._cut_at is not None and now - self._cut_at < PAUSE:
            return None
        self._cut_at = now
        self._doubling = False
        self._stepped_from = None
        self._hold_until = now + PAUSE
        return self._set(max(1, self.limit // 2), why)

    def _set(self, limit: int, why: str) -> Optional[str]:
        if limit == self.limit:
            return None
        text = "concurrency %d -> %d: %s" % (self.limit, limit, why)
        self.limit = limit
        return text
