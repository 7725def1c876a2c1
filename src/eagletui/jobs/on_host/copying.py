"""A directory or a file of this host as the source of a download: resumed where it was, compared by reading the copy back."""

from __future__ import annotations

import hashlib
import os
from typing import Any, BinaryIO, Dict, Iterator, Optional

from eagletui.jobs.manifest import Entry, Manifest, safe

CHUNK = 4 << 20
_PROOF = 1 << 20
"""Bytes before the end of a half file that are compared with the source before it is gone on with."""


class Copied:
    """``path`` is a directory with all below it (links are followed), or one file."""

    def __init__(self, path: str, output: str) -> None:
        self._path, self._output = os.path.abspath(path), os.path.realpath(output)

    def inputs(self) -> Dict[str, Any]:
        return {"source": self._path}

    def listing(self) -> Manifest:
        """Raises ``ValueError`` and `OSError`."""
        files: Dict[str, Entry] = {}
        if not os.path.exists(self._path):
            raise ValueError("%s is not there" % self._path)
        real = os.path.realpath(self._path)
        if self._output == real or self._output.startswith(real + os.sep):
            raise ValueError("%s lies within %s: choose another output" % (self._output, self._path))
        if not os.path.isdir(self._path):
            files[os.path.basename(self._path)] = self._entry(os.path.basename(self._path), self._path)
            return Manifest(self._path, None, files)
        for directory, folders, names in os.walk(self._path, followlinks=True, onerror=_raise):
            # a link that leads up again would never end
            folders[:] = [
                name
                for name in folders
                if not os.path.realpath(directory).startswith(os.path.realpath(os.path.join(directory, name)) + os.sep)
            ]
            for word in names:
                full = os.path.join(directory, word)
                name = os.path.relpath(full, self._path).replace(os.sep, "/")
                if os.path.isfile(full) and safe(name):
                    files[name] = self._entry(name, full)
                elif not os.path.exists(full):
                    raise ValueError("%s is a link to nothing: the source is not whole" % full)
        return Manifest(self._path, None, files)

    @staticmethod
    def _entry(name: str, path: str) -> Entry:
        info = os.stat(path)
        return Entry(name, info.st_size, mtime=info.st_mtime_ns)

    def pin(self, wanted: Manifest) -> None:
        """A directory has no commit: that it stays as it was is looked at with every file."""

    def _full(self, entry: Entry) -> str:
        return os.path.join(self._path, entry.name) if os.path.isdir(self._path) else self._path

    def resumable(self, entry: Entry, file: BinaryIO, have: int, progress: Any) -> int:
        """How much of the half file can stay: all of it when its last piece is the source's."""
        start = max(0, have - _PROOF)
        file.seek(start)
        with open(self._full(entry), "rb") as source:
            source.seek(start)
            if file.read(have - start) == source.read(have - start):
                return have
        file.truncate(0)
        progress.add(-have)
        return 0

    def open(self, entry: Entry, offset: int) -> Iterator[bytes]:
        with open(self._full(entry), "rb", buffering=0) as source:
            source.seek(offset)
            while True:
                data = source.read(CHUNK)
                if not data:
                    break
                yield data
            info = os.fstat(source.fileno())
        if (info.st_size, info.st_mtime_ns) != (entry.size, entry.mtime):
            raise ValueError("%s was changed while it was copied: run it again when nobody writes there" % self._full(entry))

    def wrong(self, entry: Entry, found: Any, part: str) -> Optional[str]:
        """Read the copy back."""
        digest = hashlib.sha256()
        with open(part, "rb", buffering=0) as file:
            while True:
                data = file.read(CHUNK)
                if not data:
                    break
                digest.update(data)
        if digest.hexdigest() == found.sha256.hexdigest():
            return None
        return "%s: what was written is not what was read: the disk or the memory of this host fails" % entry.name

    def finish(self, entry: Entry, part: str) -> None:
        info = os.stat(self._full(entry))
        os.chmod(part, info.st_mode & 0o777)
        os.utime(part, ns=(info.st_atime_ns, info.st_mtime_ns))

    def clean(self, output: str) -> None:
        """Nothing is left beside the copy."""


def _raise(error: OSError) -> None:
    raise error
