"""Rows of several kinds become the one kind that prepare-data reads rightly; what it would drop or take wrongly is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eagletui.jobs.on_host.prompts import told
from eagletui.jobs.on_host.training_rows import TEXT, TOKENS, Limits, Rows


def read(tmp_path: Path, *rows: Any, whole: bool = False, **limits: Any) -> tuple[Rows, list[dict[str, Any]]]:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(rows) if whole else "".join(json.dumps(row) + "\n" for row in rows))
    reader = Rows(Limits(**{"length": 100, **limits}))
    made = list(reader.of(str(path)))
    return reader, [*made, *reader.rest()]


def ids(name: str = "a", size: int = 4, trained: int = 2, **more: Any) -> dict[str, Any]:
    return {"id": name, "input_ids": list(range(size)), "loss_mask": [0] * (size - trained) + [1] * trained, **more}


def talk(*turns: str, field: str = "messages", **more: Any) -> dict[str, Any]:
    names = ["user", "assistant"]
    return {field: [{"role": names[n % 2], "content": text} for n, text in enumerate(turns)], **more}


@pytest.mark.parametrize("whole", [False, True])
def test_rows_with_token_ids_lose_all_other_columns(tmp_path: Path, whole: bool) -> None:
    """Other columns may differ from row to row, and then the loader breaks half way."""
    rows, made = read(tmp_path, ids("a", usage={"x": None}), ids("b", usage={"x": {"y": 1}}, text="t"), whole=whole)
    assert made == [{"input_ids": [0, 1, 2, 3], "loss_mask": [0, 0, 1, 1]}] * 2
    assert (rows.style, rows.kept, rows.tokens, rows.trained, rows.longest) == (TOKENS, 2, 8, 4, 4)


def test_messages_are_given_under_the_name_that_is_read(tmp_path: Path) -> None:
    """prepare-data ignores ``messages`` without an error."""
    rows, made = read(tmp_path, talk("q", "a"), talk("q", "b"))
    assert [set(row) for row in made] == [{"conversations"}] * 2
    assert [turn["content"] for turn in made[0]["conversations"]] == ["q", "a"]
    assert rows.style == TEXT


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content", "thinking"])
def test_reasoning_is_given_under_the_name_that_is_read(tmp_path: Path, name: str) -> None:
    """prepare-data does not know vLLM's ``reasoning``."""
    row = {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a", name: "because"}]}
    _, [made] = read(tmp_path, row)
    assert made["conversations"][1] == {"role": "assistant", "content": "a", "reasoning_content": "because"}
    assert {type(turn["reasoning_content"]) for turn in made["conversations"]} == {str}


def test_our_rows_without_ids_become_one_conversation_each(tmp_path: Path) -> None:
    """A row of each generation would be fanned out again: the first answers would count several times."""
    first = {
        "id": "p_gen0",
        "primary_id": "p",
        "gen": 0,
        "prompt": talk("q")["messages"],
        "answer": "a",
        "reasoning_content": "r",
    }
    second = {**first, "id": "p_gen1", "gen": 1, "prompt": talk("q", "a", "q2")["messages"], "answer": "a2"}
    rows, made = read(tmp_path, second, first)
    assert [[turn["content"] for turn in row["conversations"]] for row in made] == [["q", "a", "q2", "a2"]]
    assert made[0]["conversations"][-1]["reasoning_content"] == "r"
    assert rows.kept == 1


def test_a_cut_answer_is_never_rendered(tmp_path: Path) -> None:
    """The template would end it with a token that the model has not said there."""
    row = {"id": "p_gen0", "primary_id": "p", "gen": 0, "prompt": talk("q")["messages"], "answer": "a", "finish_reason": "length"}
    rows, made = read(tmp_path, row)
    assert made == []
    assert rows.dropped == {"truncated": 1}


@pytest.mark.parametrize("row", [ids(finish_reason="length"), ids(metadata={"finish_reason": "length"})])
@pytest.mark.parametrize("keep", [True, False])
def test_truncated_rows_are_filtered_as_wished(tmp_path: Path, row: dict[str, Any], keep: bool) -> None:
    rows, made = read(tmp_path, row, ids("b"), keep_truncated=keep)
    assert len(made) == 1 + keep
    assert rows.dropped == ({} if keep else {"truncated": 1})


def test_empty_answers_and_double_rows_are_left_out_and_counted(tmp_path: Path) -> None:
    rows, made = read(tmp_path, ids("a", empty=True), ids("b"), ids("b"), ids("c"))
    assert len(made) == 2
    assert rows.dropped == {"empty": 1, "double": 1}


def test_what_the_sequence_length_takes_is_counted(tmp_path: Path) -> None:
    long = {"input_ids": list(range(9)), "loss_mask": [0, 0, 0, 1, 1, 1, 1, 1, 1]}
    beyond = {"input_ids": list(range(9)), "loss_mask": [0] * 7 + [1, 1]}
    rows, made = read(tmp_path, long, beyond, ids("c", 4, 0), ids("d", 4, 1), length=6, least=2)
    assert len(made) == 1
    assert rows.dropped == {"answer beyond the sequence length": 1, "nothing to train on": 1, "too few tokens": 1}
    assert (rows.clipped, rows.longest, rows.tokens, rows.trained) == (1, 9, 6, 3)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"input_ids": [1, 2]}, "input_ids and loss_mask go together"),
        ({"input_ids": [1, 2], "loss_mask": [1]}, "2 input_ids and 1 loss_mask"),
        ({"input_ids": [], "loss_mask": []}, "no tokens"),
        ({"input_ids": [1, "x"], "loss_mask": [1, 1]}, "input_ids are whole numbers"),
        ({"input_ids": [1, -2], "loss_mask": [1, 1]}, "input_ids are whole numbers"),
        ({"input_ids": [1, 2], "loss_mask": [1, 2]}, "loss_mask is of 0 and 1"),
        ({"input_ids": [1, 50], "loss_mask": [1, 1]}, "token 50, and the model has 50: it is of another model"),
        (talk("q", "a"), "it has text, and the data began with token ids"),
        ("x", "no JSON object"),
    ],
)
def test_rows_with_ids_are_judged(tmp_path: Path, row: Any, words: str) -> None:
    rows, made = read(tmp_path, ids("good"), row, vocabulary=50)
    [said] = told(rows.problems)
    assert said.startswith("line 2: ")
    assert words in said
    assert len(made) == 1


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"text": "x"}, "one of conversations, messages, or input_ids with loss_mask is expected"),
        ({**talk("q", "a"), "conversations": []}, "one of conversations, messages"),
        (talk("q"), "no answer in it: it is a prompt"),
        ({"messages": [{"role": "assistant", "content": "a"}]}, "no answer in it"),
        ({"messages": [{"role": "narrator", "content": "a"}]}, "turn 1 is by 'narrator'"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "turn 1 (user) has no text"),
        ({"messages": []}, "no list of turns"),
        (ids("b"), "it has token ids, and the data began with text"),
    ],
)
def test_rows_of_text_are_judged(tmp_path: Path, row: Any, words: str) -> None:
    rows, _ = read(tmp_path, talk("q", "a"), row)
    [said] = told(rows.problems)
    assert said.startswith("line 2: ")
    assert words in said
