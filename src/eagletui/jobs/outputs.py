"""Who made a directory, and of what: so that a job goes on with its own half-made output and never takes over another's.

``OUTPUT/eagletui.json`` holds ``{"kind", "inputs", "made_by", "about"}``; ``inputs`` is the fingerprint of what the output
follows from, ``about``. It is written before anything else is.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any, Dict, Mapping, Optional

NAME = "eagletui.json"


class NotOurs(ValueError):
    """The output exists and was made of something else; the text says what differs and what to do."""


def fingerprint(inputs: Mapping[str, Any]) -> str:
    """The same for the same inputs, in whatever order: 16 hexadecimal digits."""
    text = json.dumps(inputs, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_facts(path: str) -> Dict[str, Any]:
    """What stands for a file among ``inputs`` without reading it all: size, and the hash of its first and last MiB."""
    size = os.path.getsize(path)
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        digest.update(file.read(1 << 20))
        if size > 2 << 20:
            file.seek(size - (1 << 20))
        digest.update(file.read(1 << 20))
    return {"size": size, "sha": digest.hexdigest()[:16]}


def claim(output: str, kind: str, inputs: Mapping[str, Any], made_by: Optional[str] = None) -> bool:
    """Make the directory ``output`` this job's. True when it was begun before, of the same inputs: go on with what is there.

    Raises `NotOurs` when it holds something else, and `OSError`.
    """
    path = os.path.join(output, NAME)
    try:
        with open(path, "rb") as file:
            there = json.loads(file.read().decode("utf-8"))
    except FileNotFoundError:
        there = None
    except ValueError:
        raise NotOurs("%s is damaged: remove %s, or choose another output" % (path, output)) from None
    if there is None:
        if os.path.isdir(output) and os.listdir(output):
            raise NotOurs("%s is not empty, and no job of this kind made it: choose another output" % output)
        os.makedirs(output, exist_ok=True)
        doc = {"kind": kind, "inputs": fingerprint(inputs), "made_by": made_by, "about": dict(inputs)}
        temp = path + ".tmp"
        with open(temp, "w", encoding="utf-8") as out:
            json.dump(doc, out, ensure_ascii=False, indent=1)
            out.flush()
            os.fsync(out.fileno())
        os.rename(temp, path)
        return False
    if there.get("kind") != kind:
        raise NotOurs("%s was made by a job of kind %s: choose another output" % (output, there.get("kind")))
    if there.get("inputs") != fingerprint(inputs):
        raise NotOurs("%s was made of other inputs (%s): remove it, or choose another output" % (output, _differs(there, inputs)))
    return True


def _differs(there: Mapping[str, Any], inputs: Mapping[str, Any]) -> str:
    about = there.get("about")
    before: Mapping[str, Any] = about if isinstance(about, dict) else {}
    now = json.loads(json.dumps(dict(inputs)))
    names = sorted(name for name in set(before) | set(now) if before.get(name) != now.get(name))
    words = ["%s was %s and is %s" % (name, _short(before.get(name)), _short(now.get(name))) for name in names[:3]]
    return "; ".join(words) or "their fingerprint differs"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
