"""safetensors files for tests, without torch."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

SIZES = {"F32": 4, "BF16": 2, "F16": 2, "I64": 8, "I32": 4, "BOOL": 1, "U8": 1}


def write(path: Path, tensors: Mapping[str, tuple[str, tuple[int, ...], bytes | None]]) -> Path:
    """``tensors``: {name: (dtype, shape, bytes; None: ones)}."""
    header: dict[str, object] = {}
    body = b""
    for name, (dtype, shape, data) in tensors.items():
        count = SIZES[dtype]
        for number in shape:
            count *= number
        data = (b"\x01" * count) if data is None else data
        assert len(data) == count, name
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(body), len(body) + count]}
        body += data
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return path


def checkpoint(
    folder: Path, epoch: int, local_step: int = 0, global_step: int = 0, val: Mapping[str, float] | None = None
) -> Path:
    """A whole checkpoint as the trainer leaves one."""
    import zipfile

    write(folder / "model.safetensors", {"fc.weight": ("BF16", (2, 6), None)})
    (folder / "config.json").write_text('{"speculators_model_type": "eagle3"}')
    with zipfile.ZipFile(folder / "optimizer_state_dict.pt", "w") as file:
        file.writestr("data", b"x" * 100)
    if val is not None:
        (folder / "val_metrics.json").write_text(json.dumps(val))
    (folder / "training_state.json").write_text(
        json.dumps({"epoch": epoch, "local_step": local_step, "global_step": global_step})
    )
    return folder
