"""The counts that an engine's processes keep in a temporary directory: they go with the job, and nobody else's do."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagletui.agent import leftovers
from tests.agent.jobs_harness import until

MAPS = """
import mmap, os, sys, time
kept = []
for path in sys.argv[1:]:
    with open(path, "w+b") as file:
        file.truncate(4096)
        kept.append(mmap.mmap(file.fileno(), 4096))
open(sys.argv[1] + ".there", "w").close()
time.sleep(600)
"""


@pytest.fixture
def counts() -> Iterator[Path]:
    """A directory as Python's tempfile makes it, in /tmp."""
    path = Path(tempfile.mkdtemp(dir="/tmp"))
    yield path
    for entry in path.iterdir() if path.exists() else ():
        entry.unlink()
    if path.exists():
        path.rmdir()


def use(*paths: Path) -> subprocess.Popen[bytes]:
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", MAPS, *map(str, paths)])
    mark = Path(f"{paths[0]}.there")
    until(mark.exists)
    mark.unlink()
    return child


def end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()


def test_they_are_known_offered_and_removed_with_their_directory(counts: Path) -> None:
    paths = [counts / f"{name}_42.db" for name in ("counter", "histogram", "gauge_liveall")]
    child = use(*paths)
    known = leftovers.note([child.pid])
    assert set(map(str, paths)) <= set(known)
    assert {str(path) for path in paths} <= {left.path for left in leftovers.find([child.pid], os.geteuid(), 0.0)}
    files = dict.fromkeys(map(str, paths), leftovers.USED)
    assert set(leftovers.remove(files, os.geteuid()).values()) == {"in use by another process"}
    end(child)
    found = [left for left in leftovers.find([], os.geteuid(), 0.0, known) if left.path in files]
    assert {left.why for left in found} == {leftovers.USED}
    assert set(leftovers.remove({left.path: left.why for left in found}, os.geteuid()).values()) == {""}
    assert not counts.exists()


def test_another_servers_counts_and_other_files_stay(counts: Path) -> None:
    mine, theirs, note = counts / "counter_1.db", counts / "counter_2.db", counts / "notes.db"
    child, other = use(mine, note), use(theirs)
    try:
        known = leftovers.note([child.pid])
        assert str(note) not in known, "any file may lie there"
        end(child)
        found = {left.path for left in leftovers.find([], os.geteuid(), 0.0, known)}
        assert str(mine) in found
        assert str(theirs) not in found
        leftovers.remove({str(mine): leftovers.USED, str(theirs): leftovers.USED}, os.geteuid())
        assert not mine.exists()
        assert theirs.exists()
        assert note.exists()
    finally:
        end(other)


def test_a_file_of_the_same_name_made_later_is_not_the_jobs(counts: Path) -> None:
    path = counts / "counter_7.db"
    end(use(path))
    number = path.stat()
    keep = counts / "keep"
    path.rename(keep)  # so that its number is not given out again
    path.write_text("another's")
    known = {str(path): (number.st_dev, number.st_ino)}
    assert str(path) not in {left.path for left in leftovers.find([], os.geteuid(), 0.0, known)}
