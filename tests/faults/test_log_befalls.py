"""What befalls a log: moved, truncated, written anew, deleted, replaced, while it is written and while it is looked at."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from eagletui.agent.log_tail import LogTail
from eagletui.commands import Desk, open_desk
from eagletui.commands.follow import from_there_on, last_lines
from eagletui.commands.logs import log_of
from eagletui.hosts.target import parse_target
from eagletui.records import LogLine
from eagletui.watch.logs import LogWindow
from tests.agent.jobs_harness import Jobs, until

# writes what it is told, by a pipe of its own, into the log that is its stdout
OBEY = "import os, sys\nwhile data := os.read(0, 65536): os.write(1, data)"


def lines(first: int, count: int) -> bytes:
    return b"".join(b"line %06d of the log\n" % n for n in range(first, first + count))


# ----------------------------------------------------------------------------------------------- as its supervisor sees it


@pytest.fixture
def tail(tmp_path: Path) -> Any:
    path = tmp_path / "log"
    path.touch()
    got, told = bytearray(), []
    made = LogTail(str(path), got.extend, told=told.append)
    yield made, path, got, told
    made.close()


def read_all(tail: LogTail) -> None:
    while tail.poll():
        pass


@pytest.mark.fault(21, how="the supervisor's file is truncated, and truncated and grown past its place between two looks")
@pytest.mark.parametrize("grown", [10, 5000])
def test_the_supervisor_reads_a_log_that_was_written_anew_once(grown: int, tail: Any) -> None:
    made, path, got, told = tail
    with path.open("ab", buffering=0) as out:
        out.write(lines(0, 1000) + b"no end")
        read_all(made)
        os.truncate(path, 0)
        out.write(lines(1000, grown))
        read_all(made)
        out.write(lines(1000 + grown, 1))
        read_all(made)
    assert bytes(got) == lines(0, 1000) + b"no end\n" + lines(1000, grown + 1)
    assert len(told) == 1
    assert "truncated" in told[0]
    assert made.offset == path.stat().st_size


@pytest.mark.fault(21, how="the log of a running job is moved, deleted, and replaced by another file")
def test_a_log_that_is_moved_or_deleted_is_told_and_still_read(tail: Any) -> None:
    made, path, got, told = tail
    with path.open("ab", buffering=0) as out:
        out.write(lines(0, 10))
        read_all(made)
        assert (made.place(), made.trouble) == (str(path), None)
        path.rename(path.with_name("log.1"))
        assert made.place() == str(path) + ".1"
        assert made.trouble == f"log: it was moved to {path}.1, and the job goes on writing there"
        path.write_bytes(b"another file\n")
        assert made.place() == str(path) + ".1"
        out.write(lines(10, 10))
        read_all(made)
        path.with_name("log.1").unlink()
        assert made.place() == f"/proc/{os.getpid()}/fd/{made.fd}"
        assert made.trouble is not None
        assert "was deleted" in made.trouble
        out.write(lines(20, 10))
        read_all(made)
        assert Path(made.place()).read_bytes() == lines(0, 30)
    assert bytes(got) == lines(0, 30)
    assert not told


# --------------------------------------------------------------------------------------------------- as it is looked at


@pytest.fixture
async def desk(jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    for name in ("config", "state", "cache"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path / name))
    opened = await open_desk(parse_target("local"), None, {}, ("jobs",))
    yield opened
    await opened.close()


class Writing:
    """A job that is fed by the test: what it is given it writes to its log."""

    def __init__(self, jobs: Jobs, desk: Desk, tmp_path: Path) -> None:
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        self.spec = jobs.spec("bash", "-c", f'exec python3 -I -S -c "{OBEY}" < {fifo}')
        self.id, self._jobs, self._desk = str(self.spec["id"]), jobs, desk
        jobs.launch(self.spec)
        self._pipe = fifo.open("wb", buffering=0)
        self.log = jobs.root / "jobs" / self.id / "log"
        self.size = 0

    def write(self, data: bytes, path: Path | None = None, wait: bool = True) -> None:
        """``wait`` until it lies in its file."""
        path = path or self.log
        wanted = path.stat().st_size + len(data)
        self._pipe.write(data)
        if wait:
            until(lambda: path.stat().st_size >= wanted)

    def end(self) -> None:
        self._pipe.close()

    async def known(self, true: Callable[[Any], bool] = lambda job: True) -> Any:
        """The job as the desk knows it, once ``true`` of it."""
        async with asyncio.timeout(60):
            while (job := self._desk.store.jobs.get(self.id)) is None or not true(job):
                await self._desk.watch.sample("jobs", self._desk.watch.count("jobs") + 1)
        return job


@pytest.fixture
def writing(jobs: Jobs, desk: Desk, tmp_path: Path) -> Writing:
    return Writing(jobs, desk, tmp_path)


def numbers(shown: list[LogLine]) -> list[int]:
    return [int(line.text.split()[1]) for line in shown if line.text.startswith("line ")]


def notes(window: LogWindow) -> list[str]:
    return [line.text for line in window.lines if line.end == line.offset]


@pytest.mark.fault(21, how="a window over the log by the real agent: copy and truncate, grown past its end, replaced, deleted")
async def test_a_window_over_a_log_that_is_cut_and_replaced_shows_no_line_twice(
    desk: Desk, writing: Writing, tmp_path: Path
) -> None:
    await writing.known()
    writing.write(lines(0, 100))
    window = log_of(desk, writing.id)
    await window.open_end()
    assert numbers(window.shown()) == list(range(100))
    shutil.copy(writing.log, tmp_path / "copy")
    os.truncate(writing.log, 0)
    writing.write(lines(100, 10))
    await window.follow(10)
    assert numbers(window.shown()) == list(range(100, 110))
    assert notes(window) == ["the log was truncated; it begins anew"]
    # shrunk, then grown past the place up to which it was read
    os.truncate(writing.log, 0)
    writing.write(lines(200, 500))
    while not window.at_end or not numbers(window.shown()) or numbers(window.shown())[-1] != 699:
        await window.follow(10)
    assert numbers(window.shown()) == list(range(200, 700))
    assert notes(window) == ["the log was truncated and written anew; this is its start"]
    # another file under its name, as a rotation by rename leaves it
    moved = writing.log.with_name("log.old")
    writing.log.rename(moved)
    writing.log.write_bytes(b"")
    job = await writing.known(lambda job: job.log == str(moved))
    assert any("was moved to" in text for text in job.troubles)
    window.go_on_at(job.log)
    writing.write(lines(700, 5), moved)
    await window.follow(10)
    assert numbers(window.shown()) == list(range(200, 705))
    moved.unlink()
    job = await writing.known(lambda job: str(job.log).startswith("/proc/"))
    window.go_on_at(job.log)
    writing.write(lines(705, 5), Path(job.log))
    await window.follow(10)
    assert numbers(window.shown()) == list(range(200, 710))
    writing.end()
    over = await writing.known(lambda job: job.state == "exited" and not job.members)
    assert over.log is None
    assert over.rc == 0


@pytest.mark.fault(21, how="`logs -f` while the log is truncated, grown past its place, moved and replaced")
async def test_what_is_followed_goes_on_through_all_of_it(desk: Desk, writing: Writing) -> None:
    job = await writing.known()
    writing.write(lines(0, 50))
    data, last = await last_lines(desk, job, 1000)
    got = bytearray(data)
    following = from_there_on(desk, job, last)

    async def up_to(end: bytes) -> None:
        async with asyncio.timeout(60):
            while not got.endswith(end):
                got.extend(await anext(following))

    os.truncate(writing.log, 0)
    writing.write(lines(50, 10))
    await up_to(lines(59, 1))
    os.truncate(writing.log, 0)
    writing.write(lines(60, 40))
    await up_to(lines(99, 1))
    moved = writing.log.with_name("log.old")
    writing.log.rename(moved)
    writing.log.write_bytes(b"")
    writing.write(lines(100, 10), moved)
    await up_to(lines(109, 1))
    writing.write(lines(110, 1), moved)
    writing.end()
    async with asyncio.timeout(60):
        async for piece in following:
            got.extend(piece)
    own = [line for line in bytes(got).splitlines(True) if line.startswith(b"line ")]
    assert b"".join(own) == lines(0, 111)
    said = [line for line in bytes(got).splitlines() if line.startswith(b"...")]
    assert said == [
        b"... the log was truncated; it begins anew ...",
        b"... the log was truncated and written anew; this is its start ...",
    ]
