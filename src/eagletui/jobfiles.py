"""Job files: what one job is to do, as TOML that a person can read, copy and change.

    kind = "download"                # which kind of job; its keys are in docs/jobs.md
    repo = "RedHatAI/Kimi-K2.5-speculator.eagle3"
    output = "/data/drafters/k25"
    secrets = ["HF_TOKEN"]           # names alone: the values come from your environment, or are asked for

    [env]
    HF_HUB_ENABLE_HF_TRANSFER = "1"

Found by path, or by name in four places as profiles are: the user's ``hosts/<host>/jobs/*.toml`` and ``jobs/*.toml``, the lab's
own while it is built (on this machine alone), and those that come with eagletui. A file with mistakes is not run: all of them are
told at once, with file, line, what was expected and what to do.
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from eagletui.config import Notice, line_of, read_text, read_toml
from eagletui.jobs.base import BadJob, Kind
from eagletui.jobs.keys import COMMON, Key, read_keys
from eagletui.jobs.kinds import kind, names
from eagletui.labparts.paths import Lab, find_lab
from eagletui.paths import assets_path, config_dir
from eagletui.profile_values import VARIABLE, Wrong, name_word
from eagletui.profiles import HERE, host_folder

PIPELINE = "pipeline"
"""The kind whose files hold steps, not keys: they are compiled (see `pipelines`)."""


@dataclass(frozen=True)
class JobFile:
    """One job file, checked. ``values`` are its kind's keys with their defaults; of a pipeline, the document as it stands.

    ``text`` is what the lines of messages refer to, ``secrets`` the names whose values the launch has to hand over.
    """

    name: str
    kind: str
    values: Mapping[str, Any]
    source: Path
    text: str = field(default="", repr=False)

    @property
    def description(self) -> str:
        return str(self.values.get("description") or "")

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(self.values.get("secrets") or ())


class BadJobFile(ValueError):
    """A job file cannot be run: everything that is wrong with it."""

    def __init__(self, notices: Sequence[Notice]) -> None:
        super().__init__("; ".join(map(str, notices)))
        self.notices = tuple(notices)


def runnable() -> tuple[str, ...]:
    """The kinds that a job file may have: all but servers, which have profiles."""
    return tuple(name for name in names() if not kind(name).server)


def parse_job_file(text: str, path: Path, changes: Sequence[str] = ()) -> tuple[JobFile | None, list[Notice]]:
    """The job file in ``text`` with each ``KEY=VALUE`` of ``changes``, or None with everything that is wrong with it.

    An empty value takes a key away, ``env.NAME`` is one variable (any key of a table can be named so), ``KEY+=`` adds to a list.
    """
    document, unreadable = read_toml(text, path, "the job file cannot be run")
    if document is None:
        return None, [unreadable] if unreadable else []
    notices: list[Notice] = []

    def note(key: str, what: str, remedy: str) -> None:
        notices.append(Notice(path, line_of(text, (key,)) or 1, what, remedy))

    word = next((change[5:] for change in changes if change.startswith("kind=")), document.get("kind"))
    if not isinstance(word, str) or word not in runnable():
        near = get_close_matches(str(word), runnable(), 1)
        what = "'kind' is missing" if word is None else f"there is no kind of job {word!r} that a job file can have"
        if word == "serve":
            note("kind", "a server has a profile, no job file", "see docs/profiles.md and `eagletui launch`")
        else:
            note("kind", what, f"did you mean {near[0]!r}?" if near else f"known: {', '.join(runnable())}")
        return None, notices
    found = kind(word)
    for change, problem in _changed(document, found, changes):
        notices.append(Notice(path, None, f"--set {change}: {problem}", "see docs/jobs.md"))
    if word == PIPELINE:
        values, name = document, document.get("name", path.stem)
    else:
        values, wrong = read_keys(found.keys, document)
        notices += [Notice(path, line_of(text, (item.key,)) or 1, item.what, item.remedy) for item in wrong]
        notices += [
            Notice(path, line_of(text, (key,)) or 1, what, remedy) for key, what, remedy in _together(found, values, wrong)
        ]
        name = values.setdefault("name", path.stem)
    try:
        name_word(name)
    except Wrong as expected:
        note("name", f"'name' is {name!r}", f"expected {expected}")
    if notices:
        return None, sorted(notices, key=lambda notice: notice.line or 0)
    return JobFile(name, word, values, path, text), []


def _together(found: Kind, values: dict[str, Any], wrong: Sequence[Any]) -> Iterator[tuple[str, str, str]]:
    """What is wrong with the keys taken together; texts that are numbers in [env] become texts."""
    env = values.get("env") or {}
    for name, value in env.items():
        if not VARIABLE.fullmatch(name) or isinstance(value, bool) or not isinstance(value, (str, int, float)):
            yield "env", f"{name!r} in [env] is {value!r}", 'expected NAME = "text" or a number, NAME of letters, digits and "_"'
    if env:
        values["env"] = {name: str(value) for name, value in env.items()}
    if "graces" in values and len(values["graces"]) != 3:
        yield "graces", f"'graces' has {len(values['graces'])} numbers", "expected three: main process, all, after SIGKILL"
    for name in values.get("secrets") or ():
        if not VARIABLE.fullmatch(name):
            yield "secrets", f"{name!r} is no name of a variable", "give names alone: their values come from your environment"
        elif name in env:
            yield "secrets", f"{name} is a secret and stands in [env] too", "keep it in secrets alone: env is written to files"
    yield from (item for item in found.check(values) if item.key not in {other.key for other in wrong})


# ------------------------------------------------------------------------------------------------------------- the changes


def _changed(document: dict[str, Any], found: Kind, changes: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Put the changes into the document; yields (change, what is wrong with it)."""
    keys = {key.name: key for key in (*COMMON, *found.keys)}
    for change in changes:
        name, equal, word = change.partition("=")
        add, name = name.endswith("+"), name.removesuffix("+")
        if not equal or not name:
            yield change, "is not KEY=VALUE"
            continue
        *tables, last = name.split(".")
        table: Any = document
        for part in tables:
            if isinstance(table, list):  # the steps of a pipeline, by their id
                table = next((item for item in table if isinstance(item, dict) and item.get("id") == part), None)
            else:
                table = table.setdefault(part, {}) if isinstance(table, dict) else None
        if not isinstance(table, dict):
            yield change, f"there is no table {'.'.join(tables)!r}"
            continue
        try:
            value = _typed(keys.get(name), word, in_env=tables == ["env"])
        except ValueError as error:
            yield change, f"the quotes do not match: {str(error).lower()}"
            continue
        if add:
            before = table.get(last, [])
            if not isinstance(before, list):
                yield change, f"{last!r} is no list"
                continue
            table[last] = [*before, *(value if isinstance(value, list) else shlex.split(word))]
        elif word:
            table[last] = value
        else:
            table.pop(last, None)


def _typed(key: Key | None, word: str, in_env: bool) -> Any:
    """A value as it was typed: what TOML makes of it where the key takes that, else the text itself, or its words for a list."""
    if in_env or (key is not None and key.type in ("text", "path")):
        return word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "\"'" else word
    try:
        value = tomllib.loads(f"v = {word}")["v"]
    except (ValueError, RecursionError):
        return shlex.split(word) if key is not None and key.type == "texts" else word  # no TOML: words as of a shell
    return [value] if key is not None and key.type in ("texts", "ints", "numbers") and not isinstance(value, list) else value


# ------------------------------------------------------------------------------------------------------------ finding them


def _places(host: str, lab: Lab) -> list[tuple[Path, Lab | None]]:
    own = config_dir()
    places: list[tuple[Path, Lab | None]] = [(own / "hosts" / host_folder(host) / "jobs", None), (own / "jobs", None)]
    if host in HERE and lab.built:
        places.append((assets_path("lab", "jobs"), lab))
    return [*places, (assets_path("jobs"), None)]


def read_job_file(path: Path, changes: Sequence[str] = (), lab: Lab | None = None) -> tuple[JobFile | None, list[Notice]]:
    """The job file at ``path``; ``lab`` for one of the lab's own, whose words ``{lab}`` and ``{dtype}`` it fills in."""
    text, wrong = read_text(path)
    if text is None:
        return None, [wrong] if wrong else []
    return parse_job_file(text if lab is None else lab.filled(text), path, changes)


def load_job_files(host: str, *, lab: Lab | None = None) -> tuple[dict[str, JobFile], list[Notice]]:
    """All job files for ``host`` that have a name, and what is wrong with those left out. Never raises."""
    found: dict[str, JobFile] = {}
    problems: list[Notice] = []
    hidden: set[str] = set()
    for folder, of_lab in _places(host, lab or find_lab()):
        here: set[str] = set()
        for path in sorted(folder.glob("*.toml")):
            file, notices = read_job_file(path, (), of_lab)
            problems += notices
            here.add(path.stem)
            if file is not None and file.name not in hidden:
                here.add(file.name)
                found.setdefault(file.name, file)
        hidden |= here  # also a broken one: who wrote it does not want another place's in its stead
    return dict(sorted(found.items())), problems


def find_job_file(word: str, host: str, changes: Sequence[str] = (), *, lab: Lab | None = None) -> JobFile:
    """The job file that ``word`` means, a path or a name, with the changes.

    Raises `BadJobFile`, and `BadJob` when there is none.
    """
    lab = lab or find_lab()
    if "/" in word or word.endswith(".toml"):
        return _good(*read_job_file(Path(word).expanduser(), changes))
    known: list[str] = []
    for folder, of_lab in _places(host, lab):
        for path in sorted(folder.glob("*.toml")):
            plain, _ = read_job_file(path, (), of_lab)
            known.append(plain.name if plain is not None else path.stem)
            if word in (path.stem, known[-1]):
                return _good(*read_job_file(path, changes, of_lab))
    if assets_path("lab", "jobs", f"{word}.toml").is_file():
        where = "this machine" if host in HERE else "this machine alone (`local`)"
        raise BadJob(f"{word!r} is a job of the lab on {where}, which is not built: `eagletui lab up` builds it")
    near = get_close_matches(word, known, 1)
    raise BadJob(f"there is no job file {word!r}" + (f", did you mean {near[0]!r}?" if near else ""))


def _good(file: JobFile | None, notices: Sequence[Notice]) -> JobFile:
    if file is None:
        raise BadJobFile(notices)
    return file
