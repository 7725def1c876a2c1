"""Every row of the table of actions does something, at every size."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from textual import events
from textual.pilot import Pilot

from eagletui.actions import ACTIONS, DIALOG, LIST, SCREENS, SERVING, WINDOWED, Action
from eagletui.app import EagleApp
from eagletui.screens.prompt import Field
from eagletui.widgets.dialog import Reader
from eagletui.widgets.table import Table
from tests.screens.conftest import Opener, app_of, screen_text
from tests.screens.deeds_double import DeedsDouble
from tests.screens.demo import DeskDouble, board_store, card, idle_store
from tests.screens.test_acting import TESTED
from tests.screens.test_training import TRAINED

SIZES = ((80, 24), (160, 50), (200, 50), (20, 5))
BOUND = [
    action
    for action in ACTIONS
    if action.keys and action.id not in TESTED | TRAINED and action.scope not in ("pipeline", "bench")
]


def table(app: EagleApp) -> Table:
    assert isinstance(app.focused, Table)
    return app.focused


def app_deeds(app: EagleApp) -> DeedsDouble:
    assert isinstance(app.desk, DeskDouble)
    return app.desk.deeds


class Before:
    """What an action starts from: the GPU screen, with the list of cards focused."""

    def __init__(self, app: EagleApp) -> None:
        self.app = app
        self.row = table(app).cursor_key if isinstance(app.focused, Table) else None
        self.order = [row.key for row in table(app).shown] if self.row else []
        self.server, self.window = app.store.selected, app.store.window


def _moved(before: Before) -> bool:
    return table(before.app).cursor_key != before.row


def _shows(app: EagleApp, name: str) -> bool:
    return app.page_name == name and app.page is not None and app.page.display


CHECKS: dict[str, Callable[[Before], bool]] = {
    **{a.id: (lambda b, name=a.screen[0]: _shows(b.app, name)) for a in SCREENS if a.screen},  # type: ignore[misc]
    "open": lambda b: isinstance(b.app.screen, Reader) and b.app.screen.heading.startswith("GPU 3"),
    "find": lambda b: b.app.query_one("#prompt").has_class("open"),
    "find_next": lambda b: b.app.query_one("#prompt").has_class("open"),
    "filter": lambda b: b.app.query_one("#prompt").has_class("open"),
    "sort": lambda b: table(b.app)._order is not None,
    "copy": lambda b: "P0" in b.app.clipboard and "1740" in b.app.clipboard,
    "up": _moved,
    "down": _moved,
    "page_up": _moved,
    "page_down": _moved,
    "first": lambda b: table(b.app).cursor_key == b.order[0],
    "last": lambda b: table(b.app).cursor_key == b.order[-1],
    "show_all": lambda b: table(b.app).filter_text == "",
    "acknowledge": lambda b: sum(alert.acknowledged for alert in b.app.store.alerts.values()) == 1,
    "retry": lambda b: ("retry",) in app_deeds(b.app).done,
    "next_list": lambda b: b.app.focused is not None and b.app.focused.id == "card-processes",
    "previous_list": lambda b: b.app.focused is not None and b.app.focused.id != "cards",
    "next_server": lambda b: b.app.store.selected not in (None, b.server),
    "previous_server": lambda b: b.app.store.selected not in (None, b.server),
    "window": lambda b: (b.window, b.app.store.window) == ("1 m", "10 m"),
    "help": lambda b: isinstance(b.app.screen, Reader) and b.app.screen.heading == "Keys",
    "palette": lambda b: type(b.app.screen).__name__ == "CommandPalette",
    "quit": lambda b: b.app._exit,
    "close": lambda b: len(b.app.screen_stack) == 1,
}


def test_every_row_of_the_table_has_a_check() -> None:
    assert {action.id for action in BOUND} == set(CHECKS)


@pytest.mark.parametrize("action", BOUND, ids=lambda action: action.id)
async def test_the_key_does_it(action: Action, dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3)) as pilot:
        app = app_of(pilot)
        start = "7" if action.id == "overview" else {SERVING: "3", WINDOWED: "4"}.get(action.scope, "2")
        await pilot.press(start)
        await pilot.pause()
        if start == "2":
            table(app).move(3)
            await pilot.pause()
            before = Before(app)
        else:
            before = Before(app)
        if action.id == "retry":
            app.store.connection = app.store.connection._replace(state="blocked")
        if action.id == "show_all":
            table(app).set_filter("1740")
            assert len(table(app).shown) == 1
        if action.scope == DIALOG:
            await pilot.press("question_mark")
            await pilot.pause()
            assert len(app.screen_stack) == 2
        for key in action.keys:
            await pilot.press(key)
            await pilot.pause()
        assert CHECKS[action.id](before), screen_text(app)


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_every_key_at_every_size_draws_the_whole_screen(size: tuple[int, int], dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3), size) as pilot:
        app = app_of(pilot)
        for action in BOUND:
            if action.id in ("quit", "palette"):
                continue
            await pilot.press(action.keys[0])
            await pilot.pause()
            shown = screen_text(app).split("\n")
            assert len(shown) == size[1]
            assert "could not be drawn" not in "\n".join(shown)
            for _ in range(2):
                await pilot.press("escape")


async def test_a_rebound_key_works_and_the_old_one_does_not(dashboard: Opener) -> None:
    async with dashboard(idle_store(), keys={"help": "f5", "down": "j"}) as pilot:
        app = app_of(pilot)
        await pilot.press("question_mark")
        assert len(app.screen_stack) == 1
        await pilot.press("f5")
        await pilot.pause()
        assert isinstance(app.screen, Reader)
        assert "f5" in screen_text(app)
        await pilot.press("escape", "2")
        await pilot.pause()
        before = table(app).cursor_key
        await pilot.press("j")
        assert table(app).cursor_key != before


async def test_a_bad_keymap_is_told(dashboard: Opener) -> None:
    async with dashboard(idle_store(), keys={"nonsense": "x"}, toasts=True) as pilot:
        assert app_of(pilot).keys.problems
        await _until(pilot, lambda: "nonsense" in screen_text(app_of(pilot)))


async def test_find_filter_and_sort(dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3)) as pilot:
        app = app_of(pilot)
        await pilot.press("2")
        await pilot.pause()
        await pilot.press("slash", *"outlier", "enter")
        await pilot.pause()
        cards = table(app)
        assert cards.cursor_key == card(3).uuid
        await pilot.press("f", *"1740")
        await pilot.pause()
        assert [row.key for row in cards.shown] == [card(3).uuid]
        await pilot.press("escape")
        await pilot.pause()
        assert len(cards.shown) == 8
        cards.sort_by(6)
        assert cards.shown[0].key == card(3).uuid
        assert cards.cursor_key == card(3).uuid


def at_once(pilot: Pilot[int], *keys: str) -> None:
    """Keys that come in one read: all are in the app's queue before the first is handled."""
    for key in keys:
        pilot.app.post_message(events.Key(key, key if len(key) == 1 else None))


@pytest.mark.parametrize("key", ["slash", "f", "n"])
async def test_keys_at_once_behind_one_that_asks_go_to_the_prompt(key: str, dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3)) as pilot:
        app = app_of(pilot)
        await pilot.press("2")
        await pilot.pause()
        cards = table(app)
        at_once(pilot, key, *"1740lqk", "enter", "question_mark")
        await _until(pilot, lambda: len(app.screen_stack) == 2)
        assert isinstance(app.screen, Reader), "the last key only is a command"
        assert "1740lqk" in (cards.find_text, cards.filter_text)
        assert not app.query_one("#prompt").has_class("open")


async def test_a_burst_of_presses_goes_to_the_prompt(dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3)) as pilot:
        app = app_of(pilot)
        await pilot.press("2")
        await pilot.pause()
        await pilot.press("slash", *"needle")
        assert app.query_one(Field).value == "needle"
        assert len(app.screen_stack) == 1


async def test_a_prompt_that_is_left_gives_the_keys_behind_it_to_the_list(dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3)) as pilot:
        app = app_of(pilot)
        await pilot.press("2")
        await pilot.pause()
        cards = table(app)
        at_once(pilot, "f", *"1740", "escape", "end", "slash", *"outlier", "enter")
        await _until(pilot, lambda: cards.find_text == "outlier")
        assert cards.filter_text == ""
        assert cards.cursor_key == card(3).uuid


async def test_keys_for_a_prompt_that_never_comes_run_as_nothing(dashboard: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Table, "action_table_find", lambda _table: None)
    async with dashboard(board_store(seconds=3)) as pilot:
        app = app_of(pilot)
        await pilot.press("2")
        await pilot.pause()
        at_once(pilot, "slash", *"lq")
        await _until(pilot, lambda: app._held.holds)
        await _until(pilot, lambda: not app._held.holds, turns=2000)
        assert len(app.screen_stack) == 1
        await pilot.press("question_mark")
        assert isinstance(app.screen, Reader)


async def test_the_mouse(dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3)) as pilot:
        app = app_of(pilot)
        await pilot.click("Tabs", offset=(14, 0))
        await pilot.pause()
        assert app.page_name == "gpus"
        cards = app.query_one("#cards", Table)
        await pilot.click("#cards", offset=(10, 4))
        await pilot.pause()
        assert cards.cursor_key == card(3).uuid
        await pilot.click("#cards", offset=(10, 0))
        await pilot.pause()
        assert cards._order is not None
        assert cards._order[1]
        footer = screen_text(app).split("\n")[-1]
        await pilot.click("Footer", offset=(footer.index("help"), 0))
        await pilot.pause()
        assert isinstance(app.screen, Reader)


async def test_the_palette_runs_an_action(dashboard: Opener) -> None:
    async with dashboard(idle_store()) as pilot:
        app = app_of(pilot)
        await pilot.press("ctrl+p")
        await pilot.pause()
        await pilot.press(*"screen jobs")
        await app.workers.wait_for_complete()
        await _until(pilot, lambda: "Everything that runs" in screen_text(app))
        await pilot.press("enter")
        await _until(pilot, lambda: app.page_name == "jobs")


async def _until(pilot: Pilot[int], true: Callable[[], bool], turns: int = 200) -> None:
    """Let the app go on until something is so; the number of turns bounds it, not a clock."""
    for _ in range(turns):
        if true():
            return
        await pilot.pause(0.01)
    raise AssertionError(screen_text(app_of(pilot)))


async def test_a_readonly_session_says_so(dashboard: Opener) -> None:
    async with dashboard(idle_store(), desk=DeskDouble(readonly=True)) as pilot:
        assert "read-only" in screen_text(app_of(pilot)).split("\n")[0]


def test_lists_have_every_list_action() -> None:
    for action in ACTIONS:
        if action.scope == LIST:
            assert callable(getattr(Table, f"action_table_{action.id}"))
