"""What an engine answered, as one row of training data. Pure functions.

A row (one a generation) is, in this order::

    id, primary_id, gen     ``PROMPT_genN``; the prompt; which of its answers, from 0
    finish_reason           stop or length
    truncated, empty        it ran into max_tokens; it has no text (its tokens may have gone into its reasoning)
    model, usage, seconds   prompt_tokens, completion_tokens, total_tokens
    prompt                  the messages that were sent: role, content
    answer, reasoning_content
    input_ids, loss_mask    the tokens of prompt and answer, and 1 for those that were generated; absent without token ids

so what trains on it needs no template. Each field has one type in all rows of a file.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

FINISHED = ("stop", "length", "tool_calls")
BROKEN_OFF = ("abort", "error", None)


class NoAnswer(ValueError):
    """What came back is no whole answer; it may be asked for again."""


def token_ids(data: Mapping[str, Any]) -> Tuple[Optional[List[int]], Optional[List[int]]]:
    """(the prompt's, the answer's) token ids; None where there are none.

    vLLM puts the prompt's at the top and the answer's into the choice (``token_ids``); SGLang puts both into the choice
    (``response_token_ids``).
    """
    choice = data["choices"][0]
    prompt = data.get("prompt_token_ids") or choice.get("prompt_token_ids")
    answer = choice.get("token_ids") or choice.get("response_token_ids")
    return (list(prompt) if prompt else None), (list(answer) if answer else None)


def row_of(
    data: Mapping[str, Any], prompt_id: str, gen: int, messages: Sequence[Mapping[str, str]], seconds: float
) -> Dict[str, Any]:
    """The row of one chat completion. Raises `NoAnswer`."""
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise NoAnswer("no choices in the answer")
    choice = choices[0]
    finish = choice.get("finish_reason")
    if finish in BROKEN_OFF:
        raise NoAnswer("broken off by the server (finish_reason %s)" % finish)
    message = choice.get("message")
    if not isinstance(message, dict):
        raise NoAnswer("no message in the answer")
    answer = _text(message.get("content"))
    # vLLM says reasoning, SGLang and older vLLM reasoning_content
    reasoning = _text(message.get("reasoning_content")) or _text(message.get("reasoning"))
    usage = data.get("usage") or {}
    prompt_ids, answer_ids = token_ids(data)
    row: Dict[str, Any] = {
        "id": "%s_gen%d" % (prompt_id, gen),
        "primary_id": prompt_id,
        "gen": gen,
        "finish_reason": str(finish),
        "truncated": finish == "length",
        "empty": not answer.strip() and not message.get("tool_calls"),
        "model": str(data.get("model") or ""),
        "usage": {name: _count(usage.get(name)) for name in ("prompt_tokens", "completion_tokens", "total_tokens")},
        "seconds": round(seconds, 3),
        "prompt": [{"role": turn["role"], "content": turn["content"]} for turn in messages],
        "answer": answer,
        "reasoning_content": reasoning,
    }
    if prompt_ids and answer_ids:
        row["input_ids"] = prompt_ids + answer_ids
        row["loss_mask"] = [0] * len(prompt_ids) + [1] * len(answer_ids)
    return row


def generated(row: Mapping[str, Any]) -> int:
    """How many tokens the engine made for a row, reasoning included."""
    mask = row.get("loss_mask")
    if isinstance(mask, list):
        return sum(mask)
    return _count((row.get("usage") or {}).get("completion_tokens"))


def ends(row: Mapping[str, Any]) -> bool:
    """Whether its conversation goes no further: nobody answers on top of a cut or an empty answer."""
    return bool(row.get("truncated") or row.get("empty"))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
