"""How fast something goes, over the last minutes, and how long the rest will take by that: estimates, and said to be."""

from __future__ import annotations

from collections import deque
from typing import Deque, Optional, Tuple

WINDOW = 180.0
"""Seconds that the rate looks back."""
LEAST = 5.0
"""Seconds before a rate is told at all."""
STEP = 1.0


class Pace:
    """Tell it how much is done, and when (a boot time); what was there at the first word is nobody's work of today."""

    def __init__(self, window: float = WINDOW) -> None:
        self._window = window
        self._seen: Deque[Tuple[float, float]] = deque()

    def tell(self, boot: float, done: float) -> None:
        """``done`` units are done by now. Less than before (a new stage, another bar) begins anew."""
        if self._seen and done < self._seen[-1][1]:
            self._seen.clear()
        if len(self._seen) > 1 and boot - self._seen[-2][0] < STEP:
            self._seen.pop()
        self._seen.append((boot, done))
        while len(self._seen) > 2 and boot - self._seen[1][0] > self._window:
            self._seen.popleft()

    def rate(self, boot: float) -> Optional[float]:
        """Units a second; None while too little was seen. Time without any progress counts."""
        if not self._seen:
            return None
        start, before = self._seen[0]
        seconds = boot - start
        if seconds < LEAST:
            return None
        return (self._seen[-1][1] - before) / seconds

    def remaining(self, boot: float, total: Optional[float]) -> Optional[float]:
        """Seconds until ``total``; None where nothing moves, or nobody knows how much there is."""
        rate = self.rate(boot)
        if total is None or not rate:
            return None
        return max(0.0, (total - self._seen[-1][1]) / rate)

    def basis(self, boot: float) -> Optional[str]:
        """What the estimate rests on, in words."""
        if self.rate(boot) is None:
            return None
        seconds = boot - self._seen[0][0]
        return "the last %d s" % seconds if seconds < 120 else "the last %d min" % round(seconds / 60)
