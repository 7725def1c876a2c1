"""Charts: drawn by plotext in a thread, only while they are looked at."""

from __future__ import annotations

import math

from eagletui.widgets.chart import Curve, plot
from eagletui.widgets.paint import plain
from tests.screens.conftest import Opener, app_of, screen_text
from tests.screens.demo import board_store
from tests.test_text import is_safe

BRAILLE = range(0x2801, 0x2900)


def dots(text: str) -> int:
    return sum(ord(char) in BRAILLE for char in text)


def test_a_chart_has_its_size_axes_and_curves() -> None:
    times = [float(t) for t in range(-600, 0)]
    up = Curve(times, [50 + 40 * math.sin(t / 50) for t in times], "good")
    flat = Curve(times, [10.0] * 600, "warn")
    lines = plot([up, flat], 100, 14, 0.0, 100.0)
    text = plain(lines)
    assert len(lines) == 14
    assert max(map(len, text.split("\n"))) <= 100
    assert is_safe(text.replace("\n", ""))
    assert "100┤" in text
    assert "-600" in text
    for style in ("good", "warn"):
        assert dots("".join(part for line in lines for part, name in line if name == style)) > 40


def test_gaps_and_nothing_are_no_points() -> None:
    nan = float("nan")
    assert dots(plain(plot([Curve([0.0, 1.0], [nan, nan])], 60, 8, 0.0, 100.0))) == 0
    assert dots(plain(plot([], 60, 8, 0.0, 100.0))) == 0


async def test_the_chart_of_a_card_appears_where_there_is_room(dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=60)) as pilot:
        app = app_of(pilot)
        await pilot.press("2", "enter")
        for _ in range(300):
            await pilot.pause(0.01)
            if dots(screen_text(app)) > 20:
                break
        text = screen_text(app)
        assert dots(text) > 20
        assert "% over seconds" in text
        assert "uuid" in text


async def test_no_chart_where_there_is_none(dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3), (100, 30)) as pilot:
        await pilot.press("2", "enter")
        await pilot.pause()
        assert "% over seconds" not in screen_text(app_of(pilot))
        assert "utilisation" in screen_text(app_of(pilot))
