"""A file of prompts is judged as a whole before any request: what is wrong is told by line, and nothing is guessed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eagletui.jobs.on_host.prompts import MOST_TOLD, BadPrompts, Prompts, read_turns, told


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def write(path: Path, rows: list[Any], whole: bool = False) -> str:
    text = json.dumps(rows) if whole else "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    path.write_text(text)
    return str(path)


def problems(tmp_path: Path, *rows: Any) -> list[str]:
    return told(Prompts(write(tmp_path / "p.jsonl", list(rows))).problems)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    "row",
    [
        {"id": "a", "conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "-"}]},
        {"id": "a", "conversations": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None}]},
        {"uuid": "a", "messages": [{"role": "user", "content": "hi"}]},
        {"id": "a", "messages": [{"role": "user", "content": [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]}]},
    ],
)
def test_every_schema_and_form_is_read(tmp_path: Path, row: dict[str, Any], whole: bool) -> None:
    prompts = Prompts(write(tmp_path / "p.json", [row], whole))
    assert prompts.ids == ["a"]
    assert prompts.turns(0) == [user("hi")]
    assert prompts.problems == []
    assert len(prompts.sha) == 64


def test_system_and_later_turns_are_kept_and_answers_are_dropped(tmp_path: Path) -> None:
    turns = [{"role": "system", "content": "s"}, user("1"), {"role": "assistant", "content": "x"}, user("2")]
    prompts = Prompts(write(tmp_path / "p.jsonl", [{"id": 7, "messages": turns}]))
    assert prompts.turns(0) == [{"role": "system", "content": "s"}, user("1"), user("2")]
    assert prompts.ids == ["7"]
    assert prompts.answers == [2]


def test_turns_are_found_again_wherever_their_line_begins(tmp_path: Path) -> None:
    rows = [{"id": str(n), "messages": [user(f"wörd {n} 🦅")]} for n in range(50)]
    path = tmp_path / "p.jsonl"
    path.write_text("\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows))
    prompts = Prompts(str(path))
    assert [prompts.turns(n)[0]["content"] for n in range(50)] == [f"wörd {n} 🦅" for n in range(50)]


def test_the_id_of_a_row_without_one_follows_from_its_words(tmp_path: Path) -> None:
    rows = [{"messages": [user("a")]}, {"messages": [user("b")]}]
    first = Prompts(write(tmp_path / "1.jsonl", rows)).ids
    again = Prompts(write(tmp_path / "2.jsonl", rows[::-1])).ids
    assert len(set(first)) == 2
    assert first == again[::-1]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("{broken", "line 2: no JSON"),
        ("[" * 100_000, "line 2: no JSON"),
        ('{"messages": [{"role": "user", "content": "\\ud800"}]}', "half a character"),
        ("3", "an object is expected, not int"),
        ({"text": "x"}, "neither conversations nor messages (it has text)"),
        ({"messages": [user("x")], "conversations": [user("x")]}, "both conversations and messages"),
        ({"messages": []}, "messages is no list of turns, or empty"),
        ({"messages": ["x"]}, "turn 1 is no object"),
        ({"messages": [{"content": "x"}]}, "turn 1 has neither role nor from"),
        ({"messages": [{"role": "user", "content": "  "}]}, "turn 1 (user) is empty"),
        ({"messages": [{"role": "user", "content": None}]}, "turn 1 (user) has no text"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "no user turn"),
        ({"messages": [{"role": "pirate", "content": "x"}]}, "turn 1 is by 'pirate'"),
        ({"messages": [user("x"), {"role": "tool", "content": "x"}]}, 'tool = "speculators"'),
        ({"messages": [user("x"), {"from": "human", "value": "x"}]}, "turn 2 is from/value"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "turn 1 has a part that is no text (image_url)"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, row: Any, words: str) -> None:
    [said] = problems(tmp_path, {"id": "good", "messages": [user("q")]}, row)
    assert said.startswith("line 2: ")
    assert words in said


@pytest.mark.parametrize(
    "other",
    [
        {"conversations": [user("x")]},
        {"conversations": [{"from": "human", "value": "x"}]},
        {"messages": [{"from": "human", "value": "x"}]},
    ],
)
def test_mixed_schemas_are_refused(tmp_path: Path, other: dict[str, Any]) -> None:
    [said] = problems(tmp_path, {"messages": [user("a")]}, other)
    assert said.startswith("line 2: its schema is ")
    assert "the file began with messages of role/content" in said


def test_an_id_that_stands_for_two_things_is_refused_and_a_repetition_is_taken_once(tmp_path: Path) -> None:
    rows = [{"id": "a", "messages": [user("1")]}, {"id": "a", "messages": [user("1")]}, {"id": "a", "messages": [user("2")]}]
    prompts = Prompts(write(tmp_path / "p.jsonl", rows))
    assert prompts.ids == ["a"]
    assert prompts.repeated == [2]
    assert told(prompts.problems) == ["line 3: its id a is the one of line 1, with other words"]


@pytest.mark.parametrize("text", ["[1,", "[{]", "\ufeff[]"])
def test_a_file_that_is_none_is_refused_whole(tmp_path: Path, text: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(BadPrompts):
        Prompts(str(path))


def test_a_thousand_mistakes_do_not_fill_the_log(tmp_path: Path) -> None:
    said = problems(tmp_path, *["x"] * 1000)
    assert len(said) == MOST_TOLD + 1
    assert said[-1] == f"and {1000 - MOST_TOLD} rows more"


def test_what_nobody_answers_is_not_sent() -> None:
    _, turns = read_turns({"messages": [user("a"), {"role": "system", "content": "s"}]})
    assert turns == [user("a")]
