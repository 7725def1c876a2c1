"""The window of lines over a log of any size, and the tails that the watch keeps."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eagletui.agent.files import floor_of
from eagletui.hosts.base import Chunk, Doc, HostError
from eagletui.hosts.local import connect_local
from eagletui.records import JobState, LogLine
from eagletui.store import Store
from eagletui.watch.logs import BEHIND, PIECE, LogTails, LogWindow, first_error, lines_of


class Files:
    """Reads a real file as the agent does, never waiting; ``cuts`` of the reads fail as a lost link does."""

    def __init__(self, path: Path) -> None:
        self.path, self.reads = path, 0

    async def read(
        self, path: str, offset: int, limit: int = PIECE, wait: float = 0.0, identity: tuple[int, int] | None = None
    ) -> Chunk:
        assert limit <= PIECE
        self.reads += 1
        fd = os.open(path, os.O_RDONLY)
        try:
            info = os.fstat(fd)
            if identity is not None and identity != (info.st_dev, info.st_ino):
                raise HostError("read", "another file", kind="replaced")
            floor = floor_of(fd, info.st_size)
            at = max(floor, info.st_size + offset if offset < 0 else offset)
            return Chunk(os.pread(fd, limit, at), at, info.st_size, info.st_dev, info.st_ino, floor, info.st_mtime)
        finally:
            os.close(fd)


def numbered(first: int, count: int) -> bytes:
    return b"".join(b"INFO 11-29 16:19:%02d [a.py:1] line %d\n" % (n % 60, n) for n in range(first, first + count))


def numbers(window: LogWindow) -> list[int]:
    return [int(line.text.split()[1]) for line in window.lines if line.text.startswith("line ")]


def of(path: Path, kept: int = 4000) -> LogWindow:
    return LogWindow(Files(path), str(path), kept)


async def test_it_opens_at_the_end_with_one_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(numbered(0, 100_000))
    window = of(path)
    await window.open_end()
    assert numbers(window)[-1] == 99_999
    assert window.at_end
    assert window._reader.reads == 1  # type: ignore[union-attr]
    assert numbers(window) == list(range(numbers(window)[0], 100_000))


async def test_paging_back_to_the_start_and_forward_again_shows_every_line_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(numbered(0, 20_000))
    window = of(path, 1500)
    await window.open_end()
    seen = set(numbers(window))
    while await window.back():
        now = numbers(window)
        assert now == list(range(now[0], now[0] + len(now)))
        assert len(now) <= 2500
        seen |= set(now)
    assert seen == set(range(20_000))
    assert numbers(window)[0] == 0
    again = list(numbers(window))
    while await window.forward():
        now = numbers(window)
        assert now == list(range(now[0], now[0] + len(now)))
        assert now[0] <= again[-1] + 1
        again += [n for n in now if n > again[-1]]
    assert again == list(range(20_000))


LONG = b"x" * 70_000 + b"\n"


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.lists(st.sampled_from([b"a\n", b"\r", b"\n", LONG, b"(Worker_TP1 pid=3) tick\r", b"b\r\n", b"\x00\xff\n"])),
    st.sampled_from([b"", b"12%|#", b"y" * 70_000]),
    st.integers(0, 300_000),
)
@example([LONG, LONG], b"", 37_233).via("a piece read forward lies within one line: no line comes, and it is not the end")
@example([LONG, *[b"\n"] * 5, b"a\n"], b"", PIECE // 2 + 70_003).via(
    "the piece before the window holds empty lines only, and it is not the start"
)
@example([b"a\n"], b"y" * 70_000, 0).via("the unfinished line is longer than what is kept of one")
def test_any_window_of_any_bytes_agrees_with_the_whole_file(parts: list[bytes], rest: bytes, at: int) -> None:
    from tempfile import TemporaryDirectory

    async def check(path: Path) -> None:
        whole = of(path)
        await whole.open_start()
        while not whole.at_end:
            await whole.forward()
        window = of(path)
        await window.open_at(at)
        while await window.back():
            pass
        while not window.at_end:
            await window.forward()
        assert window.shown() == whole.shown()
        data = path.read_bytes()
        assert all(data[line.offset - 1 : line.offset] in (b"", b"\r", b"\n") for line in whole.shown())
        assert all(line.offset < line.end <= whole.size for line in whole.shown())

    with TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.write_bytes(b"".join(parts) + rest)
        asyncio.run(check(path))


async def test_following_adds_what_comes_and_shows_the_bar_that_has_no_end_yet(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(numbered(0, 3))
    window = of(path)
    await window.follow(0)
    bar = b"Loading safetensors checkpoint shards:  20% Completed | 13/64 [04:02<15:49, 18.6s/it]"
    with path.open("ab") as file:
        file.write(numbered(3, 2) + bar[:40])
        file.flush()
        await window.follow(0)
        assert numbers(window) == [0, 1, 2, 3, 4]
        assert window.shown()[-1].text.startswith("Loading safetensors")
        file.write(bar[40:])
        file.flush()
        await window.follow(0)
    assert len(window.shown()) == 6
    assert window.shown()[-1].progress
    assert not window.shown()[-1].noise


@pytest.mark.fault(10, how="a log that grows faster than it is read")
async def test_a_flood_is_followed_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(numbered(0, 10))
    window = of(path)
    await window.follow(0)
    with path.open("ab") as file:
        file.write(numbered(10, BEHIND // 20))
    await window.follow(0)
    before = window._reader.reads  # type: ignore[union-attr]
    await window.follow(0)
    assert window._reader.reads == before + 1  # type: ignore[union-attr]
    assert numbers(window)[-1] == 9 + BEHIND // 20
    assert numbers(window) == list(range(numbers(window)[0], numbers(window)[-1] + 1))


async def test_truncation_replacement_and_punched_holes_are_told(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(numbered(0, 10))
    window = of(path)
    await window.open_end()
    path.write_bytes(numbered(50, 2))
    await window.forward()
    assert "truncated" in window.lines[0].text
    assert window.lines[0].end == window.lines[0].offset
    assert numbers(window) == [50, 51]
    (tmp_path / "new").write_bytes(numbered(70, 2))
    (tmp_path / "new").rename(path)
    await window.forward()
    assert "replaced" in window.lines[0].text
    assert numbers(window) == [70, 71]
    with path.open("wb") as file:
        file.seek(8 * PIECE)
        file.write(b"rest of a line\n" + numbered(90, 3))
    window = of(path)
    await window.open_start()
    assert "given back" in window.lines[0].text
    assert numbers(window) == [90, 91, 92]
    assert await window.back() == 0


@pytest.fixture
async def big(tmp_path: Path) -> AsyncIterator[tuple[LogWindow, Path]]:
    """A log of 200 MB, most of it a hole's worth of zeros between real lines, read by a real agent."""
    path = tmp_path / "big.log"
    with path.open("wb") as file:
        file.write(numbered(0, 5000))
        file.write(b"Traceback (most recent call last):\nValueError: image_token_index is missing\n")
        block = b"y" * 199 + b"\n"
        file.write(block * 5000)
        file.seek(200 << 20)
        file.write(b"\n" + numbered(10_000, 5000) + b"needle\n" + numbered(15_000, 2000))
    link = await connect_local()
    try:
        yield LogWindow(link, str(path)), path
    finally:
        await link.close()


async def test_a_big_log_through_the_real_agent(big: tuple[LogWindow, Path]) -> None:
    window, _path = big
    await window.open_end()
    assert numbers(window)[-1] == 16_999
    found = await window.find("needle", -1, backward=True)
    assert found is not None
    shown = await window.show(found.at)
    assert next(line for line in window.lines if line.offset == shown).text == "needle"
    assert await window.find("needle", found.at + found.length) is None
    told: list[int] = []
    place = await window.find("image_token_index", -1, backward=True, told=told.append)
    assert place is not None
    assert told == sorted(told, reverse=True)
    assert await window.show(place.at) is not None
    assert not window.at_end
    by_text = await first_error(window, "ValueError: image_token_index is missing")
    by_look = await first_error(window, None)
    assert by_text is not None
    assert by_look is not None
    assert by_look.at < by_text.at
    assert len(window.lines) <= 4000
    await window.open_start()
    assert numbers(window)[0] == 0


def test_lines_say_what_they_are() -> None:
    assert lines_of((0, b"(EngineCore_DP0 pid=9) ", 0)) == []
    (error,) = lines_of((7, b"(EngineCore_DP0 pid=9) ERROR 11-29 16:19:18 [core.py:1] boom", 0))
    assert (error.severity, error.process, error.stamp, error.noise) == ("error", "EngineCore_DP0", "11-29 16:19:18", False)
    (chatter,) = lines_of((0, b"WARNING 11-29 16:19:18 [a.py:1] Triton is not installed. Using dummy decorators.", 0))
    assert chatter.noise
    tick = b"(Worker_TP0 pid=9) Loading shards: 1% Completed | 1/64 [00:02<01:49, 1.6s/it]"
    two = lines_of((0, tick + b"(Worker_TP1 pid=9) INFO 11-29 16:19:18 [a.py:1] x", 0))
    assert [line.process for line in two] == ["Worker_TP0", "Worker_TP1"]
    assert two[0].progress
    assert two[0].end == two[1].offset


class Waiting(Files):
    """As the agent waits: a read at the end returns when the test says so."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.grown = asyncio.Event()
        self.fail: HostError | None = None

    async def read(
        self, path: str, offset: int, limit: int = PIECE, wait: float = 0.0, identity: tuple[int, int] | None = None
    ) -> Chunk:
        if wait and offset >= os.path.getsize(path):
            self.grown.clear()
            await self.grown.wait()
        if self.fail is not None:
            error, self.fail = self.fail, None
            raise error
        return await super().read(path, offset, limit, wait, identity)

    async def search(self, path: str, pattern: str, start: int = 0, **params: object) -> Doc:
        raise NotImplementedError


def job(path: Path) -> JobState:
    return JobState("k25", "serve", "k25", "running", 1.0, log=str(path))


async def until(store: Store, true: Callable[[tuple[LogLine, ...]], bool]) -> None:
    changed = asyncio.Event()
    store.listen(lambda topic: changed.set())
    while not true(store.tails.get("k25", ())):
        changed.clear()
        await asyncio.wait_for(changed.wait(), 20)


async def test_a_tail_follows_while_it_is_looked_at_over_a_lost_link(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(numbered(0, 500))
    store, reader = Store(), Waiting(path)
    tails = LogTails(reader, store, pace=0.0, retry=0.0)
    tails.look("k25", True)
    tails.look("k25", True)
    store.jobs["k25"] = job(path)
    store.changed("jobs")
    await until(store, lambda tail: len(tail) == 200)
    reader.fail = HostError("link", "gone", retry=True)
    with path.open("ab") as file:
        file.write(numbered(500, 1))
    reader.grown.set()
    await until(store, lambda tail: tail[-1].text == "line 500")
    assert [int(line.text.split()[1]) for line in store.tails["k25"]] == list(range(301, 501))
    tails.look("k25", False)
    assert tails._tasks
    tails.look("k25", False)
    assert not tails._tasks
    await tails.stop()


async def test_a_log_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    store, reader = Store(), Waiting(tmp_path)
    reader.fail = HostError("read", "permission denied", kind="denied")
    store.jobs["k25"] = job(tmp_path)
    tails = LogTails(reader, store, pace=0.0, retry=60.0)
    tails.look("k25", True)
    await until(store, lambda tail: len(tail) == 1)
    assert "permission denied" in store.tails["k25"][0].text
    await tails.stop()
