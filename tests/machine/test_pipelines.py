"""A pipeline on a host with systemd: runner, step and server in units of their own, over a logout, ended by kill or systemctl."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eagletui.commands.run import job_file, plan_run, run_job, wait_over
from eagletui.records import JobState
from tests.machine.nspawn import Machine, wait_for
from tests.machine.seat import SERVER, Seat, seated

pytestmark = [pytest.mark.machine, pytest.mark.timeout(600)]
FILE = f"""
kind = "pipeline"
name = "night"
dir = "/srv/night"

[servers.target]
engine = "vllm"
model = "/models/fake"
command = ["/usr/bin/python3", "-I", "-S", "{SERVER}"]
port = 8123

[[step]]
id = "work"
kind = "command"
server = "target"
shell = "echo begun >> /srv/night/begun; while test ! -e /srv/night/go; do sleep 0.1; done; echo done > /srv/night/work"
expect = ["/srv/night/work"]
"""


@pytest.fixture
async def seat(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Seat]:
    machine.path("/srv/night").mkdir()
    async with seated(machine, tmp_path / "home", monkeypatch) as found:
        yield found


def units(seat: Seat) -> list[str]:
    """Those of eagletui's jobs that run."""
    text = seat.machine.run("systemctl", "list-units", "--plain", "--no-legend", "--state=active", "eagletui-*.service")
    return sorted(line.split()[0] for line in text.splitlines() if line.strip())


async def begun(seat: Seat, tmp_path: Path) -> JobState:
    """The pipeline, its step at work."""
    desk = seat.desk
    assert desk is not None
    path = tmp_path / "night.toml"
    path.write_text(FILE)
    before = seat.machine.path("/srv/night/begun")
    count = len(before.read_text().splitlines()) if before.exists() else 0
    state = await run_job(desk, await plan_run(desk, job_file(desk, str(path))), {})
    try:
        wait_for("the step works", lambda: before.exists() and len(before.read_text().splitlines()) > count, 60)
    except AssertionError:
        raise AssertionError(f"the step does not work: {seat.file(state.id, 'log')}") from None
    return state


async def test_a_pipeline_outlives_the_login_and_its_units_end_with_it(seat: Seat, tmp_path: Path) -> None:
    state = await begun(seat, tmp_path)
    running = units(seat)
    assert len(running) == 3, running
    assert f"eagletui-{state.id}.service" in running
    await seat.again()
    assert units(seat) == running
    report = await seat.kill(state.id)
    assert (report.done, report.remaining) == (True, ())
    wait_for("all units end", lambda: not units(seat), 60)
    assert not seat.machine.run("pgrep", "-f", SERVER, check=False).strip()

    # stopped by systemd, as at a shutdown: orderly as well, and the next run goes on
    state = await begun(seat, tmp_path)
    seat.machine.run("systemctl", "stop", f"eagletui-{state.id}.service")
    wait_for("all units end", lambda: not units(seat), 60)
    seat.machine.path("/srv/night/go").touch()
    desk = seat.desk
    assert desk is not None
    plan = await plan_run(desk, job_file(desk, str(tmp_path / "night.toml")))
    state = await run_job(desk, plan, {})
    over = await wait_over(desk, state.id, lambda _state: None)
    assert (over.ok, over.outcome) == (True, "its step is done")
    wait_for("all units end", lambda: not units(seat), 60)
