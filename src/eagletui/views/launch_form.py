"""A profile as the fields of a form, and back: every mistake is told by its field, in the words of the profile's own checks."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from eagletui.profile_values import VARIABLE
from eagletui.profiles import Profile, parse_profile, to_toml
from eagletui.records.redact import HIDDEN, keys_of, redact_argv, redact_env, with_keys


class FormField(NamedTuple):
    """One line of the form: ``id`` is the profile's key."""

    id: str
    label: str
    hint: str


FIELDS: tuple[FormField, ...] = (
    FormField("name", "name", "letters, digits, . _ -"),
    FormField("model", "target model", "a path on the host, or a name on the hub"),
    FormField("drafter", "drafter", "none"),
    FormField("k", "draft tokens k", "per verify step"),
    FormField("method", "method", "the engine's own, for example eagle3"),
    FormField("port", "port", "the engine's default"),
    FormField("tp", "tensor parallel", "1"),
    FormField("gpus", "gpus", "all, a number of cards, or their numbers: 0 1 2 3"),
    FormField("max_model_len", "max model len", "the model's own"),
    FormField("args", "arguments", "further ones, quoted as in a shell"),
    FormField("env", "environment", "NAME=value NAME='a value'"),
    FormField("secrets", "secrets", "names of variables whose values are never written down"),
    FormField("venv", "venv", "the folder of the engine's environment"),
    FormField("python", "python", "or its python"),
    FormField("cwd", "folder", "/"),
    FormField("container", "container", "docker or podman; empty: a process on the host"),
    FormField("image", "image", "of the container, for example vllm/vllm-openai:v0.18.0"),
    FormField("mounts", "mounts", "/on/the/host:/inside /other:/inside:ro"),
    FormField("container_args", "container options", "further options of docker run or podman run, quoted as in a shell"),
    FormField("entrypoint", "entry point", "image: keep the image's own before the command"),
    FormField("unit", "systemd unit", "an existing one instead of all that: name.service"),
    FormField("unit_scope", "unit of", "system, or user"),
    FormField("graces", "graces", "seconds a kill gives: main process, all, after SIGKILL"),
)
_NUMBERS = ("k", "port", "tp", "max_model_len")
_PLAIN = (
    "name", "model", "drafter", "method", "venv", "python", "cwd", "container", "image", "entrypoint", "unit", "unit_scope",
)  # fmt: skip
_WORDS = ("args", "secrets", "mounts", "container_args")
_BELONG = {
    "drafter": ("k", "method"),
    "container": ("image", "mounts", "container_args", "entrypoint"),
    "unit": ("unit_scope",),
}


def texts_of(profile: Profile) -> dict[str, str]:
    """What stands in each field; a key is shown as `HIDDEN`, and stays what it is where that is left."""
    gpus = profile.gpus
    return {
        **{name: str(getattr(profile, name) or "") for name in _PLAIN},
        **{name: "" if getattr(profile, name) is None else str(getattr(profile, name)) for name in _NUMBERS},
        "gpus": "" if gpus is None else str(gpus) if not isinstance(gpus, tuple) else " ".join(map(str, gpus)) + _lone(gpus),
        **{name: shlex.join(redact_argv(getattr(profile, name))) for name in _WORDS},
        "env": " ".join(f"{name}={shlex.quote(value)}" for name, value in redact_env(profile.env).items()),
        "graces": " ".join(f"{grace:g}" for grace in profile.graces or ()),
    }


def _lone(gpus: tuple[int | str, ...]) -> str:
    """One index alone would read as a number of cards: a comma behind it says that it is a list."""
    return "," if len(gpus) == 1 and isinstance(gpus[0], int) else ""


def profile_of(profile: Profile, texts: Mapping[str, str]) -> tuple[Profile | None, dict[str, str]]:
    """``profile`` with what stands in the fields, or None and what is wrong by field ("" for what concerns several)."""
    problems: dict[str, str] = {}
    values: dict[str, object] = {}
    for name in _PLAIN:
        values[name] = texts[name].strip() or None
    for name in ("name", "model"):
        if values[name] is None:
            problems[name] = "is needed"
    for name in _NUMBERS:
        text = texts[name].strip()
        if text and not re.fullmatch(r"[0-9]{1,10}", text):
            problems[name] = f"{text!r} is not a whole number"
        else:
            values[name] = int(text) if text else None
    values["gpus"] = _gpus(texts["gpus"])
    words = {}
    for name in (*_WORDS, "env"):
        try:
            words[name] = shlex.split(texts[name])
        except ValueError as error:
            problems[name] = f"the quotes do not match: {str(error).lower()}"
    for name in _WORDS:
        values[name] = full = with_keys(words.get(name, ()), getattr(profile, name))
        if any(key == HIDDEN for _, _, key in keys_of(full)):
            problems[name] = f"{HIDDEN} hides no key here: write the key"
    try:
        values["graces"] = tuple(_seconds(word) for word in texts["graces"].split()) or None
    except ValueError:
        problems["graces"] = f"{texts['graces'].strip()!r} is not three numbers of seconds"
    env = {}
    for word in words.get("env", ()):
        variable, equals, value = word.partition("=")
        if not equals or not VARIABLE.fullmatch(variable):
            problems["env"] = f"{word!r} is not NAME=value, with NAME of letters, digits and '_'"
        env[variable] = profile.env.get(variable, value) if value == HIDDEN else value
    values["env"] = env
    before = texts_of(profile)
    for owner, belongings in _BELONG.items():
        if values[owner] is None and before[owner]:
            for name in belongings:
                if texts[name] == before[name]:
                    values[name] = () if name in _WORDS else None  # what belonged to it goes with it
    if problems:
        return None, problems
    try:
        wanted = replace(profile, **values)  # type: ignore[arg-type]
        made, notices = parse_profile(to_toml(wanted), Path(f"{wanted.name}.toml"))
    except ValueError as error:
        return None, {"": str(error)}
    for notice in notices:
        key = re.match(r"'(\w+)'", notice.what)
        names = {field.id for field in FIELDS}
        what = f"{notice.what}: {notice.remedy}" if notice.remedy else notice.what
        problems[key[1] if key is not None and key[1] in names else ""] = what
    return (replace(made, source=profile.source), {}) if made is not None else (None, problems)


def _seconds(word: str) -> float:
    number = float(word)
    return int(number) if number.is_integer() else number


def _gpus(text: str) -> str | int | tuple[int | str, ...] | None:
    """all, a number of cards, or a list of indexes and UUIDs; one index alone has a comma behind it."""
    parts = text.replace(",", " ").split()
    if not parts:
        return None
    cards = tuple(int(part) if re.fullmatch(r"[0-9]{1,4}", part) else part for part in parts)
    if len(cards) == 1 and "," not in text:
        return cards[0] if isinstance(cards[0], int) or cards[0] == "all" else cards
    return cards


def kind_of(profile: Profile) -> str:
    """Where a profile comes from, in a word."""
    parts = Path(profile.source).parts
    if "lab" in parts[-3:]:
        return "lab"
    if "assets" in parts[-3:]:
        return "shipped"
    return "this host" if "hosts" in parts[-4:] else "yours"
