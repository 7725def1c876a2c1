"""Jobs of a user without rights on a host with systemd: who lingers has units, who does not is told what ends a job."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eagletui.commands import plan_launch
from eagletui.profiles import Profile
from eagletui.screens.details import job_lines
from tests.machine.nspawn import Machine, wait_for
from tests.machine.seat import SERVER, Seat, seated

pytestmark = [pytest.mark.machine, pytest.mark.timeout(600)]
WARNED = "the job ends with the last session of ann: logind has KillUserProcesses=yes and ann does not linger"


@pytest.fixture
async def ann(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Seat]:
    async with seated(machine, tmp_path / "home", monkeypatch, "ann") as found:
        yield found


async def kill_user_processes(seat: Seat) -> None:
    """logind ends what a user leaves behind, from now on; the seat's session is one that it knows."""
    conf = seat.machine.path("/etc/systemd/logind.conf.d/kill.conf")
    conf.parent.mkdir()
    conf.write_text("[Login]\nKillUserProcesses=yes\n")
    seat.machine.run("systemctl", "restart", "systemd-logind")
    await seat.again()


def linger(seat: Seat) -> None:
    seat.machine.run("loginctl", "enable-linger", seat.user)
    uid = seat.machine.run("id", "-u", seat.user).strip()
    wait_for("the user's manager", lambda: seat.machine.run("ls", f"/run/user/{uid}/systemd/private", check=False))


@pytest.mark.fault(46, how="a user without linger logs out, then is terminated; logind leaves processes alone, its default")
async def test_without_linger_a_job_is_a_process_that_outlives_the_logout(ann: Seat) -> None:
    state = await ann.ticking()
    assert (state.runner, state.unit, state.survival) == ("process", None, None)
    ann.grows(state.id)
    await ann.again()
    now = await ann.state(state.id)
    assert (now.state, now.pid, now.shim_pid) == ("running", state.pid, state.shim_pid)
    ann.grows(state.id)
    assert (await ann.kill(state.id)).done

    # a session that an administrator terminates takes the job that was launched in it along, and that is told as an end
    other = await ann.ticking()
    for session in ann.sessions():
        ann.machine.run("loginctl", "terminate-session", session)
    await ann.again()
    over = await ann.until(other.id, lambda s: not s.members and s.state not in ("running", "stopping"))
    assert over.state in ("exited", "lost_supervisor")
    assert (over.rc is None) == (over.state == "lost_supervisor")


@pytest.mark.fault(46, how="KillUserProcesses=yes and no linger: the last session ends")
async def test_a_job_that_logind_will_end_is_told_before_and_truthfully_after(ann: Seat) -> None:
    await kill_user_processes(ann)
    assert ann.desk is not None
    plan = await plan_launch(ann.desk, Profile("fake", "vllm", "/m", command=("/usr/bin/python3", SERVER), port=8123))
    assert plan.runs_as == "a process of its own session"
    assert [text for text in plan.warnings if text.startswith(WARNED)]
    assert [text for text in plan.warnings if "`loginctl enable-linger ann`" in text]
    state = await ann.ticking()
    assert state.runner == "process"
    assert state.survival is not None
    assert state.survival.startswith(WARNED)
    await ann.until_listed(state.id)
    shown = "\n".join("".join(text for text, _ in line) for line in job_lines(ann.desk.store, state.id, 100))
    assert "could end it" in shown
    assert "KillUserProcesses=yes" in shown
    assert f"! test: {WARNED}" in await ann.cli("jobs", ann.target)
    ann.grows(state.id)

    await ann.again()
    over = await ann.until(state.id, lambda s: not s.members and s.state not in ("running", "stopping"))
    assert over.state in ("exited", "lost_supervisor")  # whoever of supervisor and job was ended first
    assert (over.rc is None) == (over.state == "lost_supervisor")
    if over.state == "exited":
        assert over.rc in (-15, -1)  # logind sends both
        assert over.ended_by == "SIGTERM to the supervisor, as logind sends it at logout"
    assert not ann.machine.alive(state.pid or 0)


@pytest.mark.fault(46, how="a user who lingers: KillUserProcesses=yes, terminate-session, the agent killed")
async def test_with_linger_a_job_is_a_unit_of_the_users_manager(ann: Seat) -> None:
    linger(ann)
    await kill_user_processes(ann)
    state = await ann.launch(ann.spec("bash", "-c", "while sleep 0.1; do echo ${#HF_TOKEN}; done"), HF_TOKEN="hf_123")
    assert (state.runner, state.unit, state.survival) == ("user-unit", f"eagletui-{state.id}.service", None)
    facts = ann.unit(state.id, "MainPID", "ControlGroup", "ActiveState")
    assert (facts["MainPID"], facts["ActiveState"]) == (str(state.shim_pid), "active")
    group = ann.machine.run("cat", f"/proc/{state.pid}/cgroup").splitlines()[-1]
    assert group == f"0::{facts['ControlGroup']}/job"

    async def lives(after: str) -> None:
        ann.grows(state.id)
        await ann.again()
        now = await ann.state(state.id)
        assert (now.state, now.pid, now.shim_pid) == ("running", state.pid, state.shim_pid), after

    await lives("a logout")
    for agent in ann.agents():
        ann.signal(agent)
    await lives("the death of the agent")
    for session in ann.sessions():
        ann.machine.run("loginctl", "terminate-session", session)
    wait_for("the end of the sessions", lambda: not ann.sessions())
    await lives("terminate-session")
    assert set(ann.file(state.id, "log").split()) == {"6"}
    uid = ann.machine.run("id", "-u", "ann").strip()
    assert ann.machine.run("ls", f"/run/user/{uid}/eagletui") == ""

    assert state.shim_pid is not None
    ann.signal(state.shim_pid)
    await ann.until(state.id, lambda s: s.state == "lost_supervisor" and s.members)
    ann.grows(state.id)
    assert (await ann.kill(state.id)).done
    other = await ann.ticking()
    ann.run("systemctl", "--user", "stop", f"eagletui-{other.id}.service")
    over = await ann.state(other.id)
    assert (over.state, over.rc, over.members) == ("exited", -15, 0)
    assert over.ended_by == "a stop of its unit (systemctl stop, or the host's shutdown)"


@pytest.mark.fault(46, how="disable-linger ends the user's manager under a job")
async def test_the_end_of_the_users_manager_ends_the_job_in_order(ann: Seat) -> None:
    linger(ann)
    state = await ann.ticking()
    await ann.leave()
    wait_for("the end of the login sessions", lambda: not ann.sessions())
    ann.grows(state.id)
    ann.machine.run("loginctl", "disable-linger", "ann")
    wait_for("the end of the job", lambda: ann.doc(state.id, "state.json").get("state") == "exited")
    await ann.sit()
    over = await ann.state(state.id)
    assert (over.state, over.rc, over.ended_by) == ("exited", -15, "a stop of its unit (systemctl stop, or the host's shutdown)")
