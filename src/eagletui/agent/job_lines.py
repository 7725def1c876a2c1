"""``samples.jsonl`` and ``events.jsonl`` of a job: appended a line at a time, bounded.

A file is only ever appended to: within one inode an offset always means the same byte. When it is full it is replaced under its
name by an empty one (a new inode), after its lines, thinned, have gone to the ``.old`` file beside it.
"""

from __future__ import annotations

import json
import os
from typing import Any, Iterator, List, Mapping, Tuple

SAMPLES_CAP = 8 << 20
EVENTS_CAP = 8 << 20


class Lines:
    """Appends JSON objects as lines. One in ``keep_one_in`` lines survives a rotation, and each with the bytes ``always`` in it
    (a training validates once an epoch: none of these can be spared); a file is rotated beyond ``cap`` bytes.
    """

    def __init__(self, path: str, cap: int, keep_one_in: int = 5, always: bytes = b"") -> None:
        self.path, self._cap, self._keep, self._always = path, cap, keep_one_in, always
        self._fd = self._open()
        self._size = os.fstat(self._fd).st_size
        if self._size and os.pread(self._fd, 1, self._size - 1) != b"\n":
            self._size += os.write(self._fd, b"\n")  # a predecessor died within a line

    def _open(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def append(self, doc: Mapping[str, Any]) -> None:
        """Add one line, whole or not at all. Raises `OSError` (a full disk)."""
        data = json.dumps(doc, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        if self._size + len(data) > self._cap:
            self._rotate()
        written = os.write(self._fd, data)
        if written != len(data):
            os.ftruncate(self._fd, self._size)
            raise OSError(28, "no room for a line of %s" % os.path.basename(self.path))
        self._size += written

    def _rotate(self) -> None:
        old, temp = self.path + ".old", self.path + ".old.tmp"
        stride = 1
        if os.path.exists(old) and os.path.getsize(old) + self._size // self._keep > self._cap:
            stride = 2
        with open(temp, "wb", opener=_private) as out:
            for path, every in ((old, stride), (self.path, self._keep)):
                out.writelines(line for number, line in _numbered(path) if number % every == 0 or self._spared(line))
            out.flush()
            os.fsync(out.fileno())
        os.rename(temp, old)
        fresh = self.path + ".tmp"
        os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
        os.rename(fresh, self.path)
        os.close(self._fd)
        self._fd, self._size = self._open(), 0

    def _spared(self, line: bytes) -> bool:
        return bool(self._always) and self._always in line

    def close(self) -> None:
        os.close(self._fd)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _numbered(path: str) -> Iterator[Tuple[int, bytes]]:
    try:
        with open(path, "rb") as file:
            yield from enumerate(file)
    except FileNotFoundError:
        return  # the first rotation


def read_lines(path: str) -> List[Any]:
    """All whole lines of such a file, the thinned ones first; a half line at the end is left out."""
    found: List[Any] = []
    for name in (path + ".old", path):
        for _, line in _numbered(name):
            if line.endswith(b"\n"):
                found.append(json.loads(line.decode("utf-8")))
    return found
