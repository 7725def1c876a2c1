"""What a server did over stated windows: each from two of its scrapes and nothing else. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from eagletui.engines.metrics import acceptance, percentiles, rates
from eagletui.records import ServerSample, ServerView, ServerWindow
from eagletui.views.serving import LABELS

WINDOWS: tuple[tuple[str, float | None], ...] = tuple(zip(LABELS, (10.0, 60.0, 600.0, None), strict=True))
KEPT_SECONDS = 660.0
# two scrapes 2 s apart bound a window: one that is a little short of what its label says still carries that label
SLACK = 1.0


class Scrapes:
    """The newest scrapes of one server (`KEPT_SECONDS` of them) and its very first."""

    def __init__(self) -> None:
        self.first: ServerSample | None = None
        self._recent: deque[ServerSample] = deque()

    @property
    def newest(self) -> ServerSample | None:
        return self._recent[-1] if self._recent else self.first

    def add(self, sample: ServerSample) -> ServerSample | None:
        """Take a scrape; returns the one before it, or None when it is the first or not newer than the newest."""
        before = self.newest
        if before is not None and sample.boot <= before.boot:
            return None
        if self.first is None:
            self.first = sample
        self._recent.append(sample)
        while self._recent[0].boot < sample.boot - KEPT_SECONDS:
            self._recent.popleft()
        return before

    def older(self, first: ServerSample) -> None:
        """A scrape from before all that are known: the one that "since the start" counts from."""
        if self.first is None or first.boot < self.first.boot:
            self.first = first

    def pair(self, seconds: float | None) -> tuple[ServerSample, ServerSample, bool] | None:
        """The two scrapes that bound a window that ends now, and whether it is shorter than asked for."""
        newest = self.newest
        if newest is None or self.first is None:
            return None
        if seconds is None:
            return None if self.first is newest else (self.first, newest, False)
        older: ServerSample | None = None
        for sample in self._candidates():
            if sample.boot <= newest.boot - seconds + SLACK:
                older = sample
            else:
                break
        if older is not None:
            return older, newest, False
        earliest = next(iter(self._candidates()), newest)
        return None if earliest is newest else (earliest, newest, True)

    def _candidates(self) -> Iterable[ServerSample]:
        if self.first is not None and (not self._recent or self.first.boot < self._recent[0].boot):
            gap = not self._recent or self._recent[0].boot - self.first.boot > KEPT_SECONDS
            if not gap:
                yield self.first
        yield from self._recent

    def view(self, job: str, problem: str | None = None) -> ServerView | None:
        """All windows that end with the newest scrape."""
        newest = self.newest
        if newest is None:
            return None
        windows = []
        for label, seconds in WINDOWS:
            pair = self.pair(seconds)
            if pair is not None:
                windows.append(window(label, *pair))
        return ServerView(job, newest.boot, newest, tuple(windows), problem)


def window(label: str, older: ServerSample, newer: ServerSample, partial: bool = False) -> ServerWindow:
    """One window, exactly as the difference of its two scrapes gives it."""
    pace = rates(older, newer)
    speculates = newer.drafted is not None or newer.acceptance_from is not None
    return ServerWindow(
        label,
        newer.boot - older.boot,
        partial,
        prompt_per_s=pace.prompt,
        generated_per_s=pace.generated,
        finished_per_s=pace.finished,
        prefix_hit_rate=pace.prefix_hits,
        acceptance=acceptance(older, newer) if speculates else None,
        ttft=percentiles(older.ttft, newer.ttft, older.ttft_sum, newer.ttft_sum),
        itl=percentiles(older.itl, newer.itl, older.itl_sum, newer.itl_sum),
        restarted=pace.restarted,
    )
