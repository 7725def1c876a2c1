"""Which card is off the others, and all cards in one line."""

from __future__ import annotations

from typing import Any

import pytest

from eagletui.records import GpuBoard, GpuSample
from eagletui.watch.outliers import outliers, under_load
from eagletui.watch.summary import summarise


def card(number: int, **more: Any) -> GpuSample:
    values: dict[str, Any] = {
        "util": 91.0, "power": 300.0, "power_cap": 600.0, "clock_sm": 2300, "temp": 66, "margin": 19, "pstate": 1, "pcie_gen": 5,
        "pcie_gen_max": 5, "pcie_width": 16, "pcie_width_max": 16, "mem_used": 10, "mem_total": 96,
    }  # fmt: skip
    return GpuSample(uuid=f"u{number}", number=number, **{**values, **more})


def board(*cards: GpuSample, **more: Any) -> GpuBoard:
    return GpuBoard(1.0, True, cards=cards, **more)


@pytest.mark.parametrize(
    ("odd", "word"),
    [
        ({"clock_sm": 1740}, "slow clock −24 %"),
        ({"power": 140.0}, "low power −53 %"),
        ({"power": 480.0}, "high power +60 %"),
        ({"util": 0.0, "pstate": 8}, "idle while the others work"),
        ({"temp": 84}, "hot +18 C"),
        ({"clock_sm": 2250}, None),
        ({"power": 340.0}, None),
        ({"temp": 72}, None),
        ({"clock_sm": None, "power": None, "temp": None}, None),
        ({"lost": "GPU is lost", "util": 0.0}, None),
    ],
)
def test_one_odd_card_among_eight(odd: dict[str, Any], word: str | None) -> None:
    cards = [card(n) for n in range(8)]
    cards[3] = card(3, **odd)
    assert outliers(board(*cards)) == ({} if word is None else {"u3": word})


def test_nothing_is_judged_at_rest_or_alone_or_when_old() -> None:
    idle = [card(n, util=0.0, pstate=8, power=38.0 + 90 * (n == 2)) for n in range(8)]
    assert outliers(board(*idle)) == {}
    pair = [card(0), card(1, clock_sm=900)]
    assert outliers(board(*pair)) == {}
    eight = [card(n, clock_sm=900 if n == 0 else 2300) for n in range(8)]
    assert outliers(board(*eight))
    assert outliers(board(*eight, stale_since=0.5)) == {}
    assert outliers(None) == {}


def test_half_of_them_working_is_no_yardstick() -> None:
    cards = [card(n, util=90.0 if n < 4 else 0.0, pstate=1 if n < 4 else 8) for n in range(8)]
    assert outliers(board(*cards)) == {}


def test_sums_leave_out_what_is_not_known_and_the_lost() -> None:
    found = summarise(board(card(0), card(1, power=None, temp=80, margin=None), card(2, lost="GPU is lost"), expected=4))
    assert found is not None
    assert (found.answering, found.expected, found.loaded) == (2, 4, 2)
    assert (found.power, found.mem_used, found.mem_total, found.temp, found.margin) == (300.0, 20, 192, 80, 19)
    assert found.pcie_rx is None


def test_no_driver_and_no_data_have_no_summary() -> None:
    assert summarise(None) is None
    assert summarise(GpuBoard(1.0, False)) is None
    empty = summarise(GpuBoard(1.0, True))
    assert empty is not None
    assert (empty.util, empty.power, empty.link) == (None, None, None)


def test_links_are_judged_under_load_only() -> None:
    narrow = {"pcie_width": 8}
    idle = summarise(board(card(0, util=0.0, pstate=8, pcie_gen=1), card(1, util=0.0, pstate=8, pcie_gen=1)))
    assert idle is not None
    assert (idle.link, dict(idle.links), idle.loaded) == (None, {}, 0)
    busy = summarise(board(card(0), card(1, **narrow)))
    assert busy is not None
    assert busy.link is None
    assert dict(busy.links) == {"u1": "x8 g5 of x16 g5"}
    even = summarise(board(card(0), card(1)))
    assert even is not None
    assert even.link == "x16 g5"


@pytest.mark.parametrize(
    ("state", "util", "loaded"), [(0, 51.0, True), (1, 51.0, True), (2, 99.0, False), (0, 50.0, False), (None, 99.0, False)]
)
def test_under_load(state: int | None, util: float, loaded: bool) -> None:
    assert under_load(card(0, pstate=state, util=util)) is loaded
