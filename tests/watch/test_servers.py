"""Recorded scrapes into windows and charts: exact, in order, over a rotation, an interrupted connection and bad lines."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagletui.agent.job_lines import Lines
from eagletui.hosts.base import Chunk, HostError
from eagletui.records import HostInfo, JobState, ServerSample, to_doc
from eagletui.store import Store
from eagletui.watch.follow import LineFile, whole_lines
from eagletui.watch.servers import Servers
from eagletui.watch.windows import Scrapes, window


def scrape(at: float, generated: float = 0, steps: float = 0, accepted: float = 0, *, k: int = 3, **more: object) -> ServerSample:
    sample = ServerSample(
        at,
        1e9 + at,
        running=1.0,
        waiting=0.0,
        generated_tokens=generated,
        prompt_tokens=0,
        verify_steps=steps,
        drafted=steps * k,
        accepted=accepted,
        acceptance_from="counters",
    )
    return sample._replace(**more)  # type: ignore[arg-type]


class FileReader:
    """`read` as the agent answers it, from a file here. ``down`` makes the next reads fail as a cut connection does."""

    def __init__(self) -> None:
        self.down = 0
        self.limit = 65536
        self.changed = asyncio.Event()

    async def read(
        self, path: str, offset: int, limit: int = 65536, wait: float = 0.0, identity: tuple[int, int] | None = None
    ) -> Chunk:
        await asyncio.sleep(0)
        if self.down:
            self.down -= 1
            raise HostError("connection", "cut", kind="closed", retry=True)
        if not Path(path).exists():
            raise HostError("read", "no such file", kind="absent")
        info = os.stat(path)
        if identity is not None and identity != (info.st_dev, info.st_ino):
            raise HostError("read", "replaced", kind="replaced")
        data = Path(path).read_bytes()
        start = max(0, len(data) + offset) if offset < 0 else offset
        piece = data[start : start + min(limit, self.limit)]
        if not piece and wait:
            self.changed.clear()
            await self.changed.wait()
            return await self.read(path, offset, limit, 0.0, identity)
        return Chunk(piece, start, len(data), info.st_dev, info.st_ino)


@given(st.lists(st.binary(max_size=20).filter(lambda b: b"\n" not in b), max_size=8), st.data())
def test_lines_are_the_same_in_any_pieces(lines: list[bytes], data: st.DataObject) -> None:
    blob = b"".join(line + b"\n" for line in lines)
    cut = data.draw(st.integers(0, len(blob)))
    values, rest, bad = whole_lines(blob[:cut])
    more, end, worse = whole_lines(rest + blob[cut:])
    whole, nothing, all_bad = whole_lines(blob)
    assert repr(values + more) == repr(whole)  # repr: NaN is a JSON value to the parser and differs from itself
    assert (end, nothing) == (b"", b"")
    assert bad + worse == all_bad


def test_a_window_is_bounded_by_two_scrapes_and_says_their_true_distance() -> None:
    scrapes = Scrapes()
    for i in range(400):
        scrapes.add(scrape(i * 2.1, generated=i * 100, steps=i * 10, accepted=i * 3))
    view = scrapes.view("job")
    assert view is not None
    ten, minute, long, everything = view.windows
    assert [w.label for w in view.windows] == ["10 s", "1 m", "10 m", "all"]
    assert ten.seconds == pytest.approx(10.5)  # the newest scrape that is at least 10 - 1 s old
    assert ten.generated_per_s == 100 * 5 / ten.seconds
    assert minute.seconds == pytest.approx(60.9, abs=1.1)
    assert long.seconds == pytest.approx(600, abs=2.1)
    assert everything.seconds == pytest.approx(399 * 2.1)
    assert everything.acceptance is not None
    assert everything.acceptance.rate == 3 / 30
    assert everything.acceptance.length == 1 + 3 / 10
    assert not any(w.partial for w in view.windows)


def test_a_window_that_does_not_reach_back_far_enough_says_so() -> None:
    scrapes = Scrapes()
    scrapes.add(scrape(0.0))
    assert scrapes.view("job") is not None
    assert scrapes.view("job").windows == ()  # type: ignore[union-attr]  # one scrape bounds nothing
    scrapes.add(scrape(4.0, generated=8))
    ten = scrapes.view("job").window("10 s")  # type: ignore[union-attr]
    assert ten is not None
    assert ten.partial
    assert ten.seconds == 4.0
    assert ten.generated_per_s == 2.0


def test_an_idle_window_has_no_acceptance_and_a_plain_server_none_at_all() -> None:
    idle = window("10 s", scrape(0, 5, 5, 5), scrape(10, 5, 5, 5))
    assert idle.acceptance is not None
    assert idle.acceptance.rate is None
    assert idle.acceptance.length is None
    assert idle.generated_per_s == 0
    bare = {"verify_steps": None, "drafted": None, "accepted": None, "acceptance_from": None}
    assert window("10 s", scrape(0, **bare), scrape(10, **bare)).acceptance is None


def test_a_restart_inside_the_window_gives_no_rate() -> None:
    w = window("10 s", scrape(0, 500, 50, 20), scrape(10, 100, 10, 4))
    assert w.restarted
    assert w.generated_per_s is None
    assert w.acceptance is not None
    assert w.acceptance.restarted
    assert w.acceptance.rate is None


def test_scrapes_out_of_order_are_dropped() -> None:
    scrapes = Scrapes()
    scrapes.add(scrape(10.0))
    assert scrapes.add(scrape(10.0)) is None
    assert scrapes.add(scrape(4.0)) is None
    assert scrapes.newest is not None
    assert scrapes.newest.boot == 10.0


async def test_tail_past_and_follow_give_every_line_once(tmp_path: Path) -> None:
    path = str(tmp_path / "samples.jsonl")
    lines = Lines(path, cap=1 << 20)
    for i in range(500):
        lines.append({"n": i})
    reader = FileReader()
    reader.limit = 100
    file = LineFile(reader, path)
    tail = await file.tail(700)
    assert [v["n"] for v in tail] == list(range(tail[0]["n"], 500))
    past = [v["n"] async for values in file.past() for v in values]
    assert past == list(range(tail[0]["n"]))
    lines.append({"n": 500})
    assert [v["n"] for v in await file.follow(0)] == [500]
    assert await file.follow(0) == []


async def test_follow_goes_over_a_rotation(tmp_path: Path) -> None:
    path = str(tmp_path / "samples.jsonl")
    lines = Lines(path, cap=400, keep_one_in=1)
    lines.append({"n": 0})
    file = LineFile(FileReader(), path)
    assert [v["n"] for v in await file.tail(1000)] == [0]
    for i in range(1, 60):  # rotates once; some of these were never read from the first file
        lines.append({"n": i})
    seen: list[int] = [0]
    for _ in range(4):
        seen += [v["n"] for v in await file.follow(0) if v["n"] > seen[-1]]
    assert seen == sorted(set(seen))
    assert seen[-1] == 59


async def test_a_server_is_followed_into_the_store(tmp_path: Path) -> None:
    folder = tmp_path / "jobs" / "j1"
    folder.mkdir(parents=True)
    lines = Lines(str(folder / "samples.jsonl"), cap=1 << 20)
    for i in range(30):
        lines.append(to_doc(scrape(i * 2.0, generated=i * 60, steps=i * 20, accepted=i * 10)))
    store = Store()
    store.info = HostInfo("h", "boot", "root", 0, "3.11", 1, 60.0, 1e9, state_dir=str(tmp_path))
    job = JobState("j1", "serve", "lab", "running", 0.0, ready_seconds=9.0, health="ready")
    store.jobs = {"j1": job}
    reader = FileReader()
    reader.down = 2  # the connection is not there yet: tried again, nothing lost
    servers = Servers(reader, store, retry=0.0)
    seen = asyncio.Event()
    store.listen(lambda topic: seen.set() if topic == "servers" else None)
    servers.update([job], 60.0)

    async def until(newest: float) -> None:
        while not (view := store.servers.get("j1")) or view.boot < newest or ("server", "j1", "generated") not in store.series:
            seen.clear()
            await asyncio.wait_for(seen.wait(), 10)

    await until(58.0)
    view = store.servers["j1"]
    assert view.window("10 s").generated_per_s == 30.0  # type: ignore[union-attr]
    assert view.window("all").acceptance.per_position == ()  # type: ignore[union-attr]
    times, values = store.series["server", "j1", "generated"].window()
    assert list(times) == [i * 2.0 for i in range(1, 30)]
    assert set(values) == {30.0}

    reader.down = 1
    with open(folder / "samples.jsonl", "ab") as file:
        file.write(b'{"half": \n')
    lines.append(to_doc(scrape(60.0, generated=1800 + 240, steps=600, accepted=300)))
    reader.changed.set()
    await until(60.0)
    assert store.servers["j1"].problem == "1 recorded samples could not be read"
    assert store.series["server", "j1", "generated"].last() == (60.0, (2040 - 29 * 60) / 2)
    await servers.stop()


async def test_a_job_that_is_removed_takes_its_numbers_along(tmp_path: Path) -> None:
    store = Store()
    store.info = HostInfo("h", "boot", "root", 0, "3.11", 1, 60.0, 1e9, state_dir=str(tmp_path))
    job = JobState("j1", "serve", "lab", "running", 0.0, ready_seconds=9.0)
    servers = Servers(FileReader(), store, retry=0.0)
    servers.update([job], 1.0)
    store.track(("server", "j1", "kv"), 1.0, 0.5)
    servers.update([], 2.0)
    assert store.series == {}
    await servers.stop()
