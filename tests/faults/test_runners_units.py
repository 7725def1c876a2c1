"""A server whose way to run is a unit of systemd that is there already: started by it, found, and stopped by it for good."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eagletui import commands
from eagletui.hosts.base import HostError
from eagletui.profiles import Profile
from eagletui.records import JobState
from tests.agent.adopt_harness import HERE
from tests.agent.jobs_harness import FAKE
from tests.machine.nspawn import Machine, wait_for
from tests.machine.seat import Seat, seated

pytestmark = pytest.mark.machine
UNIT = """[Service]
ExecStart=/usr/bin/python3 -I -S /opt/bin/vllm serve /models/fake --port {port} --api-key sk-canary
Restart=always
RestartSec=1
[Install]
WantedBy=default.target
"""


@pytest.fixture
async def seat(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Seat]:
    install(machine)
    write(machine, "/etc/systemd/system/vllm-test.service", UNIT.format(port=8123))
    write(machine, "/etc/systemd/system/broken.service", "[Service]\nExecStart=/bin/sh -c 'exit 7'\n")
    machine.run("systemctl", "daemon-reload")
    async with seated(machine, tmp_path / "home", monkeypatch) as found:
        yield found


def install(machine: Machine) -> None:
    machine.path("/opt/bin").mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "stand_in.py", machine.path("/opt/bin/vllm"))
    shutil.copy(FAKE, machine.path("/opt/bin/fake_server.py"))


def write(machine: Machine, path: str, text: str) -> None:
    machine.path(path).parent.mkdir(parents=True, exist_ok=True)
    machine.path(path).write_text(text)


def profile(unit: str = "vllm-test.service", **more: object) -> Profile:
    values: dict[str, object] = {"name": "by-unit", "engine": "vllm", "model": "/models/fake", "unit": unit, **more}
    return Profile(**values)  # type: ignore[arg-type]


async def ready(seat: Seat, state: JobState) -> JobState:
    assert seat.desk is not None
    return await commands.wait_ready(seat.desk, state.id, lambda _state: None)


def active(seat: Seat, unit: str = "vllm-test.service") -> str:
    return seat.run(*(("systemctl", "--user") if seat.user != "root" else ("systemctl",)), "is-active", unit, check=False).strip()


async def test_started_shown_found_and_stopped_for_good(seat: Seat) -> None:
    desk = seat.desk
    assert desk is not None
    plan = await commands.plan_launch(desk, profile(port=8124))
    assert plan.command == ("systemctl", "start", "vllm-test.service")
    assert any(line.startswith("ExecStart  /usr/bin/python3 -I -S /opt/bin/vllm serve /models/fake") for line in plan.about)
    assert "sk-canary" not in repr(plan)
    assert any("/etc/systemd/system/vllm-test.service" in line for line in plan.about)
    assert plan.warnings == ("the profile says port 8124, the unit's ExecStart 8123: the unit decides",)

    state = await commands.launch(desk, plan, {})
    assert (state.adopted, state.unit, state.port, state.name) == ("systemd", "vllm-test.service", 8123, "vllm-test")
    assert (await ready(seat, state)).health == "ready"
    with pytest.raises(HostError, match="runs already") as refused:
        await commands.launch(desk, plan, {})
    assert refused.value.kind == "taken"

    kill = await commands.kill_plan(desk, state.id)
    assert kill.lever == "systemctl stop vllm-test.service"
    assert kill.note is not None
    assert "Restart=always" in kill.note
    assert (kill.confirm, kill.because) == ("vllm-test", "eagletui did not start it")
    assert len(kill.processes) >= 3
    report = await commands.kill(desk, kill)
    assert (report.done, report.remaining) == (True, ())
    assert "port 8123" in report.released
    assert active(seat) == "inactive"
    # signals alone would have had it back within a second
    restarts = seat.machine.run("systemctl", "show", "--property=NRestarts", "--value", "vllm-test.service").strip()
    assert restarts == "0"
    assert not seat.machine.run("pgrep", "-f", "models/fake", check=False).strip()


async def test_signals_alone_bring_it_back(seat: Seat) -> None:
    """What the note of the plan warns of is true here."""
    desk = seat.desk
    assert desk is not None
    state = await commands.launch(desk, await commands.plan_launch(desk, profile()), {})
    seat.signal(state.pid or 0)
    wait_for("a new main process", lambda: active(seat) == "active" and not seat.machine.alive(state.pid or 0), 60)
    seat.machine.run("systemctl", "stop", "vllm-test.service")


async def test_units_that_cannot_be_launched(seat: Seat) -> None:
    desk = seat.desk
    assert desk is not None
    with pytest.raises(HostError, match=r"this host has no unit nobody\.service"):
        await commands.plan_launch(desk, profile("nobody.service"))
    plan = await commands.plan_launch(desk, profile("broken.service"))
    with pytest.raises(HostError, match=r"broken\.service failed: exit-code, exit status 7") as refused:
        await commands.launch(desk, plan, {})
    assert "journalctl -u broken.service" in refused.value.remedy


async def test_a_user_may_not_stop_the_systems_unit_and_is_told(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(machine)
    write(machine, "/etc/systemd/system/vllm-test.service", UNIT.format(port=8123))
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "start", "vllm-test.service")
    async with seated(machine, tmp_path / "home", monkeypatch, "ann") as seat:
        desk = seat.desk
        assert desk is not None

        async with asyncio.timeout(60):
            while not (job := next((j.id for j in desk.store.jobs.values() if j.unit == "vllm-test.service"), None)):
                await desk.watch.sample("jobs", desk.watch.count("jobs") + 1)
        plan = await commands.kill_plan(desk, job)
        assert plan.lever == "systemctl stop vllm-test.service"
        report = await commands.kill(desk, plan)
        assert not report.done
        assert report.remaining[0].startswith("systemctl stop vllm-test.service: ")
        assert machine.run("systemctl", "is-active", "vllm-test.service").strip() == "active"
        with pytest.raises(HostError, match="launch"):
            await commands.launch(desk, await commands.plan_launch(desk, profile()), {})


async def test_a_unit_of_the_users_own_manager(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(machine)
    write(machine, "/home/ann/.config/systemd/user/vllm-mine.service", UNIT.format(port=8125))
    uid = machine.run("id", "-u", "ann").strip()
    machine.run("chown", "-R", "ann:ann", "/home/ann/.config")
    machine.run("loginctl", "enable-linger", "ann")
    wait_for(
        "ann's manager", lambda: machine.run("systemctl", "is-active", f"user@{uid}.service", check=False).strip() == "active", 60
    )
    async with seated(machine, tmp_path / "home", monkeypatch, "ann") as seat:
        desk = seat.desk
        assert desk is not None
        seat.run("systemctl", "--user", "daemon-reload")
        plan = await commands.plan_launch(desk, profile("vllm-mine.service", unit_scope="user"))
        assert plan.command == ("systemctl", "--user", "start", "vllm-mine.service")
        state = await commands.launch(desk, plan, {})
        assert (state.adopted, state.unit) == ("systemd", "vllm-mine.service")
        await ready(seat, state)
        kill = await commands.kill_plan(desk, state.id)
        assert kill.lever == "systemctl --user stop vllm-mine.service"
        report = await commands.kill(desk, kill)
        assert (report.done, report.remaining) == (True, ())
        assert active(seat, "vllm-mine.service") == "inactive"


async def test_at_once_it_stays_down_too(seat: Seat) -> None:
    desk = seat.desk
    assert desk is not None
    state = await ready(seat, await commands.launch(desk, await commands.plan_launch(desk, profile()), {}))
    report = await commands.kill(desk, await commands.kill_plan(desk, state.id), now=True)
    assert (report.done, report.remaining) == (True, ())
    assert active(seat) in ("inactive", "failed")
    assert seat.machine.run("systemctl", "show", "--property=NRestarts", "--value", "vllm-test.service").strip() == "0"
