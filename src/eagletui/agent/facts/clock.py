"""The time that the gathering of facts may take: whatever is not looked at by then is named instead."""

from __future__ import annotations

import time
from typing import List


class Clock:
    """``seconds`` from now on; ``skipped`` collects in words what was not looked at."""

    def __init__(self, seconds: float) -> None:
        self._began = time.monotonic()
        self._end = self._began + seconds
        self.skipped: List[str] = []

    def over(self, what: str = "") -> bool:
        """Whether the time is up; then ``what`` is noted as not looked at."""
        late = time.monotonic() >= self._end
        if late and what and what not in self.skipped:
            self.skipped.append(what)
        return late

    @property
    def spent(self) -> float:
        return time.monotonic() - self._began
