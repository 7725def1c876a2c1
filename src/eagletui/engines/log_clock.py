"""Time stamps of a log in seconds."""

from __future__ import annotations

import datetime
from typing import Optional

_DAY = 86400


class LogClock:
    """Time stamps of a log in seconds. vLLM prints no year: a month that falls back is the next year."""

    __slots__ = ("_last", "_shift", "value")

    def __init__(self) -> None:
        self._last = b""
        self.value = 0.0
        self._shift = 0.0

    def seconds(self, stamp: bytes) -> Optional[float]:
        """The stamp ``11-29 15:40:49`` or ``2026-11-29 16:19:09.123`` in seconds from an arbitrary zero; None if malformed."""
        if stamp == self._last:
            return self.value
        try:
            if len(stamp) >= 19:
                days = datetime.date(int(stamp[0:4]), int(stamp[5:7]), int(stamp[8:10])).toordinal()
                clock = stamp[11:]
                value = float(days * _DAY)
            else:
                # without a year: a leap year, so that 29 February exists
                days = datetime.date(2024, int(stamp[0:2]), int(stamp[3:5])).toordinal()
                clock = stamp[6:]
                value = days * _DAY + self._shift
            value += int(clock[0:2]) * 3600 + int(clock[3:5]) * 60 + float(clock[6:])
        except ValueError:  # digits that are no date: this is no stamp
            return None
        if len(stamp) < 19 and self._last and value < self.value - 180 * _DAY:
            self._shift += 366 * _DAY
            value += 366 * _DAY
        self._last, self.value = stamp, value
        return value
