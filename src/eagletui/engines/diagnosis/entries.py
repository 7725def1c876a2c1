"""All entries of the failure catalogue, in the order of a launch. `candidates` gives the few of them that may fit a message."""

from __future__ import annotations

import re
from typing import Dict, List, Set, Tuple

from eagletui.engines.diagnosis.catalogue import (
    build,
    drafter,
    fabric,
    files,
    host,
    kernels,
    launch,
    memory,
    model,
    serving,
    speculative,
)
from eagletui.engines.diagnosis.entry import Matcher, Signature

THEMES: Tuple[Tuple[str, Tuple[Signature, ...]], ...] = (
    ("Building and importing", build.ENTRIES),
    ("Command line, ports, limits", launch.ENTRIES),
    ("Models, tokenizers, files", files.ENTRIES),
    ("What the model asks of the engine", model.ENTRIES),
    ("Speculative decoding: configuration", speculative.ENTRIES),
    ("Speculative decoding: the drafter's weights", drafter.ENTRIES),
    ("Memory", memory.ENTRIES),
    ("NCCL, PCIe, shared memory", fabric.ENTRIES),
    ("Kernels and compilers", kernels.ENTRIES),
    ("Serving, and how processes end", serving.ENTRIES),
    ("Driver, cards, host", host.ENTRIES),
)

ENTRIES: Tuple[Signature, ...] = tuple(entry for _, entries in THEMES for entry in entries)
BY_ID: Dict[str, Signature] = {entry.id: entry for entry in ENTRIES}
_MATCHERS: Tuple[Matcher, ...] = tuple(Matcher(entry) for entry in ENTRIES)

_WORD = re.compile(rb"[A-Za-z0-9]{2,}")
_START = 4


def _anchor(key: bytes) -> bytes:
    """The first letters of a word of the key: of one whose beginning is that of a word in every message with the key."""
    words: List[bytes] = _WORD.findall(key)
    whole = [word for word in words[1:-1] if len(word) > 2] or [word for word in words[1:] if len(word) >= _START]
    return max(whole or words[:1], key=len)[:_START]


def _indexed() -> Dict[bytes, List[int]]:
    index: Dict[bytes, List[int]] = {}
    for number, matcher in enumerate(_MATCHERS):
        for key in matcher.keys:
            found = index.setdefault(_anchor(key), [])
            if number not in found:
                found.append(number)
    return index


_INDEX = _indexed()


def candidates(text: bytes) -> List[Matcher]:
    """The entries that have a key in the message ``text``, in the order of the catalogue."""
    numbers: Set[int] = set()
    for start in {word[:_START] for word in _WORD.findall(text)}:
        numbers.update(_INDEX.get(start, ()))
    return [_MATCHERS[n] for n in sorted(numbers) if any(key in text for key in _MATCHERS[n].keys)]
