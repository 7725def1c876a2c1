"""What a job that is no server does: how far it is, how fast, and what it counts. Its supervisor writes it, screens read it."""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

from eagletui.records.codec import NESTED, SINGLE


class Counter(NamedTuple):
    """One thing that is counted or measured while it runs (failed, truncated, tok/s, loss): ``value`` in ``unit``.

    ``bad`` marks what should be none: a screen shows it loud when it is above zero.
    """

    name: str
    value: float
    unit: str = ""
    bad: bool = False


class Work(NamedTuple):
    """``stage`` says in a few words what it does now. ``done`` of ``total`` in ``unit`` (rows, samples, steps, bytes, requests).

    ``rate`` is units a second over the last minutes, ``remaining`` the seconds that are left by it, an estimate, ``basis`` in
    words what that rests on. Resumed work counts what was there before as done, and the rate only what was done since.
    """

    stage: Optional[str] = None
    done: Optional[float] = None
    total: Optional[float] = None
    unit: str = ""
    rate: Optional[float] = None
    remaining: Optional[float] = None
    basis: Optional[str] = None
    counters: Tuple[Counter, ...] = ()


NESTED["Work"] = {"counters": Counter}
SINGLE["JobState"] = {"work": Work}
