"""Secrets by the names that they go under - of a variable, of an argument -, hidden wherever something is shown or kept. Pure."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

HIDDEN = "***"
_SECRET_NAME = re.compile(
    r"(?i)(token(?!iz)|secret|passw|passphrase|credential|api_?key|access_?key|private_?key|authorization|_key$|^key$)"
)
_SECRET_FLAG = re.compile(r"(?i)^--?(.*[-_])?(token|secret|password|api[-_]?key|auth[-_]?key)(=.*)?$")


def secret_name(name: str) -> bool:
    """Whether an environment variable of this name holds a secret, by its name (HF_TOKEN, OPENAI_API_KEY ...)."""
    return _SECRET_NAME.search(name) is not None


def redact_env(env: Mapping[str, Any]) -> Dict[str, str]:
    """The environment with the values of secret names hidden."""
    return {str(name): HIDDEN if secret_name(str(name)) else str(value) for name, value in env.items()}


def redact_argv(argv: Sequence[str]) -> List[str]:
    """The arguments with the values of ``--api-key`` and the like hidden."""
    out: List[str] = []
    hide = many = False
    for part in argv:
        if hide and not (many and part.startswith("-")):
            out.append(HIDDEN)
            hide = many  # vLLM takes several keys behind one flag
            continue
        hide = many = False
        match = _SECRET_FLAG.match(part)
        if match is None:
            out.append(part)
        elif match.group(3) is not None:
            out.append(part[: match.start(3)] + "=" + HIDDEN)
        else:
            out.append(part)
            hide, many = True, match.group(2).lower() in ("api-key", "api_key")
    return out


def keys_of(words: Sequence[str]) -> Iterator[Tuple[int, str, str]]:
    """The keys among arguments: (which word, the flag it belongs to, the key itself)."""
    flag = ""
    for number, (word, shown) in enumerate(zip(words, redact_argv(words))):
        if shown == HIDDEN:
            yield number, flag, word
        elif shown.endswith("=" + HIDDEN):
            start = len(shown) - len(HIDDEN)
            yield number, word[:start], word[start:]
        elif word.startswith("-"):
            flag = word


def with_keys(words: Sequence[str], before: Sequence[str]) -> Tuple[str, ...]:
    """The words with the keys of ``before`` where they are hidden: behind a flag the first for the first, and so on."""
    known: Dict[str, List[str]] = {}
    for _, flag, key in keys_of(before):
        known.setdefault(flag, []).append(key)
    out = list(words)
    for number, flag, key in keys_of(words):
        was = known.get(flag, [])
        if key == HIDDEN and was:
            out[number] = words[number][: -len(HIDDEN)] + was[0]
        del was[:1]
    return tuple(out)
