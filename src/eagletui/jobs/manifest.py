"""What a download should consist of, kept beside it, and whether it does: every file there, in its length, tensors whole.

``OUTPUT/eagletui.files.json`` holds ``{"from", "commit", "files": {name: {"size", "sha256", "sha1", "mtime"}}}``; names are below
``OUTPUT``, with ``/``. A file has its name only once it is whole and was checked; until then it is ``NAME.part``.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from eagletui.jobs.tensors import BadTensors, read_header

NAME = "eagletui.files.json"
PART = ".part"


class Entry(NamedTuple):
    """One file: ``size`` in bytes; ``sha256``, or git's ``sha1`` of a blob, where known; ``mtime`` (ns) of a copy's source."""

    name: str
    size: int
    sha256: Optional[str] = None
    sha1: Optional[str] = None
    mtime: Optional[int] = None


class Manifest(NamedTuple):
    """All files, and where they are from: ``source`` in words, ``commit`` of a repository."""

    source: str
    commit: Optional[str]
    files: Dict[str, Entry]

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.files.values())


def safe(name: str) -> bool:
    """Whether a file's name stays below the output."""
    return bool(name) and not name.startswith("/") and "\0" not in name and ".." not in name.split("/")


def read(output: str) -> Optional[Manifest]:
    """The manifest of an output; None when it has none yet. Raises `OSError`, and ``ValueError`` for a damaged one."""
    try:
        with open(os.path.join(output, NAME), "rb") as file:
            doc = json.loads(file.read().decode("utf-8"))
    except FileNotFoundError:
        return None
    try:
        files = {str(name): _entry(str(name), entry) for name, entry in doc["files"].items()}
        return Manifest(str(doc["from"]), doc.get("commit"), files)
    except (KeyError, TypeError, AttributeError):
        raise ValueError("%s is damaged" % os.path.join(output, NAME)) from None


def _entry(name: str, doc: Mapping[str, Any]) -> Entry:
    if not safe(name):
        raise ValueError("%r is no name of a file to download" % name)
    return Entry(name, int(doc["size"]), doc.get("sha256"), doc.get("sha1"), doc.get("mtime"))


def write(output: str, manifest: Manifest) -> None:
    """Keep it, whole or not at all. Raises `OSError`."""
    files = {
        name: {key: value for key, value in entry._asdict().items() if key != "name" and value is not None}
        for name, entry in sorted(manifest.files.items())
    }
    path = os.path.join(output, NAME)
    with open(path + ".tmp", "w", encoding="utf-8") as out:
        json.dump({"from": manifest.source, "commit": manifest.commit, "files": files}, out, indent=1)
        out.flush()
        os.fsync(out.fileno())
    os.rename(path + ".tmp", path)


def there(output: str, entry: Entry) -> bool:
    """Whether a file is there, whole."""
    try:
        return os.path.getsize(os.path.join(output, entry.name)) == entry.size
    except OSError:
        return False  # not yet


def missing_bytes(output: str, manifest: Manifest) -> int:
    """Bytes that have still to be written: those of half files count as there."""
    left = 0
    for entry in manifest.files.values():
        if not there(output, entry):
            try:
                left += max(0, entry.size - os.path.getsize(os.path.join(output, entry.name + PART)))
            except OSError:
                left += entry.size  # nothing of it yet
    return left


def problems(output: str, manifest: Manifest) -> List[str]:
    """What is wrong with a finished download, each in a few words: files, lengths, tensors, the shards that an index names."""
    found: List[str] = []
    for entry in manifest.files.values():
        path = os.path.join(output, entry.name)
        if not os.path.exists(path):
            found.append("%s is not there" % entry.name)
        elif not there(output, entry):
            found.append("%s has %d bytes instead of %d" % (entry.name, os.path.getsize(path), entry.size))
        elif entry.name.endswith(".safetensors"):
            try:
                read_header(path)
            except BadTensors as error:
                found.append(str(error))
        elif entry.name.endswith(".safetensors.index.json"):
            found += _unmet(output, entry, manifest)
    return found


def _unmet(output: str, entry: Entry, manifest: Manifest) -> List[str]:
    """Shards that an index names and that are not there although they were wanted (a file left out on purpose is no fault)."""
    try:
        with open(os.path.join(output, entry.name), "rb") as file:
            shards = set(json.loads(file.read().decode("utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ["%s is no index of shards" % entry.name]
    folder = os.path.dirname(entry.name)
    names = sorted(os.path.join(folder, str(shard)) for shard in shards)
    lost = [name for name in names if name not in manifest.files and not os.path.exists(os.path.join(output, name))]
    if not lost or len(lost) == len(names):
        return []  # weights that were left out altogether
    return ["%s names %d shards that its source does not have (%s)" % (entry.name, len(lost), lost[0])]
