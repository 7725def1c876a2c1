"""A benchmark in sentences that need no knowledge of speculative decoding. Pure functions."""

from __future__ import annotations

from typing import List, Optional, Sequence

from eagletui.records.bench import BenchResult, BreakEven, LoadVerdict


def percent(share: float) -> str:
    """``10 %``; below one percent with a decimal."""
    value = 100.0 * share
    return "%.1f %%" % value if 0 < abs(value) < 1 else "%.0f %%" % value


def faster(gain: float) -> str:
    """``33 % slower``, ``12 % faster``, ``2.1 times as fast``, ``as fast``."""
    if gain >= 2:
        return "%.1f times as fast" % gain
    if abs(gain - 1.0) < 0.005:
        return "as fast"
    return "%s %s" % (percent(abs(gain - 1.0)), "faster" if gain > 1 else "slower")


def at_load(concurrency: int, context: str) -> str:
    """``at concurrency 4, context 2k``."""
    return "at concurrency %d" % concurrency + ("" if context == "as given" else ", context %s" % context)


def load_sentence(load: LoadVerdict, base: BenchResult, other: BenchResult, k: Optional[int]) -> str:
    """One load in one sentence."""
    where = at_load(load.concurrency, load.context)
    gained = other.server.drafter and not base.server.drafter
    who = "With this drafter (%s) the server" % other.arm if gained else "%s against %s" % (other.arm, base.arm)
    if load.problems:
        return "%s%s: no verdict - %s." % (where[:1].upper(), where[1:], "; ".join(load.problems))
    if load.gain is None:
        return "%s%s: nothing was measured." % (where[:1].upper(), where[1:])
    text = "%s is %s %s" % (who, faster(load.gain), where)
    if load.pays == "unclear" and load.low is not None and load.high is not None:
        text += ", too close to call (%.2f to %.2f times the speed without)" % (load.low, load.high)
    if gained and load.needed is not None and load.acceptance is not None:
        if load.needed > 1:
            text += "; no drafter with k = %s can pay here, it would need more than every token accepted" % k
        else:
            text += "; it needs %s acceptance and has %s" % (percent(load.needed), percent(load.acceptance))
    return text + "."


def never(word: str, first: float, last: float) -> str:
    """No crossing: the drafter ``pays`` or ``loses`` at every load."""
    return "%s at every concurrency measured (%g to %g)" % (word, first, last)


def often(places: Sequence[float]) -> str:
    """More than one crossing."""
    return "goes through 1 more than once (near concurrency %s): noise, or two loads that differ in more than their number" % (
        ", ".join("%.1f" % x for x in places)
    )


def crossing(x: float, low: Optional[float], high: Optional[float], falls: bool) -> str:
    """One crossing, with its bounds where there are any."""
    text = "pays up to about concurrency %.1f" % x if falls else "pays from about concurrency %.1f on" % x
    if low is not None and high is not None:
        return text + " (%.1f to %.1f)" % (min(low, high), max(low, high))
    if low is not None or high is not None:
        return text + " (one bound at %.1f, the other beyond what was measured)" % (low if low is not None else high or 0.0)
    return text


def break_even_sentence(found: BreakEven) -> str:
    """Before any training: what a drafter would need here."""
    where = at_load(found.concurrency, found.context)
    head = "%s%s a step with a drafter costs %.2f steps without" % (where[:1].upper(), where[1:], found.cost or 0.0)
    if not found.possible:
        return head + ": no drafter with k = %s can pay here, it would need more than every token accepted." % found.k
    return head + ": a drafter pays from %s acceptance (length %.2f) on, and at best the server is %s." % (
        percent(found.needed or 0.0),
        found.needed_length or 0.0,
        faster(found.best_gain or 0.0),
    )


def joined(items: Sequence[str]) -> str:
    """``a, b and c``."""
    rest: List[str] = list(items)
    return rest[0] if len(rest) == 1 else "%s and %s" % (", ".join(rest[:-1]), rest[-1]) if rest else ""
