"""A job file as the fields of a form, and back: every mistake is told by its field, in the words of the file's own checks.

What a person changed becomes the changes that ``eagletui run --set`` takes: the form and the command line check the same way.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from eagletui.jobfiles import PIPELINE, JobFile, parse_job_file, runnable
from eagletui.jobs.keys import COMMON, Key
from eagletui.jobs.kinds import kind
from eagletui.text import clean

_SKIPPED = ("kind", "description")
_LAST = ("cwd", "env", "secrets", "gpus", "graces", "log_cap")
"""What every kind takes stands behind what the kind itself takes."""
_KEY = re.compile(r"'([\w.-]+)'")


class JobField(NamedTuple):
    """One line of the form: ``id`` is the key, with its table before it (``vars.rows``) in a pipeline; ``hint`` stands in an
    empty field, ``help`` below the form while it has the focus."""

    id: str
    hint: str
    help: str
    required: bool = False


def blank(word: str) -> JobFile:
    """An empty job of a kind, for a form without a file."""
    path = Path(f"new {word}.toml")
    return JobFile(word, word, {}, path, f'kind = "{word}"\nname = "{word}"\n')


WHAT = {
    "download": "a model or data set from the hub, or a copy on the host",
    "synthesise": "answers of the target to your prompts, by its server",
    "prepare": "answers as token ids, with the mask of what is learned",
    "extract": "the target's hidden states of prepared data",
    "train": "an EAGLE-3 drafter from hidden states",
    "convert": "a drafter into another format",
    "benchmark": "a running server measured under load",
    "verdict": "what benchmarks say of a drafter, in sentences",
    "build": "a package from its sources, within the host's memory",
    "command": "any program",
}


def kinds_to_fill() -> list[tuple[str, str]]:
    """(kind, what it is in a line) of all kinds that a form can start from nothing. A pipeline has a file."""
    return sorted(((word, WHAT.get(word, "")) for word in runnable() if word != PIPELINE), key=_rank)


def _rank(one: tuple[str, str]) -> int:
    """In the order in which a drafter comes to be."""
    return list(WHAT).index(one[0]) if one[0] in WHAT else len(WHAT)


def place_of(file: JobFile) -> str:
    """Where a job file comes from, in a word."""
    parts = file.source.parts
    if "lab" in parts[-3:]:
        return "lab"
    if "assets" in parts[-3:]:
        return "shipped"
    return "this host" if "hosts" in parts[-4:] else "yours"


def fields_of(file: JobFile) -> list[JobField]:
    """The fields, what is needed first."""
    if file.kind == PIPELINE:
        return _of_pipeline(file)
    common = {key.name: key for key in COMMON}
    own = sorted(kind(file.kind).keys, key=lambda key: not key.required)
    order = [common["name"], *own, *(common[name] for name in _LAST if name in common)]
    seen: dict[str, Key] = {}
    for key in order:
        if key.name not in _SKIPPED:
            seen.setdefault(key.name, key)
    return [JobField(key.name, _hint(key), f"{key.help} - {key.expected()}", key.required) for key in seen.values()]


def _of_pipeline(file: JobFile) -> list[JobField]:
    out = [
        JobField("name", "", "what it is called in tables", True),
        JobField("dir", "an absolute path", "where its record lies, and what its steps make", True),
        JobField("stages", "", "the rows of each stage, and all: 10 1000 all"),
    ]
    found = file.values.get("vars")
    for name, value in (found if isinstance(found, Mapping) else {}).items():
        out.append(
            JobField(f"vars.{name}", "", f"a word of this pipeline, used where {{{name}}} stands; now {_text(value) or 'empty'}")
        )
    return out


def _hint(key: Key) -> str:
    if key.default is not None and key.default not in ("", (), []):
        return f"{_text(key.default)}"
    if key.required:
        return f"{key.expected()}"
    return ""


def _text(value: Any) -> str:
    """A value as it is typed into a field: a text bare, a list as words, a table as TOML has it in one line."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        if all(isinstance(item, int | float) and not isinstance(item, bool) for item in value):
            return " ".join(f"{item:g}" if isinstance(item, float) else str(item) for item in value)
        if all(isinstance(item, str | int | float) and not isinstance(item, bool) for item in value):
            return shlex.join(str(item) for item in value)
        return _toml(value)
    if isinstance(value, Mapping):
        if all(isinstance(item, str) for item in value.values()):
            return " ".join(f"{name}={shlex.quote(item)}" for name, item in value.items())
        return _toml(value)
    return str(value)


def _toml(value: Any) -> str:
    """TOML in one line, of what came out of TOML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(str(name))} = {_toml(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def texts_of(file: JobFile) -> dict[str, str]:
    """What stands in each field: what the file says; what is a default stands as the field's hint.

    It is safe to draw. What only lost its line breaks or worse by that stays as the file has it, unless a person changes it.
    """
    return {field.id: clean(_text(_given(file, field.id)), 1 << 16) for field in fields_of(file)}


def _given(file: JobFile, id_: str) -> Any:
    if id_ == "name":
        return file.name
    table, _, last = id_.rpartition(".")
    values = file.values.get(table) if table else file.values
    if not isinstance(values, Mapping):
        return None
    value = values.get(last)
    if not table and file.kind != PIPELINE:
        key = {key.name: key for key in (*COMMON, *kind(file.kind).keys)}.get(last)
        if key is not None and key.default is not None and _same(value, key.default):
            return None
    return value


def _same(one: Any, other: Any) -> bool:
    return (list(one) if isinstance(one, tuple) else one) == (list(other) if isinstance(other, tuple) else other)


def changes_of(file: JobFile, texts: Mapping[str, str]) -> list[str]:
    """What was changed in the fields, as ``--set`` takes it. Raises ``ValueError`` for quotes that do not match."""
    before = texts_of(file)
    types = {key.name: key.type for key in (*COMMON, *kind(file.kind).keys)}
    out: list[str] = []
    for id_, old in before.items():
        text = texts.get(id_, "").strip()
        if text == old.strip():
            continue
        type_ = types.get(id_, "")
        given = _given(file, id_)
        if id_.startswith("vars.") and text and not text.startswith("["):
            out.append(f"{id_}={_like(given, text)}")
        elif id_ == "stages":
            out.append(f"stages={_stages(text)}" if text else "stages=")
        elif type_ == "table" and text and not text.startswith("{"):
            out += [f"{id_}=", *(f"{id_}.{_pair(word)}" for word in shlex.split(text))]
        elif type_ == "texts" and text and not text.startswith("["):
            out.append(f"{id_}={json.dumps(shlex.split(text), ensure_ascii=False)}")
        elif type_ in ("ints", "numbers") and text and not text.startswith("["):
            out.append(f"{id_}=[{', '.join(text.replace(',', ' ').split())}]")
        elif type_ == "gpus" and text and text != "all" and not text.startswith("["):
            out.append(f"{id_}={_gpus(text)}")
        else:
            out.append(f"{id_}={text}")
    return out


def _like(given: Any, text: str) -> str:
    """A word of a pipeline as what it was before: a list stays one, a text too."""
    if isinstance(given, list | tuple):
        words = shlex.split(text.replace(",", " "))
        return "[" + ", ".join(word if re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", word) else json.dumps(word) for word in words) + "]"
    return json.dumps(text) if isinstance(given, str) else text


def _pair(word: str) -> str:
    name, equal, value = word.partition("=")
    if not equal or not name:
        raise ValueError(f"{word!r} is not NAME=value")
    return f"{name}={value}"


def _stages(text: str) -> str:
    if text.startswith("["):
        return text
    words = text.replace(",", " ").split()
    return "[" + ", ".join(word if word.isdigit() else json.dumps(word) for word in words) + "]"


def _gpus(text: str) -> str:
    """A number of cards, or a list of indexes and UUIDs; one index alone has a comma behind it."""
    words = text.replace(",", " ").split()
    if len(words) == 1 and "," not in text and words[0].isdigit():
        return words[0]
    return "[" + ", ".join(word if word.isdigit() else json.dumps(word) for word in words) + "]"


def file_of(file: JobFile, texts: Mapping[str, str]) -> tuple[JobFile | None, dict[str, str]]:
    """The job file with what stands in the fields, or None and what is wrong by field ("" for what concerns several)."""
    problems: dict[str, str] = {}
    try:
        changes = changes_of(file, texts)
    except ValueError as error:
        return None, {_culprit(file, texts): str(error).lower()}
    made, notices = parse_job_file(file.text, file.source, changes)
    ids = {field.id for field in fields_of(file)}
    for notice in notices:
        named = re.match(r"--set ([\w.-]+)", notice.what) or _KEY.search(notice.what)
        id_ = named[1] if named is not None and named[1] in ids else ""
        words = f"{notice.what}: {notice.remedy}" if notice.remedy else notice.what
        problems[id_] = f"{problems[id_]}; {words}" if id_ in problems else words
    return made, problems


def _culprit(file: JobFile, texts: Mapping[str, str]) -> str:
    """The field whose words cannot be taken apart."""
    for field in fields_of(file):
        try:
            changes_of(file, {**texts_of(file), field.id: texts.get(field.id, "")})
        except ValueError:
            return field.id
    return ""
