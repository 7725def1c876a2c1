"""What an engine answered becomes a row: reasoning under one name, token ids from either engine, nothing half."""

from __future__ import annotations

from typing import Any

import pytest

from eagletui.jobs.on_host.answers import NoAnswer, ends, generated, row_of

ASKED = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]


def completion(message: dict[str, Any], finish: str | None = "stop", **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish, **more.pop("choice", {})}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5, "prompt_tokens_details": None}
    return {"model": "m", "choices": [choice], "usage": usage, **more}


def row(data: dict[str, Any]) -> dict[str, Any]:
    return row_of(data, "p", 1, ASKED, 0.5)


VLLM: dict[str, Any] = {"prompt_token_ids": [1, 2, 3], "choice": {"token_ids": [4, 5]}}
SGLANG: dict[str, Any] = {"choice": {"prompt_token_ids": [1, 2, 3], "response_token_ids": [4, 5]}}


@pytest.mark.parametrize("ids", [VLLM, SGLANG])
def test_token_ids_of_both_engines_with_the_mask_of_what_was_generated(ids: dict[str, Any]) -> None:
    made = row(completion({"content": "a"}, **{**ids, "choice": dict(ids["choice"])}))
    assert made["input_ids"] == [1, 2, 3, 4, 5]
    assert made["loss_mask"] == [0, 0, 0, 1, 1]
    assert generated(made) == 2


@pytest.mark.parametrize(
    "ids", [{}, {"prompt_token_ids": [1]}, {"choice": {"token_ids": [4]}}, {"prompt_token_ids": [], "choice": {"token_ids": []}}]
)
def test_without_both_there_are_none(ids: dict[str, Any]) -> None:
    made = row(completion({"content": "a"}, **dict(ids)))
    assert "input_ids" not in made
    assert "loss_mask" not in made
    assert generated(made) == 2


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_is_kept_under_the_name_that_is_read_later(name: str) -> None:
    made = row(completion({"content": "a", name: "because"}))
    assert made["reasoning_content"] == "because"
    assert made["answer"] == "a"


def test_a_budget_that_went_into_reasoning_is_an_empty_answer() -> None:
    made = row(completion({"content": None, "reasoning": "on and on"}, "length"))
    assert (made["empty"], made["truncated"], made["answer"]) == (True, True, "")
    assert ends(made)


@pytest.mark.parametrize("finish", ["abort", "error", None])
def test_what_the_server_broke_off_is_no_answer(finish: str | None) -> None:
    with pytest.raises(NoAnswer, match="broken off"):
        row(completion({"content": "half an ans"}, finish))


@pytest.mark.parametrize("data", [{}, {"choices": []}, {"choices": ["x"]}, {"choices": [{"finish_reason": "stop"}]}])
def test_what_is_no_completion_is_no_answer(data: dict[str, Any]) -> None:
    with pytest.raises(NoAnswer):
        row(data)


def test_all_rows_have_the_same_fields_of_the_same_types() -> None:
    """What reads the file afterwards takes the types of the first rows for those of all."""
    full = row(completion({"content": "a", "reasoning": "r"}, **{**VLLM, "choice": dict(VLLM["choice"])}))
    bare = row({"choices": [{"message": {"content": None, "reasoning": None}, "finish_reason": "length"}], "usage": None, **VLLM})
    bare_types = {name: type(value) for name, value in bare.items()}
    assert bare_types == {name: type(full[name]) for name in bare_types}
    assert {type(value) for value in (*full["usage"].values(), *bare["usage"].values())} == {int}
    assert full["id"] == "p_gen1"
    assert full["primary_id"] == "p"
    assert full["prompt"] == ASKED
