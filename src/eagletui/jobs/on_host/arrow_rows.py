"""What a prepared dataset really holds, read from its Arrow files: rows, tokens, and whether its columns fit each other."""

from __future__ import annotations

import json
import os
from importlib import import_module
from typing import Any, Dict, List, NamedTuple

COLUMNS = ("input_ids", "loss_mask", "seq_len")


class BadDataset(Exception):
    """The dataset is not whole; the text says what is wrong."""


class Held(NamedTuple):
    """``tokens`` is the sum of the rows' lengths, ``trained`` of their loss masks, ``longest`` the longest row, in tokens."""

    rows: int
    tokens: int
    trained: int
    longest: int
    bytes: int


def files(directory: str) -> List[str]:
    """The dataset's Arrow files, as its ``state.json`` names them. Raises `BadDataset`."""
    path = os.path.join(directory, "state.json")
    try:
        with open(path, encoding="utf-8") as file:
            names = [entry["filename"] for entry in json.load(file)["_data_files"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadDataset("%s cannot be read: %s" % (path, error)) from None
    return [os.path.join(directory, name) for name in names]


def look(directory: str) -> Held:
    """Read all of it, a batch at a time. Raises `BadDataset`."""
    pyarrow, compute, ipc = (import_module(name) for name in ("pyarrow", "pyarrow.compute", "pyarrow.ipc"))

    rows = tokens = trained = longest = size = 0
    for path in files(directory):
        try:
            size += os.path.getsize(path)
            with pyarrow.memory_map(path) as source, ipc.open_stream(source) as batches:
                for batch in batches:
                    missing = [name for name in COLUMNS if name not in batch.schema.names]
                    if missing:
                        raise BadDataset("%s has no column %s" % (path, ", ".join(missing)))
                    if batch.num_rows == 0:
                        continue
                    ids, mask, length = (batch.column(batch.schema.get_field_index(name)) for name in COLUMNS)
                    held = compute.list_value_length(ids)
                    for other in (compute.list_value_length(mask), length):
                        if not compute.all(compute.equal(held, other.cast(held.type))).as_py():
                            raise BadDataset("%s has rows whose input_ids, loss_mask and seq_len differ in length" % path)
                    rows += batch.num_rows
                    tokens += compute.sum(length).as_py()
                    trained += compute.sum(compute.list_flatten(mask)).as_py() or 0
                    longest = max(longest, compute.max(length).as_py())
        except (OSError, pyarrow.ArrowException) as error:
            raise BadDataset("%s cannot be read: %s" % (path, error)) from None
    return Held(rows, tokens, trained, longest, size)


def counted_tokens(path: str) -> int:
    """How many tokens the table of token frequencies was counted from. Raises `BadDataset`."""
    torch = import_module("torch")
    try:
        table: Dict[Any, Any] = torch.load(path, weights_only=True)
        return int(sum(table.values()))
    except Exception as error:  # noqa: BLE001 - torch raises what it likes for a file that is none of its own
        raise BadDataset("%s cannot be read: %s" % (path, error)) from None
