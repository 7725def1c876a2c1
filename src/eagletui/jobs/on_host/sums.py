"""Small files that are whole or not there, and what stands for a large one."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any, Mapping


def hash_file(path: str) -> str:
    """The sha256 of a file's bytes, all of them."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def write_json(path: str, doc: Mapping[str, Any]) -> None:
    """Whoever reads the file sees the old one or the new one, also after a crash."""
    with open(path + ".tmp", "w", encoding="utf-8") as out:
        json.dump(doc, out, ensure_ascii=False, indent=1)
        out.flush()
        os.fsync(out.fileno())
    os.replace(path + ".tmp", path)


def read_json(path: str) -> Any:
    """What the file holds; None when it is not there, or holds no JSON: it will be written anew then."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None
