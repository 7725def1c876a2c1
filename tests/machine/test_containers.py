"""Jobs in real containers: they start, are watched, survive what they should, and nothing of them stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagletui.agent import adopt, procfs
from eagletui.agent.ports import why_taken
from eagletui.agent.syscalls import signal_process
from eagletui.profile_launch import launch_spec
from tests.agent.adopt_harness import install
from tests.agent.jobs_harness import Jobs, free_port, lines, shim, until
from tests.machine import podman

pytestmark = [pytest.mark.machine, pytest.mark.timeout(300)]
CANARY = "canary-5f0c1a77"


@pytest.fixture
def jobs(image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    monkeypatch.setenv("EAGLETUI_STATE", str(tmp_path / "state"))
    for name, value in podman.environment().items():
        monkeypatch.setenv(name, value)
    found = Jobs(tmp_path / "state")
    yield found
    for job in found.launched:
        podman.remove(job)
    found.clean()


def served(jobs: Jobs, *flags: str, **more: object) -> dict[str, object]:
    """The state of a job from a container profile, once its server is ready."""
    job = f"box-{os.urandom(4).hex()}"
    spec = launch_spec(podman.fake_profile("box", free_port(), *flags, **more), job)
    secrets = dict.fromkeys(more.get("secrets", ()), CANARY)  # type: ignore[attr-defined]
    jobs.launch(spec, secrets=secrets)
    return jobs.wait(job, lambda s: s.get("health") == "ready" and s.get("container"), 90)


def pids_of(comm: str, name: str) -> list[tuple[int, int]]:
    """The podman client or monitor of the container with this name: (pid, start)."""
    found = []
    for pid in procfs.pids():
        stat = procfs.read_stat(pid)
        if stat is not None and stat.comm == comm and name in procfs.argv(pid):
            found.append((pid, stat.start))
    return found


def nothing_left(jobs: Jobs, state: dict[str, object]) -> None:
    job, port = str(state["id"]), state["port"]
    assert isinstance(port, int)
    until(lambda: not podman.names(job), 60, "the container is removed")
    assert why_taken(port) is None
    assert not jobs.members(job)
    assert not pids_of("conmon", f"eagletui-{job}")


def test_a_server_in_a_container_is_a_job_like_any_other(jobs: Jobs) -> None:
    state = served(jobs, "--workers", "3", env={"PLAIN": "seen"}, secrets=("HF_TOKEN",))
    job = str(state["id"])
    assert (state["runner"], state["image"]) == ("podman", podman.IMAGE)
    main = state["pid"]
    assert isinstance(main, int)
    assert procfs.nspid(main)[-1] == 1
    assert procfs.environ(main).items() >= {"PLAIN": "seen", "HF_TOKEN": CANARY}.items()  # type: ignore[union-attr]
    # its lines are in the job's own log, and mean what they mean elsewhere
    log = (jobs.root / "jobs" / job / "log").read_text()
    assert "Application startup complete" in log
    assert state["engine_version"] == "0.32.0"
    assert [phase["id"] for phase in state["phases"]]  # type: ignore[attr-defined]
    samples = jobs.root / "jobs" / job / "samples.jsonl"
    until(lambda: samples.exists() and list(lines(samples)), 60, "samples of its metrics")
    members = jobs.members(job)
    assert sum(stat.comm.startswith("python") for stat in members.values()) == 4
    # no secret in any argument, nor in what is kept
    for pid in procfs.pids():
        assert CANARY not in (procfs.cmdline(pid, 1 << 16) or "")
    kept = b"".join(path.read_bytes() for path in (jobs.root / "jobs" / job).iterdir() if path.is_file())
    assert CANARY.encode() not in kept
    plan = jobs.call("kill_plan", job=job)
    assert plan["lever"] == f"podman stop -t 20 eagletui-{job}"
    assert plan["main"] == main
    answer = jobs.call("kill", job=job, token=plan["token"], wait=60)
    assert answer["result"]["remaining"] == []
    over = jobs.over(job, 60)
    assert (over["state"], over["health"], over["rc"]) == ("exited", "gone", 0)
    nothing_left(jobs, state)


@pytest.mark.fault(29, how="a container whose processes ignore SIGTERM, ended by podman stop")
def test_what_ignores_sigterm_is_ended_by_the_engine(jobs: Jobs) -> None:
    state = served(jobs, "--ignore-term", "--workers-ignore-term", graces=(1, 1, 20))
    answer = jobs.kill(str(state["id"]))
    assert answer["result"]["remaining"] == []
    assert jobs.over(str(state["id"]), 60)["rc"] == 137
    nothing_left(jobs, state)


def test_kill_now_skips_the_grace(jobs: Jobs) -> None:
    state = served(jobs, "--ignore-term", graces=(300, 300, 20))
    answer = jobs.kill(str(state["id"]), now=True)
    assert answer["result"]["remaining"] == []
    nothing_left(jobs, state)


def test_the_container_outlives_its_client(jobs: Jobs) -> None:
    state = served(jobs)
    job = str(state["id"])
    (client,) = pids_of("podman", f"eagletui-{job}")
    signal_process(*client, signal.SIGKILL)
    now = jobs.wait(job, lambda s: "client of podman has ended" in str(s.get("detail")))
    assert (now["state"], now["health"], now["pid"]) == ("running", "ready", state["pid"])
    size = (jobs.root / "jobs" / job / "log").stat().st_size
    with pytest.raises(subprocess.TimeoutExpired):  # the stand-in prints and never answers: its words still come to the log
        subprocess.run(
            ["curl", "-s", "-X", "POST", f"http://127.0.0.1:{state['port']}/never"], timeout=2, check=False, capture_output=True
        )
    until(lambda: (jobs.root / "jobs" / job / "log").stat().st_size > size, 30, "the log grows on")
    podman.run("stop", "-t", "10", f"eagletui-{job}")
    over = jobs.over(job, 60)
    assert (over["state"], over["rc"], over["health"]) == ("exited", 0, "failed")  # nobody here asked for it
    nothing_left(jobs, state)


def test_the_container_outlives_its_monitor(jobs: Jobs) -> None:
    state = served(jobs)
    job = str(state["id"])
    (monitor,) = pids_of("conmon", f"eagletui-{job}")
    signal_process(*monitor, signal.SIGKILL)
    until(lambda: not procfs.alive(*monitor), 20)
    until(lambda: jobs.state(job).get("state") == "running" and jobs.state(job).get("health") == "ready", 20)
    answer = jobs.kill(job)
    assert answer["result"]["remaining"] == [], answer
    over = jobs.over(job, 90)
    assert over["state"] == "exited"
    nothing_left(jobs, state)


def test_the_main_process_killed_inside_is_told(jobs: Jobs) -> None:
    state = served(jobs)
    job = str(state["id"])
    assert isinstance(state["pid"], int)
    assert isinstance(state["pid_start"], int)
    signal_process(state["pid"], state["pid_start"], signal.SIGKILL)
    over = jobs.over(job, 60)
    assert (over["state"], over["rc"], over["health"]) == ("exited", 137, "failed")
    nothing_left(jobs, state)


def test_stopped_from_outside_is_not_ours(jobs: Jobs) -> None:
    state = served(jobs)
    job = str(state["id"])
    podman.run("stop", "-t", "10", f"eagletui-{job}")
    over = jobs.over(job, 60)
    assert (over["state"], over["rc"], over["health"], over.get("ended_by")) == ("exited", 0, "failed", None)
    nothing_left(jobs, state)


@pytest.mark.fault(31, how="SIGKILL of the supervisor of a job in a container; the kill goes through the engine all the same")
def test_the_supervisor_dies(jobs: Jobs) -> None:
    state = served(jobs)
    job = str(state["id"])
    signal_process(int(str(state["shim_pid"])), int(str(state["shim_start"])), signal.SIGKILL)
    now = jobs.wait(job, lambda s: s.get("state") == "lost_supervisor")
    assert now["pid"] == state["pid"]
    assert "running" in now["detail"]
    answer = jobs.kill(job)
    assert answer["by"] == "helper"
    assert answer["result"]["remaining"] == []
    nothing_left(jobs, state)
    over = jobs.over(job, 60)  # its helper ends, and the engine still knew the status
    assert (over["state"], over["rc"], over["health"]) == ("exited", 0, "gone")
    assert not shim(over)


@pytest.mark.parametrize(("dead", "now"), [(False, False), (False, True), (True, False)])
def test_a_container_that_somebody_else_started_is_stopped_by_its_engine(
    jobs: Jobs, tmp_path: Path, dead: bool, now: bool
) -> None:
    """With a restart policy, which would bring it back after signals; also at once, and when its monitor is dead."""
    name, port = f"hand-{os.urandom(4).hex()}", free_port()
    install(tmp_path / "bin")
    python = os.path.realpath(sys.executable)
    mounts = [f"--volume={path}:{path}:ro" for path in (sys.base_prefix, str(tmp_path / "bin"))]
    program = (python, "-I", "-S", str(tmp_path / "bin" / "vllm"), "serve", "/models/fake", "--port", str(port))
    more = () if dead else ("--restart=always",)
    container = podman.run("run", "-d", "--name", name, "--network=host", *more, *mounts, podman.IMAGE, *program)
    try:
        found = until(lambda: next((f for f in adopt.look().values() if f.holder.container == container), None), 60)
        until(lambda: why_taken(port), 60)
        plan = jobs.call("kill_plan", job=found.id)
        assert (plan["adopted"], plan["lever"]) == ("podman", f"podman stop -t 60 {name}")
        assert ("--restart=always" in plan.get("note", "")) is not dead
        assert procfs.nspid(plan["main"])[-1] == 1
        if dead:
            (monitor,) = [
                pid for pid in procfs.pids() if name in procfs.argv(pid) and (procfs.read_stat(pid) or pid).comm == "conmon"
            ]  # type: ignore[union-attr]
            os.kill(monitor, signal.SIGKILL)
            until(lambda: procfs.read_stat(monitor) is None, 20)
            plan = jobs.call("kill_plan", job=found.id)
        answer = jobs.call("kill", job=found.id, token=plan["token"], now=now, wait=120)
        assert answer["result"]["remaining"] == []
        assert why_taken(port) is None
        assert not any(procfs.alive(victim["pid"], victim["start"]) for victim in plan["processes"])
        assert podman.run("inspect", "--format", "{{.State.Running}}", name) == "false"  # it stays, and stays down
    finally:
        podman.run("rm", "--force", "--time", "0", name, check=False)


def test_an_image_without_the_program(jobs: Jobs) -> None:
    job = f"box-{os.urandom(4).hex()}"
    spec = launch_spec(podman.fake_profile("box", free_port(), command=("/no/such/program",)), job)
    jobs.launch(spec)
    over = jobs.over(job, 60)
    assert over["state"] == "exited"
    assert (over["rc"], over["health"], over["detail"]) == (127, "failed", "its program could not be started in the container")
    assert "/no/such/program" in over["first_error"]
    assert not podman.names(job)


def test_a_container_that_the_engine_cannot_start(jobs: Jobs) -> None:
    job = f"box-{os.urandom(4).hex()}"
    profile = podman.fake_profile("box", free_port(), container_args=("--ulimit", "nofile=1:0"))
    jobs.launch(launch_spec(profile, job))
    over = jobs.over(job, 60)
    assert (over["state"], over["health"], over["detail"]) == ("exited", "failed", "the container was never started")
    assert over["first_error"].startswith("Error")
    assert not podman.names(job)


def test_no_such_image(jobs: Jobs) -> None:
    job = f"box-{os.urandom(4).hex()}"
    profile = podman.fake_profile("box", free_port(), image="localhost/eagletui/absent:1", container_args=("--pull=never",))
    jobs.launch(launch_spec(profile, job))
    over = jobs.over(job, 60)
    assert (over["state"], over["rc"]) == ("exited", 125)
    assert "absent" in over["first_error"]
