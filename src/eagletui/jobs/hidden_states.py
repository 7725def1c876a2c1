"""Hidden states on disk, one file a sample: how many bytes they take, to the byte, and whether what lies in one can be trusted.

``hs_<i>.safetensors`` holds ``hidden_states`` ([tokens, layers, width] in the server's number format, usually bfloat16) and
``token_ids`` (int64, [tokens]). The layers are those that the drafter reads, and last the state behind the target's last layer
before its norm, for the loss. Layer ``i`` is the state that enters layer i.
"""

from __future__ import annotations

import json
import os
import random
import zlib
from array import array
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from eagletui.jobs.tensors import BadTensors, Tensor, read_header, read_piece

STATES, IDS, ROWS = "hidden_states", "token_ids", "rows.txt"
_ROWS = 12
"""Tokens of a sample that are looked at; of small samples all are."""
_SMALL = 1 << 20


class Format(NamedTuple):
    """A number format: its name in files, its bytes, an array's code for so many bits, and which bits are exponent and size."""

    name: str
    bytes: int
    code: str
    exponent: int
    magnitude: int


FORMATS = {
    "bfloat16": Format("BF16", 2, "H", 0x7F80, 0x7FFF),
    "float16": Format("F16", 2, "H", 0x7C00, 0x7FFF),
    "float32": Format("F32", 4, "I", 0x7F800000, 0x7FFFFFFF),
}


class Layout(NamedTuple):
    """What all files of one extraction have in common: layers (the last one counted), width, and their number format."""

    layers: int
    width: int
    dtype: str = "bfloat16"

    @property
    def format(self) -> Format:
        return FORMATS[self.dtype]


class Row(NamedTuple):
    """One prepared sample: its tokens, and the checksum of their ids."""

    tokens: int
    crc: int


def default_layers(count: int) -> List[int]:
    """The layers that speculators and vLLM take of a target with ``count`` layers, unless they are told others."""
    return [2, count // 2, count - 3]


def file_name(index: int) -> str:
    """The file of prepared sample ``index``."""
    return "hs_%d.safetensors" % index


def file_bytes(tokens: int, layout: Layout) -> int:
    """The size of a sample's file: tokens x (layers x width x 2 + 8) in bfloat16, and a header of about 160 bytes."""
    ids = 8 * tokens
    layers, width, form = layout.layers, layout.width, layout.format
    states = form.bytes * tokens * layers * width
    header = {
        IDS: {"dtype": "I64", "shape": [tokens], "data_offsets": [0, ids]},
        STATES: {"dtype": form.name, "shape": [tokens, layers, width], "data_offsets": [ids, ids + states]},
    }
    text = len(json.dumps(header, separators=(",", ":")))
    return 8 + (text + 7) // 8 * 8 + ids + states


class Need(NamedTuple):
    """What is still to be written: ``files`` of ``tokens``, ``bytes`` by their sizes, ``room`` by whole blocks of the disk.

    ``passing`` is what lies in the server's own folder at the same time, before it is moved.
    """

    files: int
    tokens: int
    bytes: int
    room: int
    passing: int


def need(rows: Sequence[Row], present: Iterable[int], layout: Layout, at_once: int, block: int = 4096) -> Need:
    """Of all rows but those that are present already."""
    there = set(present)
    missing = [row.tokens for index, row in enumerate(rows) if index not in there]
    sizes = [file_bytes(tokens, layout) for tokens in missing]
    room = sum((size + block - 1) // block * block for size in sizes)
    passing = sum(sorted(sizes, reverse=True)[: 2 * at_once])
    return Need(len(missing), sum(missing), sum(sizes), room, passing)


def checksum(ids: Iterable[int]) -> int:
    """The checksum of a sample's token ids, as they lie in its file."""
    return zlib.crc32(array("q", ids).tobytes())


def write_rows(path: str, rows: Sequence[Row], layout: Layout) -> None:
    """A first line with the layout, then one a row: tokens and checksum. Whole or not at all."""
    with open(path + ".tmp", "w", encoding="ascii") as file:
        file.write("%d %d %s\n" % layout)
        file.writelines("%d %d\n" % row for row in rows)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".tmp", path)


def read_rows(path: str) -> Tuple[List[Row], Layout]:
    """What `write_rows` wrote. Raises OSError and ValueError."""
    with open(path, encoding="ascii") as file:
        layers, width, dtype = file.readline().split()
        if dtype not in FORMATS:
            raise ValueError("an unknown number format: %s" % dtype)
        rows = [Row(int(tokens), int(crc)) for tokens, crc in (line.split() for line in file)]
    return rows, Layout(int(layers), int(width), dtype)


def present(folder: str) -> List[int]:
    """The samples that have a file."""
    out = []
    try:
        for name in os.listdir(folder):
            number = name[3:-12]
            if name.startswith("hs_") and name.endswith(".safetensors") and number.isdigit():
                out.append(int(number))
    except OSError:
        return []  # nothing was written yet
    return sorted(out)


def shape_problem(path: str, row: Row, layout: Layout) -> Optional[str]:
    """Why a file is not what its sample needs, by its header alone; None when it is."""
    try:
        _states(path, row, layout)
    except BadTensors as error:
        return str(error)
    return None


def _states(path: str, row: Row, layout: Layout) -> Dict[str, Tensor]:
    tensors = read_header(path)
    missing = [name for name in (STATES, IDS) if name not in tensors]
    if missing:
        raise BadTensors("%s has no %s" % (path, " and no ".join(missing)))
    states, ids = tensors[STATES], tensors[IDS]
    if ids.dtype != "I64" or ids.shape != (row.tokens,):
        raise BadTensors("%s has ids of %s %s instead of %d" % (path, ids.dtype, list(ids.shape), row.tokens))
    expected = (row.tokens, layout.layers, layout.width)
    if states.dtype != layout.format.name or states.shape != expected:
        words = (path, states.dtype, list(states.shape), layout.format.name, list(expected))
        raise BadTensors("%s has states of %s %s instead of %s %s" % words)
    return tensors


def insane(path: str, row: Row, layout: Layout, seed: int = 0) -> Optional[str]:
    """Why the states of a sample cannot be right; None when nothing speaks against them.

    Its ids are the prepared ones, all numbers are finite, no layer of a token is all zeros, and no two layers are the same. Of
    a long sample a few tokens are looked at, the first and the last among them.
    """
    try:
        tensors = _states(path, row, layout)
        if zlib.crc32(read_piece(path, tensors[IDS])) != row.crc:
            return "%s has other token ids than the prepared sample" % path
        return _numbers_problem(path, tensors[STATES], row.tokens, layout, seed)
    except BadTensors as error:
        return str(error)


def _numbers_problem(path: str, states: Tensor, tokens: int, layout: Layout, seed: int) -> Optional[str]:
    layers, form = layout.layers, layout.format
    part_size = form.bytes * layout.width
    size = part_size * layers
    same: Dict[Tuple[int, int], bool] = {(a, b): True for a in range(layers) for b in range(a + 1, layers)}
    for token in _chosen(tokens, size, seed):
        data = read_piece(path, states, token * size, size)
        parts = [data[part_size * layer : part_size * (layer + 1)] for layer in range(layers)]
        for layer, part in enumerate(parts):
            values = array(form.code)
            values.frombytes(part)
            if not any(value & form.magnitude for value in values):
                return "%s: layer %d of token %d is all zeros" % (path, layer, token)
            if any(value & form.exponent == form.exponent for value in values):
                return "%s: layer %d of token %d has numbers that are none (NaN or infinity)" % (path, layer, token)
        for pair in same:
            same[pair] = same[pair] and parts[pair[0]] == parts[pair[1]]
    alike = [pair for pair, equal in same.items() if equal and tokens]
    return "%s: its layers %d and %d are the same" % (path, *alike[0]) if alike else None


def _chosen(tokens: int, size: int, seed: int) -> List[int]:
    if tokens * size <= _SMALL or tokens <= _ROWS:
        return list(range(tokens))
    inner = random.Random(seed).sample(range(1, tokens - 1), _ROWS - 2)  # noqa: S311 - which ones is no secret
    return [0, *sorted(inner), tokens - 1]
