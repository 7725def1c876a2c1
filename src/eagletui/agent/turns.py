"""A job's watcher at work, in a thread: it reads files, and a file system that has gone must not hold up the job's supervisor.

A turn feeds the watcher what the log brought, has it look, and takes what it has to say. One turn at a time; so the watcher needs
no locks. What it raises is part of what a turn brings.
"""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, TypeVar

from eagletui.agent.loop import Loop, boot_now
from eagletui.agent.workers import workers
from eagletui.jobs.watcher import Outcome, Watcher
from eagletui.records.work import Work

T = TypeVar("T")

FULL = 4 << 20
"""Bytes of log that wait for the watcher, beyond which the log is not read on; while a turn hangs they are dropped instead."""
HANGS = 30.0


class Seen(NamedTuple):
    """What a turn brought. ``fails`` are (what was asked, what it raised); ``outcome`` is that of the last turn."""

    work: Optional[Work]
    samples: List[Dict[str, Any]]
    notes: List[str]
    troubles: Tuple[str, ...]
    fails: Tuple[Tuple[str, Exception], ...]
    outcome: Optional[Outcome] = None


def turn(watcher: Watcher, fed: List[bytes], ended: Optional[Tuple[Optional[int], bool]] = None) -> Seen:
    """One turn. ``ended`` (exit status, whether somebody ended it) makes it the last."""
    fails: List[Tuple[str, Exception]] = []
    boot = boot_now()

    def ask(what: str, call: Callable[[], T]) -> Optional[T]:
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - handed to the supervisor, which tells it; the job goes on
            fails.append((what, error))
            return None

    for data in fed:
        ask("feed", lambda piece=data: watcher.feed(piece, boot))  # type: ignore[misc]
    ask("look", lambda: watcher.look(boot))
    outcome = None
    if ended is not None:
        rc, killed = ended
        outcome = ask("outcome", lambda: _plain(watcher.outcome(rc, killed)))
    return Seen(
        ask("work", lambda: watcher.work(boot)),
        ask("samples", watcher.samples) or [],
        ask("notes", watcher.notes) or [],
        tuple(ask("troubles", watcher.troubles) or ()),
        tuple(fails),
        outcome,
    )


def _plain(outcome: Outcome) -> Outcome:
    """The same, when it is JSON; else raises ``TypeError`` or ``ValueError``."""
    json.dumps(outcome.result, allow_nan=False)
    return Outcome(outcome.ok, str(outcome.why), outcome.result)


class Turns:
    """The turns of one watcher. ``took(seen)`` is called on the loop after each."""

    def __init__(self, loop: Loop, watcher: Watcher, took: Callable[[Seen], None]) -> None:
        self._loop, self._watcher, self._took = loop, watcher, took
        self._fed: List[bytes] = []
        self._size = self.dropped = 0
        self._since: Optional[float] = None

    def feed(self, data: bytes) -> None:
        """More of the log, for the next turn."""
        if self._size > FULL and self.hangs:
            self.dropped += len(data)
            return
        self._fed.append(data)
        self._size += len(data)

    @property
    def full(self) -> bool:
        """Whether the log should not be read on for now."""
        return self._size > FULL and not self.hangs

    @property
    def hangs(self) -> float:
        """Seconds for which a turn has been under way, when these are too many; else 0."""
        waited = 0.0 if self._since is None else self._loop.now() - self._since
        return waited if waited > HANGS else 0.0

    def begin(self, ended: Optional[Tuple[Optional[int], bool]] = None) -> bool:
        """Start a turn; False while one is under way."""
        if self._since is not None:
            return False
        fed, self._fed, self._size = self._fed, [], 0
        self._since = self._loop.now()
        workers(self._loop).run(lambda: turn(self._watcher, fed, ended), self._done)
        return True

    def _done(self, seen: Optional[Seen], error: Optional[BaseException]) -> None:
        self._since = None
        if seen is None:
            kept = error if isinstance(error, Exception) else RuntimeError(str(error))
            seen = Seen(None, [], [], (), (("turn", kept),))
        self._took(seen)
