"""All cards in one line: sums, the hottest, and the links, judged only under load."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from eagletui.records import GpuBoard, GpuSample
from eagletui.store import GpuSummary
from eagletui.watch.outliers import under_load


def summarise(board: GpuBoard | None) -> GpuSummary | None:
    """The summary of a board; None when nothing is known of cards. A card that is lost counts as expected only."""
    if board is None or not board.present:
        return None
    cards = [card for card in board.cards if card.lost is None]
    busy = [card for card in cards if under_load(card)]
    utils = _known(card.util for card in cards)
    links = {_link(card) for card in busy}
    return GpuSummary(
        answering=len(cards),
        expected=max(board.expected or 0, len(board.cards)),
        loaded=len(busy),
        util=sum(utils) / len(utils) if utils else None,
        mem_used=_total(card.mem_used for card in cards),
        mem_total=_total(card.mem_total for card in cards),
        power=_total(card.power for card in cards),
        power_cap=_total(card.power_cap for card in cards),
        temp=max(_known(card.temp for card in cards), default=None),
        margin=min(_known(card.margin for card in cards), default=None),
        pcie_tx=_total(card.pcie_tx for card in cards),
        pcie_rx=_total(card.pcie_rx for card in cards),
        link=links.pop() if len(links) == 1 else None,
        links={card.uuid: word for card in busy if (word := _worse(card))},
    )


N = TypeVar("N", int, float)


def _known(values: Iterable[N | None]) -> list[N]:
    return [value for value in values if value is not None]


def _total(values: Iterable[N | None]) -> N | None:
    known = _known(values)
    return sum(known) if known else None


def _link(card: GpuSample) -> str | None:
    if card.pcie_gen is None or card.pcie_width is None:
        return None
    return f"x{card.pcie_width} g{card.pcie_gen}"


def _worse(card: GpuSample) -> str | None:
    """What the link lacks against the best this card and slot can do; None when it is at its best or not known."""
    link = _link(card)
    if link is None:
        return None
    narrow = card.pcie_width_max is not None and card.pcie_width is not None and card.pcie_width < card.pcie_width_max
    slow = card.pcie_gen_max is not None and card.pcie_gen is not None and card.pcie_gen < card.pcie_gen_max
    if not narrow and not slow:
        return None
    return f"{link} of x{card.pcie_width_max or card.pcie_width} g{card.pcie_gen_max or card.pcie_gen}"
