"""safetensors files without torch: what is in one, whether it is whole, and the bytes of one tensor."""

from __future__ import annotations

import json
import os
import struct
from typing import Dict, List, NamedTuple, Tuple

_LONGEST = 100 << 20
"""The longest header that the format allows."""

SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
"""Bytes of one element; of other types (F8_E4M3, ...) nothing is computed here."""


class BadTensors(ValueError):
    """No whole safetensors file; the text says which and why."""


class Tensor(NamedTuple):
    """One tensor: its ``dtype`` as the format names it (BF16, I64 ...), its shape, and where its bytes lie in the file."""

    dtype: str
    shape: Tuple[int, ...]
    start: int
    end: int


def read_header(path: str) -> Dict[str, Tensor]:
    """The tensors of a file by name, once it is sure that all their bytes are there. Raises `BadTensors`."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(8)
            if len(head) < 8:
                raise BadTensors("%s has only %d bytes" % (path, size))
            (length,) = struct.unpack("<Q", head)
            if length > min(size - 8, _LONGEST):
                raise BadTensors("%s is cut short in its header, or no safetensors file" % path)
            doc = json.loads(file.read(length).decode("utf-8"))
        out = {name: _tensor(entry, 8 + length) for name, entry in doc.items() if name != "__metadata__"}
    except OSError as error:
        raise BadTensors("%s cannot be read (%s)" % (path, error.strerror)) from None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        if isinstance(error, BadTensors):
            raise
        raise BadTensors("%s has a damaged header" % path) from None
    whole = max((tensor.end for tensor in out.values()), default=8 + length)
    if size != whole:
        raise BadTensors("%s has %d bytes instead of %d" % (path, size, whole))
    return out


def _tensor(entry: Dict[str, List[int]], base: int) -> Tensor:
    start, end = entry["data_offsets"]
    return Tensor(str(entry["dtype"]), tuple(int(n) for n in entry["shape"]), base + int(start), base + int(end))


def read_piece(path: str, tensor: Tensor, first: int = 0, count: int = -1) -> bytes:
    """The bytes of a tensor, or ``count`` of them from its byte ``first`` on. Raises `BadTensors`."""
    want = tensor.end - tensor.start - first if count < 0 else min(count, tensor.end - tensor.start - first)
    try:
        with open(path, "rb") as file:
            file.seek(tensor.start + first)
            data = file.read(max(0, want))
    except OSError as error:
        raise BadTensors("%s cannot be read (%s)" % (path, error.strerror)) from None
    if len(data) != max(0, want):
        raise BadTensors("%s is cut short" % path)
    return data


def folder_files(path: str) -> Dict[str, Tuple[str, Tensor]]:
    """All tensors of a model's folder and the file each is in: ``model.safetensors``, or all files that its index names.

    Offsets are those in a tensor's own file. Raises `BadTensors`.
    """
    index = os.path.join(path, "model.safetensors.index.json")
    try:
        with open(index, "rb") as file:
            names = json.load(file)["weight_map"]
        files = sorted({str(name) for name in names.values()})
    except FileNotFoundError:
        names, files = {}, ["model.safetensors"]
    except OSError as error:
        raise BadTensors("%s cannot be read (%s)" % (index, error.strerror)) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadTensors("%s is damaged" % index) from None
    out: Dict[str, Tuple[str, Tensor]] = {}
    for name in files:
        place = os.path.join(path, name)
        out.update({key: (place, tensor) for key, tensor in read_header(place).items()})
    missing = sorted(set(names) - set(out))
    if missing:
        raise BadTensors("%s names tensors that are in no file: %s" % (index, ", ".join(missing[:3])))
    return out


def folder_headers(path: str) -> Dict[str, Tensor]:
    """The tensors of a model's folder by name. Raises `BadTensors`."""
    return {name: tensor for name, (_, tensor) in folder_files(path).items()}
