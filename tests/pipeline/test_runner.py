"""A pipeline on the host: each step once and in order, gates, servers, what is done before, and how it stops."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagletui.agent import procfs, supervisor
from eagletui.agent.syscalls import signal_process
from eagletui.hosts import bootstrap
from eagletui.jobs.kinds import kind
from eagletui.jobs.pipeline import step_prints
from tests.agent.jobs_harness import Jobs
from tests.conftest import VERSIONS, find_python
from tests.pipeline.harness import Pipelines


@pytest.fixture
def pipes(jobs: Jobs, tmp_path: Path) -> Iterator[Pipelines]:
    found = Pipelines(jobs, tmp_path)
    yield found
    found.clean()


def test_steps_run_once_and_in_order_and_are_skipped_when_done(pipes: Pipelines) -> None:
    steps = [pipes.step("one"), pipes.step("two", needs=["one"])]
    job = pipes.run(steps)
    state = pipes.over(job)
    assert (state["ok"], state["rc"]) == (True, 0), pipes.log(job)
    assert state["outcome"] == "all 2 steps are done"
    assert state["work"] == {"done": 2, "total": 2, "unit": "steps", "counters": [], "stage": "step 2 of 2: two"}
    assert [pipes.starts(name) for name in ("one", "two")] == [1, 1]
    record = pipes.record()
    assert {"version", "job", "name", "state", "started", "ended", "steps", "servers", "why", "born", "wall"} <= set(record)
    assert os.stat(pipes.dir / "pipeline.json").st_mode & 0o777 == 0o600
    assert record["state"] == "done"
    assert [entry["state"] for entry in record["steps"]] == ["done", "done"]
    assert record["steps"][0]["figures"]["rows"] == 3
    child = pipes.jobs.state(record["steps"][1]["job"])
    assert (child["parent"], child["ok"], child["outcome"]) == (job, True, "3 rows")
    again = pipes.run(steps)
    assert pipes.over(again)["ok"] is True
    assert [pipes.starts(name) for name in ("one", "two")] == [1, 1]
    assert "step 1 of 2: one (command): done before" in pipes.log(again)


def test_what_is_gone_is_made_again_with_what_it_is_made_from(pipes: Pipelines) -> None:
    steps = [pipes.step("one"), pipes.step("two", needs=["one"]), pipes.step("three")]
    pipes.over(pipes.run(steps))
    (pipes.made / "one.rows").unlink()
    (pipes.made / "two.rows").unlink()
    job = pipes.run(steps)
    assert pipes.over(job)["ok"] is True
    assert [pipes.starts(name) for name in ("one", "two", "three")] == [2, 2, 1]
    assert "two.rows is not there any more" in pipes.log(job)


def test_a_failed_step_stops_it_and_the_next_run_goes_on_there(pipes: Pipelines) -> None:
    steps = [pipes.step("one"), pipes.step("two"), pipes.step("three")]
    (pipes.made / "two.fail").touch()
    job = pipes.run(steps)
    state = pipes.over(job)
    assert (state["ok"], state["rc"]) == (False, 1)
    assert state["outcome"].startswith("step two failed: exit status 3")
    assert "run the pipeline again" in state["outcome"]
    assert pipes.starts("three") == 0
    (pipes.made / "two.fail").unlink()
    job = pipes.run(steps)
    assert pipes.over(job)["ok"] is True
    assert [pipes.starts(name) for name in ("one", "two", "three")] == [1, 2, 1]
    assert len(pipes.rows("two")) == 3


def test_a_gate_stops_it_in_words_and_another_bound_lets_it_pass_without_a_second_run(pipes: Pipelines) -> None:
    def steps(most: float) -> list[dict[str, object]]:
        gates = [{"key": "rows", "least": 1}, {"key": "bad", "most": most}]
        return [pipes.step("one", gates=gates, spec={"env": {"BAD": "2"}}), pipes.step("two")]

    job = pipes.run(steps(1))
    state = pipes.over(job)
    assert state["outcome"].startswith("step one: bad is 2, at most 1 allowed - look at what it made"), pipes.log(job)
    assert pipes.starts("two") == 0
    job = pipes.run(steps(2))
    assert pipes.over(job)["ok"] is True, pipes.log(job)
    assert (pipes.starts("one"), pipes.starts("two")) == (1, 1)


def test_an_output_that_was_not_made_is_told(pipes: Pipelines) -> None:
    step = pipes.step("one")
    step["outputs"].append(str(pipes.made / "never"))
    assert "step one has ended well, and" in pipes.over(pipes.run([step]))["outcome"]


def test_servers_are_started_for_the_first_step_that_needs_them_and_stopped_after_the_last(pipes: Pipelines) -> None:
    servers = {"target": pipes.server()}
    (pipes.made / "two.hold").touch()
    steps = [
        pipes.step("zero"),
        pipes.step("one", server="target"),
        pipes.step("two", server="target"),
        pipes.step("three"),
    ]
    job = pipes.run(steps, servers)
    pipes.until(lambda: pipes.entry("two").get("state") == "running", "step two begins")
    server = pipes.record()["servers"]["target"]["job"]
    assert pipes.jobs.state(server)["health"] == "ready"
    assert pipes.jobs.state(server)["parent"] == job
    (pipes.made / "two.hold").unlink()
    assert pipes.over(job)["ok"] is True, pipes.log(job)
    state = pipes.jobs.state(server)
    assert (state["state"], state["ended_by"]) == ("exited", "pipeline loop")
    log = pipes.log(job)
    assert log.index("zero (command)") < log.index("server target: starting") < log.index("server target: ready")
    assert log.index("two (command)") < log.index("server target: stopped after") < log.index("three (command)")
    assert log.count("server target: starting") == 1


def test_a_server_in_the_way_of_the_next_is_stopped_first_and_started_again(pipes: Pipelines) -> None:
    one = pipes.server()
    two = pipes.server(port=one["port"])
    steps = [pipes.step("a", server="one"), pipes.step("b", server="two"), pipes.step("c", server="one")]
    job = pipes.run(steps, {"one": one, "two": two})
    assert pipes.over(job)["ok"] is True, pipes.log(job)
    log = pipes.log(job)
    starts = [line.split("server ")[1].split(":")[0] for line in log.splitlines() if ": starting" in line]
    assert starts == ["one", "two", "one"]


def test_the_next_server_waits_until_the_memory_of_the_cards_is_back(
    pipes: Pipelines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = tmp_path / "used"
    used.write_text("GPU-a, 400\nGPU-b, 9000\n")
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\nexec cat {used}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    (pipes.made / "a.hold").touch()
    steps = [pipes.step("a", server="one"), pipes.step("b", server="two")]
    job = pipes.run(steps, {"one": pipes.server(gpus=["GPU-a"]), "two": pipes.server(gpus=["GPU-a"])})
    pipes.until(lambda: pipes.rows("a"), "step a works")
    used.write_text("GPU-a, 90000\nGPU-b, 9000\n")
    (pipes.made / "a.hold").unlink()
    pipes.until(lambda: "server one: stopped after" in pipes.log(job), "the first server has ended")
    assert "server two: starting" not in pipes.log(job)
    used.write_text("GPU-a, 700\nGPU-b, 9000\n")
    assert pipes.over(job)["ok"] is True, pipes.log(job)
    log = pipes.log(job)
    assert log.index("server one: the memory of its cards is back") < log.index("server two: starting")


def test_why_a_server_did_not_become_ready_is_told(pipes: Pipelines) -> None:
    servers = {"target": pipes.server("--fail", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")}
    job = pipes.run([pipes.step("one", server="target")], servers)
    outcome = pipes.over(job)["outcome"]
    assert outcome.startswith("server target did not become ready: "), outcome
    assert "the weights do not fit" in outcome
    assert pipes.starts("one") == 0


def test_a_port_that_somebody_has_is_told(pipes: Pipelines) -> None:
    server = pipes.server()
    other = pipes.jobs.spec("sleep", "600", port=server["port"], operator="ann")
    pipes.jobs.launch(other)
    job = pipes.run([pipes.step("one", server="target")], {"target": server})
    outcome = pipes.over(job)["outcome"]
    assert f"server target cannot be started: port {server['port']} is leased by job {other['id']} of ann" in outcome
    assert pipes.jobs.state(other["id"])["state"] == "running"


def test_a_server_that_dies_ends_its_step_and_the_pipeline(pipes: Pipelines) -> None:
    (pipes.made / "one.hold").touch()
    job = pipes.run([pipes.step("one", server="target")], {"target": pipes.server()})
    pipes.until(lambda: pipes.rows("one"), "step one works")
    state = pipes.jobs.state(pipes.record()["servers"]["target"]["job"])
    signal_process(state["pid"], state["pid_start"], signal.SIGKILL)
    over = pipes.over(job)
    assert over["outcome"].startswith("server target failed meanwhile: ")
    assert pipes.jobs.state(pipes.entry("one")["job"])["ended_by"] == "pipeline loop"


def test_two_runs_of_one_directory_exclude_each_other(pipes: Pipelines) -> None:
    (pipes.made / "one.hold").touch()
    first = pipes.run([pipes.step("one")])
    pipes.until(lambda: pipes.rows("one"))
    second = pipes.run([pipes.step("one")])
    state = pipes.over(second)
    assert state["rc"] == 4
    assert f"another run of this pipeline is at work in {pipes.dir}: job {first} (pid" in state["outcome"]
    (pipes.made / "one.hold").unlink()
    assert pipes.over(first)["ok"] is True
    assert pipes.starts("one") == 1


def test_a_killed_pipeline_ends_its_step_and_its_servers_and_nothing_else(pipes: Pipelines, stranger: int) -> None:
    other = pipes.jobs.spec("sleep", "600")
    pipes.jobs.launch(other)
    (pipes.made / "one.hold").touch()
    job = pipes.run([pipes.step("one", server="target")], {"target": pipes.server()})
    pipes.until(lambda: pipes.rows("one"), "step one works")
    step, server = pipes.entry("one")["job"], pipes.record()["servers"]["target"]["job"]
    plan = pipes.jobs.call("kill_plan", job=job)
    pids = {process["pid"] for process in plan["processes"]}
    for name in (job, step, server):
        assert {pid for pid, _ in pipes.jobs.members(name)} <= pids
    assert pids == {pid for name in (job, step, server) for pid, _ in pipes.jobs.members(name)}
    assert f"step one (job {step}" in plan["note"]
    assert f"server target (job {server}" in plan["note"]
    answer = pipes.jobs.call("kill", job=job, token=plan["token"], wait=60, operator="bob")
    assert answer["result"]["remaining"] == []
    for name in (step, server):
        assert pipes.jobs.over(name)["ended_by"] == "pipeline loop"
    state = pipes.over(job)
    assert (state["ended_by"], state.get("ok")) == ("bob", None)
    assert state["outcome"].startswith("ended on request at step one")
    assert pipes.jobs.state(other["id"])["state"] == "running"
    (pipes.made / "one.hold").unlink()
    assert pipes.over(pipes.run([pipes.step("one")]))["ok"] is True
    assert len(pipes.rows("one")) == 3


def test_a_kill_at_once_takes_all_of_it_along_too_also_without_a_supervisor(pipes: Pipelines) -> None:
    (pipes.made / "one.hold").touch()
    job = pipes.run([pipes.step("one", server="target")], {"target": pipes.server("--ignore-term")})
    pipes.until(lambda: pipes.rows("one"), "step one works")
    step, server = pipes.entry("one")["job"], pipes.record()["servers"]["target"]["job"]
    state = pipes.jobs.state(job)
    signal_process(state["shim_pid"], state["shim_start"], signal.SIGKILL)
    answer = pipes.jobs.kill(job, now=True)
    assert answer["by"] == "helper"
    assert answer["result"]["remaining"] == []
    assert not pipes.jobs.members(step)
    assert not pipes.jobs.members(server)


def test_a_step_that_somebody_ends_stops_the_pipeline_and_is_told(pipes: Pipelines) -> None:
    (pipes.made / "one.hold").touch()
    job = pipes.run([pipes.step("one"), pipes.step("two")])
    pipes.until(lambda: pipes.rows("one"))
    pipes.jobs.kill(pipes.entry("one")["job"], operator="ann")
    state = pipes.over(job)
    assert state["ok"] is False
    assert state["outcome"].startswith("step one was ended by ann (job ")
    assert pipes.starts("two") == 0


def test_after_a_runner_was_killed_its_step_goes_on_and_is_taken_up(pipes: Pipelines) -> None:
    (pipes.made / "one.hold").touch()
    steps = [pipes.step("one", server="target"), pipes.step("two", server="target")]
    servers = {"target": pipes.server()}
    job = pipes.run(steps, servers)
    pipes.until(lambda: pipes.rows("one"), "step one works")
    step, server = pipes.entry("one")["job"], pipes.record()["servers"]["target"]["job"]
    state = pipes.jobs.state(job)
    signal_process(state["pid"], state["pid_start"], signal.SIGKILL)
    state = pipes.over(job)
    assert "what it had started goes on" in state["outcome"]
    assert pipes.jobs.state(step)["state"] == "running"
    job = pipes.run(steps, servers)
    pipes.until(lambda: "it runs already" in pipes.log(job), "the step is taken up")
    (pipes.made / "one.hold").unlink()
    assert pipes.over(job)["ok"] is True, pipes.log(job)
    assert [pipes.starts(name) for name in ("one", "two")] == [1, 1]
    assert pipes.record()["servers"]["target"] | {"job": server, "attempt": 1} == pipes.record()["servers"]["target"]


def test_what_runs_is_ended_when_the_file_has_another_order_now(pipes: Pipelines) -> None:
    (pipes.made / "two.hold").touch()
    job = pipes.run([pipes.step("two"), pipes.step("gone")])
    pipes.until(lambda: pipes.rows("two"), "step two works")
    old = pipes.entry("two")["job"]
    state = pipes.jobs.state(job)
    signal_process(state["pid"], state["pid_start"], signal.SIGKILL)
    pipes.over(job)
    job = pipes.run([pipes.step("one"), pipes.step("two")])
    pipes.until(lambda: "step two ran already, and one comes before it now: it is ended" in pipes.log(job))
    assert pipes.jobs.over(old)["ended_by"] == "pipeline loop"
    (pipes.made / "two.hold").unlink()
    assert pipes.over(job)["ok"] is True, pipes.log(job)
    assert [entry["id"] for entry in pipes.record()["steps"]] == ["one", "two"]
    assert len(pipes.rows("two")) == 3


def test_a_step_whose_supervisor_died_is_waited_for_and_begun_again(pipes: Pipelines) -> None:
    (pipes.made / "one.hold").touch()
    job = pipes.run([pipes.step("one")])
    pipes.until(lambda: len(pipes.rows("one")) == 3)
    state = pipes.jobs.state(pipes.entry("one")["job"])
    signal_process(state["shim_pid"], state["shim_start"], signal.SIGKILL)
    pipes.until(lambda: "goes on without one" in pipes.log(job))
    (pipes.made / "one.hold").unlink()
    assert pipes.over(job)["ok"] is True, pipes.log(job)
    assert pipes.starts("one") == 2
    assert len(pipes.rows("one")) == 3


def test_what_a_step_leaves_behind_is_ended_and_does_not_hold_up_the_next(pipes: Pipelines) -> None:
    left = pipes.step("one", gates=[])
    code = left["spec"]["argv"][4].replace(
        "import json", "import subprocess\nif sys.argv[1] == 'one': subprocess.Popen(['sleep', '600'])\nimport json", 1
    )
    left["spec"]["argv"][4] = "import sys\n" + code
    job = pipes.run([left, pipes.step("two")])
    assert pipes.over(job, 120)["ok"] is True, pipes.log(job)
    assert "what it left behind is ended too" in pipes.log(job)
    assert not pipes.jobs.members(pipes.entry("one")["job"])


def test_secrets_reach_the_steps_that_name_them_alone(pipes: Pipelines) -> None:
    code = "import json,os; print(json.dumps({'eagletui': 'result', 'n': len(os.environ.get('HF_TOKEN', ''))}))"
    steps = []
    for name in ("one", "two"):
        step = pipes.step(name)
        step["spec"]["argv"][4:] = [code]
        steps.append(step | {"outputs": []})
    steps[0]["spec"]["secrets"] = ["HF_TOKEN"]
    spec = kind("pipeline").spec({"name": "loop", "pipeline": {"dir": str(pipes.dir), "servers": {}, "steps": steps}}, "p-secret")
    assert spec["secrets"] == ["HF_TOKEN"]
    pipes.jobs.launch(spec, secrets={"HF_TOKEN": "canary-7788"})
    assert pipes.over("p-secret")["ok"] is True, pipes.log("p-secret")
    assert [pipes.entry(name)["figures"]["n"] for name in ("one", "two")] == [11, 0]
    for path in [*pipes.jobs.root.rglob("*"), *pipes.dir.rglob("*")]:
        assert not path.is_file() or b"canary-7788" not in path.read_bytes(), path


def test_a_key_that_stands_in_a_step_reaches_it_and_no_file(pipes: Pipelines) -> None:
    """In a profile's [env] or among its arguments, say: the spec of the pipeline holds that of each server."""
    code = (
        "import json,os,sys; n = len(os.environ.get('MY_TOKEN', '')) + len(sys.argv[-1])\n"
        "print(json.dumps({'eagletui': 'result', 'n': n}))"
    )
    steps = []
    for name, key in (("one", "canary-7788"), ("two", "canary-99")):
        step = pipes.step(name)
        step["spec"]["argv"][4:] = [code, "--api-key", key]
        steps.append(step | {"outputs": []})
    steps[0]["spec"]["env"] = {**steps[0]["spec"].get("env", {}), "MY_TOKEN": "canary-1"}
    plan = {"dir": str(pipes.dir), "servers": {}, "steps": steps}
    spec = kind("pipeline").spec({"name": "loop", "pipeline": plan}, "p-keys")
    pipes.jobs.launch(spec)
    assert pipes.over("p-keys")["ok"] is True, pipes.log("p-keys")
    assert [pipes.entry(name)["figures"]["n"] for name in ("one", "two")] == [19, 9]
    assert [pipes.entry(name)["fingerprint"] for name in ("one", "two")] == list(step_prints(plan).values())
    for path in [*pipes.jobs.root.rglob("*"), *pipes.dir.rglob("*")]:
        assert not path.is_file() or b"canary-" not in path.read_bytes(), path


def test_a_record_that_is_damaged_is_never_overwritten(pipes: Pipelines) -> None:
    pipes.dir.mkdir()
    (pipes.dir / "pipeline.json").write_text("{")
    state = pipes.over(pipes.run([pipes.step("one")]))
    assert "pipeline.json is damaged" in state["outcome"]
    assert (pipes.dir / "pipeline.json").read_text() == "{"


def test_it_runs_from_the_agents_code_on_the_oldest_python(pipes: Pipelines, monkeypatch: pytest.MonkeyPatch) -> None:
    python = find_python(VERSIONS[0])
    if python is None:
        pytest.skip(f"no Python {VERSIONS[0]} on this machine")
    monkeypatch.setattr(supervisor.bundle, "BLOB", bootstrap.bundle())
    monkeypatch.setattr(supervisor.sys, "executable", python)
    (pipes.made / "one.hold").touch()
    job = pipes.run([pipes.step("one", server="target")], {"target": pipes.server()})
    pipes.until(lambda: pipes.rows("one"), "step one works")
    for name in (job, pipes.entry("one")["job"], pipes.record()["servers"]["target"]["job"]):
        assert procfs.argv(pipes.jobs.state(name)["shim_pid"])[0] == python
    assert procfs.argv(pipes.jobs.state(job)["pid"])[0] == python
    assert pipes.jobs.kill(job)["result"]["remaining"] == []
    assert pipes.over(job)["rc"] == 3
    for path in (pipes.jobs.root / "jobs").glob("*/shim.log"):
        assert path.read_text() == ""
    assert not (pipes.jobs.root / "jobs" / job / "runner.log").exists()
