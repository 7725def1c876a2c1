"""Records as JSON objects: out without what is None, in with the key named that is missing."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Tuple, Type, TypeVar

R = TypeVar("R")

NESTED: Dict[str, Dict[str, Any]] = {}
"""Record -> its fields that hold tuples of other records -> that record."""

SINGLE: Dict[str, Dict[str, Any]] = {}
"""Record -> its fields that hold one other record -> that record."""


class BadRecord(ValueError):
    """A document that is not the record it should be; the text names the record and the key."""


def to_doc(record: Any) -> Dict[str, Any]:
    """A record as a JSON-ready dict, without the fields that are ``None``; nested records become dicts, tuples lists."""
    return {k: _plain(v) for k, v in zip(record._fields, record) if v is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return to_doc(value) if hasattr(value, "_fields") else [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value


def from_doc(cls: Type[R], doc: Mapping[str, Any]) -> R:
    """Read a record back. Lists become tuples; a field named in ``cls``'s entry of `NESTED` becomes that record.

    Raises `BadRecord` when ``doc`` is no object, a required field is absent, or a nested one is malformed.
    """
    if not isinstance(doc, Mapping):
        raise BadRecord("%s: expected an object, got %s" % (cls.__name__, type(doc).__name__))
    fields: Tuple[str, ...] = cls._fields  # type: ignore[attr-defined]
    defaults: Mapping[str, Any] = cls._field_defaults  # type: ignore[attr-defined]
    nested, single = NESTED.get(cls.__name__, {}), SINGLE.get(cls.__name__, {})
    values = []
    for name in fields:
        value = doc.get(name)
        if value is None:
            if name not in defaults:
                raise BadRecord("%s: %r is missing" % (cls.__name__, name))
            values.append(defaults[name])
            continue
        if name in single:
            value = from_doc(single[name], value)
        elif name in nested:
            if not isinstance(value, (list, tuple)):
                raise BadRecord("%s: %r should be a list" % (cls.__name__, name))
            value = tuple(from_doc(nested[name], item) for item in value)
        elif isinstance(value, list):
            value = tuple(value)
        values.append(value)
    return cls(*values)
