"""Secrets among the arguments of a program: kept out of every file, and of the process list where the engine allows that. Pure.

A key that vLLM takes from its environment as well goes there. Any other is replaced in the spec by the name of a variable in
braces, and its value travels as secrets do; only when the program is executed it is put in its place again. There everybody on
the host can see it, for that is how the program wants it.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, MutableMapping, Optional, Sequence, Tuple

from eagletui.jobs.base import HIDDEN, redact_argv

VARIABLE = "EAGLETUI_ARG_"
_PLACE = re.compile(r"\{(%s\d+)\}" % VARIABLE)
_VLLM_KEY = "VLLM_API_KEY"


def key_by_environment(engine: str, argv: Sequence[str], env: MutableMapping[str, str]) -> List[str]:
    """The arguments without ``--api-key KEY``, then in ``env``; as they were where that is not the same to it."""
    out = list(argv)
    if engine != "vllm" or _VLLM_KEY in env:
        return out
    at = [number for number, word in enumerate(out) if word == "--api-key" or word.startswith("--api-key=")]
    if len(at) != 1:
        return out
    first = at[0]
    if "=" in out[first]:
        values, last = [out[first].partition("=")[2]], first + 1
    else:
        last = next((n for n in range(first + 1, len(out)) if out[n].startswith("-")), len(out))
        values = out[first + 1 : last]
    if len(values) != 1 or not values[0]:
        return out  # several keys: the variable holds one
    env[_VLLM_KEY] = values[0]
    return out[:first] + out[last:]


def hide(spec: MutableMapping[str, Any], found: Optional[Dict[str, str]] = None) -> Dict[str, str]:
    """Put names in the place of the secrets among the spec's arguments, its container's too; {name: what stood there}.

    ``found`` are those of other specs that are kept with this one: it is added to, so that no name stands for two secrets.
    """
    found = {} if found is None else found
    spec["argv"] = _hide(spec["argv"], found)
    box = spec.get("container")
    if isinstance(box, dict) and isinstance(box.get("program"), list):
        spec["container"] = dict(box, program=_hide(box["program"], found))
    return found


def _hide(argv: Sequence[str], found: Dict[str, str]) -> List[str]:
    names = {value: name for name, value in found.items()}
    out = []
    for word, shown in zip(argv, redact_argv(argv)):
        flag, value = ("", word) if shown == HIDDEN else (shown[: -len(HIDDEN)], word[len(shown) - len(HIDDEN) :])
        if shown == word or not value or _PLACE.fullmatch(value):
            out.append(word)
            continue
        name = names.setdefault(value, "%s%d" % (VARIABLE, len(names) + 1))
        found[name] = value
        out.append("%s{%s}" % (flag, name))
    return out


def places(argv: Sequence[str]) -> List[str]:
    """The names that stand in the place of secrets among the arguments."""
    return [name for word in argv for name in _PLACE.findall(word)]


def filled(argv: Sequence[str], env: Mapping[str, str]) -> Tuple[List[str], Dict[str, str]]:
    """The arguments with the values in their places again, and the environment without these."""
    used = set(places(argv))
    words = [_PLACE.sub(lambda match: env.get(match.group(1), match.group(0)), word) for word in argv]
    return words, {name: value for name, value in env.items() if name not in used}
