"""Servers that are units of systemd and that eagletui did not start, on a machine with a real systemd and journald, over ssh."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from eagletui.records import JobState
from tests.agent.adopt_harness import install
from tests.machine.nspawn import Machine, wait_for
from tests.machine.seat import Seat, seated

pytestmark = [pytest.mark.machine, pytest.mark.timeout(300)]

UNIT = """[Unit]
Description=a server that is not eagletui's
[Service]
ExecStartPre=/bin/sh -c 'test -p /run/feed || mkfifo /run/feed'
ExecStart=/bin/sh -c 'cat <>/run/feed & exec /usr/bin/python3 -I -S /opt/engine/vllm serve /models/k2 --port 8000'
Restart=on-failure
{more}
"""


@pytest.fixture
async def seat(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Seat]:
    async with seated(machine, tmp_path / "home", monkeypatch) as found:
        install(machine.path("/opt/engine"))
        yield found


def start(machine: Machine, more: str = "") -> None:
    machine.path("/etc/systemd/system/vllm.service").write_text(UNIT.format(more=more))
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "start", "vllm.service")


def feed(machine: Machine, first: int, last: int) -> None:
    """The unit prints the lines ``fed FIRST`` to ``fed LAST``."""
    machine.run("/bin/sh", "-c", f"seq -f 'fed %.0f' {first} {last} >/run/feed")


async def server(seat: Seat, good: Callable[[JobState], Any], seconds: float = 90.0) -> JobState:
    """The server that was found there, once ``good`` holds of it."""
    assert seat.desk is not None
    try:
        async with asyncio.timeout(seconds):
            while True:
                for job in seat.desk.store.jobs.values():
                    if job.adopted is not None and good(job):
                        return job
                await seat.desk.watch.sample("jobs", seat.desk.watch.count("jobs") + 1)
    except TimeoutError:
        raise AssertionError(f"the jobs stay {seat.desk.store.jobs}") from None


async def log_of(seat: Seat, job: str, until: str, seconds: float = 60.0) -> str:
    """The log as the client reads it, once it holds ``until``."""
    assert seat.desk is not None
    text = ""
    try:
        async with asyncio.timeout(seconds):
            while True:
                path = seat.desk.store.jobs[job].log
                if path is not None:
                    data, size = b"", 1
                    while len(data) < size:
                        chunk = await seat.desk.session.read(path, len(data))
                        data, size = data + chunk.data, chunk.size
                    text = data.decode()
                    if until in text:
                        return text
                await asyncio.sleep(0.2)
    except TimeoutError:
        raise AssertionError(f"no {until!r} in the log: {text[-2000:]}") from None


def fed(text: str) -> list[int]:
    return [int(line.split()[1]) for line in text.splitlines() if line.startswith("fed ")]


async def test_a_unit_is_a_job_with_its_journal_as_the_log(seat: Seat) -> None:
    start(seat.machine)
    ready = await server(seat, lambda j: j.health == "ready" and j.served_model and j.log and j.phases)
    assert (ready.adopted, ready.unit, ready.name, ready.state) == ("systemd", "vllm.service", "vllm", "running")
    main = int(seat.machine.run("systemctl", "show", "--property=MainPID", "--value", "vllm.service"))
    assert ready.pid == main
    assert ready.members == 4
    text = await log_of(seat, ready.id, "Application startup complete")
    assert "(EngineCore pid=" in text
    # and in the command line, with what holds it
    assert "found: unit vllm.service" in await seat.cli("jobs", seat.target)
    assert "found: unit vllm.service" in await seat.cli("status", seat.target)
    assert "startup complete" in await seat.cli("logs", seat.target, "vllm")
    # a new agent knows it by the same id, and a new start of the unit by another
    await seat.again()
    again = await server(seat, lambda j: j.health == "ready" and j.log)
    assert again.id == ready.id
    seat.machine.run("systemctl", "restart", "vllm.service")
    other = await server(seat, lambda j: j.id != ready.id and j.health == "ready" and j.log)
    assert other.unit == "vllm.service"
    gone = await server(seat, lambda j: j.id == ready.id and j.state == "exited")
    assert (gone.rc, gone.health) == (None, "gone")
    text = await log_of(seat, other.id, "Application startup complete")
    assert text.count("Application startup complete") == 1, "the log of the run before is not this run's"
    seat.machine.run("systemctl", "stop", "vllm.service")
    await server(seat, lambda j: j.id == other.id and j.state == "exited")


async def test_what_was_started_in_an_ssh_session_is_not_the_unit_of_sshd(seat: Seat) -> None:
    # without pam_systemd a session's processes lie in ssh.service itself
    line = "nohup /usr/bin/python3 -I -S /opt/engine/vllm serve /models/k2 --port 8000 >/root/by-hand.log 2>&1 & echo $!"
    group = "/sys/fs/cgroup/system.slice/ssh.service/cgroup.procs"
    pid = int(seat.machine.run("/bin/sh", "-c", f"echo $$ >{group} && {{ {line}; }}").split()[-1])
    ready = await server(seat, lambda j: j.pid == pid and j.health == "ready" and j.log)
    assert (ready.adopted, ready.unit) == ("process", None)
    assert ready.log == "/root/by-hand.log"
    seat.machine.run("kill", str(pid))
    await server(seat, lambda j: j.id == ready.id and j.state == "exited")


@pytest.mark.fault(47, how="journald is restarted while its log is followed; then the reader is killed and resumes by cursor")
async def test_nothing_is_lost_or_doubled_over_a_restart_of_journald_and_of_the_reader(seat: Seat) -> None:
    start(seat.machine)
    ready = await server(seat, lambda j: j.health == "ready" and j.log)
    feed(seat.machine, 1, 200)
    await log_of(seat, ready.id, "fed 200\n")
    seat.machine.run("systemctl", "restart", "systemd-journald")
    feed(seat.machine, 201, 400)
    await log_of(seat, ready.id, "fed 400\n")
    readers = seat.machine.run("pgrep", "-x", "journalctl").split()
    assert len(readers) == 1
    seat.signal(int(readers[0]), signal.SIGKILL)
    feed(seat.machine, 401, 600)
    text = await log_of(seat, ready.id, "fed 600\n")
    assert fed(text) == list(range(1, 601))
    assert "lines are missing" not in text
    # with the client goes the agent, and with it whoever reads for it
    await seat.leave()
    wait_for("the end of the readers", lambda: not seat.machine.run("pgrep", "-x", "journalctl", check=False).split())


@pytest.mark.fault(47, how="the journal is vacuumed while its reader is dead: the cursor is gone")
async def test_what_was_vacuumed_before_it_was_read_is_told_as_a_gap(seat: Seat) -> None:
    start(seat.machine)
    ready = await server(seat, lambda j: j.health == "ready" and j.log)
    feed(seat.machine, 1, 100)
    await log_of(seat, ready.id, "fed 100\n")
    reader = int(seat.machine.run("pgrep", "-x", "journalctl"))
    seat.signal(reader, signal.SIGSTOP)
    feed(seat.machine, 101, 200)
    seat.machine.run("journalctl", "--sync")
    seat.machine.run("journalctl", "--rotate")
    seat.machine.run("journalctl", "--vacuum-files=1")
    seat.signal(reader, signal.SIGKILL)
    feed(seat.machine, 201, 300)
    text = await log_of(seat, ready.id, "fed 300\n")
    numbers = fed(text)
    assert numbers[:100] == list(range(1, 101))
    assert numbers[-100:] == list(range(201, 301))
    assert len(set(numbers)) == len(numbers)
    assert "eagletui: " in text.partition("fed 100\n")[2].partition("fed 201\n")[0]
    assert "lines are missing here" in text


@pytest.mark.fault(47, how="a unit prints faster than its rate limit allows")
async def test_what_journald_dropped_is_told_where_it_is_missing(seat: Seat) -> None:
    start(seat.machine, "LogRateLimitIntervalSec=5s\nLogRateLimitBurst=100")
    ready = await server(seat, lambda j: j.health == "ready" and j.log)
    feed(seat.machine, 1, 2000)
    await log_of(seat, ready.id, "fed 50\n")
    # journald tells of what it dropped with the next message that it lets through
    wait_for("the end of the interval", lambda: _lets_through(seat.machine), 60)
    text = await log_of(seat, ready.id, "the journal dropped ")
    assert len(fed(text)) < 2000
    assert "eagletui: " in text


def _lets_through(machine: Machine) -> bool:
    feed(machine, 9999, 9999)
    return "Suppressed" in machine.run("journalctl", "--unit=vllm.service", "--no-pager", "--output=cat")


@pytest.mark.fault(47, how="a user who may not read the journal looks at a unit of root's")
async def test_without_the_right_to_read_it_the_reason_is_told_and_the_rest_is_shown(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(machine.path("/opt/engine"))
    async with seated(machine, tmp_path / "home", monkeypatch, user="ann") as seat:
        start(machine)
        ready = await server(seat, lambda j: j.health == "ready" and j.served_model and j.log_problem)
        assert (ready.adopted, ready.unit, ready.operator, ready.model) == ("systemd", "vllm.service", "root", "/models/k2")
        assert "journal" in (ready.log_problem or "")
        assert "root" in (ready.log_problem or "")
        assert ready.listening
        assert ready.bytes_read is None
        assert seat.desk is not None
        await server(seat, lambda j: seat.desk is not None and j.id in seat.desk.store.servers)
        told = await seat.cli("logs", seat.target, "vllm", check=False)
        assert "journal" in told
        assert "Traceback" not in told
