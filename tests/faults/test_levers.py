"""Ending what eagletui did not start: servers that were found, what dead ones have left, and single processes by their number."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eagletui.agent import adopt, endings, kill, levers, procfs
from eagletui.agent.adopt import Holder
from eagletui.agent.calls import CallError
from eagletui.agent.levers import Seen
from eagletui.agent.loop import Loop
from eagletui.agent.members import Named, Origin, here
from eagletui.agent.ports import why_taken
from eagletui.agent.tool import Said
from tests.agent.adopt_harness import Servers
from tests.agent.jobs_harness import Jobs, free_port, until


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    monkeypatch.setenv("EAGLETUI_STATE", str(tmp_path / "state"))
    found = Jobs(tmp_path / "state")
    yield found
    found.clean()


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    found = Servers(tmp_path)
    yield found
    found.clean()


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that nobody has asked to end, in the log and session of none."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    assert process.poll() is None, "a foreign process was ended"
    process.kill()
    process.wait()


def found_id(pid: int) -> str:
    """The id of the server with this main process, once it is found."""
    return str(until(lambda: next((f.id for f in adopt.look().values() if f.main is not None and f.main[0] == pid), None)))


def listening(servers: Servers, *flags: str) -> tuple[subprocess.Popen[bytes], int]:
    port = free_port()
    process = servers.start(servers.argv(*flags, port=port))
    until(lambda: why_taken(port), what="the stand-in listens")
    return process, port


def reaped(process: subprocess.Popen[bytes]) -> Any:
    """Whether our own child has ended; a zombie of ours is nobody's member."""
    return process.poll() is not None


def test_a_bare_server_is_ended_by_signals_and_nothing_else_is(
    jobs: Jobs, servers: Servers, stranger: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    # a stranger writes to the same log: for a server that was only found a log proves nothing
    with open(tmp_path / "server.log", "ab") as log:
        beside = subprocess.Popen(["sleep", "600"], stdout=log, stderr=log)
    try:
        process, port = listening(servers, "--workers", "2")
        job = found_id(process.pid)
        plan = jobs.call("kill_plan", job=job, gpu_processes=[{"uuid": "GPU-1", "pid": process.pid}, {"uuid": "GPU-1", "pid": 1}])
        assert (plan["adopted"], plan["only"], plan.get("lever"), plan["main"]) == ("process", False, None, process.pid)
        assert len(plan["processes"]) >= 3
        assert beside.pid not in {victim["pid"] for victim in plan["processes"]}
        assert (plan["gpus"], plan["gpu_pids"], plan["port"], plan["listening"]) == (["GPU-1"], [process.pid], port, True)
        assert [suspect["pid"] for suspect in plan["suspects"]] == [1]
        answer = jobs.call("kill", job=job, token=plan["token"], operator="anna", wait=90)
        assert answer["by"] == "helper"
        assert answer["result"]["remaining"] == []
        assert f"port {port}" in answer["result"]["released"]
        until(lambda: reaped(process))
        assert not any(procfs.alive(victim["pid"], victim["start"]) for victim in plan["processes"])
        told = jobs.call("job", job=job)
        assert (told["state"]["state"], told["state"]["ended_by"]) == ("exited", "anna")
        assert beside.poll() is None
    finally:
        beside.kill()
        beside.wait()


def test_a_confirmation_is_bound_to_the_very_process(jobs: Jobs, servers: Servers) -> None:
    process, port = listening(servers)
    job = found_id(process.pid)
    with pytest.raises(CallError, match="not those that were shown") as refused:
        jobs.call("kill", job=job, token="0" * 32)
    assert refused.value.kind == "replaced"
    assert process.poll() is None
    servers.kill(process)
    with pytest.raises(CallError):
        jobs.call("kill", job="found-1-00000000", token="")
    assert why_taken(port) is None


@pytest.mark.fault(30, how="SIGKILL of a server that was only found; its workers are offered as leftovers and cleared")
def test_leftovers_of_a_dead_server_are_cleared(jobs: Jobs, servers: Servers, stranger: subprocess.Popen[bytes]) -> None:
    process, _ = listening(servers, "--workers", "2")
    job = found_id(process.pid)
    members = set(adopt.members_of(job)) - {(process.pid, procfs.read_stat(process.pid).start)}  # type: ignore[union-attr]
    assert len(members) >= 2
    servers.kill(process)
    assert all(procfs.alive(*key) for key in members)
    left = until(lambda: next((f for f in adopt.look().values() if f.main is None and set(f.members) & members), None))
    plan = jobs.call("kill_plan", job=left.id)
    assert {(victim["pid"], victim["start"]) for victim in plan["processes"]} == members
    assert (plan["main"], plan.get("lever")) == (None, None)
    answer = jobs.call("kill", job=left.id, token=plan["token"], wait=90)
    assert answer["result"]["remaining"] == []
    assert not any(procfs.alive(*key) for key in members)


def tree() -> subprocess.Popen[bytes]:
    """A process with a child of its own; it prints the child's pid."""
    code = "import subprocess as s,sys;p=s.Popen(['sleep','600']);print(p.pid,flush=True);p.wait()"
    return subprocess.Popen([sys.executable, "-I", "-S", "-c", code], stdout=subprocess.PIPE)


@pytest.mark.fault(36, how="a foreign process is ended only by its own number; its child, and everybody else, live on")
def test_named_processes_are_ended_and_nothing_of_theirs(jobs: Jobs, stranger: subprocess.Popen[bytes]) -> None:
    parent = tree()
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    start = procfs.read_stat(child).start  # type: ignore[union-attr]
    try:
        job = f"pids-{parent.pid}"
        plan = jobs.call("kill_plan", job=job, gpu_processes=[{"uuid": "GPU-1", "pid": parent.pid}, {"uuid": "GPU-1", "pid": 1}])
        assert [victim["pid"] for victim in plan["processes"]] == [parent.pid]
        assert (plan["only"], plan["adopted"], plan["suspects"], plan["gpus"]) == (True, None, [], ["GPU-1"])
        assert plan["graces"] == list(kill.GRACES["foreign"])
        answer = jobs.call("kill", job=job, token=plan["token"], wait=60)
        assert answer["result"]["remaining"] == []
        assert answer["result"]["released"] == ["1 process"]
        assert parent.wait(30) == -signal.SIGTERM
        assert procfs.alive(child, start)
    finally:
        os.kill(child, signal.SIGKILL)
        parent.kill()
        parent.wait()
        parent.stdout.close()


def test_what_is_never_ended_by_its_number(jobs: Jobs) -> None:
    spec = jobs.spec("sleep", "600")
    state = jobs.launch(spec)
    state = jobs.wait(spec["id"], lambda s: s.get("member_pids"))
    kernel = next(
        (pid for pid in procfs.pids() if (procfs.read_stat(pid) or procfs.Stat(0, "", "", 0, 0, 0, 0, 0, 0, 0, 0)).ppid == 2),
        None,
    )
    for pid, why in (
        (1, "first process of the system"),
        (os.getpid(), "this very connection"),
        (os.getppid(), "this very connection"),
        (state["pid"], "belongs to the job " + spec["id"]),
        (state["shim_pid"], "eagletui's own"),
        (kernel, "thread of the kernel"),
    ):
        if pid is None or (pid == os.getppid() == 1):
            continue
        with pytest.raises(CallError, match=why):
            jobs.call("kill_plan", job=f"pids-{pid}")
    for wrong in ("pids-", "pids-x", "pids-1-x", "pids-0"):
        with pytest.raises(CallError, match="names no processes"):
            jobs.call("kill_plan", job=wrong)
    gone = subprocess.Popen(["true"])
    gone.wait()
    with pytest.raises(CallError, match="no process") as refused:
        jobs.call("kill_plan", job=f"pids-{gone.pid}")
    assert refused.value.kind == "absent"
    jobs.kill(spec["id"])


@pytest.mark.fault(28, how="a named pid whose start differs from the one that was shown, as after its number was used again")
def test_a_reused_number_is_not_signalled(stranger: subprocess.Popen[bytes]) -> None:
    stat = procfs.read_stat(stranger.pid)
    assert stat is not None
    boot_id, namespace, first = here()
    named = Named(Origin(boot_id, namespace, first, (0, 0), known=frozenset({(stranger.pid, stat.start - 1)})))
    assert named.scan() == {}
    over: list[Any] = []
    loop = Loop(lambda what, error: over.append(error))
    kill.Ladder(loop, named, kill.Graces(1, 1, 1), lambda text: None, over.append).start()
    loop.close()
    assert over == [[]]


# ------------------------------------------------------------------------------------------------------------ the levers


class Script:
    """A program that stands for systemctl or podman: it notes how it was called, and does what ``body`` says."""

    def __init__(self, folder: Path, name: str, body: str) -> None:
        self.calls = folder / f"{name}.calls"
        path = folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\necho "$@" >>{self.calls}\n{body}\n')
        path.chmod(0o755)

    def said(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return tmp_path


def climb(
    pids: list[int], lever: dict[str, Any], graces: kill.Graces, hurry_at: str = ""
) -> tuple[list[Any], list[str], kill.Ladder]:
    """Run a ladder with a lever to its end: (who is left, what it told, the ladder)."""
    keys = frozenset((pid, procfs.read_stat(pid).start) for pid in pids)  # type: ignore[union-attr]
    boot_id, namespace, first = here()
    scanner = Named(Origin(boot_id, namespace, first, (0, 0), known=keys))
    errors: list[Exception] = []
    loop = Loop(lambda what, error: (errors.append(error), loop.stop())[0])
    told: list[str] = []
    left: list[Any] = []

    def report(text: str) -> None:
        told.append(text)
        if hurry_at and hurry_at in text:
            ladder.hurry()

    def done(stuck: list[Any]) -> None:
        left.extend(stuck)
        loop.stop()

    ladder = kill.Ladder(loop, scanner, graces, report, done, lever=levers.Lever(loop, lever, graces.main))
    loop.call_later(60, loop.stop)
    ladder.start()
    loop.run()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    loop.close()
    assert not errors, errors
    return left, told, ladder


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def test_the_unit_is_stopped_and_nothing_is_signalled_before(on_path: Path, victim: subprocess.Popen[bytes]) -> None:
    script = Script(on_path, "systemctl", f"kill -9 {victim.pid}")
    left, told, ladder = climb([victim.pid], {"kind": "unit", "unit": "vllm.service", "uid": None}, kill.Graces(20, 5, 5))
    assert (left, ladder.refused) == ([], None)
    assert script.said() == ["--no-ask-password --no-pager stop vllm.service"]
    assert told[0].startswith("systemctl stop vllm.service, 0 of 30 s; 1 process left")
    assert victim.wait(30) == -9


def test_a_unit_that_may_not_be_stopped_is_left_running(on_path: Path, victim: subprocess.Popen[bytes]) -> None:
    Script(on_path, "systemctl", "echo 'Failed to stop vllm.service: Access denied' >&2; exit 4")
    left, _, ladder = climb([victim.pid], {"kind": "unit", "unit": "vllm.service"}, kill.Graces(20, 5, 5))
    assert [stat.pid for stat in left] == [victim.pid]
    assert ladder.refused == "systemctl stop vllm.service: Failed to stop vllm.service: Access denied"
    assert victim.poll() is None
    result = kill.release({"id": "x"}, left, {}, 0, {}, None, ladder.refused)
    assert result["remaining"] == [ladder.refused, "1 process runs on"]


def test_kill_now_keeps_a_unit_from_coming_back(on_path: Path, victim: subprocess.Popen[bytes]) -> None:
    script = Script(on_path, "systemctl", f'case "$*" in *"stop vllm"*) sleep 600 & echo $! >>{on_path}/slow; wait;; esac')
    left, _, _ = climb([victim.pid], {"kind": "unit", "unit": "vllm.service"}, kill.Graces(300, 5, 20), hurry_at="1 of 325 s")
    assert left == []
    said = [" ".join(line.split()[2:]) for line in script.said()]
    assert said[0] == "stop vllm.service"
    assert said[1] == "stop --no-block vllm.service"
    assert victim.wait(30) == -9
    for line in (on_path / "slow").read_text().split():
        os.kill(int(line), signal.SIGKILL)  # what our stand-in for systemctl waited for


def test_without_its_engine_a_container_of_ours_is_ended_by_signals(on_path: Path, victim: subprocess.Popen[bytes]) -> None:
    Script(on_path, "docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    lever = levers.of_spec({"container": {"engine": "docker", "name": "eagletui-x", "image": "i"}})
    assert lever is not None
    left, told, ladder = climb([victim.pid], lever, kill.Graces(20, 5, 5))
    assert (left, ladder.refused) == ([], None)
    assert any(text.startswith("SIGTERM to all") for text in told)
    assert victim.wait(30) == -signal.SIGTERM


def test_which_lever_for_what() -> None:
    assert levers.of_holder(Holder()) is None
    unit = levers.of_holder(Holder("systemd", "vllm.service", None, cgroup="/system.slice/vllm.service"))
    mine = levers.of_holder(Holder("systemd", "vllm.service", os.geteuid(), cgroup="/x"))
    theirs = levers.of_holder(Holder("systemd", "vllm.service", 4711, cgroup="/x"))
    box = levers.of_holder(Holder("docker", container="ab" * 32, cgroup="/x"))
    named = levers.of_holder(Holder("podman", container="cd" * 32, name="k25", cgroup="/x"))
    assert unit is not None
    assert mine is not None
    assert theirs is not None
    assert box is not None
    assert named is not None
    assert levers.words(unit, 60) == "systemctl stop vllm.service"
    assert levers.words(mine, 60) == "systemctl --user stop vllm.service"
    assert levers.systemctl(mine["uid"])[-1] == "--user"
    assert levers.systemctl(theirs["uid"])[-2:] == ["--user", "--machine=4711@.host"]
    assert levers.words(box, 60) == "docker stop -t 60 abababababab"
    assert levers.words(named, 15) == "podman stop -t 15 k25"
    assert levers.of_spec({"kind": "serve"}) is None


def test_what_an_engine_says_of_a_container() -> None:
    running = Seen(Said(0, "4711 abc 0 running false\n"))
    assert (running.pid, running.id, running.rc, running.oom) == (4711, "abc", None, False)
    over = Seen(Said(0, "0 abc 137 exited true\n"))
    assert (over.rc, over.oom) == (137, True)
    created = Seen(Said(0, "0 abc 0 created false"))
    assert (created.rc, created.absent) == (None, False)
    assert Seen(Said(125, "", 'Error: no container with name or ID "x" found: no such container')).absent
    nothing = Seen(Said(None))
    assert (nothing.told, nothing.absent, nothing.rc) == (False, False, None)


def test_only_our_own_containers_are_removed(on_path: Path) -> None:
    script = Script(on_path, "podman", "exit 0")
    why: list[str | None] = []
    loop = Loop(lambda what, error: None)
    levers.remove(loop, {"engine": "podman", "name": "somebody-elses"}, why.append)
    assert why == ["'somebody-elses' is no container of ours"]
    levers.remove(loop, {"engine": "podman", "name": "eagletui-x"}, lambda told: (why.append(told), loop.stop())[0])
    loop.run()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    loop.close()
    assert why[1] is None
    assert script.said() == ["rm --force eagletui-x"]


def test_ids_of_endings() -> None:
    assert endings.is_ours("pids-1")
    assert endings.is_ours("found-12-00000000")
    assert not endings.is_ours("20261129-job")
