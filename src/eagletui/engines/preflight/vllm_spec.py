"""What vLLM's speculative configuration may hold, read out of its source: the keys, and the names of the methods."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional

from eagletui.engines.preflight.source import Read, classes, strings

_FILES = ("config/speculative.py", "config/__init__.py", "config.py")
_LITERAL = re.compile(r"^(\w+)\s*=\s*Literal\[([^\]]*)\]", re.MULTILINE)
_LEAST_KEYS = 5
"""Fewer are no whole class: it is written in a way that is not known."""


def spec_config(read: Read) -> Dict[str, Any]:
    """``spec_keys``: the names that --speculative-config may hold; ``spec_methods``: the values of ``method``."""
    for file in _FILES:
        text = read(file)
        found = classes(text).get("SpeculativeConfig") if text and "class SpeculativeConfig" in text else None
        if text is None or found is None:
            continue
        out: Dict[str, Any] = {}
        keys = sorted(set(re.findall(r"^    ([a-z]\w*)\s*:", found.body, re.MULTILINE)))
        if len(keys) >= _LEAST_KEYS and "method" in keys:
            out["spec_keys"] = keys
        methods = _named(text, "SpeculativeMethod", 0)
        if methods:
            out["spec_methods"] = sorted(set(methods))
        return out
    return {}


def _named(text: str, name: str, depth: int) -> Optional[List[str]]:
    """The texts of a ``Literal`` and of those it is made of; None when one of them is not in this file."""
    body = next((body for found, body in _LITERAL.findall(text) if found == name), None)
    if body is None or depth > 4:
        return None
    out = strings(body)
    for word in re.findall(r"\b[A-Za-z]\w*\b", re.sub(r"\"[^\"]*\"|'[^']*'|#[^\n]*", " ", body)):
        inner = _named(text, word, depth + 1)
        if inner is None:
            return None
        out = out + inner
    return out
