import os

import pytest

from eagletui.agent.loop import Loop
from eagletui.agent.output import Output


@pytest.fixture
def loop():
    def fail(what: str, error: Exception) -> None:
        raise AssertionError(what) from error

    made = Loop(fail)
    yield made
    made.close()


def drain(loop: Loop, fd: int, size: int) -> bytes:
    """Run the loop until ``size`` bytes came out of the pipe."""
    got = bytearray()

    def readable() -> None:
        got.extend(os.read(fd, 65536))
        if len(got) >= size:
            loop.stop()

    loop.add_reader(fd, readable)
    loop.run()
    loop.remove_reader(fd)
    return bytes(got)


def test_urgent_frames_overtake_bodies_but_never_cut_one(loop: Loop) -> None:
    out, sink = os.pipe()
    closed: list[str] = []
    output = Output(loop, sink, closed.append)
    first, second = b"1" * 300_000, b"2" * 300_000  # the first one alone is more than a pipe holds
    output.send(first, urgent=False)
    output.send(second, urgent=False)
    output.send(b"U" * 100)
    output.send(b"V" * 100)
    got = drain(loop, out, 600_200)
    assert got == first + b"U" * 100 + b"V" * 100 + second
    assert output.queued == 0
    assert closed == []
    os.close(out)
    os.close(sink)


def test_a_reader_that_is_gone_ends_it_once(loop: Loop) -> None:
    out, sink = os.pipe()
    os.close(out)
    closed: list[str] = []
    output = Output(loop, sink, closed.append)
    output.send(b"x")
    output.send(b"y")
    assert closed == ["the connection is closed: Broken pipe"]
    os.close(sink)
