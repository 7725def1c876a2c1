"""How two servers were launched differently: their flags, and the variables that matter. Pure functions."""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Optional, Sequence

from eagletui.jobs.base import redact_argv, redact_env
from eagletui.records.bench import BenchServer, LaunchDifference

# what a shell, a login or a supervisor sets, and what differs between any two starts
_NOISE = re.compile(
    r"^(_|PWD|OLDPWD|SHLVL|TERM|TERMINFO|COLUMNS|LINES|USER|LOGNAME|HOME|SHELL|MAIL|LANG|LC_.*|LS_COLORS|SSH_.*|XDG_.*|DBUS_.*"
    r"|INVOCATION_ID|JOURNAL_STREAM|SYSTEMD_.*|TMUX.*|STY|WINDOW|HOSTNAME|EAGLETUI_.*|EDITOR|PAGER|LESS.*|PS\d|DISPLAY)$"
)
_PORTS = ("--port",)


def flags(argv: Sequence[str]) -> Dict[str, str]:
    """The options of a command line: name -> value ("" for a switch); what is no option is joined under "command"."""
    out: Dict[str, str] = {}
    words: List[str] = []
    name = ""
    for part in redact_argv(argv):
        if part.startswith("--"):
            name, equal, value = part.partition("=")
            name = name.replace("_", "-")
            out[name] = value
            if equal:
                name = ""
        elif name:
            out[name] = (out[name] + " " + part).strip()
        else:
            words.append(part)
    out["command"] = " ".join(words)
    return out


def environment(env: Optional[Mapping[str, str]]) -> Dict[str, str]:
    """The variables that may matter for a server, values of secrets hidden."""
    return {name: value for name, value in redact_env(env or {}).items() if not _NOISE.match(name)}


def differences(base: BenchServer, other: BenchServer) -> List[LaunchDifference]:
    """What differs between two servers. Ports are no difference."""
    out: List[LaunchDifference] = []
    for name in (
        "engine",
        "version",
        "model",
        "drafter",
        "k",
        "max_model_len",
        "prefix_cache",
        "template_hash",
        "synthetic_length",
    ):
        one, two = getattr(base, name), getattr(other, name)
        if one != two:
            out.append(LaunchDifference(name.replace("_", " "), *(None if v is None else str(v) for v in (one, two))))
    for left, right, mark in (
        (flags(base.argv), flags(other.argv), ""),
        (environment(base.environment), environment(other.environment), "env "),
    ):
        if mark and (base.environment is None or other.environment is None):
            continue
        if not mark and not (base.argv and other.argv):
            continue
        for name in dict.fromkeys((*left, *right)):
            if left.get(name) != right.get(name) and name not in _PORTS:
                out.append(LaunchDifference(mark + name, left.get(name), right.get(name)))
    return out
