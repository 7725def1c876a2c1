"""A log that an agent gathers is followed on over a lost connection: at its place, or with the gap told."""

from __future__ import annotations

from typing import Any

import pytest

from eagletui.hosts.base import Chunk, HostError
from eagletui.watch import regathered
from eagletui.watch.logs import PIECE, LogWindow

PATH = "/proc/self/fd/300"


class Agents:
    """The memory of one agent after the other: ``data`` from ``floor`` on is there, under a number that each has anew."""

    def __init__(self, data: bytes) -> None:
        self.data, self.floor, self.inode = data, 0, 1
        self.there = True
        self.later: list[bytes] = []

    def another(self, data: bytes, floor: int = 0) -> None:
        self.data, self.floor, self.inode = data, floor, self.inode + 1

    async def read(
        self, path: str, offset: int, limit: int = PIECE, wait: float = 0.0, identity: tuple[int, int] | None = None
    ) -> Chunk:
        if self.later:  # it goes on gathering
            self.data += self.later.pop(0)
        if not self.there:
            self.there = True
            raise HostError("read", "no such file", kind="absent")
        if identity is not None and identity != (1, self.inode):
            raise HostError("read", "another file", kind="replaced")
        size = len(self.data)
        at = max(self.floor, size + offset if offset < 0 else offset)
        before = getattr(identity, "before", b"")
        if before and at - len(before) >= self.floor and at <= size and self.data[at - len(before) : at] != before:
            raise HostError("read", "written anew", kind="replaced")
        return Chunk(self.data[at : at + limit], at, size, 1, self.inode, self.floor, 1.0)

    async def search(self, path: str, pattern: str, start: int = 0, **params: Any) -> dict[str, Any]:
        assert (start, params["backward"]) == (-1, True)
        at = self.data.rfind(pattern.encode(), self.floor)
        found = [] if at < 0 else [{"offset": at, "at": at, "length": len(pattern), "line": pattern}]
        return {"matches": found, "next": 0, "done": True, "scanned": len(self.data)}


def lines(first: int, count: int) -> bytes:
    return b"".join(b"INFO 11-29 16:19:%02d [a.py:1] line %d\n" % (n % 60, n) for n in range(first, first + count))


def numbers(window: LogWindow) -> list[int]:
    return [int(line.text.split()[-1]) for line in window.shown() if line.text.startswith("line ")]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regathered, "PAUSE", 0.0)


async def opened(agents: Agents) -> LogWindow:
    window = LogWindow(agents, PATH)
    await window.follow(0.0)
    return window


async def test_the_same_bytes_at_the_same_place_are_read_on() -> None:
    agents = Agents(lines(0, 50))
    window = await opened(agents)
    shown = window.lines[0]
    agents.another(lines(0, 60))
    await window.follow(0.0)
    assert numbers(window) == list(range(60))
    assert window.lines[0] is shown, "nothing was read twice"


async def test_it_waits_until_as_much_has_been_gathered_as_before() -> None:
    agents = Agents(lines(0, 50))
    window = await opened(agents)
    agents.another(b"")
    agents.there = False
    agents.later = [lines(0, 20), lines(20, 20), lines(40, 15)]
    await window.follow(0.0)
    await window.follow(0.0)
    assert numbers(window) == list(range(55))


async def test_what_stands_elsewhere_now_is_found_again() -> None:
    agents = Agents(lines(0, 50))
    window = await opened(agents)
    agents.another(b"eagletui: lines are left out here\n" + lines(30, 25))
    await window.follow(0.0)  # it finds its place
    await window.follow(0.0)
    assert numbers(window) == list(range(30, 55))
    for line in window.lines:
        if line.offset >= 0 and line.end > line.offset:
            assert agents.data[line.offset : line.end].rstrip().endswith(line.text.encode())
    assert await window.back() >= 0
    assert numbers(window) == sorted(numbers(window))


async def test_an_unfinished_line_goes_on_where_it_stands_now() -> None:
    agents = Agents(lines(0, 50) + b"half of it is")
    window = await opened(agents)
    agents.another(b"eagletui: x\n" + lines(0, 50) + b"half of it is here\n")
    await window.follow(0.0)
    await window.follow(0.0)
    assert window.shown()[-1].text == "half of it is here"
    assert numbers(window) == list(range(50))


async def test_a_gap_is_told_and_the_end_is_shown() -> None:
    agents = Agents(lines(0, 50))
    window = await opened(agents)
    agents.another(lines(900, 100))
    await window.follow(0.0)
    assert "lines are missing before this" in window.lines[0].text
    assert numbers(window) == list(range(900, 1000))
    agents.data += lines(1000, 1)
    await window.follow(0.0)
    assert numbers(window)[-1] == 1000


async def test_a_shorter_log_is_taken_as_it_is_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    agents = Agents(lines(0, 50))
    window = await opened(agents)
    agents.another(lines(900, 3))

    async def impatient(reader: Any, path: str, offset: int, before: bytes) -> regathered.Place:
        return await regathered.find_place(reader, path, offset, before, patience=0.0)

    monkeypatch.setattr("eagletui.watch.logs.find_place", impatient)
    await window.follow(0.0)
    assert numbers(window) == [900, 901, 902]


async def test_a_connection_that_is_lost_meanwhile_is_the_callers_to_retry() -> None:
    agents = Agents(lines(0, 50))
    window = await opened(agents)
    agents.another(lines(0, 60))

    class Down(Agents):
        async def read(self, *args: Any, **options: Any) -> Chunk:
            raise HostError("connection", "lost", kind="closed", retry=True)

    window._reader = Down(b"")
    with pytest.raises(HostError):
        await window.follow(0.0)
    window._reader = agents
    await window.follow(0.0)
    assert numbers(window) == list(range(60))
