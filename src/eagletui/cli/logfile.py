"""A log on this machine, read in pieces: a file, a compressed one, or what comes on stdin."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterator
from typing import Protocol

from eagletui.engines.reader import LogReader
from eagletui.hosts.base import HostError

PIECE = 1 << 20
_GZIP = b"\x1f\x8b"


class Source(Protocol):
    """What bytes are read from."""

    def read(self, size: int, /) -> bytes: ...


def read_file(path: str, step: str) -> LogReader:
    """The whole log read; ``-`` is stdin. Raises `HostError` of the kind ``config`` when it cannot be read."""
    reader = LogReader()
    try:
        if path == "-":
            _feed(reader, sys.stdin.buffer)
        else:
            with open(path, "rb") as file:
                if file.read(2) == _GZIP:
                    file.seek(0)
                    with gzip.open(file, "rb") as unpacked:
                        _feed(reader, unpacked)
                else:
                    file.seek(0)
                    _feed(reader, file)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise HostError(
            step, f"{path}: cut or broken gzip data ({error})", "unpack it with zcat and look", kind="config"
        ) from None
    except OSError as error:
        raise HostError(step, f"{path}: {error.strerror}", "give the path of an engine's log", kind="config") from None
    reader.finish()
    return reader


def _feed(reader: LogReader, file: Source) -> None:
    for data in _pieces(file):
        reader.feed(data)


def _pieces(file: Source) -> Iterator[bytes]:
    while data := file.read(PIECE):
        yield data
