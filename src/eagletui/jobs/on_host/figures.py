"""How fast it goes: by the server's own counters where it has them, else by the answers that came."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Deque, Mapping, Optional, Tuple

from eagletui.jobs.on_host.answers import generated
from eagletui.jobs.on_host.chat import Chat

LOOK_BACK = 60.0
STALL_LEAST = 60.0
STALL_TIMES = 5.0
"""A request is told as stalled when it waits that many times as long as the answers before it took, and a minute at least."""


class Figures:
    """``waiting`` is the length of the server's queue, None where it does not say."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._answers: Deque[Tuple[float, int, float]] = deque()
        self._since = time.monotonic()
        self._pages: Deque[Tuple[float, float]] = deque(maxlen=2)
        self.waiting: Optional[float] = None

    def answered(self, row: Mapping[str, Any]) -> None:
        """A row has come."""
        now = time.monotonic()
        self._answers.append((now, generated(row), row["seconds"]))
        self._forget(now)

    def _forget(self, now: float) -> None:
        while self._answers and now - self._answers[0][0] > LOOK_BACK:
            self._answers.popleft()

    async def scrape(self) -> None:
        """Look at the server's own figures."""
        sample = await self._chat.sample(time.monotonic(), time.time())
        self.waiting = sample.waiting if sample is not None else None
        made = None if sample is None else sample.decoded_tokens if sample.decoded_tokens is not None else sample.generated_tokens
        if sample is None or made is None or (self._pages and made < self._pages[-1][1]):
            self._pages.clear()  # it was started anew, or has none
        if sample is not None and made is not None:
            self._pages.append((sample.boot, made))

    def counted(self) -> Optional[float]:
        """Generated tokens a second between the last two looks, by the server's own counters; None where it has none."""
        if len(self._pages) < 2 or self._pages[1][0] <= self._pages[0][0]:
            return None
        return (self._pages[1][1] - self._pages[0][1]) / (self._pages[1][0] - self._pages[0][0])

    def rate(self, now: float) -> Optional[float]:
        """Generated tokens a second; None while unknown."""
        counted = self.counted()
        if counted is not None:
            return counted
        return self._over(now, sum(tokens for _, tokens, _ in self._answers))

    def answers_rate(self, now: float) -> Optional[float]:
        """Answers a second, over the last minute."""
        self._forget(now)
        return self._over(now, len(self._answers))

    def _over(self, now: float, amount: float) -> Optional[float]:
        seconds = min(LOOK_BACK, now - self._since)
        return amount / seconds if self._answers and seconds >= 1.0 else None

    def usual(self) -> Optional[float]:
        """The seconds that the middle one of the latest answers took."""
        times = sorted(seconds for _, _, seconds in self._answers)
        return times[len(times) // 2] if times else None


def stalled(flying: Mapping[str, float], now: float, usual: Optional[float]) -> Optional[str]:
    """Words for requests that wait strangely long; None when none does."""
    limit = max(STALL_LEAST, STALL_TIMES * (usual or 0.0))
    late = [(now - left, name) for name, left in flying.items() if now - left > limit]
    if not late:
        return None
    seconds, name = max(late)
    text = "%d wait for more than %d s, the longest (%s) for %d s" % (len(late), limit, name, seconds)
    return text + ("" if usual is None else "; answers usually take %.0f s" % usual)
