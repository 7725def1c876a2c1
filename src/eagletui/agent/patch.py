"""Send what changed: a telemetry stream is a JSON object, and each push is its merge patch (RFC 7386) to the last one.

``None`` deletes a key, so "not available" is simply an absent key. Lists are replaced whole; what changes piecemeal
(cards, processes, jobs) is therefore an object keyed by uuid, pid or id.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping


def diff(old: Mapping[str, Any], new: Mapping[str, Any]) -> Dict[str, Any]:
    """The patch that turns ``old`` into ``new``; empty when they are equal. ``new`` may hold None only as "absent"."""
    out: Dict[str, Any] = {}
    for key, value in new.items():
        before = old.get(key)
        if value is None:
            if before is not None:
                out[key] = None
        elif isinstance(value, dict) and isinstance(before, dict):
            inner = diff(before, value)
            if inner:
                out[key] = inner
        elif value != before or type(value) is not type(before):
            out[key] = value
    for key in old:
        if key not in new:
            out[key] = None
    return out


def apply(target: Mapping[str, Any], change: Mapping[str, Any]) -> Dict[str, Any]:
    """``target`` with the patch applied, as a new object; neither argument is changed."""
    out = dict(target)
    for key, value in change.items():
        if value is None:
            out.pop(key, None)
        elif isinstance(value, dict):
            before = out.get(key)
            out[key] = apply(before if isinstance(before, dict) else {}, value)
        else:
            out[key] = value
    return out
