"""The user's configuration: ``config.toml``, global settings and what differs for one host.

    readonly = true
    identity = "~/.ssh/id_gpu"

    [intervals]                 # seconds between samples
    gpus = 2

    [keys]                      # action -> key, or several with commas; the ids are in docs/keys.md
    help = "f1"

    [hosts.gpu-host]            # as it is written on the command line: alias, HOST or USER@HOST
    gpus = 8                    # cards it should have: fewer raise an alert
    readonly = false
    intervals = { gpus = 1 }

What is wrong is told with file, line, what was expected and what to do, and left out; the rest works.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from eagletui.paths import config_dir

INTERVALS = {"host": 0.5, "gpus": 0.25, "processes": 1.0, "jobs": 0.5}
"""Streams whose interval can be set, with the least that is allowed: below it sampling costs more than it tells."""


class Notice(NamedTuple):
    """Something in the configuration that was left out. ``line`` is None when the whole file could not be read."""

    file: Path
    line: int | None
    what: str
    remedy: str

    def __str__(self) -> str:
        at = f"{self.file}:{self.line}" if self.line else str(self.file)
        return f"{at}: {self.what} - {self.remedy}"


@dataclass(frozen=True)
class HostSettings:
    """What holds for one host. ``gpus`` is the number of cards it should have, ``intervals`` only those that are set."""

    identity: str | None = None
    readonly: bool = False
    strict: bool = False
    ssh_config: bool = True
    gpus: int | None = None
    intervals: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Config:
    """The whole configuration as read: every value in it is valid; `notices` says what was not."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    hosts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    notices: tuple[Notice, ...] = ()

    def for_host(self, *names: str) -> HostSettings:
        """The settings for a host that goes by any of ``names``: its own first, then the global ones."""
        merged = dict(self.settings)
        intervals = dict(merged.pop("intervals", {}))
        for name in names:
            own = dict(self.hosts.get(name, {}))
            intervals.update(own.pop("intervals", {}))
            merged.update(own)
        return HostSettings(**merged, intervals=intervals)


class _Wrong(Exception):
    """A value that is not what it should be: what was expected."""


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Wrong("true or false")
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= 64:
        raise _Wrong("a number of cards, 1 to 64")
    return value


def _file(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise _Wrong("the path of a private key, in quotes")
    return str(Path(value).expanduser())


def _keys(value: Any) -> str:
    keys = value if isinstance(value, list) else [value]
    if not keys or not all(isinstance(key, str) and key.strip() for key in keys):
        raise _Wrong('a key such as "f1" or "ctrl+l", or a list of keys')
    return ",".join(keys)


_HOST_FIELDS: Mapping[str, Callable[[Any], Any]] = {
    "identity": _file,
    "readonly": _boolean,
    "strict": _boolean,
    "ssh_config": _boolean,
    "gpus": _count,
}
_GLOBAL_FIELDS = {name: check for name, check in _HOST_FIELDS.items() if name != "gpus"}


def load_config(path: Path | None = None) -> Config:
    """Read ``config.toml`` (by default the user's). A file that is not there is an empty configuration. Never raises."""
    path = path or config_dir() / "config.toml"
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return Config()
    except OSError as error:
        return Config(notices=(Notice(path, None, f"cannot be read: {error.strerror}", "check its owner and mode"),))
    except UnicodeDecodeError:
        return Config(notices=(Notice(path, None, "is not UTF-8 text", "save it as UTF-8"),))
    return parse_config(text, path)


def read_text(path: Path) -> tuple[str | None, Notice | None]:
    """A text file of the user's, or why it cannot be read."""
    try:
        return path.read_bytes().decode("utf-8-sig"), None  # some editors put a mark before the text
    except OSError as error:
        return None, Notice(path, None, f"cannot be read: {error.strerror}", "check its owner and mode")
    except UnicodeDecodeError:
        return None, Notice(path, None, "is not UTF-8 text", "save it as UTF-8")


def read_toml(text: str, path: Path, otherwise: str) -> tuple[dict[str, Any] | None, Notice | None]:
    """The document in ``text``, or what is wrong with it; ``otherwise`` says what becomes of the file then."""
    try:
        return tomllib.loads(text), None
    except RecursionError:
        return None, Notice(path, None, "is not TOML that can be read: nested too deep", otherwise)
    except ValueError as error:  # also a number of thousands of digits, which the parser does not call its own error
        match = re.search(r"at line (\d+)", str(error))
        line = int(match[1]) if match else max(1, len(text.splitlines()))
        why = str(error).partition(" (at ")[0]
        return None, Notice(path, line, f"is not TOML: {why[:1].lower()}{why[1:]}", f"mend that line; {otherwise}")


def parse_config(text: str, path: Path) -> Config:
    """The configuration in ``text``; ``path`` is only named in notices."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = re.search(r"\(at (?:line (\d+), column \d+|end of document)\)", str(error))
        line = int(match.group(1)) if match and match.group(1) else max(1, len(text.splitlines()))
        why = str(error).partition(" (at ")[0]
        notice = Notice(
            path, line, f"is not TOML: {why[0].lower()}{why[1:]}", "nothing of this file is used until that is mended"
        )
        return Config(notices=(notice,))
    return _Reader(text, path).read(document)


class _Reader:
    """Checks a parsed document table by table, and collects notices."""

    def __init__(self, text: str, path: Path) -> None:
        self._text, self._path = text, path
        self._notices: list[Notice] = []

    def read(self, document: dict[str, Any]) -> Config:
        hosts = self._table(document, "hosts", ())
        wishes = self._table(document, "keys", ())
        settings = self._fields(document, (), _GLOBAL_FIELDS, also=("hosts", "keys"))
        own = {}
        for name in hosts:
            table = self._table(hosts, name, ("hosts",))
            own[name] = self._fields(table, ("hosts", name), _HOST_FIELDS)
        keys: dict[str, str] = {}
        for name, value in wishes.items():
            self._take(keys, name, value, ("keys",), _keys)
        return Config(settings, own, keys, tuple(self._notices))

    def _fields(
        self, table: dict[str, Any], path: tuple[str, ...], fields: Mapping[str, Callable[[Any], Any]], also: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        out: dict[str, Any] = {}
        known = [*fields, "intervals", *also]
        for name, value in table.items():
            if name in fields:
                self._take(out, name, value, path, fields[name])
            elif name not in known:
                self._unknown(name, path, known)
        intervals: dict[str, float] = {}
        for name, value in self._table(table, "intervals", path).items():
            if name in INTERVALS:
                self._take(intervals, name, value, (*path, "intervals"), _seconds(INTERVALS[name]))
            else:
                self._unknown(name, (*path, "intervals"), list(INTERVALS))
        return {**out, "intervals": intervals} if intervals else out

    def _table(self, table: dict[str, Any], name: str, path: tuple[str, ...]) -> dict[str, Any]:
        value = table.get(name, {})
        if isinstance(value, dict):
            return value
        self._note((*path, name), f"{name!r} should be a table", f"write it as [{'.'.join((*path, name))}]")
        return {}

    def _take(self, out: dict[str, Any], name: str, value: Any, path: tuple[str, ...], check: Callable[[Any], Any]) -> None:
        try:
            out[name] = check(value)
        except _Wrong as wrong:
            self._note((*path, name), f"{name!r} is {_shown(value)}", f"expected {wrong}; ignored")

    def _unknown(self, name: str, path: tuple[str, ...], known: list[str]) -> None:
        near = get_close_matches(name, known, 1)
        hint = f"ignored; did you mean {near[0]!r}?" if near else f"ignored; known here: {', '.join(sorted(known))}"
        where = f" in [{'.'.join(path)}]" if path else ""
        self._note((*path, name), f"unknown setting {name!r}{where}", hint)

    def _note(self, path: tuple[str, ...], what: str, remedy: str) -> None:
        self._notices.append(Notice(self._path, line_of(self._text, path), what, remedy))


def _seconds(least: float) -> Callable[[Any], float]:
    def check(value: Any) -> float:
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not least <= value <= 3600  # also NaN, for which no comparison holds
        ):
            raise _Wrong(f"seconds, {least:g} to 3600")
        return float(value)

    return check


def _shown(value: Any) -> str:
    text = repr(value).replace("True", "true").replace("False", "false")
    return text if len(text) <= 40 else text[:37] + "..."


_HEADER = re.compile(r"\s*\[\[?([^\]]+)\]\]?")
_KEY = re.compile(r"\s*((?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*'))*)\s*=")
_PART = re.compile(r"[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*'")


def line_of(text: str, path: tuple[str, ...]) -> int | None:
    """The line (from 1) where the key at ``path`` stands in a TOML text; its table's when it is inside an inline table."""
    table: tuple[str, ...] = ()
    best, depth = None, 0
    for number, line in enumerate(text.splitlines(), 1):
        header = _HEADER.match(line)
        key = None if header else _KEY.match(line)
        if header:
            table = here = _parts(header.group(1))
        elif key:
            here = table + _parts(key.group(1))
        else:
            continue
        if path[: len(here)] == here and len(here) > depth:
            best, depth = number, len(here)
    return best


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))
