"""The screen of a training: its figures, its charts, its keys, and what it says where there is nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from textual.pilot import Pilot

from eagletui.app import EagleApp
from eagletui.screens.training import OverlaySheet, Training
from eagletui.views.training import current_run
from tests.screens.conftest import Opener, app_of, screen_text
from tests.screens.demo import DeskDouble
from tests.screens.test_chart import dots
from tests.screens.training_demo import TRAINING_STORES, training_store
from tests.test_text import is_safe

SIZES = ((80, 24), (120, 40), (200, 60))
KEYS: dict[str, Callable[[EagleApp], object]] = {
    "overlay": lambda app: isinstance(app.screen, OverlaySheet),
    "next_chart": lambda app: page(app).single == "joint",
    "loss_parts": lambda app: page(app).look.per_step,
    "log_axis": lambda app: page(app).look.log,
    "x_axis": lambda app: page(app).look.by_time,
    "next_run": lambda app: shown_id(app) == "old",
    "previous_run": lambda app: shown_id(app) == "tr",
}
TRAINED = frozenset(KEYS)
WHOLE = (
    "2,250 / 4,500 steps  50 %", "~1 h 31 m left (rate of last 10 min)", "best", "epoch 2", "~1.71", "break-even", "2.20",
    "~0.78x", "tokens/s", "data share", "2,440 ms", "loss, sum of 3 draft steps", "validation",
)  # fmt: skip


def page(app: EagleApp) -> Training:
    assert isinstance(app.page, Training)
    return app.page


def shown_id(app: EagleApp) -> str | None:
    job = current_run(app.store)
    return job.id if job is not None else None


async def until(pilot: Pilot[int], true: Callable[[], object], turns: int = 600) -> None:
    for _ in range(turns):
        if true():
            return
        await pilot.pause(0.01)
    raise AssertionError(screen_text(app_of(pilot)))


@pytest.mark.parametrize("name", TRAINING_STORES)
async def test_every_state_at_every_size(name: str, dashboard: Opener) -> None:
    async with dashboard(TRAINING_STORES[name](), SIZES[0]) as pilot:
        app = app_of(pilot)
        await pilot.press("6")
        for size in ((160, 50), (20, 5)):
            await pilot.pause()
            rows = screen_text(app).split("\n")
            assert "could not be drawn" not in "\n".join(rows)
            assert all(is_safe(row) for row in rows)
            await pilot.resize_terminal(*size)


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_the_figures_are_whole_and_the_curves_are_drawn(size: tuple[int, int], dashboard: Opener) -> None:
    async with dashboard(training_store(), size) as pilot:
        app = app_of(pilot)
        await pilot.press("6")
        await until(pilot, lambda: dots(screen_text(app)) > 30)
        text = screen_text(app)
        for word in WHOLE:
            assert word in text, word
        assert ("conditional accuracy" in text) == (size != (80, 24))


async def test_only_what_is_drawn_is_read(dashboard: Opener) -> None:
    desk = DeskDouble()
    async with dashboard(training_store(), desk=desk) as pilot:
        await pilot.press("6")
        await pilot.pause()
        assert ("training:tr", True) in desk.watch.looked
        await pilot.press("c", "enter", "escape")
        await pilot.pause()
        assert ("training:old", True) in desk.watch.looked
        await pilot.press("1")
        await pilot.pause()
        count = {topic: sum(1 if on else -1 for name, on in desk.watch.looked if name == topic) for topic, _ in desk.watch.looked}
        assert count["training:tr"] == count["training:old"] == 0


async def test_every_key_does_it(dashboard: Opener) -> None:
    async with dashboard(training_store(steps=50), (80, 24)) as pilot:
        app = app_of(pilot)
        await pilot.press("6")
        for id_, true in KEYS.items():
            await pilot.press(app.keys.keys[id_][0])
            await until(pilot, lambda true=true: true(app))  # type: ignore[misc]
            if len(app.screen_stack) > 1:
                await pilot.press("escape")


async def test_a_training_beside_it_is_named_and_drawn_and_goes_again(dashboard: Opener) -> None:
    async with dashboard(training_store()) as pilot:
        app = app_of(pilot)
        await pilot.press("6", "c")
        await pilot.pause()
        await pilot.press("enter", "escape")
        await until(pilot, lambda: "drawn beside it" in screen_text(app))
        assert "from-scratch" in screen_text(app)
        await pilot.press("c")
        await pilot.pause()
        await pilot.press("enter", "escape")
        await until(pilot, lambda: "drawn beside it" not in screen_text(app))


async def test_on_a_small_screen_the_charts_come_one_by_one(dashboard: Opener) -> None:
    async with dashboard(training_store(), (80, 24)) as pilot:
        app = app_of(pilot)
        await pilot.press("6")
        for words in ("loss, sum", "joint accuracy", "conditional accuracy", "predicted acceptance length", "loss, sum"):
            await until(pilot, lambda w=words: w in screen_text(app))  # type: ignore[misc]
            await pilot.press("v")


async def test_what_needs_a_person_is_loud_and_an_end_is_told(dashboard: Opener) -> None:
    for name, words in (
        ("training-troubled", ("! loss: it is not a number", "! data: 61 %", "! 61 %")),
        ("training-ended", ("stopped on request after epoch 3 of 5",)),
        ("training-failed", ("failed in epoch 1 of 5", "CUDA out of memory", "ended before it recorded a step")),
        ("training-starting", ("loading the target's embeddings", "no step recorded yet")),
        ("training-none", ("No drafter has been trained", "prepared data")),
    ):
        async with dashboard(TRAINING_STORES[name]()) as pilot:
            await pilot.press("6")
            await pilot.pause()
            text = screen_text(app_of(pilot)).replace("!  ", "! ")
            for word in words:
                assert word in text, (name, word)


async def test_without_a_baseline_the_break_even_is_not_made_up(dashboard: Opener) -> None:
    async with dashboard(training_store(known=False)) as pilot:
        await pilot.press("6")
        await pilot.pause()
        text = screen_text(app_of(pilot))
        assert "not known here" in text
        assert "foreseen" not in text
