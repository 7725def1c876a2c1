"""Gates of a pipeline: bounds on what a step made, looked at before the next step may begin. Pure functions."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Tuple

Gate = Mapping[str, Any]

# a share is a count over a whole: of which counts that whole is the sum
_WHOLE: Dict[str, Tuple[str, ...]] = {
    "synthesise": ("rows", "failed"),
    "prepare": ("rows", "dropped"),
    "extract": ("samples", "skipped"),
}
# counts with a whole of their own: what was set aside is not among the rows, what is missing not among the answers
_OF: Dict[str, Dict[str, str]] = {"synthesise": {"set_aside": "answers", "missing": "prompts"}}
_SHARE = "_share"
MOST_FIGURES = 400


def figures(kind: str, result: Mapping[str, Any]) -> Dict[str, float]:
    """Every number of a step's result by a dotted name (``val.loss``, ``val.full_acc.0``), and shares of its counts.

    ``KEY_share`` (0 to 1) is there for each count of a kind whose whole is known: ``truncated_share``, ``empty_share`` and
    ``failed_share`` of all rows that were asked for, ``set_aside_share`` of all answers, ``missing_share`` of all prompts,
    ``dropped_share`` of all that were read, ``skipped_share`` of all samples.
    """
    out: Dict[str, float] = {}
    _flatten("", {name: value for name, value in result.items() if name not in ("ok", "why", "wall")}, out)
    for name, of in _OF.get(kind, {}).items():
        if name in out and out.get(of, 0.0) > 0:
            out.setdefault(name + _SHARE, out[name] / out[of])
    parts = _WHOLE.get(kind, ())
    whole = sum(out.get(name, 0.0) for name in parts)
    if whole > 0:
        for name in list(out):
            if "." not in name and name not in parts[:1] and 0 <= out[name] <= whole:
                out.setdefault(name + _SHARE, out[name] / whole)
    return out


def _flatten(prefix: str, value: Any, out: Dict[str, float]) -> None:
    if len(out) >= MOST_FIGURES:
        return
    if isinstance(value, bool):
        out[prefix] = 1.0 if value else 0.0
    elif isinstance(value, (int, float)) and value == value:
        out[prefix] = float(value)
    elif isinstance(value, Mapping):
        for name in value:
            _flatten("%s.%s" % (prefix, name) if prefix else str(name), value[name], out)
    elif isinstance(value, (list, tuple)):
        for at, item in enumerate(value):
            _flatten("%s.%d" % (prefix, at), item, out)


def bound(gate: Gate) -> str:
    """``truncated_share at most 0.2``."""
    parts = [
        "%s %g" % (word, gate[name]) for name, word in (("least", "at least"), ("most", "at most")) if gate.get(name) is not None
    ]
    return "%s %s" % (gate["key"], " and ".join(parts))


def judge(gate: Gate, numbers: Mapping[str, float]) -> Tuple[bool, str]:
    """Whether a step may be followed by the next one, and the figure with its bound in words."""
    key = str(gate["key"])
    value = numbers.get(key)
    if value is None:
        known = ", ".join(sorted(numbers)[:20]) or "none"
        return False, "%s is not among the figures of its result (%s)" % (key, known)
    good = (gate.get("least") is None or value >= gate["least"]) and (gate.get("most") is None or value <= gate["most"])
    return good, "%s is %.4g, %s allowed" % (key, value, bound(gate)[len(key) + 1 :])


_HINTS = {
    "truncated_share": "raise max_tokens",
    "empty_share": "raise max_tokens: the reasoning may use all of them",
    "failed_share": "see the errors of its rows",
    "set_aside_share": "see set_aside.jsonl and the filters of the step; truncated answers need a larger max_tokens",
    "missing_share": "run it again: it goes on with the prompts that have no answer yet",
    "dropped_share": "see what was dropped; the answers may be too long or too short",
    "skipped_share": "see which samples failed",
    "sane": "the hidden states are wrong: look at the server's aux layers and its prefix cache",
}


def hint(words: str) -> str:
    """What to do about a gate that did not let a step pass."""
    return _HINTS.get(words.partition(" ")[0], "look at what it made, change the step or the gate in the file")


def problem(gate: Any) -> Optional[str]:
    """What is wrong with a gate as it stands in a file; None when nothing is."""
    if not isinstance(gate, Mapping):
        return 'a gate is a table such as {key = "failed_share", most = 0.02}'
    strange = sorted(set(gate) - {"key", "least", "most"})
    if strange:
        return "a gate has key, least and most, not %s" % ", ".join(strange)
    if not isinstance(gate.get("key"), str) or not gate["key"]:
        return "a gate's key is the name of a figure of the step's result, such as failed_share"
    bounds = [gate.get(name) for name in ("least", "most") if gate.get(name) is not None]
    if not bounds or not all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in bounds):
        return "a gate has least or most (a number), or both"
    return None
