"""Lines are whole or not there: whatever byte a writer was killed at, the file is mended and nothing else is lost."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from eagletui.jobs.on_host.journal import Journal, lines, repair, rewrite

ROWS = [{"id": "a", "text": "wörd 🦅\n"}, {"id": "b"}, {"id": "c", "text": "xyz"}]


def filled(path: Path) -> bytes:
    journal = Journal(str(path))
    for row in ROWS:
        journal.append(row)
    journal.close()
    return path.read_bytes()


def read(path: Path) -> list[object]:
    return [row for _, _, row in lines(str(path))]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    filled(tmp_path / "j")
    assert read(tmp_path / "j") == ROWS
    assert [end for _, end, _ in lines(str(tmp_path / "j"))][-1] == (tmp_path / "j").stat().st_size


def test_a_file_cut_at_any_byte_keeps_all_its_whole_lines_and_takes_new_ones(tmp_path: Path) -> None:
    whole = filled(tmp_path / "j")
    ends = [end for _, end, _ in lines(str(tmp_path / "j"))]
    for size in range(len(whole) + 1):
        path = tmp_path / "cut"
        path.write_bytes(whole[:size])
        journal = Journal(str(path))
        journal.append({"id": "new"})
        journal.close()
        kept = sum(end <= size for end in ends)
        assert read(path) == [*ROWS[:kept], {"id": "new"}]
        assert journal.cut == size - ([0, *ends][kept])


def test_a_torn_line_longer_than_what_is_read_at_once_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(b'{"id":1}\n' + b"x" * (3 << 20))
    assert repair(str(path)) == 3 << 20
    assert read(path) == [{"id": 1}]


def test_a_torn_last_line_is_not_read_and_no_file_is_no_lines(tmp_path: Path) -> None:
    (tmp_path / "j").write_bytes(b'{"id":1}\n{"id":2}')
    assert read(tmp_path / "j") == [{"id": 1}]
    assert read(tmp_path / "none") == []
    assert repair(str(tmp_path / "none")) == 0


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "j"
    journal = Journal(str(path))
    journal.append({"id": "a"})
    write = os.write

    def full(fd: int, data: bytes) -> int:
        if len(data) < 12:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data[:5])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        journal.append({"id": "b" * 20})
    monkeypatch.undo()
    journal.append({"id": "c"})
    assert read(path) == [{"id": "a"}, {"id": "c"}]


def test_a_line_that_is_no_object_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "j").write_bytes(b'{"id":1}\n3\nbroken\n{"id":2}\n')
    assert read(tmp_path / "j") == [{"id": 1}, None, None, {"id": 2}]
    assert rewrite(str(tmp_path / "j"), lambda number, row: number != 4) == 3
    assert json.loads((tmp_path / "j").read_text()) == {"id": 1}


def test_nothing_is_written_anew_when_all_is_kept(tmp_path: Path) -> None:
    filled(tmp_path / "j")
    before = os.stat(tmp_path / "j").st_ino
    assert rewrite(str(tmp_path / "j"), lambda number, row: True) == 0
    assert os.stat(tmp_path / "j").st_ino == before
    assert os.listdir(tmp_path) == ["j"]
