"""Search in files: against a plain reading of the same file, then through a real agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eagletui.agent import frames, search

from .process import Agent


def hunt(path: Path, pattern: str, start: int | None = None, end: int | None = None, **params: Any) -> list[dict[str, Any]]:
    """All matches, following ``next`` until it is done."""
    backward, limit = params.get("backward", False), params.get("limit", 200)
    find = search._finder(pattern.encode(), params.get("regex", False), params.get("ignore_case", False))
    at = (-1 if backward else 0) if start is None else start
    out: list[dict[str, Any]] = []
    for _ in range(10_000):
        one = search._Hunt(str(path), find, at, end, limit)
        answer = one.backward() if backward else one.forward()
        out += answer["matches"]
        if answer["done"]:
            return out
        assert answer["next"] != at, "it does not get on"
        at = answer["next"]
    raise AssertionError("it does not end")


def plain(data: bytes, pattern: bytes, ignore_case: bool) -> list[int]:
    """The offsets of the lines that hold the pattern."""
    out, at = [], 0
    for line in data.split(b"\n"):
        if (pattern.lower() in line.lower()) if ignore_case else (pattern in line):
            out.append(at)
        at += len(line) + 1
    return out


TEXT = st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\n", b"x")) | st.sampled_from([b"error", b"xerrorx error", b""]))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TEXT, st.booleans(), st.booleans(), st.booleans(), st.integers(1, 5), st.sampled_from([16, 64, 1024]))
def test_the_same_lines_as_a_plain_reading(
    tmp_path: Path, lines: list[bytes], backward: bool, regex: bool, ignore_case: bool, limit: int, block: int
) -> None:
    data = b"\n".join(lines)
    (tmp_path / "log").write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "BLOCK", block)
        patch.setattr(search, "OVERLAP", 8)
        found = hunt(tmp_path / "log", "error", backward=backward, regex=regex, ignore_case=ignore_case, limit=limit)
    offsets = [m["offset"] for m in found]
    expected = plain(data, b"error", ignore_case)
    if backward:
        expected.reverse()
    if block > max(map(len, lines), default=0):
        assert offsets == expected
    # a line longer than a block may be given more than once, for several matches in it; but no line is missed, none is wrong
    assert {data.rfind(b"\n", 0, m["at"]) + 1 for m in found} == set(expected)
    for match in found:
        assert data[match["at"] : match["at"] + match["length"]].lower() == b"error"


def test_lines_are_capped_around_the_match_and_invalid_text_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"first\n" + b"a" * 100_000 + b"NEEDLE\xff\xfe" + b"b" * 100_000 + b"\r\nlast NEEDLE")
    long, last = hunt(file, "NEEDLE")
    assert (long["offset"], long["at"]) == (6, 100_006)
    assert len(long["line"]) <= search.MAX_LINE
    assert "NEEDLE\ufffd\ufffdbbb" in long["line"]
    assert last["line"] == "last NEEDLE"


def test_a_line_longer_than_many_blocks_is_searched_through(tmp_path: Path) -> None:
    file = tmp_path / "log"
    size = 5 * search.BLOCK
    data = bytearray(b"." * size)
    places = [0, search.BLOCK - 3, 2 * search.BLOCK + 5, size - 6]
    for at in places:
        data[at : at + 6] = b"NEEDLE"
    file.write_bytes(data)
    assert [m["at"] for m in hunt(file, "NEEDLE")] == places
    assert {m["offset"] for m in hunt(file, "NEEDLE")} == {0}
    assert sorted(m["at"] for m in hunt(file, "NEEDLE", backward=True))[-1] >= places[-2]
    assert len(hunt(file, "NEEDLE", backward=True)) >= 3


def test_bounds_and_anchors(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"x one\none x\ntwo\none\n")
    assert [m["offset"] for m in hunt(file, "^one", regex=True)] == [6, 16]
    assert [m["offset"] for m in hunt(file, "one$", regex=True)] == [0, 16]
    assert [m["offset"] for m in hunt(file, "one", start=6, end=16)] == [6]
    assert [m["offset"] for m in hunt(file, "one", start=16, backward=True)] == [6, 0]
    assert [m["offset"] for m in hunt(file, "one", start=16, end=6, backward=True)] == [6]
    assert [m["line"] for m in hunt(file, "^$", regex=True)] == []
    assert hunt(tmp_path / "log", "one", start=10**9) == []


def test_one_slice_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"nothing here\n" * 100_000)
    monkeypatch.setattr(search, "SLICE_BYTES", 500_000)
    answer = search._Hunt(str(file), search._finder(b"NEEDLE", False, False), 0, None, 10).forward()
    assert answer["done"] is False
    assert 500_000 <= answer["scanned"] <= 500_000 + search.BLOCK
    assert answer["next"] == answer["scanned"]
    one = search._Hunt(str(file), search._finder(b"NEEDLE", False, False), 0, None, 10)
    one.stop()
    assert one.forward()["scanned"] == 0


def test_through_the_agent(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"alpha\nbeta\nALPHA\n")
    agent = Agent()
    try:
        agent.start()
        result = agent.result("search", path=str(file), pattern="alpha", ignore_case=True)
        assert [m["line"] for m in result["matches"]] == ["alpha", "ALPHA"]
        assert (result["done"], result["next"]) == (True, 17)
        back = agent.result("search", path=str(file), pattern="alpha", backward=True)
        assert [m["offset"] for m in back["matches"]] == [0]
        for params, why in (
            ({"pattern": "("}, "not a regular expression"),
            ({"pattern": ""}, "1 to 1000 characters"),
            ({"pattern": "a", "start": "x"}, "should be offsets"),
        ):
            answer = agent.ask("search", path=str(file), regex=True, **params)
            assert answer.kind == frames.ERROR
            assert why in answer.head["why"]
        assert agent.ask("search", path=str(tmp_path / "none"), pattern="a").head["kind"] == "absent"
    finally:
        agent.close()


def test_the_pattern_is_bytes() -> None:
    find = search._finder("ü".encode(), True, False)
    assert list(find("xü\n".encode())) == [(1, 3)]
