"""What each key of a profile may hold: one function a key, which returns the value or says what was expected."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from eagletui.jobs.base import secret_name

ENGINES = ("vllm", "sglang")


class Wrong(Exception):
    """A value that is not what it should be: what was expected."""


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or any(ord(c) < 32 for c in value):
        raise Wrong("text in quotes, in one line")
    return value


def name_word(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", value):
        raise Wrong("a name of letters, digits, '.', '_' and '-', at most 64 long")
    return value


def _engine(value: Any) -> str:
    if value not in ENGINES:
        raise Wrong('"vllm" or "sglang"')
    return str(value)


def _whole(least: int, most: int) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise Wrong(f"a whole number, {least} to {most}")
        return value

    return check


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Wrong("true or false")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) and "\0" not in item for item in value):
        raise Wrong("a list of texts in quotes, one for each word of the command line")
    return tuple(value)


def _gpus(value: Any) -> str | int | tuple[int | str, ...]:
    if value == "all" or (isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 64):
        return value  # type: ignore[no-any-return]
    if isinstance(value, list) and value and len(set(map(str, value))) == len(value) and all(map(_card, value)):
        return tuple(value)
    raise Wrong('"all", a number of cards, or a list of their indexes or UUIDs, each once')


def _card(value: Any) -> bool:
    if isinstance(value, str):
        return re.fullmatch(r"(GPU|MIG)-[0-9A-Za-z/-]+", value) is not None
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 64


VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _env(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise Wrong("a table [env] of NAME = value")
    out = {}
    for name, item in value.items():
        if not VARIABLE.fullmatch(name) or isinstance(item, bool) or not isinstance(item, (str, int, float)) or "\0" in str(item):
            raise Wrong('NAME = "text" or a number in [env], with NAME of letters, digits and "_"')
        out[name] = str(item)
    return out


def _secrets(value: Any) -> tuple[str, ...]:
    names = _texts(value)
    if not all(VARIABLE.fullmatch(name) for name in names):
        raise Wrong("names of environment variables, never their values")
    return names


_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def _bytes(value: Any) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMG]i?B)", value, re.IGNORECASE) if isinstance(value, str) else None
    size = int(float(match[1]) * _UNITS[match[2].upper()]) if match else value
    if isinstance(size, bool) or not isinstance(size, int) or size < 1 << 20:
        raise Wrong('a size such as "200 MB", at least 1 MiB')
    return size


def _graces(value: Any) -> tuple[float, ...]:
    if not isinstance(value, list) or len(value) != 3 or not all(_seconds(item) for item in value):
        raise Wrong("three numbers of seconds, each up to 3600: for the main process, for all, after SIGKILL")
    return tuple(value)


def _seconds(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 3600


def _one_of(*words: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if value not in words:
            raise Wrong(" or ".join(f'"{word}"' for word in words))
        return str(value)

    return check


def _image(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*", value):
        raise Wrong('an image such as "vllm/vllm-openai:v0.18.0"')
    return value


def _mounts(value: Any) -> tuple[str, ...]:
    words = _texts(value)
    for word in words:
        if not re.fullmatch(r"(/[^:,]*|[A-Za-z0-9][A-Za-z0-9_.-]*):/[^:]*(:[A-Za-z,]+)?", word):
            raise Wrong('"SOURCE:TARGET" or "SOURCE:TARGET:ro", with absolute paths (no ~: no shell reads them)')
    return words


def _container_args(value: Any) -> tuple[str, ...]:
    words = _texts(value)
    for at, word in enumerate(words):
        option, equals, rest = word.partition("=")
        if option in ("-d", "--detach", "--name", "--entrypoint", "--rm", "--cidfile", "-t", "-it", "-ti", "--tty"):
            raise Wrong(f"options of run other than {option}, which eagletui decides")
        variable = rest if equals and option in ("-e", "--env") else word if at and words[at - 1] in ("-e", "--env") else ""
        if "=" in variable and secret_name(variable.partition("=")[0]):
            raise Wrong(f'no value of {variable.partition("=")[0]} here: its name in "secrets" is enough')
    return words


def _unit(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9:_.@\\-]{0,200}\.service", value):
        raise Wrong('the name of a unit, such as "vllm.service"')
    return value


CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "name": name_word,
    "description": _text,
    "engine": _engine,
    "model": _text,
    "drafter": _text,
    "k": _whole(1, 64),
    "method": name_word,
    "command": _texts,
    "venv": _text,
    "python": _text,
    "host": _text,
    "port": _whole(1, 65535),
    "tp": _whole(1, 1024),
    "gpus": _gpus,
    "max_model_len": _whole(1, 1 << 30),
    "served_model": _text,
    "env": _env,
    "secrets": _secrets,
    "args": _texts,
    "cwd": _text,
    "log_cap": _bytes,
    "smoke": _flag,
    "graces": _graces,
    "container": _one_of("docker", "podman"),
    "image": _image,
    "mounts": _mounts,
    "container_args": _container_args,
    "entrypoint": _one_of("image"),
    "unit": _unit,
    "unit_scope": _one_of("system", "user"),
}
