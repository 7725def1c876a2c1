"""Ending what does not want to end: signals ignored, sessions and environments of their own, forks during the kill, zombies."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from eagletui.agent import leases, procfs, syscalls
from eagletui.agent.calls import CallError
from tests.agent.jobs_harness import Jobs, shim, until

# every member of these jobs runs a file of this name, so that a stray one would be found also when the job has lost it
NAME = "et_fault_member"


def program(tmp_path: Path, text: str) -> list[str]:
    """A Python program under a name that a test can look for in all of /proc."""
    path = tmp_path / f"{NAME}_{os.getpid()}_{tmp_path.name}.py"
    path.write_text("import os, signal, sys, time\n" + text)
    return [sys.executable, "-I", "-S", str(path)]


def strays(argv: list[str]) -> list[int]:
    found = []
    for pid in procfs.pids():
        stat = procfs.read_stat(pid)
        if stat is not None and not stat.dead and argv[-1] in procfs.argv(pid):
            found.append(pid)
    return found


def gone(jobs: Jobs, job: str, argv: list[str], answer: dict[str, Any]) -> None:
    assert answer["result"]["remaining"] == [], answer
    assert not jobs.members(job)
    assert strays(argv) == []
    over = jobs.over(job)
    assert over["members"] == 0
    assert over["ended_by"]


CHAIN = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
end = time.monotonic() + 110  # one that nobody could end must not eat a core for ever
if os.fork() == 0:
    os.setsid()
    open(sys.argv[0] + ".pid", "w").write("x")
    while os.fork() == 0:  # the child goes on, the parent ends: nobody lives for longer than a fork takes
        if time.monotonic() > end:
            break
    os._exit(0)
while True:
    time.sleep(60)
"""

SPREADING = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
end = time.monotonic() + 110
open(sys.argv[0] + ".pid", "w").write("x")
for number in range(8):
    if os.fork() == 0:
        os.setsid()
        while time.monotonic() < end:  # short-lived children, in sessions of their own, that fork once more
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    time.sleep(0.05)
                os._exit(0)
            time.sleep(0.02)
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                pass
while True:
    time.sleep(60)
"""


@pytest.mark.fault(29, how="members that fork short-lived children in sessions of their own, during the kill")
@pytest.mark.parametrize("text", [SPREADING, CHAIN], ids=["spreading", "chain"])
def test_a_fork_bomb_of_short_lived_children_is_ended(text: str, jobs: Jobs, tmp_path: Path, stranger: int) -> None:
    argv = program(tmp_path, text)
    spec = jobs.spec(*argv, graces=[0.2, 0.2, 60])
    jobs.launch(spec)
    until(Path(argv[-1] + ".pid").exists)
    gone(jobs, spec["id"], argv, jobs.kill(spec["id"], wait=110))


DAEMON = """
if os.fork():
    while not os.path.exists(sys.argv[0] + ".pid"):
        time.sleep(0.01)
    time.sleep(600)
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
null = os.open("/dev/null", os.O_RDWR)
for fd in (0, 1, 2):
    os.dup2(null, fd)
os.closerange(3, 256)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if len(sys.argv) == 1:
    with open(sys.argv[0] + ".pid.new", "w") as file:
        file.write(str(os.getpid()))
    os.rename(sys.argv[0] + ".pid.new", sys.argv[0] + ".pid")
    os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)", sys.argv[0]], {})
"""


def daemon_of(argv: list[str]) -> int:
    path = Path(argv[-1] + ".pid")
    until(lambda: path.exists() and path.read_text())
    return int(path.read_text())


@pytest.mark.fault(29, how="a child that daemonises itself: other session, no descriptor, no environment, SIGTERM ignored")
def test_a_daemon_with_a_cleaned_environment_is_the_jobs(jobs: Jobs, tmp_path: Path, stranger: int) -> None:
    argv = program(tmp_path, DAEMON)
    spec = jobs.spec(*argv, graces=[0.3, 0.3, 20])
    jobs.launch(spec)
    daemon = daemon_of(argv)
    until(lambda: not procfs.environ(daemon))
    assert daemon in [pid for pid, _ in jobs.members(spec["id"])]
    gone(jobs, spec["id"], argv, jobs.kill(spec["id"]))


@pytest.mark.fault(31, how="SIGKILL of the supervisor of a job whose child has daemonised itself")
def test_a_daemon_is_known_after_the_supervisors_death(jobs: Jobs, tmp_path: Path, stranger: int) -> None:
    argv = program(tmp_path, DAEMON)
    spec = jobs.spec(*argv, graces=[0.3, 0.3, 20])
    state = jobs.launch(spec)
    job, daemon = str(spec["id"]), daemon_of(argv)
    jobs.wait(job, lambda s: daemon in [pid for pid, _ in s.get("member_pids", ())])
    assert syscalls.signal_process(state["shim_pid"], state["shim_start"], signal.SIGKILL)
    until(lambda: not shim(state))
    lost = jobs.state(job)
    assert (lost["state"], lost["members"], lost.get("rc")) == ("lost_supervisor", 2, None)
    assert daemon in [pid for pid, _ in jobs.members(job)]
    answer = jobs.kill(job)
    assert (answer["by"], answer["result"]["remaining"]) == ("helper", [])
    assert strays(argv) == []


@pytest.mark.fault(31, how="SIGKILL of the supervisor while its job writes")
def test_a_job_lives_on_and_its_log_grows_without_its_supervisor(jobs: Jobs, tmp_path: Path, stranger: int) -> None:
    argv = program(tmp_path, "while True:\n    os.write(1, b'a line\\n')\n    time.sleep(0.02)\n")
    spec = jobs.spec(*argv, gpus=["GPU-31"])
    state = jobs.launch(spec)
    job, log = str(spec["id"]), jobs.root / "jobs" / str(spec["id"]) / "log"
    assert syscalls.signal_process(state["shim_pid"], state["shim_start"], signal.SIGKILL)
    until(lambda: not shim(state))
    size = log.stat().st_size
    until(lambda: log.stat().st_size > size + 100)
    assert jobs.state(job)["detail"] == "running, its exit status will be unknown: the supervisor died"
    with pytest.raises(CallError, match="gpu GPU-31 is leased by job " + job):
        jobs.launch(jobs.spec("true", gpus=["GPU-31"]))
    answer = jobs.kill(job)
    assert (answer["by"], answer["result"]["remaining"]) == ("helper", [])
    until(lambda: not jobs.state(job).get("members"))
    assert jobs.state(job).get("rc") is None
    assert set(log.read_bytes().splitlines()) == {b"a line"}
    until(lambda: _free(jobs, "gpu-GPU-31"))


def _free(jobs: Jobs, lease: str) -> bool:
    try:
        for fd in leases.take(str(jobs.root), [lease], {}):
            os.close(fd)
    except leases.LeaseTaken:
        return False
    return True


@pytest.mark.fault(30, how="SIGKILL of an API server whose workers have sessions, environments and titles of their own")
def test_workers_of_a_dead_api_server_are_told_and_cleared(jobs: Jobs, stranger: int) -> None:
    spec = jobs.server("--workers", "3", "--workers-ignore-term", graces=[0.5, 0.5, 20])
    jobs.launch(spec)
    state = jobs.wait(spec["id"], lambda s: s.get("health") == "ready" and s.get("members") == 4)
    os.kill(state["pid"], signal.SIGKILL)
    left = jobs.wait(spec["id"], lambda s: s.get("state") == "exited")
    assert (left["rc"], left["members"], left["health"]) == (-9, 3, "failed")
    pids = sorted(int(pid) for pid in re.findall(r"pid (\d+)", left["detail"]))
    assert pids == sorted(pid for pid, _ in jobs.members(spec["id"]))
    answer = jobs.kill(spec["id"])
    assert answer["result"]["remaining"] == []
    assert answer["result"]["released"] == ["3 processes", f"port {spec['port']}"]
    assert jobs.over(spec["id"])["rc"] == -9


ZOMBIES = """
for number in range(5):
    if os.fork() == 0:
        os._exit(0)
open(sys.argv[0] + ".pid", "w").write("x")
time.sleep(600)
"""


@pytest.mark.fault(32, how="children that their parent never reaps")
def test_zombies_of_a_living_main_process_are_not_counted(jobs: Jobs, tmp_path: Path) -> None:
    argv = program(tmp_path, ZOMBIES)
    spec = jobs.spec(*argv)
    state = jobs.launch(spec)
    until(lambda: sum(getattr(procfs.read_stat(p), "state", "") == "Z" for p in procfs.children(state["pid"])) == 5)
    jobs.wait(spec["id"], lambda s: s.get("cpu") is not None and s.get("members") == 1)
    plan = jobs.call("kill_plan", job=spec["id"])
    assert [process["pid"] for process in plan["processes"]] == [state["pid"]]
    answer = jobs.kill(spec["id"])
    assert answer["result"]["released"] == ["1 process"]
    assert jobs.over(spec["id"])["rc"] == -15
