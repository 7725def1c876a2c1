"""A file of JSON lines that only grows, and of which a line is there whole or not at all, whenever its writer is killed.

Each line goes out in one write. What a killed process has written stays (the kernel has it); `Journal.sync` makes it safe
against the loss of power too, and is called every few seconds. A torn last line is cut off when the file is opened again.
"""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple

_BLOCK = 1 << 20


def repair(path: str) -> int:
    """Cut off what follows the file's last whole line. Returns the number of bytes that were cut."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    try:
        size = end = os.fstat(fd).st_size
        while end > 0:
            start = max(0, end - _BLOCK)
            block = os.pread(fd, end - start, start)
            newline = block.rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        if end < size:
            os.ftruncate(fd, end)
            os.fsync(fd)
        return size - end
    finally:
        os.close(fd)


def lines(path: str, start: int = 0) -> Iterator[Tuple[int, int, Optional[Dict[str, Any]]]]:
    """(its number from 1, the offset of its end, its object or None when it is none) for each whole line from ``start`` on.

    A file that is not there has none; a torn last line is left out.
    """
    if not os.path.exists(path):
        return
    with open(path, "rb") as file:
        file.seek(start)
        at = start
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            at += len(line)
            try:
                row = json.loads(line)
            except ValueError:
                row = None
            yield number, at, row if isinstance(row, dict) else None


class Journal:
    """The open file. ``cut`` is the number of bytes of a torn line that opening it has removed."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.cut = repair(path)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._dirty = False

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a line. Raises ``OSError``; then nothing of it is left in the file."""
        data = json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace") + b"\n"
        before = os.fstat(self._fd).st_size
        self._dirty = True
        done = 0
        try:
            while done < len(data):
                done += os.write(self._fd, data[done:])
        except OSError:
            os.ftruncate(self._fd, before)
            raise

    def sync(self) -> None:
        """Have the disk hold what was written. May take long: call it in a thread."""
        if self._dirty:
            self._dirty = False
            os.fsync(self._fd)

    def close(self) -> None:
        self.sync()
        os.close(self._fd)


def rewrite(path: str, keep: Callable[[int, Dict[str, Any]], bool]) -> int:
    """Write the file anew with the lines that ``keep`` wants; whoever reads it sees the old one or the new one. Returns how
    many lines were left out; when none are, nothing is written.
    """
    dropped = 0
    new = path + ".new"
    with open(new, "wb") as out:
        for number, _end, row in lines(path):
            if row is None or not keep(number, row):
                dropped += 1
                continue
            out.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace") + b"\n")
        out.flush()
        os.fsync(out.fileno())
    if dropped:
        os.replace(new, path)
    else:
        os.unlink(new)
    return dropped
