"""A log and the disk it lies on: bounded, also on the smallest disk; the job lives, and a person hears of it."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from eagletui.agent.log_tail import LogTail
from eagletui.records import JobState
from eagletui.watch.alerts import job_signs
from tests.agent.jobs_harness import Jobs, until

# writes numbered lines, slowly enough that a supervisor can follow: ``count`` of ``size`` bytes, a pause after each
WRITER = """
import os, sys, time
count, size, pause = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
for number in range(count):
    line = b"%08d " % number
    os.write(1, line + b"x" * (size - len(line) - 1) + b"\\n")
    time.sleep(pause)
"""


def written(count: int, size: int) -> bytes:
    return b"".join(b"%08d " % n + b"x" * (size - 10) + b"\n" for n in range(count))


@pytest.mark.fault(19, how="a job that writes six times the size of a tmpfs of 1 MiB and of 4 MiB")
@pytest.mark.parametrize(("disk", "count", "size"), [("1m", 96, 65536), ("4m", 96, 262144)])
def test_a_log_larger_than_a_tiny_disk(
    disk: str, count: int, size: int, small_disk: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = small_disk(disk)
    root = place / "state"
    monkeypatch.setenv("EAGLETUI_STATE", str(root))
    jobs = Jobs(root)
    spec = jobs.spec(sys.executable, "-c", WRITER, str(count), str(size), "0.05")
    told: list[str] = []
    try:
        jobs.launch(spec)

        def over() -> bool:
            state = jobs.state(spec["id"])
            told.extend(text for text in state.get("troubles") or () if text not in told)
            return state.get("state") == "exited" and not state.get("members")

        until(over, 90)
        state = jobs.over(spec["id"])
        assert state["rc"] == 0, state
        data = (root / "jobs" / spec["id"] / "log").read_bytes()
        assert len(data) == count * size
        floor = state["log_floor"]
        assert floor > count * size // 2
        whole = written(count, size)
        assert hashlib.sha256(data[floor:]).digest() == hashlib.sha256(whole[floor:]).digest()
        assert any(text.startswith("log: its disk is ") for text in told), told
    finally:
        jobs.clean()


@pytest.mark.fault(19, how="the disk is filled by others while the job runs")
def test_a_disk_that_others_fill_is_told_and_an_alert(small_disk: Callable[..., Path]) -> None:
    place = small_disk("64m")
    path = place / "log"
    path.write_bytes(b"y" * (20 << 20))
    got = 0

    def sink(data: bytes) -> None:
        nonlocal got
        got += len(data)

    tail = LogTail(str(path), sink, cap=1 << 30)
    try:
        while tail.poll():
            pass
        tail.bound()
        assert tail.floor == 0
        assert tail.trouble is None
        with pytest.raises(OSError, match="No space left"):
            (place / "filler").write_bytes(b"z" * (64 << 20))
        free = os.statvfs(place).f_bavail
        tail.bound()
        assert tail.floor > 14 << 20
        assert os.statvfs(place).f_bavail > free
        assert tail.trouble == "log: its disk is full, so only its last 4 MiB are kept"
        assert path.stat().st_size == 20 << 20
        job = JobState("a", "command", "a", "running", 1.0, troubles=(tail.trouble,))
        assert [(sign.key, sign.severity) for sign in job_signs([job], 0.0)] == [("job:a:log", "warn")]
        (place / "filler").unlink()
        tail.bound()
        assert tail.trouble is None
    finally:
        tail.close()


@pytest.mark.fault(19, how="a full tmpfs under state directory and log: the kill and its outcome")
def test_a_job_on_a_full_disk_can_be_ended(
    small_disk: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, stranger: int
) -> None:
    place = small_disk("2m")
    root = place / "state"
    monkeypatch.setenv("EAGLETUI_STATE", str(root))
    jobs = Jobs(root)
    spec = jobs.spec("sleep", "600")
    filler = place / "filler"
    try:
        state = jobs.launch(spec)
        jobs.wait(spec["id"], lambda s: s.get("cpu") is not None)
        with filler.open("wb", buffering=0) as out:
            for size in (65536, 512, 1):  # to the last byte
                try:
                    while True:
                        out.write(b"z" * size)
                except OSError:
                    continue
        answer = jobs.kill(spec["id"], wait=0)
        assert answer["by"] == "shim"
        until(lambda: not jobs.members(spec["id"]))
        filler.unlink()
        over = jobs.over(spec["id"])
        assert over["rc"] == -15
        assert over["ended_by"]
        assert over["pid"] == state["pid"]
        result = jobs.call("job", job=spec["id"])["result"]
        assert (result["remaining"], result["released"]) == ([], ["1 process"])
    finally:
        if filler.exists():
            filler.unlink()
        jobs.clean()


@pytest.mark.fault(19, how="a ramfs, which cannot punch holes")
def test_where_holes_cannot_be_punched_the_log_is_cut_and_its_end_kept(small_disk: Callable[..., Path]) -> None:
    path = small_disk("64m", "ramfs") / "log"
    path.touch()
    got, told = bytearray(), []
    tail = LogTail(str(path), got.extend, cap=4 << 20, told=told.append)
    block = bytes(range(256)) * 256
    with path.open("ab", buffering=0) as out:
        for _ in range(160):
            out.write(block)
            while tail.poll():
                pass
            tail.bound()
            assert path.stat().st_size + (path.with_name("log.1").stat().st_size if told else 0) <= 4 << 20
    assert bytes(got) == block * 160
    assert told
    assert set(told) == {"the log had grown to its cap and was cut; it begins anew"}
    kept = path.with_name("log.1").read_bytes() + path.read_bytes()
    assert (block * 160).endswith(kept)
    assert len(kept) >= 1 << 20
    assert tail.trouble is not None
    assert tail.trouble.startswith("log: it cannot be bounded in place (operation not supported")
    tail.close()
