"""What programs tell of themselves, or show in their bars, as their supervisor reads it; the pace; who made an output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eagletui.jobs import outputs
from eagletui.jobs.keys import COMMON, Key, read_keys
from eagletui.jobs.on_host import telling
from eagletui.jobs.pace import LEAST, WINDOW, Pace
from eagletui.jobs.seen import Mark, SeenWatcher, mark
from eagletui.jobs.told import ToldWatcher
from eagletui.records.work import Counter


def told(**fields: Any) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def progress(done: float, **more: Any) -> bytes:
    return told(eagletui="progress", done=done, total=100, unit="rows", stage="asking", **more)


def test_the_rate_is_that_of_this_run_and_what_was_there_counts_as_done() -> None:
    watcher = ToldWatcher({}, "/")
    watcher.feed(progress(40), 100.0)
    watcher.feed(progress(45), 110.0)
    work = watcher.work(110.0)
    assert work is not None
    assert (work.done, work.total, work.unit, work.stage) == (45, 100, "rows", "asking")
    assert (work.rate, work.remaining, work.basis) == (0.5, 110.0, "the last 10 s")


def test_another_stage_is_another_count() -> None:
    watcher = ToldWatcher({}, "/")
    watcher.feed(progress(99), 100.0)
    watcher.feed(told(eagletui="progress", done=0, total=5, unit="files", stage="checking"), 200.0)
    work = watcher.work(203.0)
    assert work is not None
    assert (work.done, work.rate, work.remaining) == (0, None, None)


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_pieces_of_any_size_and_lines_glued_to_others(size: int) -> None:
    data = b"loading:  10%|#   | 1/10 [00:01<00:09, 1.0s/it]" + progress(3, counters={"failed": 2}) + b'{"eagletui": "prog\n'
    data += b"a plain line\n" + told(eagletui="note", text="noted") + b"the last"
    watcher = ToldWatcher({}, "/")
    for at in range(0, len(data), size):
        watcher.feed(data[at : at + size], 1.0)
    assert watcher.notes() == ["noted"]
    assert watcher.notes() == []
    work = watcher.work(1.0)
    assert work is not None
    assert work.counters == (Counter("failed", 2),)
    found = watcher.outcome(1, False)
    assert watcher.last[-3:] == ['{"eagletui": "prog', "a plain line", "the last"]
    assert (found.ok, found.why) == (False, "exit status 1 after 3 of 100 rows: the last")


def test_the_ends_of_a_program() -> None:
    def end(rc: int | None, killed: bool = False, **result: Any) -> tuple[bool | None, str]:
        watcher = ToldWatcher({}, "/")
        watcher.feed(progress(3) + (told(eagletui="result", **result) if result else b""), 1.0)
        found = watcher.outcome(rc, killed)
        assert found.result == result
        return found.ok, found.why

    assert end(0, why="3 rows", rows=3) == (True, "3 rows")
    assert end(0) == (False, "it ended without telling a result after 3 of 100 rows")
    assert end(1, why="no room") == (False, "no room")
    assert end(-9, why="3 rows") == (False, "ended by SIGKILL after 3 of 100 rows")
    assert end(-15, killed=True) == (None, "ended on request after 3 of 100 rows")
    assert end(None) == (None, "exit status unknown after 3 of 100 rows")


def test_what_is_no_number_is_left_out() -> None:
    watcher = ToldWatcher({}, "/")
    watcher.feed(
        told(eagletui="progress", done="3", total=None, counters={"a": "x", "b": {"value": None}, "c": True, "d": 1}), 1.0
    )
    work = watcher.work(1.0)
    assert work is not None
    assert (work.done, work.total, work.counters) == (None, None, (Counter("d", 1),))


def test_telling_writes_what_is_read(capfd: pytest.CaptureFixture[str]) -> None:
    teller = telling.Teller("rows", every=3600)
    teller.stage("asking", total=5, done=2)
    for row in range(3, 6):
        teller.progress(row, counters={"tok/s": float("inf"), "failed": {"value": 0, "bad": True}})
    teller.trouble("disk", "nearly full")
    teller.result(why="done", loss=float("nan"))
    watcher = ToldWatcher({}, "/")
    out = capfd.readouterr().out
    assert len(out.splitlines()) == 4  # the stage, the last row, trouble and result: the others came too soon after
    watcher.feed(out.encode(), 1.0)
    work = watcher.work(1.0)
    assert work is not None
    assert (work.done, work.total, work.counters) == (5, 5, (Counter("failed", 0, "", True),))
    assert watcher.troubles() == ("disk: nearly full",)
    assert watcher.said == {"why": "done", "loss": None}


# --------------------------------------------------------------------------------------------------------------- bars


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[12/345] Building CUDA object a.o", Mark(12, 345, "steps", "count", "Building CUDA object a.o")),
        ("[ 45%] Building CXX object b.o", Mark(45, 100, "%", "percent", "Building CXX object b.o")),
        ("Map:  27%|##7   | 13/49 [00:00<00:01, 20.3it/s]", Mark(13, 49, "", "bar Map", "Map")),
        ("  7.5 %", Mark(7.5, 100, "%", "percent", "")),
        ("[3] a reference", None),
        ("[400/345] more than all", None),
        ("[0/0] nothing", None),
        ("usage is 45% of the disk", None),
        ("[2026-11-30 10:00:00] INFO", None),
        ("120%", None),
    ],
)
def test_progress_in_a_line_of_output(text: str, found: Mark | None) -> None:
    assert mark(text) == found


def test_another_bar_begins_another_count_and_what_is_told_counts_more() -> None:
    watcher = SeenWatcher({}, "/")
    watcher.feed(b"[1/10] a\n", 0.0)
    watcher.feed(b"[6/10] b\r", 10.0)
    work = watcher.work(10.0)
    assert work is not None
    assert (work.done, work.rate, work.remaining, work.stage) == (6, 0.5, 8.0, "b")
    watcher.feed(b"[1/99] c\n", 20.0)
    work = watcher.work(20.0)
    assert work is not None
    assert (work.done, work.total, work.rate) == (1, 99, None)
    watcher.feed(told(eagletui="progress", stage="building"), 21.0)
    work = watcher.work(21.0)
    assert work is not None
    assert (work.done, work.stage) == (1, "building: c")
    watcher.feed(progress(7), 22.0)
    work = watcher.work(22.0)
    assert work is not None
    assert (work.done, work.unit) == (7, "rows")


# --------------------------------------------------------------------------------------------------------------- pace


def test_the_pace_looks_back_a_while_and_standing_still_counts() -> None:
    pace = Pace()
    pace.tell(0.0, 10)
    assert pace.rate(LEAST - 0.1) is None
    pace.tell(10.0, 30)
    assert pace.rate(10.0) == 2.0
    assert pace.rate(20.0) == 1.0
    assert pace.remaining(20.0, 50) == 20.0
    assert pace.remaining(20.0, None) is None
    for second in range(11, int(2 * WINDOW)):
        pace.tell(float(second), 30)
    assert pace.rate(2 * WINDOW) == 0.0
    assert pace.remaining(2 * WINDOW, 50) is None
    pace.tell(2 * WINDOW + 1, 3)  # less than before: another count
    assert pace.rate(2 * WINDOW + 2) is None


def test_a_pace_is_never_a_long_list() -> None:
    pace = Pace()
    for number in range(100_000):
        pace.tell(number / 1000, number)
    assert len(pace._seen) < 2 * WINDOW
    assert pace.rate(100.0) == pytest.approx(1000, rel=0.02)


# ------------------------------------------------------------------------------------------------------------- outputs


def test_an_output_is_gone_on_with_and_never_taken_over(tmp_path: Path) -> None:
    place = tmp_path / "out"
    inputs = {"model": "/m", "rows": 10}
    assert outputs.claim(str(place), "prepare", inputs, "job-1") is False
    assert outputs.claim(str(place), "prepare", dict(reversed(inputs.items()))) is True
    with pytest.raises(outputs.NotOurs, match=r"other inputs \(rows was 10 and is 11\): remove it"):
        outputs.claim(str(place), "prepare", {**inputs, "rows": 11})
    with pytest.raises(outputs.NotOurs, match="made by a job of kind prepare"):
        outputs.claim(str(place), "train", inputs)
    (place / outputs.NAME).write_text("{")
    with pytest.raises(outputs.NotOurs, match="damaged"):
        outputs.claim(str(place), "prepare", inputs)
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").touch()
    with pytest.raises(outputs.NotOurs, match="is not empty"):
        outputs.claim(str(other), "prepare", inputs)
    assert sorted(path.name for path in other.iterdir()) == ["thesis.tex"]


def test_what_stands_for_a_file(tmp_path: Path) -> None:
    path = tmp_path / "big"
    path.write_bytes(b"a" * (3 << 20))
    first = outputs.file_facts(str(path))
    assert first["size"] == 3 << 20
    with path.open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"b")
    assert outputs.file_facts(str(path)) != first


# ---------------------------------------------------------------------------------------------------------------- keys


def test_all_that_is_wrong_with_a_files_keys_is_told() -> None:
    keys = (
        Key("rows", "int", "how many", low=1),
        Key("output", "path", "where", required=True),
        Key("how", "text", "which way", default="fast", choices=("fast", "slow")),
    )
    values, wrong = read_keys(keys, {"rows": 0, "how": "quick", "outptu": "/x", "gpus": [0, 0], "graces": [1, 2, 3]})
    assert {item.key: item.remedy for item in wrong} == {
        "rows": "expected a whole number, at least 1",
        "how": "expected one of fast, slow",
        "outptu": "did you mean 'output'?",
        "gpus": 'expected "all", a number of cards, or a list of their indexes or UUIDs, each once',
        "output": "add output: where (an absolute path)",
    }
    assert values == {"graces": [1, 2, 3], "cwd": "/"}
    good, wrong = read_keys(keys, {"output": "/x", "gpus": [0, "GPU-1a"]})
    assert (good, wrong) == ({"output": "/x", "gpus": [0, "GPU-1a"], "how": "fast", "cwd": "/"}, [])
    assert all(key.help for key in COMMON)


@pytest.mark.parametrize(
    ("given", "size"), [(70_000, 70_000), ("500 MB", 500_000_000), ("1.5GiB", 3 << 29), ("1 kB", None), ("x", None), (True, None)]
)
def test_a_size_is_bytes_however_it_is_written(given: Any, size: int | None) -> None:
    values, wrong = read_keys((), {"log_cap": given})
    assert (values.get("log_cap"), [item.key for item in wrong]) == (size, [] if size else ["log_cap"])
