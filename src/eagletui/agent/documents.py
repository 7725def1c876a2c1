"""Stream documents to records, for whoever receives them: `watch` in the client, tests, the shim's history.

A document comes from another machine and perhaps another version: a value of the wrong type is left out (None, or the
field's default), never an exception. Keys of the maps (uuid, mount, pid) are the identity; the same key inside is ignored.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Type, TypeVar

from eagletui.records import Disk, GpuBoard, GpuProcess, GpuSample, HostSample, Process

R = TypeVar("R")
_LARGEST = 2**64


def _number(value: Any) -> Optional[float]:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -_LARGEST <= value <= _LARGEST:
        return None  # also NaN and the infinities: no comparison holds for them
    return float(value)


def _integer(value: Any) -> Optional[int]:
    number = _number(value)
    if number is None:
        return None
    return int(value) if number == int(number) else None


def _exactly(kind: type) -> Callable[[Any], Any]:
    return lambda value: value if isinstance(value, kind) else None


def _texts(value: Any) -> Optional[Tuple[str, ...]]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        return None
    return tuple(value)


_READERS: Dict[str, Callable[[Any], Any]] = {
    "int": _integer,
    "float": _number,
    "str": _exactly(str),
    "bool": _exactly(bool),
    "Tuple[str, ...]": _texts,
}
_FIELDS: Dict[str, List[Tuple[str, Callable[[Any], Any]]]] = {}


def _fields(cls: Any) -> List[Tuple[str, Callable[[Any], Any]]]:
    """The plain fields of a record and how each is read, from its annotations; nested ones are left to the caller."""
    known = _FIELDS.get(cls.__name__)
    if known is None:
        known = []
        for name, annotation in cls.__annotations__.items():
            text = getattr(annotation, "__forward_arg__", annotation)
            if text.startswith("Optional["):
                text = text[len("Optional[") : -1]
            if text in _READERS:
                known.append((name, _READERS[text]))
        _FIELDS[cls.__name__] = known
    return known


def _values(cls: Any, doc: Mapping[str, Any]) -> Dict[str, Any]:
    out = {}
    for name, read in _fields(cls):
        value = doc.get(name)
        if value is not None:
            value = read(value)
            if value is not None:
                out[name] = value
    return out


def _record(cls: Type[R], doc: Any, **known: Any) -> Optional[R]:
    """The record, or None when a field it cannot be without is missing."""
    if not isinstance(doc, Mapping):
        return None
    values = dict(_values(cls, doc), **known)
    required = (name for name in cls._fields if name not in cls._field_defaults)  # type: ignore[attr-defined]
    return cls(**values) if all(name in values for name in required) else None


def _items(doc: Mapping[str, Any], key: str) -> List[Tuple[str, Any]]:
    value = doc.get(key)
    return [(k, v) for k, v in value.items() if isinstance(k, str)] if isinstance(value, Mapping) else []


def board_from_doc(doc: Mapping[str, Any], boot: float = 0.0) -> GpuBoard:
    """The ``gpus`` document as a board, cards in the order of their numbers. ``boot`` stands in when the document has none."""
    cards = []
    for uuid, item in _items(doc, "cards"):
        card = _record(GpuSample, item, uuid=uuid)
        if card is not None:
            if isinstance(item.get("processes"), Mapping):
                card = card._replace(processes=_gpu_processes(item))
            cards.append(card)
    cards.sort(key=lambda card: (card.number, card.uuid))
    values = _values(GpuBoard, doc)
    values.setdefault("boot", boot)
    values.setdefault("present", bool(cards))
    return GpuBoard(cards=tuple(cards), **values)


def _gpu_processes(card: Mapping[str, Any]) -> Tuple[GpuProcess, ...]:
    found = [_record(GpuProcess, item, pid=int(pid)) for pid, item in _items(card, "processes") if _is_pid(pid)]
    return tuple(sorted((p for p in found if p is not None), key=lambda p: p.pid))


def _is_pid(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 11


def host_from_doc(doc: Mapping[str, Any], boot: float = 0.0) -> HostSample:
    """The ``host`` document as a sample, disks in the order of their mounts. Uptime is not sent: it is the boot time itself."""
    disks = [_record(Disk, item, mount=mount) for mount, item in _items(doc, "disks")]
    values = _values(HostSample, doc)
    values.setdefault("boot", boot)
    values.setdefault("uptime", values["boot"])
    return HostSample(disks=tuple(sorted(d for d in disks if d is not None)), **values)


def processes_from_doc(doc: Mapping[str, Any], boot: Optional[float] = None, clock_ticks: int = 100) -> Tuple[Process, ...]:
    """The ``processes`` document as a table, busiest first.

    Ages are not sent, they would change with every push: they follow from ``boot``, the push's time, and the start.
    """
    found = []
    for pid, item in doc.items():
        process = _record(Process, item, pid=int(pid)) if isinstance(pid, str) and _is_pid(pid) else None
        if process is not None:
            if process.age is None and boot is not None and clock_ticks > 0:
                process = process._replace(age=max(0.0, boot - process.start / clock_ticks))
            found.append(process)
    return tuple(sorted(found, key=lambda p: (-(p.cpu or 0.0), -(p.rss or 0), p.pid)))
