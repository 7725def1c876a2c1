"""Ending jobs: the right processes, all of them, no other; whoever is still there to do it."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagletui.agent import kill, leftovers, procfs, syscalls
from eagletui.agent.calls import CallError
from eagletui.agent.members import Origin, Scanner, here
from eagletui.agent.ports import why_taken
from tests.agent.jobs_harness import Jobs, shim, until


def ready(jobs: Jobs, spec: dict[str, object]) -> dict[str, object]:
    jobs.launch(spec)
    return jobs.wait(str(spec["id"]), lambda s: s.get("health") == "ready")


def test_the_plan_lists_what_dies_and_the_kill_frees_it(jobs: Jobs, stranger: int) -> None:
    spec = jobs.server("--workers", "3", gpus=["GPU-1"])
    state = ready(jobs, spec)
    plan = jobs.call(
        "kill_plan",
        job=spec["id"],
        gpu_processes=[{"uuid": "GPU-1", "pid": state["pid"]}, {"uuid": "GPU-1", "pid": 1}, {"uuid": "GPU-2", "pid": 1}],
    )
    assert len(plan["processes"]) == 4
    assert plan["processes"][0]["pid"] == plan["main"] == state["pid"]
    assert plan["processes"][0]["start"] == state["pid_start"]
    assert "fake_server.py" in plan["processes"][0]["command"]
    assert {process["user"] for process in plan["processes"]} == {procfs.user(os.getuid())}
    assert (plan["port"], plan["listening"], plan["gpus"]) == (spec["port"], True, ["GPU-1"])
    assert plan["gpu_pids"] == [state["pid"]]
    assert plan["suspects"] == [{"uuid": "GPU-1", "pid": 1}]
    assert plan["uptime"] > 0
    assert plan["cost"] == state["ready_seconds"]
    with pytest.raises(CallError, match="not those that were shown"):
        jobs.call("kill", job=spec["id"], token="another")
    answer = jobs.call("kill", job=spec["id"], token=plan["token"], wait=60, operator="ann")
    assert answer["by"] == "shim"
    result = answer["result"]
    assert result["remaining"] == []
    assert result["released"] == ["4 processes", f"port {spec['port']}"]
    assert result["gpus"] is None
    over = jobs.over(str(spec["id"]))
    assert (over["state"], over["health"], over["members"], over["detail"]) == ("exited", "gone", 0, "ended by ann")
    assert over["ended_by"] == "ann"
    for process in plan["processes"]:
        assert not procfs.alive(process["pid"], process["start"])
    assert why_taken(spec["port"]) is None
    with pytest.raises(CallError, match="no process of job"):
        jobs.call("kill_plan", job=spec["id"])


def test_sigterm_ignored_and_workers_of_their_own_session(jobs: Jobs, stranger: int) -> None:
    spec = jobs.server("--ignore-term", "--workers-ignore-term", "--workers", "3", graces=[0.5, 0.5, 10])
    ready(jobs, spec)
    assert len({procfs.read_stat(pid).session for pid, _ in jobs.members(str(spec["id"]))}) == 4  # type: ignore[union-attr]
    answer = jobs.kill(str(spec["id"]))
    assert answer["result"]["remaining"] == []
    assert answer["result"]["released"][0] == "4 processes"
    assert jobs.over(str(spec["id"]))["rc"] == -9


def test_processes_that_fork_during_the_kill(jobs: Jobs, stranger: int) -> None:
    spec = jobs.server("--ignore-term", "--workers-ignore-term", "--forks", graces=[0.2, 0.2, 20])
    ready(jobs, spec)
    answer = jobs.kill(str(spec["id"]))
    assert answer["result"]["remaining"] == []
    assert not jobs.members(str(spec["id"]))


def test_kill_now_does_not_wait(jobs: Jobs) -> None:
    spec = jobs.server("--ignore-term", graces=[500, 500, 10])
    ready(jobs, spec)
    first = jobs.kill(str(spec["id"]), wait=0)
    assert "result" not in first
    jobs.wait(str(spec["id"]), lambda s: s.get("state") == "stopping" and "SIGTERM to the main process" in s.get("detail", ""))
    answer = jobs.call("kill", job=spec["id"], token="", now=True, wait=60)
    assert answer["result"]["remaining"] == []
    assert answer["result"]["seconds"] < 60


def test_a_kill_during_the_load(jobs: Jobs, tmp_path: Path) -> None:
    spec = jobs.server("--hold", str(tmp_path / "never"))
    jobs.launch(spec)
    jobs.wait(str(spec["id"]), lambda s: s.get("members") == 3)
    answer = jobs.kill(str(spec["id"]))
    assert answer["result"]["remaining"] == []
    over = jobs.over(str(spec["id"]))
    assert over["rc"] == -15
    assert jobs.call("job", job=spec["id"])["result"]["why"] == "ended on request before it was ready"


@pytest.mark.fault(29, how="a server that loses the first SIGTERM while it loads, as vLLM does; it is sent again")
def test_a_sigterm_that_is_lost_during_the_load_is_sent_again(jobs: Jobs, tmp_path: Path) -> None:
    spec = jobs.server("--lose-term", "--hold", str(tmp_path / "never"), "--workers", "0", graces=[4, 60, 10])
    job = str(spec["id"])
    jobs.launch(spec)
    jobs.wait(job, lambda s: s.get("phase") == "weights")
    answer = jobs.kill(job)
    assert answer["result"]["remaining"] == []
    over = jobs.over(job)
    assert over["rc"] == -signal.SIGTERM, "the second SIGTERM to the main process ended it, not the one to all, nor SIGKILL"
    assert over["detail"] == "ended on request; a first SIGTERM did nothing, so it was sent again"
    assert answer["result"]["seconds"] >= 2


def test_a_front_whose_engine_has_ended_does_not_have_its_whole_grace(jobs: Jobs) -> None:
    spec = jobs.server("--ignore-term", "--workers", "2", graces=[400, 0.5, 10])
    job = str(spec["id"])
    state = ready(jobs, spec)
    token = jobs.call("kill_plan", job=job)["token"]
    jobs.call("kill", job=job, token=token)
    jobs.wait(job, lambda s: s.get("state") == "stopping")
    for pid, start in jobs.members(job):
        if pid != state["pid"]:
            syscalls.signal_process(pid, start, signal.SIGKILL)
    over = jobs.over(job, 90.0)
    assert over["rc"] == -9
    assert over["detail"] == "ended on request; its other processes had ended before, and it went on without them"
    assert jobs.call("job", job=job)["result"]["remaining"] == []


def test_what_is_no_server_has_its_whole_grace_after_one_sigterm(jobs: Jobs, tmp_path: Path) -> None:
    up = tmp_path / "up"
    spec = jobs.spec("/bin/sh", "-c", f"trap '' TERM; : > {up}; while :; do sleep 60; done", graces=[0.4, 0.2, 10])
    jobs.launch(spec)
    until(up.exists)
    assert jobs.kill(str(spec["id"]))["result"]["remaining"] == []
    assert jobs.over(str(spec["id"]))["detail"] == "ended on request"


def test_the_kill_goes_on_without_the_client(jobs: Jobs) -> None:
    spec = jobs.server("--ignore-term", graces=[1, 1, 10])
    ready(jobs, spec)
    pid = os.fork()
    if pid == 0:  # an agent that dies with the request just sent
        jobs.kill(str(spec["id"]), wait=0)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    over = jobs.over(str(spec["id"]))
    assert over["members"] == 0
    assert jobs.call("job", job=spec["id"])["result"]["remaining"] == []


def test_the_supervisor_is_killed_and_the_job_lives(jobs: Jobs, stranger: int) -> None:
    spec = jobs.server("--workers", "2", "--workers-ignore-term")
    state = ready(jobs, spec)
    members = jobs.members(str(spec["id"]))
    assert len(members) == 3
    syscalls.signal_process(state["shim_pid"], state["shim_start"], signal.SIGKILL)  # type: ignore[arg-type]
    until(lambda: not shim(state))
    lost = jobs.state(str(spec["id"]))
    assert lost["state"] == "lost_supervisor"
    assert lost["detail"] == "running, its exit status will be unknown: the supervisor died"
    assert "rc" not in lost
    assert set(jobs.members(str(spec["id"]))) == set(members)
    # the lease is the main process's too: nobody gets the port meanwhile
    with pytest.raises(CallError, match=r"is leased by job|is held by"):
        jobs.launch(jobs.spec("true", port=spec["port"]))
    answer = jobs.kill(str(spec["id"]))
    assert answer["by"] == "helper"
    assert answer["result"]["remaining"] == []
    assert not jobs.members(str(spec["id"]))
    gone = jobs.wait(str(spec["id"]), lambda s: not s.get("members"))
    assert gone["state"] == "lost_supervisor"
    assert "rc" not in gone


def test_own_session_workers_are_found_by_the_log_alone(jobs: Jobs) -> None:
    spec = jobs.server("--workers", "2")
    state = ready(jobs, spec)
    origin = jobs.job(str(spec["id"])).origin()
    assert origin is not None
    workers = [key for key in jobs.members(str(spec["id"])) if key[0] != state["pid"]]
    for pid in (state["shim_pid"], state["pid"]):
        os.kill(pid, signal.SIGKILL)  # type: ignore[arg-type]
    until(lambda: not procfs.alive(state["pid"], state["pid_start"]))  # type: ignore[arg-type]
    scanner = Scanner(origin._replace(known=frozenset()))
    assert sorted(scanner.scan()) == sorted(workers)


def test_the_api_server_is_killed_and_its_workers_are_cleared(jobs: Jobs, stranger: int) -> None:
    names = [f"/dev/shm/psm_test{os.getpid()}{n}" for n in range(2)]
    spec = jobs.server("--workers", "2", "--shm", names[0], "--shm", names[1])
    state = ready(jobs, spec)
    os.kill(state["pid"], signal.SIGKILL)  # type: ignore[arg-type]
    left = jobs.wait(str(spec["id"]), lambda s: s.get("state") == "exited")
    assert (left["rc"], left["members"], left["health"]) == (-9, 2, "failed")
    assert left["detail"].startswith("left behind: pid ")
    plan = jobs.call("kill_plan", job=spec["id"])
    assert plan["main"] is None
    assert {entry["path"]: entry["why"] for entry in plan["shm"] if entry["path"] in names} == dict.fromkeys(names, "used")
    answer = jobs.kill(str(spec["id"]))
    assert set(names) <= set(answer["result"]["released"])
    assert not any(os.path.exists(name) for name in names)
    over = jobs.over(str(spec["id"]))
    # what was ended is what it left: the server itself had failed, and stays told as failed
    assert (over["state"], over["rc"], over["health"], over.get("ended_by")) == ("exited", -9, "failed", None)
    assert over["detail"].startswith("ended after it was ready, though nobody here asked for it: ended by SIGKILL; what it left")
    assert jobs.call("job", job=spec["id"])["result"]["ok"] is False


def test_a_server_that_had_failed_stays_failed_when_its_workers_are_cleared_without_its_supervisor(jobs: Jobs) -> None:
    spec = jobs.server("--workers", "2")
    state = ready(jobs, spec)
    os.kill(state["pid"], signal.SIGKILL)  # type: ignore[arg-type]
    jobs.wait(str(spec["id"]), lambda s: s.get("state") == "exited")
    os.kill(state["shim_pid"], signal.SIGKILL)  # type: ignore[arg-type]
    until(lambda: not procfs.alive(state["shim_pid"], state["shim_start"]))  # type: ignore[arg-type]
    assert jobs.kill(str(spec["id"]))["result"]["remaining"] == []
    over = jobs.wait(str(spec["id"]), lambda s: not s.get("members"))
    assert (over["state"], over["rc"], over["health"], over.get("ended_by")) == ("exited", -9, "failed", None)
    assert over["detail"] == "what it left behind was ended by request; its supervisor had died"


def _number(path: str) -> tuple[int, int]:
    info = os.lstat(path)
    return info.st_dev, info.st_ino


def test_what_others_use_is_not_removed(tmp_path: Path) -> None:
    used, free = f"/dev/shm/psm_used{os.getpid()}", f"/dev/shm/psm_free{os.getpid()}"
    maybe = f"/dev/shm/psm_maybe{os.getpid()}"
    for path in (used, free, maybe):
        Path(path).write_bytes(b"x")
    try:
        with open(used, "rb"):
            found = {entry.path: entry.why for entry in leftovers.find([], os.geteuid(), 0, known={free: _number(free)})}
            assert found[free] == "used"
            assert found[maybe] == "since"
            assert used not in found
            files = {used: "used", free: "used", maybe: "since", "/etc/passwd": "used", str(tmp_path): "used"}
            said = leftovers.remove(files, os.geteuid())
        # while another engine has its files in use, what is only young and unused may be that one's
        assert said == {used: "in use by another process", free: "", maybe: "it may be another engine's"}
        assert os.path.exists(used)
        assert not os.path.exists(free)
    finally:
        os.unlink(used)
        os.unlink(maybe)


def test_in_a_container_only_what_was_seen_in_use_is_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    young, own = tmp_path / "psm_young", tmp_path / "psm_own"
    files = {str(young): leftovers.SINCE, str(own): leftovers.USED}
    monkeypatch.setattr(leftovers, "SHM", str(tmp_path))
    monkeypatch.setattr(leftovers, "used_paths", lambda *_: set())
    monkeypatch.setattr(leftovers, "sees_all_processes", lambda: False)
    young.touch()
    own.touch()
    said = leftovers.remove(files, os.geteuid(), (str(tmp_path),))
    assert said == {str(young): "it may be another engine's", str(own): ""}
    assert young.exists()


def test_a_socket_that_is_bound_stays() -> None:
    path = f"/tmp/0b9ff1a2-0000-4000-8000-{os.getpid():012x}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        assert path in leftovers.used_paths([os.getpid()])
        mine = leftovers.find([os.getpid()], os.geteuid(), 0)
        assert (path, "used") in [(entry.path, entry.why) for entry in mine]
        assert path not in [entry.path for entry in leftovers.find([], os.geteuid(), 0)]
        assert leftovers.remove({path: "used"}, os.geteuid()) == {path: "in use by another process"}
    assert leftovers.remove({path: "used"}, os.geteuid()) == {path: ""}


def test_a_reused_pid_is_not_signalled(stranger: int) -> None:
    stat = procfs.read_stat(stranger)
    assert stat is not None
    assert syscalls.signal_process(stranger, stat.start - 1, signal.SIGKILL) is False
    boot_id, namespace, first = here()
    key = (stranger, stat.start - 1)
    scanner = Scanner(Origin(boot_id, namespace, first, (999999, 1), key, None, None, frozenset([key])))
    assert scanner.scan() == {}
    assert scanner.refresh() == {}


def test_without_pidfds_the_start_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syscalls, "_pidfd_open", lambda pid: None)
    process = subprocess.Popen(["sleep", "600"])
    stat = procfs.read_stat(process.pid)
    assert stat is not None
    assert syscalls.signal_process(process.pid, stat.start + 1, signal.SIGKILL) is False
    assert process.poll() is None
    assert syscalls.signal_process(process.pid, stat.start, signal.SIGKILL) is True
    assert process.wait() == -9
    assert syscalls.signal_process(1, 0, signal.SIGTERM) is False


def test_an_uninterruptible_process_is_told_as_such() -> None:
    stat = procfs.Stat(4242, "cat", "D", 1, 4242, 4242, 5, 0, 0, 1, 10)
    assert kill.stuck_text(stat, {}) == "pid 4242 (cat): uninterruptible, waiting on ?"
    assert kill.stuck_text(stat._replace(state="S"), {4242: "not ours to signal"}) == "pid 4242 (cat): not ours to signal"
    told = kill.release({}, [stat], {}, 2, {})
    assert told["released"] == ["2 processes"]
    assert told["remaining"] == ["pid 4242 (cat): uninterruptible, waiting on ?"]


def test_the_token_is_the_main_process_or_the_leftovers() -> None:
    main, a, b = (10, 100), (11, 110), (12, 120)
    assert kill.token("j", "boot", main, [main, a]) == kill.token("j", "boot", main, [b, main])
    assert kill.token("j", "boot", main, [a, b]) == kill.token("j", "boot", main, [b, a])
    texts = {
        kill.token("j", "boot", main, [main]),
        kill.token("j", "boot", main, [a]),
        kill.token("j", "boot", (10, 101), [(10, 101)]),
        kill.token("j", "other", main, [main]),
        kill.token("k", "boot", main, [main]),
    }
    assert len(texts) == 5


def test_a_stopped_supervisor_is_told(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    from eagletui.agent import jobs_api

    monkeypatch.setattr(jobs_api, "REACT", 0.5)
    spec = jobs.spec("sleep", "600")
    state = jobs.launch(spec)
    os.kill(state["shim_pid"], signal.SIGSTOP)
    with pytest.raises(CallError, match=rf"supervisor \(pid {state['shim_pid']}\) does not take up the request"):
        jobs.kill(spec["id"], wait=0)
    os.kill(state["shim_pid"], signal.SIGCONT)
    assert jobs.over(spec["id"])["rc"] == -15


def test_the_end_of_the_unit_ends_the_job(jobs: Jobs) -> None:
    spec = jobs.spec(sys.executable, "-c", "import time; time.sleep(600)")
    state = jobs.launch(spec)
    syscalls.signal_process(state["shim_pid"], state["shim_start"], signal.SIGTERM)
    over = jobs.over(spec["id"])
    assert (over["rc"], over["detail"]) == (-15, "ended by SIGTERM to the supervisor")


HALF_GONE = """
import ctypes, os, threading, time
threading.Thread(target=lambda: time.sleep(300)).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
"""


def test_a_main_process_whose_first_thread_has_ended_is_no_zombie(jobs: Jobs) -> None:
    spec = jobs.spec(sys.executable, "-I", "-S", "-c", HALF_GONE)
    state = jobs.launch(spec)
    until(lambda: getattr(procfs.read_stat(state["pid"]), "state", "") == "Z")
    assert procfs.alive(state["pid"], state["pid_start"])
    assert [pid for pid, _ in jobs.members(str(spec["id"]))] == [state["pid"]]
    answer = jobs.kill(str(spec["id"]), now=True)
    assert answer["result"]["released"] == ["1 process"]
    over = jobs.over(str(spec["id"]))
    assert (over["state"], over["rc"], over["members"]) == ("exited", -9, 0)


@pytest.mark.fault(32, how="a main process whose supervisor is dead, adopted by a process that reaps nothing")
def test_a_main_process_that_nobody_reaps_is_gone(jobs: Jobs, subreaper: None) -> None:
    """In a container whose process 1 reaps nothing, a main process stays a zombie once its supervisor has died."""
    spec = jobs.spec("sleep", "300")
    state = jobs.launch(spec)
    job = str(spec["id"])
    assert syscalls.signal_process(state["shim_pid"], state["shim_start"], signal.SIGKILL)
    until(lambda: getattr(procfs.read_stat(state["pid"]), "ppid", 0) == os.getpid())
    lost = jobs.state(job)
    assert (lost["state"], lost["members"]) == ("lost_supervisor", 1)
    assert lost["detail"].startswith("running, its exit status will be unknown")
    assert syscalls.signal_process(state["pid"], state["pid_start"], signal.SIGTERM)
    until(lambda: getattr(procfs.read_stat(state["pid"]), "state", "") == "Z")
    gone = jobs.state(job)
    assert (gone["state"], gone.get("rc"), gone.get("members")) == ("lost_supervisor", None, None)
    assert gone["detail"] == "gone, exit status unknown: the supervisor died"
    with pytest.raises(CallError, match="no process of job"):
        jobs.call("kill_plan", job=job)
    for pid in (state["pid"], state["shim_pid"]):
        os.waitpid(pid, 0)


@pytest.fixture
def subreaper() -> Iterator[None]:
    """We adopt the orphans below us for a while, and reap none."""
    assert syscalls.become_subreaper()
    yield
    assert ctypes.CDLL(None).prctl(36, 0, 0, 0, 0) == 0


def test_the_kill_of_a_busy_server_that_ignores_sigterm(jobs: Jobs, stranger: int) -> None:
    spec = jobs.server("--ignore-term", "--workers-ignore-term", graces=[0.5, 0.5, 10])
    ready(jobs, spec)
    job = str(spec["id"])
    with socket.create_connection(("127.0.0.1", int(str(spec["port"])))) as client:
        client.sendall(b"POST /never HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
        log = jobs.root / "jobs" / job / "log"
        until(lambda: b"takes for ever" in log.read_bytes())
        answer = jobs.kill(job, operator="ann")
        client.settimeout(10)
        try:
            assert client.recv(100) == b""
        except ConnectionResetError:
            pass  # the other end was killed with bytes unread: as good an end
        result = answer["result"]
        assert result["remaining"] == []
        assert result["released"] == ["3 processes", f"port {spec['port']}"]
        assert result["seconds"] >= 1.0
    over = jobs.over(job)
    told = "ended by ann; a first SIGTERM did nothing, so it was sent again"
    assert (over["state"], over["rc"], over["health"], over["detail"]) == ("exited", -9, "gone", told)
    assert (over["members"], over["member_pids"]) == (0, [])
    assert jobs.call("job", job=job)["result"]["why"] == "served, ended on request"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_that_ends_unasked_has_failed_whatever_its_status(jobs: Jobs, number: signal.Signals) -> None:
    """vLLM ends with status 0 when its engine has died: that looked like a normal end."""
    spec = jobs.server("--workers", "0")
    state = ready(jobs, spec)
    os.kill(int(str(state["pid"])), number)
    over = jobs.over(str(spec["id"]))
    assert (over["state"], over["health"], over.get("ended_by")) == ("exited", "failed", None)
    status = "ended by SIGKILL" if number == signal.SIGKILL else "exit status 0"
    assert over["rc"] == (-9 if number == signal.SIGKILL else 0)
    assert over["detail"] == "ended after it was ready, though nobody here asked for it: " + status


def test_what_all_containers_of_a_user_share_is_no_leftover_of_one(tmp_path: Path) -> None:
    info = os.stat(sys.executable)  # any regular file
    assert leftovers._may_be_left("/dev/shm/anything", info, leftovers.USED)
    for name in ("libpod_lock", "libpod_rootless_lock_1000"):
        assert not leftovers._may_be_left(f"/dev/shm/{name}", info, leftovers.USED)
