"""What is known of a job after its host or container went down under it; and that nobody is signalled who only has its number."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eagletui.hosts.base import HostError
from tests.machine.nspawn import Machine, wait_for
from tests.machine.seat import Seat, seated


@pytest.fixture
async def seat(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Seat]:
    async with seated(machine, tmp_path / "home", monkeypatch) as found:
        yield found


@pytest.mark.machine
@pytest.mark.timeout(600)
@pytest.mark.fault(26, how="the machine's power is cut; a process with the old pid is there after the boot")
@pytest.mark.fault(28, how="the pid of a job from before a reboot is used again")
async def test_after_a_power_cut_the_status_is_unknown_and_nobody_is_signalled(seat: Seat) -> None:
    state = await seat.ticking()
    seat.grows(state.id)
    await seat.leave()
    seat.machine.power_cut()
    log = seat.file(state.id, "log")
    seat.machine.boot()
    other = seat.machine.process_with_pid(state.pid or 0)
    await seat.sit()
    now = await seat.state(state.id)
    assert (now.state, now.rc, now.members) == ("lost_reboot", None, None)
    assert now.detail == "the host was rebooted while it ran; exit status unknown"
    assert seat.desk is not None
    for method, more in (("kill_plan", {}), ("kill", {"token": "", "now": True})):
        with pytest.raises(HostError, match="rebooted while it ran") as refused:
            await seat.desk.session.request(method, job=state.id, **more)
        assert refused.value.remedy == "there is nothing to end"
    assert seat.machine.alive(other)
    assert seat.file(state.id, "log") == log
    told = await seat.cli("jobs", seat.target)
    assert "lost: reboot" in told
    # the id is taken up again as little as before: the record stays until it is removed
    await seat.desk.session.request("remove", job=state.id)
    assert (await seat.ticking()).state == "running"


@pytest.mark.machine
@pytest.mark.timeout(600)
@pytest.mark.fault(26, how="systemctl reboot")
async def test_a_reboot_in_order_ends_the_job_in_order(seat: Seat) -> None:
    state = await seat.launch(seat.spec("bash", "-c", "trap 'echo saved; exit 5' TERM; while sleep 0.1; do :; done"))
    await seat.until(state.id, lambda s: s.members)
    await seat.leave()
    seat.machine.reboot()
    await seat.sit()
    over = await seat.state(state.id)
    assert (over.state, over.rc, over.members) == ("exited", 5, 0)
    assert over.ended_by == "a stop of its unit (systemctl stop, or the host's shutdown)"
    assert seat.file(state.id, "log") == "saved\n"


@pytest.mark.machine
@pytest.mark.timeout(600)
@pytest.mark.fault(26, how="the power is cut after the main process ended, while workers run")
async def test_a_status_that_was_written_before_the_power_cut_is_kept(seat: Seat) -> None:
    state = await seat.launch(seat.spec("bash", "-c", "setsid sleep 600 & sleep 0.2; exit 3"))
    left = await seat.until(state.id, lambda s: s.state == "exited")
    assert (left.rc, left.members) == (3, 1)
    await seat.leave()
    seat.machine.power_cut()
    seat.machine.boot()
    await seat.sit()
    over = await seat.state(state.id)
    assert (over.state, over.rc, over.members) == ("exited", 3, None)


CONTAINER = """
import json, os, sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tests.agent.jobs_harness import Jobs
jobs = Jobs(Path(os.environ["EAGLETUI_STATE"]))
if sys.argv[2] == "launch":
    state = jobs.launch(jobs.spec("sleep", "600", id="j1"))
    print(json.dumps(state))
else:
    before = json.loads(sys.argv[3])
    # whoever has the numbers now is somebody else
    taken = []
    while os.getpid() < before["pid"] and (not taken or taken[-1] < before["pid"]):
        pid = os.fork()
        if pid == 0:
            time.sleep(600)
        taken.append(pid)
    out = {"taken": before["pid"] in taken, "state": jobs.state("j1")}
    for method, more in (("kill_plan", {}), ("kill", {"token": "", "now": True})):
        try:
            jobs.call(method, job="j1", **more)
        except Exception as error:
            out[method] = str(error)
    out["alive"] = all(os.waitpid(pid, os.WNOHANG)[0] == 0 for pid in taken)
    print(json.dumps(out))
"""


@pytest.mark.fault(27, how="two pid namespaces one after the other over one state directory, with the pids used again")
def test_after_a_restart_of_the_container_nobody_is_signalled(tmp_path: Path) -> None:
    if subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no pid namespace can be made here (it needs CAP_SYS_ADMIN)")

    def container(*argv: str) -> dict[str, object]:
        """A process 1 and what it starts; all of it ends with it, as a container does."""
        done = subprocess.run(
            ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, "-c", CONTAINER, os.getcwd(), *argv],
            capture_output=True, text=True, check=False,
            env={**os.environ, "EAGLETUI_STATE": str(tmp_path / "state"), "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
        return found

    before = container("launch")
    assert before["state"] == "running"
    after = container("look", json.dumps(before))
    state = after["state"]
    assert isinstance(state, dict)
    assert (state["state"], state.get("rc"), state["boot_id"]) == ("lost_container", None, before["boot_id"])
    assert state["detail"] == "it ran in another container, or before this one was restarted; exit status unknown"
    assert after["taken"]
    assert after["alive"]
    for method in ("kill_plan", "kill"):
        assert str(after[method]).endswith(str(state["detail"]))
    wait_for("the end of both containers", lambda: not _left(tmp_path))


def _left(tmp_path: Path) -> list[str]:
    """Supervisors of this test that still run."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(tmp_path) in command:
            found.append(pid)
    return found
