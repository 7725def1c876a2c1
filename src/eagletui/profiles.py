"""Profiles: how a server is launched, as TOML that a person can read, copy and change.

    name = "k25-eagle3"              # by default the name of the file
    engine = "vllm"                  # or "sglang"
    model = "/shared/kimi-k2.5-int4"
    drafter = "/data/eagle3/output_10k/4"
    k = 3                            # draft tokens a verify step
    tp = 8
    args = ["--trust-remote-code"]

    [env]
    NCCL_P2P_LEVEL = "SYS"

Read from four places, the first wins where two profiles have one name: the user's ``hosts/<host>/*.toml`` and
``profiles/*.toml``, the lab's own while it is built (on this machine alone), and those that come with eagletui.
A profile with a mistake is left out and told with file, line, what was expected and what to do; the others work. One of its
name from a later place does not step in for it.
"""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from eagletui.config import Notice, line_of, read_text, read_toml
from eagletui.labparts.paths import Lab, find_lab
from eagletui.paths import assets_path, config_dir, state_dir
from eagletui.profile_values import CHECKS, Wrong, name_word
from eagletui.records.redact import HIDDEN, redact_argv, redact_env, with_keys

HERE = ("local", "localhost")
"""The names of a host that mean this machine: only there the lab's profiles can run."""


@dataclass(frozen=True)
class Profile:
    """One way to launch a server. What is None is left to the engine's own default.

    The program is ``command`` (an argument list before the engine's flags), else the engine's own under ``venv`` or
    ``python``, else the one on the host's PATH. ``gpus`` is "all", a number of cards, or their indexes and UUIDs; None
    leaves the choice to the engine. ``secrets`` are names of environment variables: their values come from this
    machine's environment or a person when the server is launched, and are written nowhere. ``log_cap`` is the size in bytes
    above which the oldest part of the log is given back to the disk. ``smoke`` asks the server one question once it is ready.
    ``graces`` are the seconds that a kill gives: to the main process, to all, after SIGKILL.

    With ``container`` (podman or docker) the server runs in a container of ``image``; paths are then those inside it. ``mounts``
    are ``SOURCE:TARGET[:ro]``, ``container_args`` further options, ``entrypoint`` "image" keeps the image's own in front.
    With ``unit`` the server is an existing systemd unit, of the system or (``unit_scope``) of the user: it is started, and
    its own file says how it runs.
    """

    name: str
    engine: str
    model: str
    description: str = ""
    drafter: str | None = None
    k: int | None = None
    method: str | None = None
    command: tuple[str, ...] = ()
    venv: str | None = None
    python: str | None = None
    host: str = "127.0.0.1"
    port: int | None = None
    tp: int | None = None
    gpus: str | int | tuple[int | str, ...] | None = None
    max_model_len: int | None = None
    served_model: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    cwd: str | None = None
    log_cap: int | None = None
    smoke: bool = True
    graces: tuple[float, ...] | None = None
    container: str | None = None
    image: str | None = None
    mounts: tuple[str, ...] = ()
    container_args: tuple[str, ...] = ()
    entrypoint: str | None = None
    unit: str | None = None
    unit_scope: str | None = None
    source: str = field(default="", compare=False)

    def as_dict(self) -> dict[str, Any]:
        """The set keys as plain values, ready for a command line builder, JSON or TOML; without ``source``."""
        out: dict[str, Any] = {}
        for entry in fields(self):
            value = getattr(self, entry.name)
            if entry.name == "source" or value is None or value in ("", (), {}):
                continue
            out[entry.name] = list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value
        return out


# ------------------------------------------------------------------------------------------------------------------- a file


def parse_profile(text: str, path: Path) -> tuple[Profile | None, list[Notice]]:
    """The profile in ``text``, or None with what is wrong. ``path`` gives the default name and stands in the notices."""
    document, wrong_file = read_toml(text, path, "the profile is left out")
    if document is None:
        return None, [wrong_file] if wrong_file else []
    notices: list[Notice] = []

    def note(key: str, what: str, remedy: str) -> None:
        notices.append(Notice(path, line_of(text, (key,)) or 1, what, remedy))

    values: dict[str, Any] = {"name": path.stem}
    for key, value in document.items():
        if key not in CHECKS:
            near = get_close_matches(key, CHECKS, 1)
            note(key, f"unknown key {key!r}", f"did you mean {near[0]!r}?" if near else f"known: {', '.join(CHECKS)}")
            continue
        try:
            values[key] = CHECKS[key](value)
        except Wrong as wrong:
            note(key, f"{key!r} is {_shown(value)}", f"expected {wrong}")
    for key, what, remedy in _together(document, values):
        note(key, what, remedy)
    if notices:
        return None, notices
    return Profile(**values, source=str(path)), []


_NOT_WITH_UNIT = (
    "container", "image", "mounts", "container_args", "command", "venv", "python", "args", "env", "secrets", "cwd", "tp", "gpus",
    "max_model_len", "served_model", "log_cap", "graces",
)  # fmt: skip


def _together(document: Mapping[str, Any], values: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """What is wrong with keys taken together: those that are missing, and those that exclude each other."""
    for key, example in (("engine", '"vllm"'), ("model", '"/path/of/the/target"')):
        if key not in document:
            yield key, f"{key!r} is missing", f"add {key} = {example}"
    if "name" not in document:
        try:
            name_word(values["name"])
        except Wrong as wrong:
            yield "name", f"the file's name is no name for a profile: {values['name']!r}", f"add name = ...: {wrong}"
    programs = [key for key in ("command", "venv", "python") if key in document]
    if len(programs) > 1:
        yield programs[1], f"{programs[0]!r} and {programs[1]!r} both say which program runs", "keep one of them"
    for key in ("k", "method"):
        if key in document and "drafter" not in document:
            yield key, f"{key!r} is set without a drafter", f"add drafter = ..., or remove {key}"
    if "container" in document and "image" not in document:
        yield "container", "'image' is missing: a container needs one", 'add image = "vllm/vllm-openai:v0.18.0"'
    for key in ("image", "mounts", "container_args", "entrypoint"):
        if key in document and "container" not in document:
            yield key, f"{key!r} is set without a container", f'add container = "docker" (or "podman"), or remove {key}'
    if "unit_scope" in document and "unit" not in document:
        yield "unit_scope", "'unit_scope' is set without a unit", 'add unit = "NAME.service", or remove unit_scope'
    if "unit" in document:
        for key in _NOT_WITH_UNIT:
            if key in document:
                yield key, f"{key!r} is set, and 'unit' too", f"the unit's own file says how it runs: remove {key}, or unit"
    for name in sorted(set(values.get("secrets", ())) & set(values.get("env", {}))):
        yield "secrets", f"{name} is a secret and stands in [env] too", "keep it in secrets alone: env is written to files"


_LISTS = ("args", "command", "secrets", "mounts", "container_args")


def with_changes(profile: Profile, changes: Sequence[str]) -> Profile:
    """The profile with each ``KEY=VALUE`` of ``changes``; an empty value takes the key away, ``env.NAME`` is one variable.

    A value is read as TOML where it is that (numbers, lists, true), else as plain text; a list also as words of a shell,
    and ``args+=`` adds to it. Raises ValueError in words.
    """
    values = profile.as_dict()
    for change in changes:
        key, equal, word = change.partition("=")
        if not equal:
            raise ValueError(f"{change!r} is not KEY=VALUE")
        if key.startswith("env."):
            env = {name: text for name, text in values.get("env", {}).items() if name != key[4:]}
            values["env"] = {**env, key[4:]: word} if word else env
        elif key.endswith("+") and key[:-1] in _LISTS:
            values[key[:-1]] = [*values.get(key[:-1], ()), *_word(key[:-1], word)]
        elif key not in CHECKS:
            near = get_close_matches(key, CHECKS, 1)
            raise ValueError(f"unknown key {key!r}, " + (f"did you mean {near[0]!r}?" if near else f"known: {', '.join(CHECKS)}"))
        elif word:
            values[key] = _word(key, word)
        else:
            values.pop(key, None)
            if key == "drafter":
                for other in ("k", "method"):
                    values.pop(other, None)
    return profile_from(values, profile.source)


def profile_from(values: Mapping[str, Any], source: str = "") -> Profile:
    """The profile with these keys, each of them known. Raises ValueError in words."""
    checked = {}
    for key, value in values.items():
        try:
            checked[key] = CHECKS[key](value)
        except Wrong as wrong:
            raise ValueError(f"{key!r} is {_shown(value)}, expected {wrong}") from None
    for _, what, remedy in _together(checked, checked):
        raise ValueError(f"{what}: {remedy}")
    return Profile(**checked, source=source)


def _word(key: str, word: str) -> Any:
    """A value as it was typed: what TOML makes of it when the key takes that, else the text itself."""
    try:
        value = tomllib.loads(f"v = {word}")["v"]
        CHECKS[key](value)
    except (ValueError, RecursionError, Wrong):
        return shlex.split(word) if key in _LISTS else word
    return value


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 40 else text[:37] + "..."


def _read(path: Path, lab: Lab | None = None) -> tuple[Profile | None, list[Notice]]:
    text, wrong = read_text(path)
    if text is None:
        return None, [wrong] if wrong else []
    if lab is not None:
        text = lab.filled(text)
    return parse_profile(text, path)


# ------------------------------------------------------------------------------------------------------------ all of a host


def host_folder(host: str) -> str:
    """``host`` as a folder name: what a file system or a shell could misread becomes "_"."""
    return re.sub(r"[^A-Za-z0-9@._-]", "_", host).lstrip(".") or "_"


def load_profiles(host: str, *, lab: Lab | None = None) -> tuple[dict[str, Profile], list[Notice]]:
    """All profiles for ``host`` by name, and what is wrong with those left out. Never raises.

    The user's own come first, then the lab's, then the shipped ones: who looks for one wants the first that fits here.
    ``lab`` is where this machine's lab is (default: its usual place); its profiles are there when ``host`` is this machine
    and the lab is built.
    """
    lab = lab or find_lab()
    own = config_dir()
    places: list[tuple[Path, Lab | None]] = [(own / "hosts" / host_folder(host), None), (own / "profiles", None)]
    if host in HERE and lab.built:
        places.append((assets_path("lab", "profiles"), lab))
    places.append((assets_path("profiles"), None))
    profiles: dict[str, Profile] = {}
    problems: list[Notice] = []
    left_out: set[str] = set()
    for folder, of_lab in places:
        here: dict[str, Profile] = {}
        broken: set[str] = set()
        for path in sorted(folder.glob("*.toml")):
            profile, notices = _read(path, of_lab)
            problems += notices
            if profile is None:
                broken.add(path.stem)
                continue
            if profile.name in here:
                other = Path(here[profile.name].source).name
                problems.append(Notice(path, None, f"{other} has the name {profile.name!r} too", "give one of them another name"))
                continue
            here[profile.name] = profile
        new = {name: here[name] for name in sorted(here) if name not in left_out and name not in profiles}
        profiles = {**profiles, **new}
        left_out |= broken - set(here)  # who wrote one of that name does not want another place's in its stead
    return profiles, problems


def save_profile(profile: Profile, host: str | None = None) -> Path:
    """Write a profile to the user's folder, for one host or for all; the path. Raises `OSError` when it cannot be written."""
    own = config_dir()
    folder = own / "hosts" / host_folder(host) if host else own / "profiles"
    path = folder / f"{name_word(profile.name)}.toml"
    _write(path, to_toml(profile))
    return path


def to_toml(profile: Profile) -> str:
    """The profile as a TOML text that `parse_profile` reads back to the same profile."""
    values = profile.as_dict()
    if profile.smoke:
        del values["smoke"]  # what is the default need not stand in the file
    if values.get("host") == Profile.host:
        del values["host"]
    env = values.pop("env", {})
    lines = [f"{key} = {_toml(value)}" for key, value in values.items()]
    if env:
        lines += ["", "[env]", *(f"{name} = {_toml(value)}" for name, value in env.items())]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    # a JSON string, number or boolean is a TOML one too; DEL alone needs its escape
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".new")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


# ------------------------------------------------------------------------------------------------------------ the last good


def _remembered(host: str, name: str) -> Path:
    return state_dir() / "last-good" / host_folder(host) / f"{name_word(name)}.toml"


def remember_good(host: str, profile: Profile) -> None:
    """Keep ``profile`` as the last of its name that reached ready on ``host``, without its keys. Raises `OSError` when it cannot
    be written."""
    args, options = (tuple(redact_argv(words)) for words in (profile.args, profile.container_args))
    hidden = replace(profile, args=args, container_args=options, env=redact_env(profile.env))
    _write(_remembered(host, profile.name), to_toml(hidden))


def last_good(host: str, name: str) -> Profile | None:
    """The profile ``name`` as it was when a server launched from it on ``host`` last reached ready, or None.

    Its keys are those of the profile as it is now; where that has none they stay hidden among the arguments, and are left out
    of the environment.
    """
    path = _remembered(host, name)
    profile, _ = _read(path) if path.is_file() else (None, [])
    if profile is None:
        return None  # an unreadable memory is as good as none
    now = load_profiles(host)[0].get(name) or Profile(name, profile.engine, profile.model)
    args, options = with_keys(profile.args, now.args), with_keys(profile.container_args, now.container_args)
    env = {key: now.env.get(key, value) if value == HIDDEN else value for key, value in profile.env.items()}
    env = {key: value for key, value in env.items() if value != HIDDEN}
    return replace(profile, name=name, args=args, container_args=options, env=env)
