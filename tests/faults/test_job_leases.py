"""Two clients on one host in the same moment, and ports that others take: one winner, and the other is told by whom."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eagletui.agent import frames, leases, state_dir
from eagletui.agent.calls import CallError
from eagletui.records import JobState, from_doc
from eagletui.watch.alerts import job_signs
from tests.agent.jobs_harness import Jobs, free_port, shim, until
from tests.agent.process import Agent
from tests.faults.seeds import seeded

CARDS = ["GPU-a", "GPU-b", "GPU-c"]


def ask_all(specs: list[dict[str, Any]]) -> list[Any]:
    """Launch each from an agent of its own, all of them in one moment: their states or refusals, in order."""
    agents = [Agent().start() for _ in specs]
    for agent in agents:
        agent.result("jobs")  # all modules are there: the race is about the launch alone
    ids = [agent.request("launch", spec=spec) for agent, spec in zip(agents, specs, strict=True)]
    out = []
    for agent, id_ in zip(agents, ids, strict=True):
        while (frame := agent.next()).id != id_ or frame.kind not in (frames.RESPONSE, frames.ERROR):
            pass
        out.append(frame.head.get("result") or frame.head)
        agent.close()
    return out


@pytest.mark.fault(34, how="three agents of three operators launch in one moment on one port, and on cards that overlap")
def test_of_many_racers_one_wins_and_the_others_hear_who(jobs: Jobs) -> None:
    rng = seeded("cards of the racers")
    for number in range(2):
        port = free_port()
        operators = ["ann", "bob", "eve"]
        specs = []
        for operator in operators:
            # the same port in one round, overlapping cards in the other
            what = {"port": port} if number == 0 else {"gpus": sorted({"GPU-a", *rng.sample(CARDS, 2)})}
            specs.append(jobs.spec("sleep", "300", operator=operator, **what))
        jobs.launched += [spec["id"] for spec in specs]
        answers = ask_all(specs)
        won = [answer for answer in answers if answer.get("state") == "running"]
        assert len(won) == 1, answers
        holder = next(spec for spec in specs if spec["id"] == won[0]["id"])
        for spec, answer in zip(specs, answers, strict=True):
            if answer is won[0]:
                continue
            assert answer["kind"] == "refused"
            by = f"is leased by job {holder['id']} of {holder['operator']}, since 20"
            assert by in answer["why"] or "is held by" in answer["why"], answer
            assert not (jobs.root / "jobs" / spec["id"]).exists()
        assert jobs.kill(holder["id"], now=True)["result"]["remaining"] == []
        jobs.over(holder["id"])
        # what was refused a moment ago can be had now
        again = specs[0] if specs[0] is not holder else specs[1]
        assert jobs.launch(again)["state"] == "running"
        assert jobs.kill(again["id"], now=True)["result"]["remaining"] == []
        jobs.over(again["id"])


@pytest.mark.fault(34, how="forty rounds of eight racers for overlapping sets of leases")
def test_leases_are_all_or_none_for_any_racers(tmp_path: Path) -> None:
    (tmp_path / "leases").mkdir()
    rng = seeded("sets of leases")
    for _ in range(40):
        sets = [leases.names(8000 if rng.random() < 0.3 else None, rng.sample(CARDS, rng.randrange(1, 4))) for _ in range(8)]
        (start, go), (hold, release), (read, write) = os.pipe(), os.pipe(), os.pipe()
        pids = []
        for number, wanted in enumerate(sets):
            pid = os.fork()
            if pid == 0:
                os.close(go)
                os.close(release)
                os.read(start, 1)
                said = b"L"
                try:
                    leases.take(str(tmp_path), wanted, {"job": str(number)})
                    said = b"W"
                except leases.LeaseTaken:
                    pass
                os.write(write, b"%s%d" % (said, number))
                os.read(hold, 1)  # until all have tried
                os._exit(0)
            pids.append(pid)
        for fd in (start, hold, write, go):
            os.close(fd)
        told = b""
        while len(told) < 16:
            told += os.read(read, 16)
        os.close(release)
        os.close(read)
        for pid in pids:
            os.waitpid(pid, 0)
        won = [int(told[at + 1 : at + 2]) for at in range(0, 16, 2) if told[at : at + 1] == b"W"]
        held = [name for number in won for name in sets[number]]
        assert len(held) == len(set(held)), (sets, won)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server


@pytest.mark.fault(35, how="a listener of a foreign process on the port, before the launch")
def test_a_port_of_a_stranger_refuses_before_anything_is_loaded(jobs: Jobs, listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    spec = jobs.server(port=port)
    with pytest.raises(CallError, match=rf"port {port} is held by pid {os.getpid()} \(.*user .*since 20") as refused:
        jobs.launch(spec)
    assert refused.value.kind == "refused"
    assert not (jobs.root / "jobs" / spec["id"]).exists()


# waits until somebody else has its port, then goes on as engines do that hang then: it never listens, and never ends
HANGS = (
    "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)\nprint('loading', flush=True)\ntime.sleep(600)"
)


@pytest.mark.fault(35, how="a foreign process binds the port after the check and before the server; the server hangs")
def test_a_port_that_is_taken_between_check_and_bind_is_told_at_once(jobs: Jobs, tmp_path: Path) -> None:
    port, go = free_port(), tmp_path / "go"
    spec = jobs.spec(sys.executable, "-I", "-S", "-c", HANGS, str(go), port=port, kind="serve", server=True, engine="vllm")
    jobs.launch(spec)
    thief = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import socket,time; s=socket.socket(); s.bind(('127.0.0.1',{port})); s.listen(); time.sleep(600)",
        ]
    )
    try:
        go.touch()
        state = jobs.wait(spec["id"], lambda s: s.get("troubles"))
        (trouble,) = state["troubles"]
        assert trouble.startswith(f"port: {port} is held by pid {thief.pid} (")
        assert trouble.endswith(", not by this job")
        assert (state["health"], state["listening"]) == ("loading", False)
        signs = list(job_signs([from_doc(JobState, state)], 0.0))
        assert [sign.key for sign in signs] == [f"job:{spec['id']}:port"]
        assert signs[0].remedy
        plan = jobs.call("kill_plan", job=spec["id"])
        assert plan["listening"] is False
        assert thief.pid not in [process["pid"] for process in plan["processes"]]
        result = jobs.kill(spec["id"], now=True)["result"]
        assert any(f"port {port} is held by pid {thief.pid}" in text for text in result["remaining"])
        assert thief.poll() is None
    finally:
        thief.kill()
        thief.wait()


@pytest.mark.fault(35, how="as above, and the server ends when it cannot bind")
def test_a_server_that_cannot_bind_fails_with_its_own_words(jobs: Jobs, tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    spec = jobs.server("--hold", str(hold), "--workers", "0")
    jobs.launch(spec)
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thief.bind(("127.0.0.1", spec["port"]))
        thief.listen()
        hold.touch()
        over = jobs.over(spec["id"])
    assert (over["state"], over["rc"], over["health"]) == ("exited", 1, "failed")
    assert not over.get("ready_seconds")
    log = (jobs.root / "jobs" / spec["id"] / "log").read_text()
    assert "Address already in use" in log


# ------------------------------------------------------------------------------------------------- the state directory


def spoiled(root: Path, how: str) -> str:
    """Make the state directory one that must be refused; what the refusal says."""
    if how == "group":
        root.chmod(0o770)
    elif how == "world":
        root.chmod(0o702)
    elif how == "owner":
        os.chown(root, 12345, -1)
        return "belongs to user 12345"
    else:
        root.rename(root.with_name("elsewhere"))
        root.symlink_to(root.with_name("elsewhere"))
        return "is not a directory"
    return "may be written by others"


@pytest.mark.fault(50, how="a state directory that others own or write, or a symbolic link in its place")
@pytest.mark.parametrize("how", ["group", "world", "owner", "link"])
def test_a_state_directory_of_others_is_believed_in_nothing(how: str, jobs: Jobs, root_user: None) -> None:
    spec = jobs.spec("sleep", "300")
    state = jobs.launch(spec)
    plan = jobs.call("kill_plan", job=spec["id"])
    mode = stat.S_IMODE(jobs.root.stat().st_mode)
    why = spoiled(jobs.root, how)
    try:
        for method, params in (
            ("launch", {"spec": jobs.spec("true")}),
            ("kill_plan", {"job": spec["id"]}),
            ("kill", {"job": spec["id"], "token": plan["token"]}),
            ("job", {"job": spec["id"]}),
            ("remove", {"job": spec["id"]}),
        ):
            with pytest.raises(CallError, match=why):
                jobs.call(method, **params)
    finally:
        if jobs.root.is_symlink():
            jobs.root.unlink()
            jobs.root.with_name("elsewhere").rename(jobs.root)
        os.chown(jobs.root, os.geteuid(), -1)
        jobs.root.chmod(mode)
    assert shim(state)
    until(lambda: jobs.state(spec["id"])["state"] == "running")
    assert state_dir.problem(str(jobs.root)) is None
