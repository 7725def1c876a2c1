"""What a job may write: lines without end, bars, bytes that are no text; and logs of five gigabytes."""

from __future__ import annotations

import asyncio
import resource
import sys
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eagletui.agent import procfs
from eagletui.commands import Desk, open_desk
from eagletui.commands.follow import last_lines
from eagletui.commands.logs import log_of
from eagletui.hosts.target import parse_target
from eagletui.records import JobState
from eagletui.text import clean
from eagletui.watch.logs import LogWindow
from tests.agent.jobs_harness import Jobs
from tests.faults.seeds import seeded

GIB = 1 << 30
MIB = 1 << 20
NEEDLE = 5 * GIB - 512 * MIB


@pytest.fixture
async def desk(jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    for name in ("config", "state", "cache"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path / name))
    opened = await open_desk(parse_target("local"), None, {}, ("jobs",))
    yield opened
    await opened.close()


async def run(jobs: Jobs, desk: Desk, code: str) -> str:
    """A job that writes what ``code`` says, to its end; its id. An engine's grammar reads it too."""
    spec = jobs.spec(sys.executable, "-c", code, engine="vllm")
    job = str(spec["id"])
    jobs.launched.append(job)
    state = await desk.session.request("launch", spec=spec)
    status = procfs.status(state["shim_pid"])
    over = await asyncio.to_thread(jobs.over, job, 60)
    assert over["rc"] == 0
    assert (jobs.root / "jobs" / job / "shim.log").read_text() == ""
    if "VmHWM" in status:
        assert int(status["VmHWM"].split()[0]) < 60_000
    return job


async def opened(desk: Desk, job: str) -> LogWindow:
    async with asyncio.timeout(60):
        while job not in desk.store.jobs:
            await desk.watch.sample("jobs", desk.watch.count("jobs") + 1)
    window = log_of(desk, job)
    await window.open_end()
    return window


@pytest.mark.fault(22, how="a job that writes a line of 20 MB, then one, then 3 MB without a line end")
async def test_lines_without_end(jobs: Jobs, desk: Desk) -> None:
    code = (
        "import os\n"
        "for _ in range(160): os.write(1, b'x' * 131072)\n"
        "os.write(1, b'\\na line\\n')\n"
        "for _ in range(24): os.write(1, b'y' * 131072)\n"
    )
    window = await opened(desk, await run(jobs, desk, code))
    tracemalloc.start()
    try:
        for _ in range(8):  # over the 3 MB, the line, and some way into the 20 MB
            await window.back()
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    shown = window.shown()
    assert most < 64 * MIB
    assert max(len(line.text) for line in shown) < 2 * MIB
    assert [line.text for line in shown if "line" in line.text] == ["a line"]
    assert max(line.cut + len(line.text) for line in shown) > 100_000


@pytest.mark.fault(22, how="a job that only ever draws bars, 40,000 carriage returns and no line end")
async def test_bars_for_ever_are_one_line_that_moves(jobs: Jobs, desk: Desk) -> None:
    code = (
        "import os\n"
        "for n in range(40000): os.write(1, b'\\rLoading:  %3d%%|###   | %d/40000 [00:10<00:20,  1.2it/s]' % (n // 400, n))\n"
    )
    window = await opened(desk, await run(jobs, desk, code))
    shown = window.shown()
    assert "39999/40000" in shown[-1].text
    assert len(window.pending) <= 2
    assert len(shown) < 5000


BYTES = {
    "invalid UTF-8": b"\xff\xfe\x80 bad \xc3\x28 bytes",
    "NUL": b"a\0b\0\0 zeros",
    "UTF-16": "ein Wort in UTF-16, Größe".encode("utf-16"),
    "escape": b"\x1b]52;c;aGFjaw==\x07\x1b[31mred\x1b[0m \x9b31m",
    "split": "日本語テキスト ✓ ".encode() * 40,
}


@pytest.mark.fault(23, how="a job that writes bad UTF-8, NUL, UTF-16, escapes, and code points split at every byte")
async def test_bytes_that_are_no_text_are_shown_as_marks_and_the_link_stays(jobs: Jobs, desk: Desk) -> None:
    rng = seeded("cuts of code points")
    writes = []
    for data in BYTES.values():
        at = sorted(rng.sample(range(1, len(data)), min(len(data) - 1, 9)))
        writes += [data[a:b] for a, b in zip([0, *at], [*at, len(data)], strict=True)] + [b"\n"]
    code = f"import os, time\nfor part in {writes!r}:\n    os.write(1, part)\n    time.sleep(0.002)\nos.write(1, b'the end\\n')"
    job = await run(jobs, desk, code)
    window = await opened(desk, job)
    shown = [clean(line.text) for line in window.shown()]
    assert shown[-1] == "the end"
    assert any("日本語テキスト ✓ 日本語" in text for text in shown)
    assert any("bad" in text and "�" in text for text in shown)
    assert any("zeros" in text for text in shown)
    assert not [c for text in shown for c in text if ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0]
    assert desk.store.connection.state == "online"
    assert (jobs.root / "jobs" / job / "log").read_bytes() == b"".join(writes) + b"the end\n"


# ----------------------------------------------------------------------------------------------------------- five gigabytes


@pytest.fixture
def big(tmp_path: Path) -> Path:
    """A log of 5 GiB: its first blocks were given back, then lines far apart, then a real tail."""
    path = tmp_path / "big.log"
    with path.open("wb") as out:
        out.truncate(5 * GIB - 4 * MIB)
        out.seek(NEEDLE)
        out.write(b"\nthe needle lies here\n")
        out.seek(5 * GIB - 4 * MIB)
        out.write(b"\n")
        number = 0
        while out.tell() < 5 * GIB:
            out.write(b"line %08d of the tail, as engines write them\n" % number)
            number += 1
    return path


def put_in_table(desk: Desk, path: Path) -> JobState:
    job = JobState("big", "command", "big", "exited", 1.0, log=str(path), log_size=path.stat().st_size)
    desk.store.jobs["big"] = job
    return job


@pytest.mark.fault(22, how="a sparse log of 5 GiB with a real tail: opened, paged, searched, given up")
async def test_five_gigabytes_open_at_their_end_and_are_searched_in_place(desk: Desk, big: Path) -> None:
    put_in_table(desk, big)
    window = log_of(desk, "big")
    received = desk.store.connection.received or 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.start()
    try:
        await window.open_end()
        assert window.at_end
        assert window.shown()[-1].text.startswith("line ")
        assert window.size > 5 * GIB - MIB
        # looked for over half a gigabyte: what crosses the wire is where it has come to
        steps: list[int] = []
        found = await window.find("the needle", 5 * GIB - 4 * MIB, backward=True, told=steps.append)
        assert found is not None
        assert NEEDLE <= found.at < NEEDLE + 100
        assert len(steps) > 3
        assert steps == sorted(steps, reverse=True)
        assert await window.show(found.at) is not None
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 48 * MIB
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024
    assert (desk.session.state.received or 0) - received < 4 * MIB


@pytest.mark.fault(22, how="a search through 5 GiB that is given up half way")
async def test_a_search_that_is_given_up_stops_on_the_host_too(desk: Desk, big: Path) -> None:
    put_in_table(desk, big)
    window = log_of(desk, "big")
    await window.open_end()
    begun = asyncio.Event()
    search = asyncio.ensure_future(window.find("there is no such text", 0, told=lambda at: begun.set()))
    await asyncio.wait_for(begun.wait(), 60)
    search.cancel()
    with pytest.raises(asyncio.CancelledError):
        await search
    # the agent's workers are free again: the next request is answered, and no thread of it goes on
    assert (await desk.session.read(str(big), -100, 100)).data.endswith(b"them\n")
    found = await asyncio.wait_for(window.find("line 0000001", 5 * GIB - 4 * MIB), 60)
    assert found is not None


@pytest.mark.fault(22, how="`eagletui logs` of a log of 5 GiB")
async def test_the_last_lines_of_five_gigabytes(desk: Desk, big: Path) -> None:
    job = put_in_table(desk, big)
    tracemalloc.start()
    try:
        data, last = await last_lines(desk, job, 50)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(data.splitlines()) == 50
    assert last.offset + len(last.data) == big.stat().st_size
    assert most < 8 * MIB
