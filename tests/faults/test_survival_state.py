"""A host where nothing can be written, or too little is allowed: what is watched goes on, a launch is refused with the reason."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from eagletui.agent import state_dir
from eagletui.agent.calls import CallError
from eagletui.hosts.base import HostError
from tests.agent.jobs_harness import Jobs
from tests.machine.nspawn import Machine
from tests.machine.seat import SERVER, Seat, seated

PROFILE = f"""
engine = "vllm"
model = "/models/fake"
port = 8123
command = ["/usr/bin/python3", "-I", "-S", "{SERVER}"]
args = ["--workers", "1"]
"""


def seat_with_profile(machine: Machine, home: Path, user: str) -> Seat:
    seat = Seat(machine, home, user)
    folder = home / ".config/eagletui/profiles"
    folder.mkdir(parents=True)
    (folder / "fake.toml").write_text(PROFILE)
    return seat


async def watched(seat: Seat) -> None:
    """The snapshot has the host's numbers."""
    doc = await seat.cli_json("status", seat.target)
    assert doc["host"]["mem_total"] > 0
    assert doc["jobs"] == []


async def refused(seat: Seat) -> str:
    """What a launch says; it leaves nothing behind."""
    said = await seat.cli("launch", seat.target, "fake", "--force", check=False)
    assert "launch: " in said
    assert "Traceback" not in said
    assert not [line for line in seat.machine.run("ps", "-eo", "args").splitlines() if SERVER in line or "shim_main" in line]
    return said


@pytest.mark.machine
@pytest.mark.timeout(600)
@pytest.mark.fault(18, how="a read-only /var/lib; a state directory, and a disk under it, without a free byte")
async def test_root_cannot_write_its_state(machine: Machine, tmp_path: Path) -> None:
    seat = seat_with_profile(machine, tmp_path / "home", "root")
    run = seat.machine.run
    run("mkdir", "-m", "700", "/var/lib/eagletui")
    run("mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "full", "/var/lib/eagletui")
    run("sh", "-c", "head -c 9000000 /dev/zero >/var/lib/eagletui/filler 2>/dev/null; true")
    await watched(seat)
    said = await refused(seat)
    assert "No space left on device" in said
    assert "free space there, or set EAGLETUI_STATE on the host to a directory on another disk" in said
    run("rm", "/var/lib/eagletui/filler")
    started = await seat.cli("launch", seat.target, "fake", "--wait", "--force")
    assert "ready in" in started
    assert "ended after" in await seat.cli("kill", seat.target, "fake", "--yes")

    run("umount", "/var/lib/eagletui")
    run("rmdir", "/var/lib/eagletui")
    run("mount", "--bind", "/var/lib", "/var/lib")
    run("mount", "-o", "remount,bind,ro", "/var/lib")
    await watched(seat)
    said = await refused(seat)
    assert "/var/lib/eagletui cannot be made: Read-only file system" in said
    assert "set EAGLETUI_STATE" in said
    doctor = await seat.cli("doctor", seat.target, check=False)
    assert "Read-only file system" in doctor or "not writable" in doctor


@pytest.mark.machine
@pytest.mark.timeout(600)
@pytest.mark.fault(18, how="a home that is not writable; /tmp full and noexec")
async def test_a_user_cannot_write_to_home_and_tmp(machine: Machine, tmp_path: Path) -> None:
    seat = seat_with_profile(machine, tmp_path / "home", "ann")
    run = seat.machine.run
    run("mount", "-o", "remount,noexec,size=16k", "/tmp")
    run("sh", "-c", "head -c 1000000 /dev/zero >/tmp/filler 2>/dev/null; true")
    run("chown", "root:root", "/home/ann")
    run("chmod", "555", "/home/ann")
    await watched(seat)
    said = await refused(seat)
    assert "/home/ann/.local/state/eagletui cannot be made: Permission denied" in said
    assert "set EAGLETUI_STATE" in said
    # and with a home, a full /tmp where nothing may be executed is in nobody's way
    run("chown", "ann:ann", "/home/ann")
    run("chmod", "755", "/home/ann")
    assert "ready in" in await seat.cli("launch", seat.target, "fake", "--wait", "--force")
    assert "ended after" in await seat.cli("kill", seat.target, "fake", "--yes")


@pytest.mark.machine
@pytest.mark.timeout(600)
@pytest.mark.fault(45, how="pam_limits with 60 open files and 40 processes for a user; then none for the agent")
async def test_limits_of_a_login_are_told_before_the_launch(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seat = seat_with_profile(machine, tmp_path / "home", "ann")
    limits = seat.machine.path("/etc/security/limits.d/ann.conf")
    limits.write_text("ann hard nofile 60\nann hard nproc 40\n")
    await watched(seat)
    told = await seat.cli_json("launch", seat.target, "fake", "--dry-run")
    few = "the host allows a job only {} {}: raise {} in /etc/security/limits.conf"
    assert few.format(60, "open files", "nofile") in told["warnings"]
    assert few.format(40, "processes and threads", "nproc") in told["warnings"]
    async with seated(machine, tmp_path / "other", monkeypatch, "ann") as ann:
        (agent,) = ann.agents()
        ann.machine.run("prlimit", f"--pid={agent}", "--nproc=1", user="ann")  # no process is left for a supervisor
        with pytest.raises(HostError, match="Resource temporarily unavailable") as refusal:
            await ann.ticking()
        assert "`ulimit -u`" in (refusal.value.remedy or "")
        assert ann.desk is not None
        await ann.desk.watch.sample("jobs", ann.desk.watch.count("jobs") + 2)  # it goes on
        assert ann.desk.store.jobs == {}


def fill(folder: Path) -> Path:
    """A file that takes all that is free there."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    return filler


@pytest.mark.fault(18, how="a state directory on a full tmpfs")
def test_a_launch_on_a_full_disk_leaves_nothing_and_works_later(
    small_disk: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = small_disk("256k") / "state"
    monkeypatch.setenv("EAGLETUI_STATE", str(root))
    jobs = Jobs(root)
    try:
        state_dir.create(str(root))
        filler = fill(root)
        spec = jobs.spec("sh", "-c", "echo fine")
        with pytest.raises(CallError, match="No space left on device") as caught:
            jobs.launch(spec)
        assert caught.value.remedy == "free space there, or set EAGLETUI_STATE on the host to a directory on another disk"
        assert list((root / "jobs").iterdir()) == []
        assert jobs.call("jobs") == {"jobs": {}, "problems": {}}
        filler.unlink()
        jobs.launch(spec)
        assert jobs.over(spec["id"])["rc"] == 0
    finally:
        jobs.clean()


@pytest.mark.fault(20, how="a tmpfs without a free page while a job ends")
def test_a_state_that_cannot_be_written_stays_as_it_was_and_is_written_later(
    small_disk: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = small_disk("1m")
    root = place / "state"
    monkeypatch.setenv("EAGLETUI_STATE", str(root))
    jobs = Jobs(root)
    try:
        go = tmp_path / "go"
        code = f"import os, sys, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.05)\nsys.exit(4)"
        spec = jobs.spec(sys.executable, "-c", code)
        state = jobs.launch(spec)
        directory = root / "jobs" / spec["id"]
        # full while the job ends: nothing about the end can be written
        filler = fill(place)
        go.touch()
        before = jobs.job(spec["id"]).stored_state()
        main = (state["pid"], state["pid_start"])
        jobs.wait(spec["id"], lambda s: main not in jobs.members(spec["id"]))
        assert jobs.job(spec["id"]).stored_state() == before
        assert not (directory / "exit.json").exists()
        filler.unlink()
        over = jobs.over(spec["id"])
        assert (over["state"], over["rc"]) == ("exited", 4)
        exit_doc = state_dir.read_json(str(directory / "exit.json"))
        assert exit_doc is not None
        assert exit_doc["rc"] == 4
        assert not [path for path in directory.iterdir() if path.name.endswith(".tmp")]
    finally:
        jobs.clean()


@pytest.mark.fault(20, how="EIO from the disk at each step of a write")
@pytest.mark.parametrize("step", ["open", "write", "fsync", "rename"])
def test_a_failing_disk_never_damages_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    path = tmp_path / "state.json"
    state_dir.write_json(str(path), {"n": 1})
    real = getattr(os, step)

    def fails(*args: object, **more: object) -> object:
        if step == "open" and not str(args[0]).endswith(".tmp"):
            return real(*args, **more)
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    monkeypatch.setattr(os, step, fails)
    with pytest.raises(OSError, match="Input/output error") as caught:
        state_dir.write_json(str(path), {"n": 2})
    monkeypatch.undo()
    assert state_dir.remedy(caught.value).startswith("the disk fails: look at dmesg")
    assert json.loads(path.read_text()) == {"n": 1}
    assert list(tmp_path.iterdir()) == [path]
    state_dir.write_json(str(path), {"n": 3})
    assert json.loads(path.read_text()) == {"n": 3}


@pytest.mark.fault(45, how="a fork that fails (EAGAIN) in a stand-in for the kernel")
def test_a_supervisor_that_cannot_be_started_is_told_with_the_limit(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = jobs.spec("true")

    def no_process() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    with monkeypatch.context() as broken:
        broken.setattr(os, "fork", no_process)
        with pytest.raises(CallError, match="the supervisor: Resource temporarily unavailable") as caught:
            jobs.launch(spec)
    assert caught.value.remedy.startswith("look at `ulimit -u`")
    assert not (jobs.root / "jobs" / spec["id"]).exists()
    jobs.launch(spec)
    assert jobs.over(spec["id"])["rc"] == 0
