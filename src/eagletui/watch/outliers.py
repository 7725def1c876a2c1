"""Which card is clearly off the others while they all work: the sign of a bad link, a hot slot, or a dead rank."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from eagletui.records import GpuBoard, GpuSample

BUSY_UTIL = 50.0
_ENOUGH = 3

# field, word when below, word when above, share of the median that is clearly off, least absolute distance
_RULES: tuple[tuple[str, str, str | None, float, float], ...] = (
    ("util", "idle while the others work", None, 0.60, 40.0),
    ("clock_sm", "slow clock", None, 0.15, 150.0),
    ("power", "low power", "high power", 0.35, 60.0),
    ("temp", "", "hot", 0.20, 12.0),
)


def under_load(card: GpuSample) -> bool:
    """Working hard enough that its link, clock and power may be judged (P0 or P1 and more than half used)."""
    return card.lost is None and card.pstate in (0, 1) and card.util is not None and card.util > BUSY_UTIL


def outliers(board: GpuBoard | None) -> dict[str, str]:
    """For each card that is clearly off the others, by uuid, one word or two saying how: ``slow clock -24 %``.

    Judged only while at least three cards answer and most of them are under load; a host at rest or a single card has
    no outlier. Each card is held against the median of the others, so that one bad card does not move its own yardstick.
    """
    if board is None or board.stale_since is not None:
        return {}
    cards = [card for card in board.cards if card.lost is None]
    busy = [card for card in cards if under_load(card)]
    if len(cards) < _ENOUGH or 2 * len(busy) <= len(cards):
        return {}
    found: dict[str, str] = {}
    for card in cards:
        others = [other for other in busy if other.uuid != card.uuid]
        word = _word(card, others) if len(others) >= _ENOUGH - 1 else None
        if word:
            found[card.uuid] = word
    return found


def _word(card: GpuSample, others: Sequence[GpuSample]) -> str | None:
    for name, low, high, share, least in _RULES:
        if name != "util" and not under_load(card):
            continue  # an idle card's clock and power say nothing more
        mine: float | None = getattr(card, name)
        theirs = [value for other in others if (value := getattr(other, name)) is not None]
        if mine is None or len(theirs) < _ENOUGH - 1:
            continue
        usual = median(theirs)
        if usual <= 0 or abs(mine - usual) < max(share * usual, least):
            continue
        if mine < usual and low:
            return low if name == "util" else f"{low} {100 * (mine / usual - 1):.0f} %".replace("-", "−")
        if mine > usual and high:
            return f"{high} +{mine - usual:.0f} C" if name == "temp" else f"{high} +{100 * (mine / usual - 1):.0f} %"
    return None
