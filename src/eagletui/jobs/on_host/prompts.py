"""A file of prompts, read and judged as a whole before any request is sent.

JSON (one list) or JSONL (an object a line); each row has ``conversations`` ({from, value} or {role, content}) or ``messages``
({role, content}), and may have an ``id`` or ``uuid``. Assistant turns are dropped: every user turn is answered anew. All rows
of a file have the same schema, for what reads them afterwards guesses it from the first ones.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

Turns = List[Dict[str, str]]

_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "chatgpt": "assistant",
    "bard": "assistant",
    "bing": "assistant",
}
MOST_TOLD = 20


class Problem(NamedTuple):
    """What is wrong with one row: its line (from 1; in a JSON list its place) and why."""

    line: int
    what: str


class BadPrompts(ValueError):
    """The file as a whole cannot be used; the text says why."""


class BadRow(ValueError):
    """One row cannot be used; the text says why."""


class Prompts:
    """The good rows of one file: ``ids`` in the file's order; the turns of one are read when they are asked for.

    ``problems`` are the rows that cannot be used, ``repeated`` the lines that say again what an earlier one said, ``sha`` is
    the file's hash, ``answers`` how many answers each row asks for.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.ids: List[str] = []
        self.answers: List[int] = []
        self.problems: List[Problem] = []
        self.repeated: List[int] = []
        self.sha = ""
        self.schema = ""
        self._places: List[Tuple[int, int]] = []
        self._rows: Optional[List[Any]] = None
        self._seen: Dict[str, Tuple[bytes, int]] = {}
        self._read()
        self._seen.clear()

    def __len__(self) -> int:
        return len(self.ids)

    def turns(self, index: int) -> Turns:
        """The system and user turns of the row, in order."""
        at, size = self._places[index]
        if self._rows is not None:
            row = self._rows[at]
        else:
            with open(self.path, "rb") as file:
                file.seek(at)
                row = json.loads(file.read(size))
        return read_turns(row)[1]

    def _read(self) -> None:
        digest = hashlib.sha256()
        with open(self.path, "rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
        self.sha = digest.hexdigest()
        for line, place, row in self._all():
            if isinstance(row, BadRow):
                self.problems.append(Problem(line, str(row)))
                continue
            try:
                self._take(line, place, row)
            except BadRow as error:
                self.problems.append(Problem(line, str(error)))

    def _all(self) -> Iterator[Tuple[int, Tuple[int, int], Any]]:
        """(line, place, row or what is wrong with it) of everything in the file."""
        with open(self.path, "rb") as file:
            start = file.read(4096)
            if start.startswith(b"\xef\xbb\xbf"):
                raise BadPrompts("it begins with a byte order mark: save it as plain UTF-8")
            if start.lstrip()[:1] == b"[":
                file.seek(0)
                try:
                    self._rows = json.loads(file.read())
                except ValueError as error:
                    raise BadPrompts("it begins as a JSON list and is none: %s" % error) from None
                for index, row in enumerate(self._rows or ()):
                    yield index + 1, (index, 0), row
                return
            file.seek(0)
            at = 0
            for number, line in enumerate(file, 1):
                place = (at, len(line))
                at += len(line)
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError) as error:
                    yield number, place, BadRow("no JSON: %s" % error)
                    continue
                yield number, place, row

    def _take(self, line: int, place: Tuple[int, int], row: Any) -> None:
        schema, turns = read_turns(row)
        if not self.schema:
            self.schema = schema
        elif schema != self.schema:
            raise BadRow("its schema is %s, and the file began with %s" % (schema, self.schema))
        digest = hashlib.sha256(json.dumps(turns, ensure_ascii=False).encode("utf-8", "surrogatepass")).digest()
        name = own_id(row) or "hash_" + digest.hex()[:32]
        seen = self._seen.get(name)
        if seen is not None:
            if seen[0] != digest:
                raise BadRow("its id %s is the one of line %d, with other words" % (name, seen[1]))
            self.repeated.append(line)
            return
        self._seen[name] = (digest, line)
        self.ids.append(name)
        self.answers.append(sum(turn["role"] == "user" for turn in turns))
        self._places.append(place)


def own_id(row: Dict[str, Any]) -> Optional[str]:
    """The row's own name, None when it has none."""
    for field in ("id", "uuid"):
        value = row.get(field)
        if isinstance(value, (str, int)) and not isinstance(value, bool) and str(value):
            return str(value)
    return None


def read_turns(row: Any) -> Tuple[str, Turns]:
    """(schema, system and user turns) of one row. Raises `BadRow`."""
    if not isinstance(row, dict):
        raise BadRow("an object is expected, not %s" % type(row).__name__)
    fields = [name for name in ("conversations", "messages") if row.get(name) is not None]
    if not fields:
        known = ", ".join(sorted(map(str, row))[:6]) or "nothing"
        raise BadRow("neither conversations nor messages (it has %s)" % known)
    if len(fields) == 2:
        raise BadRow("both conversations and messages: which one counts?")
    turns = row[fields[0]]
    if not isinstance(turns, list) or not turns:
        raise BadRow("%s is no list of turns, or empty" % fields[0])
    out: Turns = []
    style = ""
    for number, turn in enumerate(turns, 1):
        own, role, text = _turn(turn, number)
        if style and own != style:
            raise BadRow("turn %d is %s, the turns before it are %s" % (number, own, style))
        style = own
        if role != "assistant":
            out.append({"role": role, "content": text})
    if not any(turn["role"] == "user" for turn in out):
        raise BadRow("no user turn")
    while out[-1]["role"] != "user":  # what nobody answers says nothing
        out.pop()
    return "%s of %s" % (fields[0], style), out


def _turn(turn: Any, number: int) -> Tuple[str, str, str]:
    if not isinstance(turn, dict):
        raise BadRow("turn %d is no object" % number)
    if "role" in turn:
        style, name, content = "role/content", turn.get("role"), turn.get("content")
    elif "from" in turn:
        style, name, content = "from/value", turn.get("from"), turn.get("value")
    else:
        raise BadRow("turn %d has neither role nor from" % number)
    role = _ROLES.get(name.lower()) if isinstance(name, str) else None
    if role is None:
        hint = ': tool = "speculators" can replay those' if name in ("tool", "function") else ""
        raise BadRow("turn %d is by %r, which is no system, user or assistant%s" % (number, name, hint))
    if role == "assistant":
        return style, role, ""
    if isinstance(content, list):
        content = _parts(content, number)
    if not isinstance(content, str):
        raise BadRow("turn %d (%s) has no text" % (number, role))
    if not content.strip():
        raise BadRow("turn %d (%s) is empty" % (number, role))
    try:
        content.encode("utf-8")
    except UnicodeEncodeError:
        raise BadRow("turn %d (%s) has half a character (a lone surrogate)" % (number, role)) from None
    return style, role, content


def _parts(parts: List[Any], number: int) -> str:
    out = []
    for part in parts:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise BadRow("turn %d has a part that is no text (%s)" % (number, kind))
        out.append(part["text"])
    return "".join(out)


def told(problems: List[Problem]) -> List[str]:
    """What is wrong with a file, a line each, the first `MOST_TOLD` of them."""
    lines = ["line %d: %s" % (problem.line, problem.what) for problem in problems[:MOST_TOLD]]
    if len(problems) > MOST_TOLD:
        lines.append("and %d rows more" % (len(problems) - MOST_TOLD))
    return lines
