"""What an output follows from, as far as only the host can tell: the files that a job names, beside the values it was given."""

from __future__ import annotations

import json
import os
from typing import Any, Dict

from eagletui.jobs.outputs import file_facts

_TELLING = (".arrow", ".json", ".jsonl", ".pt", ".npy")
_MADE_BY_READING = ("d2t-", "t2d-")  # the trainer puts its vocabulary mapping beside the data


def _counts(file: str) -> bool:
    return file.endswith(_TELLING) and not file.startswith(_MADE_BY_READING)


def facts(text: str) -> Dict[str, Any]:
    """``text``: {"values": {...}, "paths": {name: file or directory}} as JSON.

    Of a directory its data count, and a model's configuration; a name on a hub stands for itself. Raises ValueError, OSError.
    """
    doc = json.loads(text)
    out: Dict[str, Any] = dict(doc.get("values") or {})
    for key, path in (doc.get("paths") or {}).items():
        out[key] = path
        if os.path.isdir(path):
            names = [file for file in sorted(os.listdir(path)) if _counts(file)]
            files = [(file, os.path.join(path, file)) for file in names]
            out[key + " files"] = {file: file_facts(place) for file, place in files if os.path.isfile(place)}
        elif os.path.isfile(path):
            out[key + " file"] = file_facts(path)
    return out
