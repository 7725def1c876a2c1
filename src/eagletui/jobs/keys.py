"""What a job file may say of a kind of job: a table of keys, from which the check of a file, its messages and the docs come."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([kKMGT]i?B)")
_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_CARD = re.compile(r"(GPU|MIG)-[0-9A-Za-z/-]+")

WORDS = {
    "text": "a text",
    "path": "an absolute path",
    "int": "a whole number",
    "number": "a number",
    "bool": "true or false",
    "texts": "a list of texts",
    "ints": "a list of whole numbers",
    "numbers": "a list of numbers",
    "size": 'a size such as "500 MB", or a number of bytes',
    "table": "a table",
    "tables": "a list of tables",
    "gpus": '"all", a number of cards, or a list of their indexes or UUIDs, each once',
}


class Key(NamedTuple):
    """One key: its ``type`` (see `WORDS`), what it says, whether it must be there, what counts without it, and its bounds."""

    name: str
    type: str
    help: str
    required: bool = False
    default: Any = None
    low: Optional[float] = None
    high: Optional[float] = None
    choices: Tuple[Any, ...] = ()

    def expected(self) -> str:
        """What it should be, in words."""
        if self.choices:
            return "one of " + ", ".join(str(choice) for choice in self.choices)
        words = WORDS[self.type]
        if self.low is not None and self.high is not None:
            return "%s from %g to %g" % (words, self.low, self.high)
        if self.low is not None:
            return "%s, at least %g" % (words, self.low)
        return words


class Wrong(NamedTuple):
    """What is wrong with a file: the key, what it is, what to do."""

    key: str
    what: str
    remedy: str


# what every kind takes
COMMON = (
    Key("kind", "text", "which kind of job"),
    Key("name", "text", "what it is called in tables; by default the name of the file"),
    Key("description", "text", "one line for lists"),
    Key("cwd", "path", "where it runs", default="/"),
    Key("env", "table", "its environment, names and texts"),
    Key("gpus", "gpus", "the cards that it sees, and that no other job gets meanwhile"),
    Key("secrets", "texts", "names of variables whose values come from you or your environment and are written nowhere"),
    Key("log_cap", "size", "how much of its log is kept, of its end", low=65536),
    Key("graces", "numbers", "the seconds a kill gives: to the main process, to all, after SIGKILL", low=0),
)


def read_keys(keys: Sequence[Key], values: Mapping[str, Any]) -> Tuple[Dict[str, Any], List[Wrong]]:
    """The values with their defaults, and everything that is wrong with them."""
    table = {key.name: key for key in (*COMMON, *keys)}
    out: Dict[str, Any] = {}
    wrong: List[Wrong] = []
    for name, value in values.items():
        key = table.get(name)
        if key is None:
            near = get_close_matches(name, table, 1)
            remedy = "did you mean %r?" % near[0] if near else "known: %s" % ", ".join(table)
            wrong.append(Wrong(name, "unknown key %r" % name, remedy))
        elif not _fits(key, value):
            wrong.append(Wrong(name, "%r is %s" % (name, _shown(value)), "expected %s" % key.expected()))
        else:
            out[name] = _bytes(value) if key.type == "size" else value
    for key in table.values():
        if key.name not in values:
            if key.required:
                wrong.append(
                    Wrong(key.name, "%r is missing" % key.name, "add %s: %s (%s)" % (key.name, key.help, key.expected()))
                )
            elif key.default is not None:
                out[key.name] = key.default
    return out, wrong


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _cards(value: Any) -> bool:
    if value == "all" or (_whole(value) and 0 < value <= 64):
        return True
    if not isinstance(value, (list, tuple)) or not value or len(set(map(str, value))) < len(value):
        return False
    return all((_whole(card) and 0 <= card < 64) or (_text(card) and _CARD.fullmatch(card) is not None) for card in value)


def _bytes(value: Any) -> Optional[int]:
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is not None:
        return int(float(match.group(1)) * _UNITS[match.group(2).upper()])
    return value if _whole(value) else None


def _text(value: Any) -> bool:
    return isinstance(value, str) and value != "" and "\0" not in value


_FITS: Dict[str, Callable[[Any], bool]] = {
    "text": _text,
    "path": lambda value: _text(value) and value.startswith("/"),
    "int": _whole,
    "number": _number,
    "size": lambda value: _bytes(value) is not None,
    "bool": lambda value: isinstance(value, bool),
    "table": lambda value: isinstance(value, Mapping),
    "gpus": lambda value: _cards(value),
}
_ITEM = {"texts": "text", "ints": "int", "numbers": "number", "tables": "table"}


def _fits(key: Key, value: Any) -> bool:
    if key.type in _ITEM:
        if not isinstance(value, (list, tuple)):
            return False
        return all(_FITS[_ITEM[key.type]](item) and _within(key, item) for item in value)
    return bool(_FITS[key.type](value)) and _within(key, value)


def _within(key: Key, value: Any) -> bool:
    if key.choices and value not in key.choices:
        return False
    if key.type == "size":
        value = _bytes(value)
    if _number(value):
        return (key.low is None or value >= key.low) and (key.high is None or value <= key.high)
    return True
