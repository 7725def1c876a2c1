"""Jobs of root on a host with systemd: the supervisor is the main process of a unit, which no login's end reaches."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from eagletui.records import JobState
from tests.machine.nspawn import Machine, wait_for
from tests.machine.seat import SERVER, Seat, seated

pytestmark = [pytest.mark.machine, pytest.mark.timeout(600)]
CANARY = "hf_canary_5e1f0a"


@pytest.fixture
async def seat(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Seat]:
    async with seated(machine, tmp_path / "home", monkeypatch) as found:
        yield found


def gone(seat: Seat, state: JobState) -> bool:
    """Nothing of a job is left: no process, no unit, no control group."""
    group = seat.machine.run("find", "/sys/fs/cgroup", "-name", f"eagletui-{state.id}*")
    unit = seat.unit(state.id, "LoadState")["LoadState"]
    return not group and unit == "not-found" and not any(seat.machine.alive(p) for p in (state.pid or 0, state.shim_pid or 0))


def limits_of(seat: Seat, pid: int | None) -> dict[str, list[str]]:
    """{name: [soft, hard]}."""
    lines = seat.machine.run("cat", f"/proc/{pid}/limits").splitlines()[1:]
    return {line[:26].strip(): line[26:].split()[:2] for line in lines}


async def test_the_supervisor_is_the_main_process_of_a_unit(seat: Seat) -> None:
    argv = ("/usr/bin/python3", "-I", "-S", SERVER, "--port", "8123")
    spec = seat.spec(*argv, kind="serve", server=True, engine="vllm", port=8123)
    state = await seat.launch(spec, HF_TOKEN=CANARY)
    assert (state.runner, state.unit, state.survival) == ("system-unit", f"eagletui-{state.id}.service", None)
    state = await seat.until(state.id, lambda s: s.health == "ready" and s.members == 3)
    facts = seat.unit(state.id, "MainPID", "ActiveState", "KillMode", "Delegate", "ControlGroup", "OOMPolicy")
    assert facts["MainPID"] == str(state.shim_pid)
    assert facts["ActiveState"] == "active"

    run = seat.machine.run
    # as much as systemd may give: without CAP_SYS_RESOURCE its own hard limits
    most = limits_of(seat, 1)
    may = int(run("sed", "-n", "s/^CapEff:\t//p", "/proc/1/status"), 16) & (1 << 24)
    limits = limits_of(seat, state.pid)
    assert limits["Max open files"] == (["1048576"] * 2 if may else [most["Max open files"][1]] * 2)
    assert limits["Max locked memory"] == (["unlimited"] * 2 if may else [most["Max locked memory"][1]] * 2)
    assert limits["Max core file size"][0] == "0"
    assert run("cat", f"/proc/{state.pid}/cgroup").splitlines()[-1] == f"0::{facts['ControlGroup']}/job"
    assert run("cat", f"/proc/{state.shim_pid}/cgroup").splitlines()[-1] == f"0::{facts['ControlGroup']}"
    # when memory runs out the kernel should end the job, and leave us to say so
    spared = [run("cat", f"/proc/{pid}/oom_score_adj").strip() for pid in (state.shim_pid, state.pid)]
    assert spared == ["-900" if may else "0", "0"]
    environ = run("cat", f"/proc/{state.pid}/environ").split("\0")
    assert f"HF_TOKEN={CANARY}" in environ
    assert "HOME=/root" in environ
    assert not [line for line in environ if line.startswith(("INVOCATION_ID", "SSH_", "SYSTEMD_EXEC_PID"))]
    seen = run("systemctl", "show", f"eagletui-{state.id}.service") + run("ps", "-eo", "args") + run("journalctl", "--no-pager")
    assert CANARY not in seen
    assert run("ls", "/run/eagletui") == ""

    report = await seat.kill(state.id)
    assert (report.done, report.remaining) == (True, ())
    assert report.released[:2] == ("3 processes", "port 8123")
    over = await seat.until(state.id, lambda s: s.state == "exited")
    assert over.rc == 0
    assert seat.doc(state.id, "exit.json")["rc"] == 0
    wait_for("nothing of it", lambda: gone(seat, state))


@pytest.mark.fault(46, how="KillUserProcesses=yes, loginctl terminate-session and terminate-user, the agent killed")
async def test_nothing_that_befalls_a_login_reaches_a_job_of_root(seat: Seat) -> None:
    conf = seat.machine.path("/etc/systemd/logind.conf.d/kill.conf")
    conf.parent.mkdir()
    conf.write_text("[Login]\nKillUserProcesses=yes\nKillExcludeUsers=\n")
    seat.machine.run("systemctl", "restart", "systemd-logind")
    await seat.again()
    state = await seat.ticking()
    assert (state.runner, state.survival) == ("system-unit", None)

    async def lives(after: str) -> None:
        seat.grows(state.id)
        await seat.again()
        now = await seat.state(state.id)
        assert (now.state, now.pid, now.shim_pid) == ("running", state.pid, state.shim_pid), after

    await lives("a logout")
    for agent in seat.agents():
        seat.signal(agent)
    await lives("the death of the agent")
    for session in seat.sessions():
        seat.machine.run("loginctl", "terminate-session", session)
    wait_for("the end of the sessions", lambda: not seat.sessions())
    await lives("terminate-session")
    seat.machine.run("loginctl", "terminate-user", "root")
    wait_for("the end of the sessions", lambda: not seat.sessions())
    await lives("terminate-user")
    assert (await seat.kill(state.id)).done


async def test_a_unit_that_is_stopped_ends_its_job_in_order(seat: Seat) -> None:
    """`systemctl stop` is a kill like ours: main process first, with its grace, and the state says who asked."""
    polite = "trap 'sleep 1; echo bye; exit 7' TERM; setsid bash -c 'trap \"\" TERM; while sleep 0.1; do :; done' & wait"
    spec = seat.spec("bash", "-c", polite, graces=[10, 1, 10])
    state = await seat.launch(spec)
    await seat.until(state.id, lambda s: (s.members or 0) >= 3)
    seat.machine.run("systemctl", "stop", f"eagletui-{state.id}.service")
    over = await seat.state(state.id)
    assert (over.state, over.rc, over.members) == ("exited", 7, 0)
    assert over.ended_by == "a stop of its unit (systemctl stop, or the host's shutdown)"
    assert seat.file(state.id, "log") == "bye\n"
    assert seat.doc(state.id, "result.json")["remaining"] == []
    wait_for("nothing of it", lambda: gone(seat, state))


@pytest.mark.fault(31, how="SIGKILL to the supervisor in its unit, then systemctl daemon-reexec")
@pytest.mark.parametrize("ask", ["kill", "kill in a session that is terminated"])
async def test_a_killed_supervisor_in_a_unit_leaves_a_job_that_lives_and_can_be_killed(seat: Seat, ask: str) -> None:
    # the main process ignores SIGTERM, so the kill takes its graces; a worker has a session of its own
    stubborn = "trap '' TERM; setsid bash -c 'while sleep 0.1; do :; done' >/dev/null 2>&1 & while sleep 0.1; do date +%N; done"
    state = await seat.launch(seat.spec("bash", "-c", stubborn, graces=[2, 1, 10]))
    before = await seat.until(state.id, lambda s: (s.members or 0) >= 3)
    assert before.shim_pid is not None
    seat.signal(before.shim_pid)
    lost = await seat.until(state.id, lambda s: s.state == "lost_supervisor")
    assert (lost.pid, lost.rc) == (state.pid, None)
    assert lost.detail == "running, its exit status will be unknown: the supervisor died"
    seat.grows(state.id)
    seat.machine.run("systemctl", "daemon-reexec")
    seat.grows(state.id)

    if ask == "kill":
        report = await seat.kill(state.id)
        assert (report.done, report.remaining) == (True, ())
    else:
        assert seat.desk is not None
        plan = await seat.desk.session.request("kill_plan", job=state.id)
        await seat.desk.session.request("kill", job=state.id, token=plan["token"], now=False, operator="op", wait=0)
        for session in seat.sessions():
            seat.machine.run("loginctl", "terminate-session", session)
        await seat.again()
    over = await seat.until(state.id, lambda s: s.ended_by and not s.members)
    assert (over.state, over.rc) == ("lost_supervisor", None)
    assert over.detail is not None
    assert over.detail.endswith("; its supervisor had died")
    wait_for("nothing of it", lambda: gone(seat, state))


@pytest.mark.fault(31, how="SIGKILL to the supervisor in its unit, on a host whose control groups are of version 1")
async def test_on_a_host_with_control_groups_of_old(
    machines: Callable[..., Machine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = machines(unified=False).boot()
    async with seated(machine, tmp_path / "home", monkeypatch) as seat:
        state = await seat.launch(seat.spec("bash", "-c", "setsid sleep 600 >/dev/null 2>&1 & while sleep 0.1; do date; done"))
        assert state.runner == "system-unit"
        before = await seat.until(state.id, lambda s: (s.members or 0) >= 2)
        assert before.shim_pid is not None
        seat.signal(before.shim_pid)
        await seat.until(state.id, lambda s: s.state == "lost_supervisor" and s.members)
        seat.grows(state.id)
        assert (await seat.kill(state.id)).done
        # systemd in a container is not told when such a group is empty, so the unit itself stays listed
        assert not any(machine.alive(pid) for pid, _ in before.member_pids)
        other = await seat.ticking()
        machine.run("systemctl", "stop", f"eagletui-{other.id}.service")
        over = await seat.state(other.id)
        assert (over.state, over.rc, over.members) == ("exited", -15, 0)


@pytest.mark.fault(30, how="SIGKILL to the main process in its unit; workers in sessions of their own stay")
async def test_workers_that_outlive_their_main_process_are_told_and_killed(seat: Seat) -> None:
    argv = ("/usr/bin/python3", "-I", "-S", SERVER, "--port", "8123")
    state = await seat.launch(seat.spec(*argv, kind="serve", server=True, engine="vllm", port=8123))
    state = await seat.until(state.id, lambda s: s.health == "ready" and s.members == 3)
    assert state.pid is not None
    seat.signal(state.pid)
    left = await seat.until(state.id, lambda s: s.state == "exited")
    assert (left.rc, left.members, left.health) == (-9, 2, "failed")
    assert left.detail is not None
    assert left.detail.startswith("left behind: pid ")
    assert (await seat.kill(state.id)).done
    wait_for("nothing of it", lambda: gone(seat, state))


@pytest.mark.fault(31, how="SIGTERM and SIGKILL races: the supervisor is killed while it ends its job")
async def test_a_supervisor_killed_during_a_kill_leaves_a_job_that_can_be_killed_again(seat: Seat) -> None:
    state = await seat.launch(seat.spec("bash", "-c", "trap '' TERM; while sleep 0.1; do :; done", graces=[60, 60, 10]))
    assert seat.desk is not None
    plan = await seat.desk.session.request("kill_plan", job=state.id)
    await seat.desk.session.request("kill", job=state.id, token=plan["token"], now=False, operator="op", wait=0)
    await seat.until(state.id, lambda s: s.state == "stopping")
    assert state.shim_pid is not None
    seat.signal(state.shim_pid, signal.SIGKILL)
    await seat.until(state.id, lambda s: s.state == "lost_supervisor")
    assert (await seat.kill(state.id, now=True)).done
    wait_for("nothing of it", lambda: gone(seat, state))
