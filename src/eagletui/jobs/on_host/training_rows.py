"""Rows of several kinds made into the one kind that speculators' prepare-data reads rightly, each judged before.

prepare-data looks at one column name and drops what it does not know without an error: ``messages`` it ignores, ``reasoning``
it does not know, and a file whose rows differ breaks its loader half way. So it gets a file of ours, where all rows are alike:
``{"input_ids", "loss_mask"}``, or, of data without token ids, ``{"conversations"}`` which a vLLM server has to render.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

from eagletui.jobs.on_host.journal import lines
from eagletui.jobs.on_host.prompts import MOST_TOLD, BadRow, Problem

TOKENS, TEXT = "token ids", "text"
_ROLES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system"}


class Limits(NamedTuple):
    """What is kept. ``vocabulary``: ids from there on belong to another model; None when it is unknown."""

    length: int
    least: int = 1
    keep_truncated: bool = True
    keep_empty: bool = False
    vocabulary: Optional[int] = None


class Rows:
    """Reads data files and yields rows for prepare-data; counts what it leaves out, and why.

    ``style`` is `TOKENS` or `TEXT`. Of rows with token ids ``kept``, ``tokens`` and ``trained`` (loss_mask 1) say exactly what
    prepare-data will keep of them; ``clipped`` of them lose their end to the sequence length.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.style = ""
        self.read = self.kept = self.tokens = self.trained = self.clipped = self.longest = 0
        self.dropped: Dict[str, int] = {}
        self.problems: List[Problem] = []
        self.wrong = 0
        self._seen: Set[str] = set()
        self._last: Dict[str, Tuple[int, Dict[str, Any]]] = {}

    def of(self, path: str) -> Iterator[Dict[str, Any]]:
        """The rows of one file that are to be kept. What comes out only at the end is in `rest`."""
        for number, row in _all(path):
            self.read += 1
            try:
                if row is None:
                    raise BadRow("no JSON object")
                made = self._one(row)
            except BadRow as error:
                self.wrong += 1
                self.dropped["invalid"] = self.dropped.get("invalid", 0) + 1
                if len(self.problems) <= MOST_TOLD:
                    self.problems.append(Problem(number, str(error)))
                continue
            if made is not None:
                yield made

    def rest(self) -> Iterator[Dict[str, Any]]:
        """Of conversations with several answers in rows of their own, the longest: prepare-data makes a row of each turn."""
        for _gen, row in self._last.values():
            self.kept += 1
            yield row
        self._last.clear()

    def _one(self, row: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        style = TOKENS if row.get("input_ids") is not None or row.get("loss_mask") is not None else TEXT
        if self.style and style != self.style:
            raise BadRow("it has %s, and the data began with %s" % (style, self.style))
        self.style = style
        made = self._with_ids(row) if style == TOKENS else None
        name = row.get("id")
        if isinstance(name, (str, int)):
            if str(name) in self._seen:
                self._drop("double")
                return None
            self._seen.add(str(name))
        finish = row.get("finish_reason") or (row.get("metadata") or {}).get("finish_reason")
        if finish == "length" and not self._limits.keep_truncated:
            self._drop("truncated")
            return None
        if row.get("empty") is True and not self._limits.keep_empty:
            self._drop("empty")
            return None
        if made is not None:
            return self._fitting(made)
        if finish == "length":
            # rendered, it would end with a token that the model has never said there
            self._drop("truncated")
            return None
        return self._text(row)

    def _drop(self, why: str) -> None:
        self.dropped[why] = self.dropped.get(why, 0) + 1

    def _with_ids(self, row: Mapping[str, Any]) -> Dict[str, Any]:
        ids, mask = row.get("input_ids"), row.get("loss_mask")
        if not isinstance(ids, list) or not isinstance(mask, list):
            raise BadRow("input_ids and loss_mask go together, as lists")
        if len(ids) != len(mask):
            raise BadRow("%d input_ids and %d loss_mask" % (len(ids), len(mask)))
        if not ids:
            raise BadRow("no tokens")
        if not all(type(token) is int for token in ids) or min(ids) < 0:
            raise BadRow("input_ids are whole numbers from 0")
        if not all(type(bit) is int and 0 <= bit <= 1 for bit in mask):
            raise BadRow("loss_mask is of 0 and 1")
        limit = self._limits.vocabulary
        if limit is not None and max(ids) >= limit:
            raise BadRow("token %d, and the model has %d: it is of another model" % (max(ids), limit))
        return {"input_ids": ids, "loss_mask": mask}

    def _fitting(self, row: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        """As prepare-data will judge it."""
        limits = self._limits
        size, trained = len(row["input_ids"]), sum(row["loss_mask"][: limits.length])
        if trained == 0:
            self._drop("nothing to train on" if sum(row["loss_mask"]) == 0 else "answer beyond the sequence length")
            return None
        if trained < limits.least:
            self._drop("too few tokens")
            return None
        self.kept += 1
        self.clipped += size > limits.length
        self.tokens += min(size, limits.length)
        self.trained += trained
        self.longest = max(self.longest, size)
        return row

    def _text(self, row: Mapping[str, Any]) -> Optional[Dict[str, Any]]:
        if isinstance(row.get("prompt"), list) and isinstance(row.get("answer"), str):
            turns = [*row["prompt"], {"role": "assistant", "content": row["answer"], **_reasoning(row)}]
            made = {"conversations": _turns(turns)}
            prompt, gen = str(row.get("primary_id") or row.get("id")), int(row.get("gen") or 0)
            if gen >= self._last.get(prompt, (-1, made))[0]:
                self._last[prompt] = (gen, made)
            return None
        fields = [name for name in ("conversations", "messages") if row.get(name) is not None]
        if len(fields) != 1:
            raise BadRow("one of conversations, messages, or input_ids with loss_mask is expected")
        made = {"conversations": _turns(row[fields[0]])}
        if not any(turn["role"] == "assistant" for turn in made["conversations"][1:]):
            raise BadRow("no answer in it: it is a prompt")
        self.kept += 1
        return made


def _reasoning(turn: Mapping[str, Any]) -> Dict[str, str]:
    """Under the name that prepare-data knows, whatever its engine called it."""
    for name in ("reasoning_content", "reasoning", "thinking"):
        if isinstance(turn.get(name), str) and turn[name]:
            return {"reasoning_content": turn[name]}
    return {"reasoning_content": ""}


def _turns(turns: Any) -> List[Dict[str, str]]:
    if not isinstance(turns, list) or not turns:
        raise BadRow("no list of turns, or an empty one")
    out = []
    for number, turn in enumerate(turns, 1):
        if not isinstance(turn, dict):
            raise BadRow("turn %d is no object" % number)
        name = turn.get("role", turn.get("from"))
        role = _ROLES.get(name) if isinstance(name, str) else None
        if role is None:
            # prepare-data would take any other name for the model's own answer
            raise BadRow("turn %d is by %r, which is no system, user or assistant" % (number, name))
        content = turn.get("content", turn.get("value"))
        if not isinstance(content, str):
            raise BadRow("turn %d (%s) has no text" % (number, role))
        out.append({"role": role, "content": content, **_reasoning(turn)})
    return out


def _all(path: str) -> Iterator[Tuple[int, Optional[Dict[str, Any]]]]:
    with open(path, "rb") as file:
        start = file.read(4096).lstrip()[:1]
        if start == b"[":
            file.seek(0)
            rows = json.loads(file.read())
            for number, row in enumerate(rows, 1):
                yield number, row if isinstance(row, dict) else None
            return
    for number, _end, row in lines(path):
        yield number, row
