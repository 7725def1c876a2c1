"""Headers of safetensors files and their index, read fast: a model of a million parameters a billion times has 200,000 tensors.

Small texts are parsed as the JSON they are. Of large ones only what is asked is looked for, and where their form is not the
usual one they are parsed after all.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

LARGE = 128 * 1024
_MASK = (1 << 64) - 1
_END = re.compile(rb'"data_offsets"\s*:\s*\[\s*\d+\s*,\s*(\d+)\s*\]')
_TOTAL = re.compile(rb'"total_size"\s*:\s*(\d+)')
_WHOLE = re.compile(rb"\{.*\}\s*\}\s*", re.DOTALL)


class Names(NamedTuple):
    """A set of names without the names: how many, and a sum of their hashes (good within one process)."""

    size: int = 0
    mark: int = 0

    def plus(self, names: Iterable[bytes]) -> "Names":
        """With these added."""
        hashes = list(map(hash, names))
        return Names(self.size + len(hashes), (self.mark + sum(hashes)) & _MASK)


class Header(NamedTuple):
    """A header: where its data ends, its tensors' names, and of small ones each tensor's [dtype, shape]."""

    end: int
    names: Names
    tensors: Dict[str, List[Any]]


def read_header(data: bytes) -> Optional[Header]:
    """The header in ``data``; None when it is damaged."""
    quick = _quick_header(data) if len(data) > LARGE else None
    if quick is not None:
        return quick
    try:
        doc = json.loads(data.decode("utf-8"))
        doc.pop("__metadata__", None)
        end = max((int(value["data_offsets"][1]) for value in doc.values()), default=0)
        tensors = {key: [value.get("dtype"), value.get("shape")] for key, value in doc.items()}
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        return None
    return Header(end, Names().plus(key.encode() for key in doc), tensors)


def _quick_header(data: bytes) -> Optional[Header]:
    """By the texts between quotes: a tensor has five of them (its name, dtype and which, shape, data_offsets).

    None where the form is not the usual one: then the whole is parsed.
    """
    if _WHOLE.fullmatch(data[:1] + data[-256:]) is None or b"\\" in data:
        return None
    quoted = data.split(b'"')[1::2]
    try:
        start = quoted.index(b"dtype") - 1  # what stands before is __metadata__
    except ValueError:
        return None
    names, keys = quoted[start::5], [quoted[start + at :: 5] for at in (1, 3, 4)]
    if any(key.count(word) != len(names) for key, word in zip(keys, (b"dtype", b"shape", b"data_offsets"))):
        return None
    ends = _END.findall(data)
    if len(ends) != len(names) or len(quoted) != start + 5 * len(names):
        return None
    return Header(max(map(int, ends)), Names().plus(names), {})


def quick_index(data: bytes) -> Optional[Tuple[Optional[int], Dict[str, Names]]]:
    """(total size, {file: names}) of a large index in the usual form, metadata first; None for any other."""
    if _WHOLE.fullmatch(data[:1] + data[-256:]) is None or b"\\" in data:
        return None
    quoted = data.split(b'"')[1::2]
    try:
        start = quoted.index(b"weight_map") + 1
    except ValueError:
        return None
    names, files = quoted[start::2], quoted[start + 1 :: 2]
    if len(names) != len(files) or not all(file.endswith(b".safetensors") for file in set(files)):
        return None
    listed: Dict[bytes, List[bytes]] = {file: [] for file in set(files)}
    for name, file in zip(names, files):
        listed[file].append(name)
    total = _TOTAL.search(data)
    return (int(total.group(1)) if total else None), {file.decode(): Names().plus(names) for file, names in listed.items()}


def by_file(pairs: Iterable[Tuple[str, str]]) -> Dict[str, Names]:
    """{file: names} of (tensor, file) pairs."""
    listed: Dict[str, List[bytes]] = {}
    for tensor, file in pairs:
        listed.setdefault(file, []).append(tensor.encode())
    return {file: Names().plus(names) for file, names in listed.items()}
