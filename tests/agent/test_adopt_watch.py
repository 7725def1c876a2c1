"""Servers that eagletui did not start, with real processes: seen, followed, sampled, gone."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eagletui.agent import adopt, procfs
from eagletui.agent.adopt import observer
from eagletui.agent.syscalls import signal_process
from tests.agent.adopt_harness import SGLANG_TITLES, Look, Servers, children, install
from tests.agent.jobs_harness import Jobs, free_port, until


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    monkeypatch.setenv("EAGLETUI_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(adopt, "_finder", None)
    monkeypatch.setattr(observer, "LOOK_EVERY", 0.5)
    found = Servers(tmp_path)
    yield found
    found.clean()


@pytest.fixture
def looks(tmp_path: Path) -> Iterator[Callable[[], Look]]:
    """Makes agents' looks at the host; all are ended with the test."""
    made: list[Look] = []

    def make() -> Look:
        made.append(Look(tmp_path))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def look(servers: Servers, looks: Callable[[], Look]) -> Look:
    return looks()


def test_a_bare_server_is_seen_from_loading_to_ready_to_gone(servers: Servers, look: Look, tmp_path: Path) -> None:
    hold = tmp_path / "go"
    spec = '{"method":"eagle3","model":"/models/draft","num_speculative_tokens":3}'
    argv = servers.argv("--hold", str(hold), "--speculative-config", spec, "--api-key", "sk-canary-1", "-tp", "2")
    process = servers.start(argv)
    loading = look.server(lambda s: len(s.get("phases", ())) >= 2 and s["members"] == 3, pid=process.pid)
    servers.note(loading)
    assert (loading["state"], loading["health"], loading["adopted"], loading["kind"]) == (
        "running",
        "loading",
        "process",
        "serve",
    )
    assert (loading["engine"], loading["model"], loading["name"]) == ("vllm", "/models/fake", "fake")
    assert (loading["drafter"], loading["k"]) == ("/models/draft", 3)
    assert loading["pid_start"] == procfs.read_stat(process.pid).start  # type: ignore[union-attr]
    assert loading["listening"] is False
    assert loading["log"] == str(tmp_path / "server.log")
    assert "sk-canary-1" not in json.dumps(look.doc)
    assert "samples" in loading
    hold.touch()
    ready = look.server(lambda s: s["health"] == "ready" and s.get("served_model"), pid=process.pid)
    assert (ready["id"], ready["served_model"], ready["max_model_len"], ready["listening"]) == (loading["id"], "fake", 4096, True)
    assert ready["engine_version"] == "0.32.0"
    assert ready["ready_seconds"] >= 0
    assert "smoke_tokens_per_s" not in ready
    look.until(lambda doc: len(look.read(ready["samples"]).splitlines()) >= 2)
    samples = [json.loads(line) for line in look.read(ready["samples"]).splitlines()]
    assert samples[0]["job"] == ready["id"]
    assert samples[1]["generated_tokens"] > samples[0]["generated_tokens"]
    assert b"POST" not in (tmp_path / "server.log").read_bytes()
    process.terminate()
    process.wait(30)
    over = look.server(lambda s: s["state"] == "exited")
    assert (over["id"], over["health"]) == (ready["id"], "gone")
    assert "rc" not in over
    assert "not known" in over["detail"]
    assert over["log"] == str(tmp_path / "server.log")


def test_why_a_server_failed_is_told_as_of_a_job_of_ours(servers: Servers, look: Look, tmp_path: Path) -> None:
    hold, log = tmp_path / "go", tmp_path / "server.log"
    log.write_text("lines of an earlier run\n" * 3)
    error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB"
    process = servers.start(servers.argv("--hold", str(hold), "--fail", error), log=log)
    loading = look.server(lambda s: s["members"] == 3 and s.get("log"), pid=process.pid)
    servers.note(loading)
    assert "causes" not in loading
    hold.touch()
    process.wait(60)
    over = look.server(lambda s: s["state"] == "exited" and s.get("causes"), id=loading["id"])
    assert over["health"] == "failed"
    cause = over["causes"][0]
    assert cause["id"] != "unknown"
    assert cause["remedy"]
    line = cause["evidence"][0]
    assert log.read_bytes()[line["offset"] :].startswith(b"torch.OutOfMemoryError")
    assert log.read_text().splitlines()[line["line"] - 1].startswith("torch.OutOfMemoryError")
    assert over["first_error"].startswith("torch.OutOfMemoryError")


@pytest.mark.fault(30, how="a server found by itself is killed with SIGKILL; its workers have sessions of their own")
def test_what_a_killed_server_leaves_is_told_as_its_leftovers(servers: Servers, look: Look) -> None:
    process = servers.start(servers.argv())
    server = look.server(lambda s: s["health"] == "ready" and s["members"] == 3, pid=process.pid)
    servers.note(server)
    servers.kill(process)
    left = look.server(lambda s: s["state"] == "leftover", id=server["id"])
    assert (left["id"], left["members"], left["health"]) == (server["id"], 2, "gone")
    assert "pid" not in left
    assert "VLLM::EngineCor" in left["detail"]
    found = adopt.find(server["id"])
    assert found is not None
    assert found.main is None
    assert sorted(found.members) == sorted((pid, start) for pid, start in left["member_pids"])
    assert set(adopt.members_of(server["id"])) == set(found.members)
    for pid, start in found.members:
        signal_process(pid, start, signal.SIGKILL)
    look.server(lambda s: s["state"] == "exited", id=server["id"])
    assert adopt.find(server["id"]) is None


@pytest.mark.fault(30, how="an agent that never saw the server finds its leftovers, by title and by the log they share")
def test_leftovers_of_a_server_that_was_never_seen_alive_are_one(servers: Servers, looks: Callable[[], Look]) -> None:
    process = servers.start(servers.argv())
    first = looks()
    server = first.server(lambda s: s["health"] == "ready" and s["members"] == 3, pid=process.pid)
    servers.note(server)
    first.close()
    servers.kill(process)
    adopt._finder = None
    pids = {pid for pid, _ in server["member_pids"]} - {process.pid}
    left = looks().until(lambda doc: next((s for s in doc.values() if pids & dict(s.get("member_pids") or ()).keys()), None))
    assert left["state"] == "leftover"
    assert {pid for pid, _ in left["member_pids"]} == pids
    assert left["id"] != server["id"]


def test_an_engine_inside_somebodys_own_program_is_no_server(servers: Servers, look: Look, tmp_path: Path) -> None:
    install(tmp_path / "bin")
    code = (
        "import os, sys, time; sys.path.insert(0, sys.argv[1]); import stand_in\n"
        "if os.fork() == 0:\n    stand_in.rename('VLLM::EngineCore')\nelse:\n    print('up', flush=True)\ntime.sleep(600)"
    )
    (tmp_path / "bin" / "vllm").rename(tmp_path / "bin" / "stand_in.py")
    argv = [sys.executable, "-I", "-S", "-c", code, str(tmp_path / "bin"), "padding-for-the-title" * 4]
    process = servers.start(argv, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    until(lambda: any(t.name == "EngineCore" for t in _titles(process.pid)), 20)
    before = look.count
    look.until(lambda doc: look.count > before + 2)
    assert not [state for state in (look.doc or {}).values() if process.pid in dict(state.get("member_pids") or ())]
    assert all(process.pid not in {s.pid for s in (*g.members, *g.chain)} for g in adopt.Finder().look())
    for pid in _children(process.pid):
        os.kill(pid, signal.SIGKILL)


def _children(parent: int) -> list[int]:
    stats = (procfs.read_stat(pid) for pid in procfs.pids())
    return [stat.pid for stat in stats if stat is not None and stat.ppid == parent]


def _titles(parent: int) -> list[adopt.Title]:
    return [title for pid in _children(parent) if (title := adopt.title_of(procfs.argv(pid))) is not None]


def test_a_job_of_eagletui_never_comes_twice(servers: Servers, look: Look, tmp_path: Path) -> None:
    jobs = Jobs(tmp_path / "state")
    try:
        port = free_port()
        spec = jobs.spec(*servers.argv(port=port), kind="serve", server=True, engine="vllm", port=port, graces=[20, 5, 10])
        jobs.launch(spec)
        ready = look.until(lambda doc: doc.get(spec["id"], {}).get("health") == "ready" and doc[spec["id"]])
        before = look.count
        look.until(lambda doc: look.count > before + 2)
        pids = {pid for pid, _ in ready["member_pids"]}
        assert not _found_with(look, pids)
        # nor when its supervisor is dead: the job is in the table of jobs still
        signal_process(ready["shim_pid"], ready["shim_start"], signal.SIGKILL)
        look.until(lambda doc: doc[spec["id"]]["state"] == "lost_supervisor", 30)
        before = look.count
        look.until(lambda doc: look.count > before + 2)
        assert not _found_with(look, pids)
        assert not any(set(found.members) & {tuple(key) for key in ready["member_pids"]} for found in adopt.look().values())
    finally:
        jobs.clean()


def _found_with(look: Look, pids: set[int]) -> list[str]:
    doc = look.doc or {}
    return [job for job in doc if adopt.is_found(job) and pids & {pid for pid, _ in doc[job].get("member_pids") or ()}]


def test_a_job_of_another_eagletui_comes_once_and_says_so(
    servers: Servers, look: Look, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EAGLETUI_STATE", str(tmp_path / "theirs"))
    jobs = Jobs(tmp_path / "theirs")
    try:
        port = free_port()
        spec = jobs.spec(*servers.argv(port=port), kind="serve", server=True, engine="vllm", port=port, graces=[20, 5, 10])
        pid = jobs.launch(spec)["pid"]
        server = look.server(pid=pid)
        assert "another eagletui" in server["detail"]
        assert spec["id"] in server["detail"]
        assert server["adopted"] == "process"
    finally:
        jobs.clean()


# ------------------------------------------------------------------------------------------------------- where it logs


def test_a_log_that_was_deleted_is_read_all_the_same(servers: Servers, look: Look, tmp_path: Path) -> None:
    log = tmp_path / "gone.log"
    process = servers.start(servers.argv(), log=log)
    until(lambda: b"startup complete" in log.read_bytes(), 30)
    log.unlink()
    server = look.server(lambda s: s.get("log") and s.get("engine_version"), pid=process.pid)
    servers.note(server)
    assert server["log"].startswith("/proc/self/fd/")
    assert b"startup complete" in look.read(server["log"])


def test_what_goes_through_tee_is_read_from_its_file(servers: Servers, look: Look, tmp_path: Path) -> None:
    log = tmp_path / "teed.log"
    line = 'exec 3>&1; "$@" 2>&1 | tee -a "$LOG" >/dev/null'
    shell = servers.start(["/bin/sh", "-c", line, "sh", *servers.argv()], env={**os.environ, "LOG": str(log)})
    server = look.server(lambda s: s.get("log") == str(log) and s["health"] == "ready")
    servers.note(server)
    assert shell.pid not in {pid for pid, _ in server["member_pids"]}
    assert "log_problem" not in server


@pytest.mark.parametrize(
    ("where", "words"), [("null", "thrown away"), ("pipe", "a pipe to cat"), ("terminal", "prints to the terminal /dev/pts/")]
)
def test_without_a_log_the_reason_is_told_and_all_else_works(servers: Servers, look: Look, where: str, words: str) -> None:
    argv, ends = servers.argv(), []
    if where == "null":
        process = servers.start(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    elif where == "pipe":
        process = servers.start(["/bin/sh", "-c", '"$@" 2>&1 | cat >/dev/null', "sh", *argv])
    else:
        ends = list(pty.openpty())
        process = servers.start(argv, stdout=ends[1], stderr=ends[1])
    try:
        own = {"pid": process.pid} if where != "pipe" else {}
        server = look.server(lambda s: s["health"] == "ready" and s.get("served_model"), **own)
        servers.note(server)
        assert words in server["log_problem"]
        assert "log" not in server
        look.until(lambda doc: look.read(server["samples"]))
    finally:
        for fd in ends:
            os.close(fd)


# --------------------------------------------------------------------------------------------------- other agents, ends


def test_the_next_agent_has_the_same_server_under_the_same_id(servers: Servers, looks: Callable[[], Look]) -> None:
    process = servers.start(servers.argv())
    first = looks()
    one = first.server(lambda s: s["health"] == "ready" and s.get("served_model"), pid=process.pid)
    servers.note(one)
    identity = os.stat(one["samples"]).st_ino
    first.close()
    adopt._finder = None
    second = looks()
    two = second.server(lambda s: s["health"] == "ready" and s.get("served_model"), pid=process.pid)
    assert (two["id"], two["samples"], two["started"]) == (one["id"], one["samples"], one["started"])
    assert os.stat(two["samples"]).st_ino != identity


def test_when_nobody_looks_nothing_is_left_running(servers: Servers, looks: Callable[[], Look]) -> None:
    process = servers.start(servers.argv())
    before = children()
    look = looks()
    server = look.server(lambda s: s["health"] == "ready" and s.get("served_model"), pid=process.pid)
    servers.note(server)
    look.close()
    until(lambda: children() <= before, 20, "the agent's children end")
    assert not os.path.exists(server["samples"])


def test_whoever_has_looked_by_a_request_sees_it_in_the_stream_at_once(
    servers: Servers, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    look.until(lambda doc: True)
    monkeypatch.setattr(observer, "LOOK_EVERY", 3600.0)
    look.source._observer._due = float("inf")  # type: ignore[attr-defined]
    process = servers.start(servers.argv())
    until(lambda: any(found.main is not None and found.main[0] == process.pid for found in adopt.look().values()))
    servers.note(look.server(pid=process.pid))


def test_a_page_that_is_no_metrics_page_is_told(servers: Servers, look: Look, tmp_path: Path) -> None:
    page = tmp_path / "page"
    page.write_bytes(b"")
    process = servers.start(servers.argv("--page", str(page)))
    server = look.server(lambda s: s.get("metrics_problem"), pid=process.pid)
    servers.note(server)
    assert "no /metrics" in server["metrics_problem"]
    assert server["health"] == "ready"


def test_an_sglang_server_is_known_and_not_asked_to_generate(servers: Servers, look: Look, tmp_path: Path) -> None:
    log = tmp_path / "sglang.log"
    argv = [*servers.argv("--model-path", "/models/k2", name="sglang", model=""), "--enable-metrics"]
    argv.remove("")
    env = {**os.environ, "STAND_IN_TITLES": SGLANG_TITLES}
    process = servers.start(argv, env=env, log=log)
    server = look.server(lambda s: s["members"] == 3 and s["listening"], pid=process.pid)
    servers.note(server)
    assert (server["engine"], server["model"], server["name"]) == ("sglang", "/models/k2", "k2")
    assert {procfs.argv(pid)[0] for pid, _ in server["member_pids"]} >= set(SGLANG_TITLES.split(","))


def test_a_name_for_people_and_ids_that_say_what_they_are() -> None:
    assert adopt.is_found("found-12-00000000")
    assert not adopt.is_found("20261129-104512-k2-abcd")
    assert adopt.find("k2") is None
    assert adopt.members_of("found-1-00000000") == {}
