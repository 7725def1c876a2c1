"""Whether an engine knows the options and variables of a launch, by looking for them where it declares its own."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Any, Dict, Iterable, List, Sequence, Tuple

ENOUGH = 60
"""So many declared options must be found before one that is missing means anything."""
# argparse's own, and what a shell or a launcher adds
_ALWAYS = frozenset(("--help", "--version", "--config", "-h", "-v"))


def declared(texts: Iterable[str]) -> Tuple[List[str], str]:
    """The options that these sources declare (as ``--name``), and all the words in them.

    An option stands there as a literal, or as the field of a class from which it is made.
    """
    found = set()
    whole: List[str] = []
    for text in texts:
        found.update(re.findall(r"[\"'](--?[a-zA-Z][\w.-]*)[\"']", text))
        found.update("--" + name.replace("_", "-") for name in re.findall(r"^    ([a-z]\w*)\s*:", text, re.MULTILINE))
        whole.append(text)
    return sorted(found), "\n".join(whole)


def unknown_options(flags: Sequence[str], texts: Iterable[str]) -> Dict[str, Any]:
    """{"flags": [[flag, near]...], "declared": how many are}: those of ``flags`` that stand nowhere in the sources."""
    known, whole = declared(texts)
    spellings = {flag.replace("_", "-") for flag in known}
    out: List[List[str]] = []
    for flag in flags:
        plain = re.sub(r"\[.*", "", flag).partition(".")[0].rstrip("+")
        if plain in _ALWAYS or plain.replace("_", "-") in spellings:
            continue
        bare = plain.lstrip("-")
        field = bare.replace("-", "_")
        # `--no-x` is made from the switch x; a whole word anywhere in these files is the benefit of the doubt
        if any(re.search(r"\b%s\b" % re.escape(name), whole) for name in {field, re.sub(r"^no_", "", field)}):
            continue
        # both parsers take the beginning of an option when it is the beginning of one alone
        if plain.startswith("--") and sum(1 for name in spellings if name.startswith(plain.replace("_", "-"))) == 1:
            continue
        # a short option takes its value without a space: -O3, -tp8
        if not plain.startswith("--") and any(plain.startswith(name) for name in spellings if re.fullmatch(r"-\w+", name)):
            continue
        near = get_close_matches(plain.replace("_", "-"), spellings, 1, 0.75)
        out.append([flag, near[0] if near else ""])
    return {"flags": out, "declared": len(spellings)}


def unknown_variables(names: Iterable[str], known: Sequence[str], prefix: str = "VLLM_") -> List[List[str]]:
    """[[name, near] ...]: the variables with this prefix that the engine's own table does not have."""
    if not known:
        return []
    table = set(known)
    out = []
    for name in names:
        if name.startswith(prefix) and name not in table:
            near = get_close_matches(name, known, 1, 0.8)
            out.append([name, near[0] if near else ""])
    return out
