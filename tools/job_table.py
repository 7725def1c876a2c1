"""Tables of keys for the docs: of every kind of job, and of whatever else is described by `Key` records."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib import import_module
from typing import Any


def key_table(title: str, keys: Iterable[Any]) -> list[str]:
    """One table: a row a key."""
    out = [f"| {title} | what it is | what it says |", "|---|---|---|"]
    for key in keys:
        shown = None if key.default is None or key.default in ("", ()) else _toml(key.default)
        default = "" if shown is None else f"; default `{shown}`"
        help_text = key.help.replace("|", "\\|")
        out.append(f"| `{key.name}` | {key.expected()}{', required' if key.required else ''}{default} | {help_text} |")
    return [*out, ""]


def _toml(value: Any) -> str:
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)


def job_table() -> str:
    """Every kind of job with its keys, and the keys that all have."""
    from eagletui.jobfiles import PIPELINE, runnable
    from eagletui.jobs.keys import COMMON
    from eagletui.jobs.kinds import kind

    kinds = [name for name in runnable() if name != PIPELINE]
    out = ["| kind | what it does |", "|---|---|"]
    for name in kinds:
        out.append(f"| [`{name}`](#{name}) | {_says(name)} |")
    out += [f"| `{PIPELINE}` | {_says(PIPELINE)} See [pipelines.md](pipelines.md) |", "", "### Keys of every kind", ""]
    out += key_table("key", COMMON)
    for name in kinds:
        out += [f"### {name}", "", _says(name), "", *key_table("key", kind(name).keys)]
    return "\n".join(out[:-1])


def _says(name: str) -> str:
    from eagletui.jobs.kinds import kind

    text = import_module(type(kind(name)).__module__).__doc__ or ""
    first = text.strip().splitlines()[0].split("``")
    return "".join(f"`{part}`" if at % 2 else part for at, part in enumerate(first))
