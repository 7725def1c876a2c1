"""The text of a pipeline's file: where a key stands in it, and what the names in braces in its values stand for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

_HEADER = re.compile(r"\s*(\[\[?)\s*([A-Za-z0-9_.\"'-]+)\s*\]\]?")
_KEY = re.compile(r"\s*(?:\"([^\"]+)\"|'([^']+)'|([A-Za-z0-9_-]+))\s*(?:\.\s*[A-Za-z0-9_\"'.-]+\s*)?=")
_NAME = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)?)\}")


class Lines:
    """Where keys stand: ``at("step", 2, "limit")`` is the line of that key in the third ``[[step]]``, else of its header."""

    def __init__(self, text: str) -> None:
        self._where: dict[tuple[str, int, str], int] = {}
        table, number, count = "", 0, 0
        for line_number, line in enumerate(text.splitlines(), 1):
            if header := _HEADER.match(line):
                table = header[2].replace('"', "").replace("'", "")
                if header[1] == "[[":
                    number, count = count, count + 1
                elif not table.startswith("step."):
                    number = 0
                self._where.setdefault((table, number, ""), line_number)
            elif key := _KEY.match(line):
                self._where.setdefault((table, number, key[1] or key[2] or key[3]), line_number)

    def at(self, table: str, number: int = 0, key: str = "") -> int:
        """The line (from 1); 1 where neither the key nor its table has one of its own."""
        for place in ((table, number, key), (f"{table}.{key}", number, ""), (table, number, ""), ("", 0, table)):
            if place in self._where:
                return self._where[place]
        below = [line for (name, _, _), line in self._where.items() if name.startswith(f"{table}.")]
        return min(below, default=1)


class Unknown(ValueError):
    """A name in braces that stands for nothing; the text says what there is. ``name`` is that name."""

    def __init__(self, name: str, words: str) -> None:
        super().__init__(words)
        self.name = name


def resolve(value: Any, names: Mapping[str, Any]) -> Any:
    """The value with every ``{name}`` in its texts filled in; a text that is nothing else becomes what the name stands for.

    ``{{`` and ``}}`` stand for the braces themselves. Raises `Unknown`.
    """
    if isinstance(value, str):
        whole = _NAME.fullmatch(value)
        if whole is not None and whole[1]:
            return _look_up(whole[1], names)
        return _NAME.sub(lambda match: _piece(match, names), value)
    if isinstance(value, list):
        return [resolve(item, names) for item in value]
    if isinstance(value, Mapping):
        return {key: resolve(item, names) for key, item in value.items()}
    return value


def _piece(match: re.Match[str], names: Mapping[str, Any]) -> str:
    if match[1] is None:
        return match[0][0]
    found = _look_up(match[1], names)
    if isinstance(found, (list, dict)):
        raise Unknown(match[1], f"{{{match[1]}}} is no text: it can only stand alone")
    return str(found)


def _look_up(name: str, names: Mapping[str, Any]) -> Any:
    if name in names:
        return names[name]
    first = name.partition(".")[0]
    parts = sorted(known for known in names if known.startswith(first + "."))
    if "." in name and parts:
        words = ", ".join(f"{{{part}}}" for part in parts)
        raise Unknown(name, f"{{{name}}} stands for nothing: of {first} there is {words}")
    near = get_close_matches(name, list(names), 1)
    hint = f"did you mean {{{near[0]}}}?" if near else "only earlier steps, servers and [vars] can be named"
    raise Unknown(name, f"{{{name}}} stands for nothing: {hint} (for the braces themselves write {{{{{name}}}}})")


def texts(value: Any) -> Iterator[str]:
    """All texts in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield from texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from texts(item)


def mentions(value: Any, path: str) -> bool:
    """Whether a text in ``value`` holds this path, or one below it."""
    pattern = re.compile(re.escape(path) + r"(?![A-Za-z0-9._-])")
    return any(pattern.search(text) for text in texts(value))
