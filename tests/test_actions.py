"""The one table of keys."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from eagletui.actions import ACTIONS, BY_ID, EVERYWHERE, LIST, NEVER, SCREENS, keymap, live, markdown, sections

ROOT = Path(__file__).resolve().parent.parent


def test_the_page_of_keys_is_current() -> None:
    assert (ROOT / "docs" / "keys.md").read_text(encoding="utf-8") == markdown()


def test_the_page_comes_out_of_the_module() -> None:
    out = subprocess.run([sys.executable, "-m", "eagletui.actions"], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout == markdown()


def test_ids_are_unique_and_all_are_documented() -> None:
    assert len(BY_ID) == len(ACTIONS)
    listed = [action.id for _, actions in sections() for action in actions]
    assert sorted(listed) == sorted(BY_ID)


def test_no_key_twice_where_both_are_live() -> None:
    for scope in {action.scope for action in ACTIONS} - {"dialog"}:
        keys = [key for action in live({scope, LIST, EVERYWHERE}) for key in action.keys]
        assert len(keys) == len(set(keys)), scope


def test_keys_that_are_not_ours_are_free() -> None:
    assert {"ctrl+a", "ctrl+b", "ctrl+s", "ctrl+z"} <= NEVER
    assert not {key for action in ACTIONS for key in action.keys} & NEVER


def test_screens_have_their_numbers() -> None:
    order = ("overview", "gpus", "load", "throughput", "acceptance", "training", "jobs", "bench")
    for action in SCREENS:
        assert action.keys == (str(order.index(action.id) + 1),)


def test_a_wish_is_followed() -> None:
    keys = keymap({"help": "f1", "find": "/,ctrl+f", "quit": "Q"})
    assert keys.problems == ()
    assert keys.keys["find"] == ("slash", "ctrl+f")
    assert keys.changed() == {"help": "f1", "find": "slash,ctrl+f", "quit": "Q"}
    assert keys.shown("find") == "/"
    assert keymap({}).changed() == {}


def test_two_keys_may_change_places() -> None:
    keys = keymap({"find": "f", "filter": "/"})
    assert keys.problems == ()
    assert keys.keys["find"] == ("f",)
    assert keys.keys["filter"] == ("slash",)


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"nonsense": "x"}, "there is no action 'nonsense'"),
        ({"help": "hyper+x"}, "'hyper+x' is not a key"),
        ({"help": ""}, "'' is not a key"),
        ({"help": "ctrl+b"}, "belongs to the terminal"),
        ({"help": "q"}, "'q' is the key of 'quit' already"),
    ],
)
def test_a_wish_that_cannot_be_is_told_and_the_table_stays(wish: dict[str, str], said: str) -> None:
    keys = keymap(wish)
    assert len(keys.problems) == 1
    assert said in keys.problems[0]
    assert keys.changed() == {}


def test_a_readonly_session_has_nothing_that_writes() -> None:
    assert not [action for action in live({a.scope for a in ACTIONS}, readonly=True) if action.writes]
