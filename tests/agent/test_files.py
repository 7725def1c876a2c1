"""Files on the host, through a real agent."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagletui.agent import frames

from .process import Agent


@pytest.fixture(scope="module")
def agent() -> Iterator[Agent]:
    made = Agent()
    yield made.start()
    made.close()


def test_read_from_the_start_the_end_and_beyond(agent: Agent, tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"0123456789")
    info = file.stat()
    answer = agent.ask("read", path=str(file), offset=4, limit=3)
    assert answer.body == b"456"
    assert answer.head["result"] == {
        "offset": 4,
        "size": 10,
        "dev": info.st_dev,
        "inode": info.st_ino,
        "floor": 0,
        "mtime": info.st_mtime,
    }
    assert agent.ask("read", path=str(file), offset=-3).body == b"789"
    assert agent.ask("read", path=str(file), offset=-300).body == b"0123456789"
    beyond = agent.ask("read", path=str(file), offset=50)
    assert (beyond.body, beyond.head["result"]["size"]) == (b"", 10)


def test_a_long_poll_is_answered_by_growth(agent: Agent, tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"old")
    waiting = agent.request("read", path=str(file), offset=3, wait=60)
    assert agent.result("stat", paths=[str(file)])[0]["size"] == 3  # meanwhile others are answered
    with file.open("ab") as out:
        out.write(b"new")
    answer = agent.next()
    assert (answer.id, answer.body, answer.head["result"]["offset"]) == (waiting, b"new", 3)


def test_a_wait_at_the_end_gives_what_comes_after_it(agent: Agent, tmp_path: Path) -> None:
    file = tmp_path / "empty"
    file.touch()
    waiting = agent.request("read", path=str(file), offset=-100, wait=60)
    agent.result("stat", paths=[])
    file.write_bytes(b"x" * 200)
    answer = agent.next()
    assert (answer.id, len(answer.body), answer.head["result"]["offset"]) == (waiting, 200, 0)


def test_a_wait_ends_with_nothing_when_its_time_is_over(agent: Agent, tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"old")
    assert agent.ask("read", path=str(file), offset=3, wait=0.2).body == b""


def test_truncation_and_replacement_are_told_at_once_also_while_waiting(agent: Agent, tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"0123456789")
    info = file.stat()
    identity = [info.st_dev, info.st_ino]
    waiting = agent.request("read", path=str(file), offset=10, wait=60, identity=identity)
    agent.result("stat", paths=[])
    os.truncate(file, 4)
    answer = agent.next()
    assert (answer.id, answer.body, answer.head["result"]["size"]) == (waiting, b"", 4)
    waiting = agent.request("read", path=str(file), offset=4, wait=60, identity=identity)
    agent.result("stat", paths=[])
    (tmp_path / "other").write_bytes(b"another file")
    os.replace(tmp_path / "other", file)
    answer = agent.next()
    assert answer.kind == frames.ERROR
    assert answer.head["kind"] == "replaced"
    assert "rotated or replaced" in answer.head["why"]


def test_a_cancelled_wait_is_silent(agent: Agent, tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"")
    waiting = agent.request("read", path=str(file), offset=0, wait=60)
    agent.send(frames.CANCEL, waiting)
    file.write_bytes(b"too late")
    assert agent.ask("read", path=str(file), offset=0, wait=60).id != waiting


def test_the_floor_is_the_first_offset_with_data(agent: Agent, tmp_path: Path) -> None:
    file = tmp_path / "log"
    with file.open("wb") as out:
        out.truncate(1 << 20)
        out.seek(1 << 20)
        out.write(b"kept")
    with file.open("rb") as raw:
        floor = os.lseek(raw.fileno(), 0, os.SEEK_DATA)
    if not floor:
        pytest.skip("this file system has no holes")
    answer = agent.ask("read", path=str(file), offset=0)
    assert (answer.head["result"]["offset"], answer.head["result"]["floor"]) == (floor, floor)
    assert answer.body.endswith(b"kept")


def test_what_cannot_be_read_is_told_in_words(agent: Agent, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, why, kind in (
        (tmp_path / "none", "no such file", "absent"),
        (tmp_path / "none" / "below", "no such file", "absent"),
        (tmp_path, "it is a directory", "agent"),
        (tmp_path / "pipe", "it is not a regular file", "agent"),
        (Path("/dev/tty"), None, None),
    ):
        answer = agent.ask("read", path=str(path))
        assert answer.kind == frames.ERROR
        assert str(path) in answer.head["step"]
        if why:
            assert (answer.head["why"], answer.head["kind"]) == (why, kind)


def test_a_file_of_another_is_denied(tmp_path: Path) -> None:
    from eagletui.agent.files import failure

    error = failure("read", "/x", PermissionError(13, "Permission denied"))
    assert (error.why, error.kind) == ("permission denied", "denied")


def test_proc_files_have_no_size_but_content(agent: Agent) -> None:
    assert b"MemTotal" in agent.ask("read", path="/proc/meminfo").body


def test_list_sorts_tells_kinds_and_is_cut(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"12")
    (tmp_path / "a").mkdir()
    (tmp_path / "c").symlink_to("nowhere")
    os.mkfifo(tmp_path / "d")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).touch()
    result = agent.result("list", path=str(tmp_path))
    assert [(e["name"], e["kind"]) for e in result["entries"]] == [
        ("a", "dir"),
        ("b", "file"),
        ("c", "link"),
        ("d", "other"),
        ("\ufffd", "file"),
    ]
    assert result["entries"][1]["size"] == 2
    assert result["cut"] is False
    short = agent.result("list", path=str(tmp_path), limit=2)
    assert (len(short["entries"]), short["cut"]) == (2, True)
    assert agent.ask("list", path=str(tmp_path / "none")).head["kind"] == "absent"


def test_write_replaces_whole_and_keeps_the_mode(agent: Agent, tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text("old")
    file.chmod(0o640)
    (tmp_path / "link").symlink_to(file)
    inode = file.stat().st_ino
    sha = hashlib.sha256(b"old").hexdigest()
    result = agent.result("write", b"new", path=str(tmp_path / "link"), expect_sha=sha)
    assert result == {"sha": hashlib.sha256(b"new").hexdigest()}
    assert file.read_text() == "new"
    assert file.stat().st_mode & 0o777 == 0o640
    assert file.stat().st_ino != inode
    assert (tmp_path / "link").is_symlink()
    assert agent.result("write", b"x", path=str(tmp_path / "fresh"), mode=0o644, expect_sha="")
    assert (tmp_path / "fresh").stat().st_mode & 0o777 == 0o644


def test_write_refuses_what_changed_meanwhile_and_leaves_no_trace(agent: Agent, tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text("changed by another")
    for expect, path, why in (
        (hashlib.sha256(b"old").hexdigest(), file, "it was changed meanwhile"),
        ("", file, "it exists already"),
        ("0" * 64, tmp_path / "none", "it is not there"),
    ):
        answer = agent.ask("write", b"new", path=str(path), expect_sha=expect)
        assert (answer.kind, answer.head["why"], answer.head["kind"]) == (frames.ERROR, why, "replaced")
    assert agent.ask("write", b"new", path=str(tmp_path)).head["why"] == "it is a directory"
    assert agent.ask("write", b"new", path=str(tmp_path / "none" / "x")).head["kind"] == "absent"
    assert [p.name for p in tmp_path.iterdir()] == ["config"]
    assert file.read_text() == "changed by another"
