"""Download a repository of the hub, or copy a directory, into ``--output``: resumable at the byte, checked file by file.

``python -m eagletui.jobs.on_host.download --output DIR (--repo ORG/NAME | --source PATH) ...``. The size is known, and the disk
looked at, before anything is written. Ends with 0 when every file is there and right, else with 1 and the reason.
"""

from __future__ import annotations

import argparse
import errno
import fnmatch
import hashlib
import os
import sys
import threading
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any, Callable, Iterator, List, Mapping, Optional

from eagletui.jobs import manifest
from eagletui.jobs.manifest import PART, Entry, Manifest
from eagletui.jobs.on_host.telling import Teller
from eagletui.jobs.outputs import NotOurs, claim, fingerprint

CHUNK = 4 << 20
GIB = 1 << 30
ATTEMPTS = 2
"""How often a file is fetched whose hash turned out wrong."""

Opener = Callable[[Entry, int], Iterator[bytes]]
"""(file, offset) -> its bytes from there on."""


class Failed(Exception):
    """It cannot go on; the text says why and what to do."""


def main(argv: Optional[List[str]] = None) -> int:
    options = _arguments(argv)
    os.umask(0o022)  # a model is for other users' engines as well; a supervisor's own files are nobody else's
    teller = Teller("bytes")
    try:
        return _run(options, teller)
    except (Failed, NotOurs, ValueError) as error:
        teller.result(why=str(error), path=options.output)
    except OSError as error:
        teller.result(why=_disk_words(error, options.output), path=options.output)
    return 1


def _arguments(argv: Optional[List[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="download")
    parser.add_argument("--output", required=True)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--repo")
    what.add_argument("--source")
    parser.add_argument("--revision", default="main")
    parser.add_argument("--type", default="model")
    parser.add_argument("--file", action="append", default=[])
    parser.add_argument("--skip", action="append", default=[])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--spare", type=float, default=2.0)
    parser.add_argument("--job")
    parser.add_argument("--no-hashes", dest="hashes", action="store_false")
    return parser.parse_args(argv)


def _run(options: argparse.Namespace, teller: Teller) -> int:
    output = os.path.abspath(options.output)
    source: Any
    if options.repo:
        from eagletui.jobs.on_host.hub import Hub

        source = Hub(options.repo, options.revision, options.type, teller)
    else:
        from eagletui.jobs.on_host.copying import Copied

        source = Copied(options.source, output)
    teller.stage("asking what there is" if options.repo else "looking what there is", unit="bytes")
    wanted = manifest.read(output)
    begun = wanted is not None
    if wanted is None or not options.repo:
        found = source.listing()
        chosen = {name: entry for name, entry in found.files.items() if _chosen(name, options.file, options.skip)}
        if not chosen:
            raise Failed("%s has no file that matches (it has %d)" % (found.source, len(found.files)))
        wanted = found._replace(files=chosen)
    left = manifest.missing_bytes(output, wanted)
    _look_at_disk(output, wanted, left, options.spare)
    inputs = dict(source.inputs(), files=sorted(options.file), skip=sorted(options.skip))
    if not options.repo:
        stands = [[entry.name, entry.size, entry.mtime] for entry in sorted(wanted.files.values())]
        inputs["content"] = "%d files, %d bytes, %s" % (len(stands), wanted.size, fingerprint({"files": stands}))
    claim(output, "download", inputs, options.job)
    if not begun or not options.repo:
        manifest.write(output, wanted)
    source.pin(wanted)
    _fetch_all(output, wanted, left, source, options, teller)
    teller.stage("checking", unit="bytes", total=wanted.size, done=wanted.size)
    wrong = manifest.problems(output, wanted)
    if wrong:
        raise Failed("; ".join(wrong[:3]))
    source.clean(output)
    known = sum(1 for entry in wanted.files.values() if entry.sha256 or entry.sha1) if options.repo else len(wanted.files)
    hashed = ", %d checked by hash" % known if options.hashes else ""
    words = "%d files, %s%s%s" % (
        len(wanted.files),
        size_words(wanted.size),
        hashed,
        ", all there before" if not left and begun else "",
    )
    teller.result(why=words, path=output, files=len(wanted.files), bytes=wanted.size, commit=wanted.commit, fetched=left)
    return 0


def _chosen(name: str, wanted: List[str], skipped: List[str]) -> bool:
    if name in (manifest.NAME, "eagletui.json") or name.endswith(PART):
        return False  # our own, when the output of an earlier download is copied
    return (not wanted or any(fnmatch.fnmatch(name, word) for word in wanted)) and not any(
        fnmatch.fnmatch(name, word) for word in skipped
    )


def _look_at_disk(output: str, wanted: Manifest, left: int, spare: float) -> None:
    place = output
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    room = os.statvfs(place)
    free = room.f_bavail * room.f_frsize
    if left + spare * GIB > free and left:
        raise Failed(
            "%s has %s free, and %s are still to come (%s in all; %g GiB have to stay free): nothing was written - free some, "
            "choose another output, or leave files out with skip"
            % (place, size_words(free), size_words(left), size_words(wanted.size), spare)
        )


def size_words(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return "%d %s" % (count, unit) if unit == "B" else "%.1f %s" % (count, unit)
        count /= 1024.0
    return "%.2f TiB" % count


def _disk_words(error: OSError, output: str) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk of %s is full: free some and run it again, it goes on where it was" % output
    return "%s: %s" % (error.filename or output, error.strerror or error)


# -------------------------------------------------------------------------------------------------------------- the fetching


class Progress:
    """Bytes and files that are done, told from all threads."""

    def __init__(self, teller: Teller, wanted: Manifest, left: int, files: int) -> None:
        self._teller, self._lock = teller, threading.Lock()
        self._done, self._total = wanted.size - left, wanted.size
        self._files, self._all = files, len(wanted.files)
        self.stop = threading.Event()
        teller.stage("fetching", unit="bytes", total=self._total, done=self._done)

    def add(self, count: int) -> None:
        with self._lock:
            self._done += count
            self._tell()

    def finished(self) -> None:
        with self._lock:
            self._files += 1
            self._tell()

    def _tell(self) -> None:
        counters: Mapping[str, Any] = {"files": {"value": self._files, "unit": "of %d" % self._all}}
        self._teller.progress(self._done, counters=counters)


def _fetch_all(output: str, wanted: Manifest, left: int, source: Any, options: argparse.Namespace, teller: Teller) -> None:
    todo = [entry for entry in wanted.files.values() if not manifest.there(output, entry)]
    progress = Progress(teller, wanted, left, len(wanted.files) - len(todo))
    todo.sort(key=lambda entry: -entry.size)  # the longest first: the last file should not be the one to wait for
    with ThreadPoolExecutor(max_workers=options.workers) as pool:
        waiting = [pool.submit(_fetch, output, entry, source, options.hashes, progress) for entry in todo]
        done, others = wait(waiting, return_when=FIRST_EXCEPTION)
        failed = next((future.exception() for future in done if future.exception() is not None), None)
        if failed is not None:
            progress.stop.set()
            for future in others:
                future.cancel()
            raise failed


def _fetch(output: str, entry: Entry, source: Any, hashes: bool, progress: Progress) -> None:
    target = os.path.join(output, entry.name)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    for attempt in range(ATTEMPTS):
        found = _stream(target + PART, entry, source, hashes, progress)
        if progress.stop.is_set():
            return
        why = source.wrong(entry, found, target + PART) if hashes else None
        if why is None:
            break
        progress.add(-entry.size)
        os.unlink(target + PART)
        if attempt + 1 == ATTEMPTS:
            raise Failed(why)
    source.finish(entry, target + PART)
    os.rename(target + PART, target)
    progress.finished()


class Digests:
    """The hashes of a file's bytes as they come: SHA-256, and git's SHA-1 of a blob."""

    def __init__(self, size: int) -> None:
        self.sha256 = hashlib.sha256()
        self.sha1 = hashlib.new("sha1", b"blob %d\0" % size)  # noqa: S324 - git's own, no secret hangs on it

    def update(self, data: bytes) -> None:
        self.sha256.update(data)
        self.sha1.update(data)


def _stream(part: str, entry: Entry, source: Any, hashes: bool, progress: Progress) -> Digests:
    """Have all bytes of a file in ``part``: what is there already stays. Its hashes."""
    digests = Digests(entry.size)
    fd = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    with os.fdopen(fd, "r+b") as file:
        have = os.fstat(fd).st_size
        if have > entry.size:
            file.truncate(0)
            have = 0
        have = source.resumable(entry, file, have, progress)
        file.seek(0)
        at = 0
        while hashes and at < have:
            data = file.read(min(CHUNK, have - at))
            digests.update(data)
            at += len(data)
        file.seek(have)
        at = have
        for data in source.open(entry, have):
            if progress.stop.is_set():
                return digests
            file.write(data)
            at += len(data)
            if hashes:
                digests.update(data)
            progress.add(len(data))
        if at != entry.size:
            raise Failed("%s: %d bytes came instead of %d: its source has changed" % (entry.name, at, entry.size))
        file.flush()
        os.fsync(fd)
    return digests


if __name__ == "__main__":
    sys.exit(main())
