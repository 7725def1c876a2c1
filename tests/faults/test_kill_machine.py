"""What needs root and devices: a member that the kernel holds, and pids that are given out again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagletui.agent import procfs, syscalls
from eagletui.agent.calls import CallError
from tests.agent.jobs_harness import Jobs, shim, until

pytestmark = pytest.mark.machine


class Frozen:
    """A small ext4 on a loop device that can be frozen: who writes there then is uninterruptible."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.frozen = False

    def freeze(self) -> None:
        subprocess.run(["fsfreeze", "-f", str(self.place)], check=True)
        self.frozen = True

    def thaw(self) -> None:
        if self.frozen:
            self.frozen = False
            subprocess.run(["fsfreeze", "-u", str(self.place)], check=True)


@pytest.fixture
def disk(tmp_path: Path, root_user: None) -> Iterator[Frozen]:
    image, place = tmp_path / "image", tmp_path / "ext4"
    with image.open("wb") as file:
        file.truncate(32 << 20)
    place.mkdir()
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(place)], check=True)
    made = Frozen(place)
    try:
        yield made
    finally:
        made.thaw()  # whatever has happened
        subprocess.run(["umount", "-l", str(place)], check=True)


WRITES = """
import os, sys, time
child = len(sys.argv) > 3 and os.fork() == 0
if child:
    os.setsid()
elif len(sys.argv) > 3:
    time.sleep(600)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
open(os.path.join(sys.argv[1], "file"), "w").write("x")
time.sleep(600)
"""


def blocked(jobs: Jobs, job: str) -> list[int]:
    return [pid for (pid, _), stat in jobs.members(job).items() if stat.state == "D"]


@pytest.mark.fault(33, how="a main process that writes into a frozen ext4 on a loop device")
def test_a_member_that_the_kernel_holds_is_told_and_keeps_its_lease(jobs: Jobs, disk: Frozen, tmp_path: Path) -> None:
    go = tmp_path / "go"
    spec = jobs.spec(sys.executable, "-c", WRITES, str(disk.place), str(go), gpus=["GPU-33"], graces=[0.3, 0.3, 1.5])
    job = str(spec["id"])
    state = jobs.launch(spec)
    try:
        disk.freeze()
        go.touch()
        until(lambda: blocked(jobs, job) == [state["pid"]])
        jobs.wait(job, lambda s: s.get("blocked") == 1)
        answer = jobs.kill(job, operator="ann")
        (remaining,) = answer["result"]["remaining"]
        assert remaining.startswith(f"pid {state['pid']} (python"), remaining
        assert "uninterruptible, waiting on " in remaining
        assert answer["result"]["released"] == []
        held = jobs.wait(job, lambda s: s.get("detail", "").startswith("cannot be ended: "))
        assert (held["members"], held.get("ended_by"), held.get("rc")) == (1, None, None)
        with pytest.raises(CallError, match=f"gpu GPU-33 is leased by job {job}"):
            jobs.launch(jobs.spec("true", gpus=["GPU-33"]))
        assert shim(held)
    finally:
        disk.thaw()
    over = jobs.over(job)
    assert (over["ended_by"], over["state"]) == ("ann", "exited")
    assert over["rc"] in (-15, -9)  # both lay there when it came back
    result = jobs.call("job", job=job)["result"]
    assert (result["remaining"], result["released"]) == ([], ["1 process"])
    assert jobs.launch(jobs.spec("true", gpus=["GPU-33"]))["state"] in ("running", "exited")


@pytest.mark.fault(33, how="a child of its own session that writes into a frozen ext4, its supervisor and main process dead")
def test_a_held_child_without_its_supervisor_keeps_the_lease_too(jobs: Jobs, disk: Frozen, tmp_path: Path) -> None:
    go = tmp_path / "go"
    argv = [sys.executable, "-c", WRITES, str(disk.place), str(go), "child"]
    spec = jobs.spec(*argv, gpus=["GPU-34"], graces=[0.3, 0.3, 1.5])
    job = str(spec["id"])
    state = jobs.launch(spec)
    try:
        jobs.wait(job, lambda s: s.get("members") == 2)
        disk.freeze()
        go.touch()
        until(lambda: blocked(jobs, job))
        (child,) = blocked(jobs, job)
        assert syscalls.signal_process(state["shim_pid"], state["shim_start"], signal.SIGKILL)
        until(lambda: not shim(state))
        answer = jobs.kill(job)
        assert answer["by"] == "helper"
        assert [text.partition(" (")[0] for text in answer["result"]["remaining"]] == [f"pid {child}"]
        assert not procfs.alive(state["pid"], state["pid_start"])
        with pytest.raises(CallError, match=f"gpu GPU-34 is leased by job {job}"):
            jobs.launch(jobs.spec("true", gpus=["GPU-34"]))
    finally:
        disk.thaw()
    until(lambda: not jobs.members(job))
    gone = jobs.wait(job, lambda s: not s.get("members") and s.get("ended_by"))
    assert gone.get("rc") is None
    until(lambda: not shim(jobs.job(job).stored_state() or {}))
    assert jobs.call("job", job=job)["result"]["remaining"] == []
    assert jobs.launch(jobs.spec("true", gpus=["GPU-34"]))["state"] in ("running", "exited")


# in a pid namespace of its own: process 1 reaps, its child plays the host
REUSED = """
import json, os, signal, sys, time
from pathlib import Path
if os.fork():
    status = 0
    while True:
        try:
            pid, ended = os.wait()
        except ChildProcessError:
            break
        if pid == 2:
            status = ended
            break
    os._exit(1 if status else 0)
from eagletui.agent import procfs, syscalls
from eagletui.agent.calls import CallError
from tests.agent.jobs_harness import Jobs, shim, until

def another(pid):
    # whoever is started next gets this number
    for _ in range(200):
        with open("/proc/sys/kernel/ns_last_pid", "w") as file:
            file.write(str(pid - 1))
        child = os.fork()
        if child == 0:
            time.sleep(600)
            os._exit(0)
        if child == pid:
            return procfs.read_stat(pid)
        os.kill(child, 9)
        os.waitpid(child, 0)
    raise SystemExit("pid %d was not given out again" % pid)

jobs = Jobs(Path(os.environ["EAGLETUI_STATE"]))
spec = jobs.spec("sleep", "600", port=12345)
state = jobs.launch(spec)
job = spec["id"]
plan = jobs.call("kill_plan", job=job)
for name in ("shim_pid", "pid"):
    os.kill(state[name], 9)
    until(lambda: procfs.read_stat(state[name]) is None)
strangers = {name: another(state[name]) for name in ("pid", "shim_pid")}
out = {"same": [strangers["pid"].pid == state["pid"], strangers["shim_pid"].pid == state["shim_pid"]]}
out["starts_differ"] = [strangers["pid"].start != state["pid_start"], strangers["shim_pid"].start != state["shim_start"]]
now = jobs.state(job)
out["state"], out["detail"], out["members"] = now["state"], now["detail"], now.get("members")
out["refused"] = []
for method, params in (("kill_plan", {}), ("kill", {"token": plan["token"]}), ("kill", {"token": plan["token"], "now": True})):
    try:
        jobs.call(method, job=job, **params)
        out["refused"].append("not refused")
    except CallError as error:
        out["refused"].append(error.why)
out["signalled"] = [syscalls.signal_process(state["pid"], state["pid_start"], 9)]
out["alive"] = [procfs.alive(s.pid, s.start) for s in strangers.values()]
again = jobs.launch(jobs.spec("true", port=12345))
out["port"] = again["state"]
print(json.dumps(out))
"""


@pytest.mark.fault(28, how="the pids of a dead job and its supervisor given to strangers by ns_last_pid, in a pid namespace")
def test_strangers_with_the_pids_of_a_dead_job_are_not_touched(tmp_path: Path, root_user: None) -> None:
    env = {**os.environ, "EAGLETUI_STATE": str(tmp_path / "state"), "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    argv = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, "-c", REUSED]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["same"] == said["starts_differ"] == [True, True]
    assert (said["state"], said["members"]) == ("lost_supervisor", None)
    assert said["detail"] == "gone, exit status unknown: the supervisor died"
    assert len(said["refused"]) == 3
    assert all("no process of job" in why for why in said["refused"]), said
    assert said["signalled"] == [False]
    assert said["alive"] == [True, True]
    assert said["port"] in ("running", "exited")
