"""Launching: once, however often it is sent; refused with the reason; and what reaches which file."""

from __future__ import annotations

import os
import random
import signal
import socket
import stat
import sys
import time
from pathlib import Path

import pytest

from eagletui.agent import procfs, state_dir, supervisor, units
from eagletui.agent.calls import CallError
from eagletui.agent.tool import Said
from eagletui.hosts import bootstrap
from tests.agent.jobs_harness import Jobs, free_port, until
from tests.conftest import VERSIONS, find_python


def test_a_program_runs_to_its_end(jobs: Jobs) -> None:
    spec = jobs.spec(
        sys.executable, "-c", "import os,sys; print(os.getcwd(), os.getsid(0) == os.getpid()); sys.exit(3)", cwd="/usr"
    )
    state = jobs.launch(spec)
    assert state["state"] in ("running", "exited")
    over = jobs.over(spec["id"])
    assert (over["state"], over["rc"], over["members"]) == ("exited", 3, 0)
    directory = jobs.root / "jobs" / spec["id"]
    assert (directory / "log").read_text() == "/usr True\n"
    exit_doc = state_dir.read_json(str(directory / "exit.json"))
    assert exit_doc is not None
    assert (exit_doc["rc"], exit_doc["oom"], exit_doc["members_left"]) == (3, False, [])
    result = state_dir.read_json(str(directory / "result.json"))
    assert result == {"ok": False, "why": "exit status 3"}
    for path in [jobs.root, directory]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for path in directory.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_the_same_id_again_is_the_same_job(jobs: Jobs) -> None:
    spec = jobs.spec("sleep", "60")
    first = jobs.launch(spec)
    assert first["state"] == "running"
    again = jobs.launch(spec)
    assert (again["pid"], again["pid_start"]) == (first["pid"], first["pid_start"])
    assert len(jobs.members(spec["id"])) == 1


def test_nothing_is_inherited_by_accident(jobs: Jobs, tmp_path: Path) -> None:
    with (tmp_path / "leak").open("w") as leak:
        os.set_inheritable(leak.fileno(), True)
        spec = jobs.spec("sleep", "60", port=free_port())
        state = jobs.launch(spec)
        for pid in (state["pid"], state["shim_pid"]):
            until(lambda pid=pid: procfs.fd_paths(pid, (2,)))
            open_files = procfs.fd_paths(pid, range(64)).values()
            assert not [path for path in open_files if path.startswith(str(tmp_path)) and not path.startswith(str(jobs.root))]
    held = [path for path in procfs.fd_paths(state["pid"], range(64)).values() if "/leases/" in path]
    assert held == [str(jobs.root / "leases" / f"port-{spec['port']}")]


def test_signals_are_as_at_login(jobs: Jobs) -> None:
    code = "import signal as s; print([n.name for n in s.Signals if s.getsignal(n) == s.SIG_IGN])"
    spec = jobs.spec(sys.executable, "-c", code)
    jobs.launch(spec)
    jobs.over(spec["id"])
    # Python itself ignores these two
    assert (jobs.root / "jobs" / spec["id"] / "log").read_text() == "['SIGPIPE', 'SIGXFSZ']\n"


@pytest.mark.parametrize(
    ("argv", "cwd", "why"),
    [
        (["/x/bin/vllm", "serve"], "/", "no such file: /x/bin/vllm"),
        (["no-such-program-here"], "/", "no such program in PATH: no-such-program-here"),
        (["/etc/passwd"], "/", "permission denied: /etc/passwd is not executable"),
        (["true"], "/no/such/place", "no such directory: /no/such/place"),
    ],
)
def test_what_cannot_be_started_is_told(jobs: Jobs, argv: list[str], cwd: str, why: str) -> None:
    spec = jobs.spec(*argv, cwd=cwd)
    state = jobs.launch(spec)
    assert (state["state"], state["rc"], state["detail"]) == ("failed_to_exec", 127, why)
    assert jobs.call("job", job=spec["id"])["exit"]["error"] == why


def test_a_script_whose_interpreter_is_missing(jobs: Jobs, tmp_path: Path) -> None:
    script = tmp_path / "vllm"
    script.write_text("#!/gone/venv/bin/python3\n")
    script.chmod(0o755)
    state = jobs.launch(jobs.spec(str(script)))
    assert state["detail"] == f"{script}: the interpreter named in its first line is missing"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"argv": []}, "argv should be a list of texts"),
        ({"kind": "nonsense"}, "no kind of job called 'nonsense'"),
        ({"id": "../../etc"}, "is not a job id"),
        ({"cwd": "here"}, "cwd should be an absolute path"),
        ({"port": 0}, "port should be a number"),
        ({"env": {"A": 1}}, "env should be an object"),
    ],
)
def test_a_bad_spec_makes_nothing(jobs: Jobs, change: dict[str, object], why: str) -> None:
    with pytest.raises(CallError, match=why.replace("[", r"\[")):
        jobs.call("launch", spec={**jobs.spec("true"), **change})
    assert not jobs.root.exists()


def test_secrets_reach_the_child_and_nothing_else(jobs: Jobs) -> None:
    canary = f"hf_canary_{random.getrandbits(64)}"
    names = "len(e['HF_TOKEN']), e['PLAIN'], len(e['MY_API_KEY'])"
    code = f"import os,time; e = os.environ; print({names}, flush=True); time.sleep(60)"
    spec = jobs.spec(sys.executable, "-c", code, env={"PLAIN": "seen", "MY_API_KEY": canary})
    state = jobs.launch(spec, secrets={"HF_TOKEN": canary})
    log = jobs.root / "jobs" / spec["id"] / "log"
    until(lambda: log.exists() and log.read_bytes())
    assert log.read_text() == f"{len(canary)} seen {len(canary)}\n"
    assert procfs.environ_has(state["pid"], "HF_TOKEN", canary)
    for path in jobs.root.rglob("*"):
        assert not path.is_file() or canary.encode() not in path.read_bytes(), path
    for pid in procfs.pids():
        assert canary not in (procfs.cmdline(pid, 1 << 17) or "")
    assert canary.encode() not in (procfs.read_bytes(f"/proc/{state['shim_pid']}/environ") or b"")
    assert canary not in str(jobs.call("job", job=spec["id"]))


def test_the_environment_of_the_ssh_session_stays_out(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "1.2.3.4 5 6.7.8.9 22")
    spec = jobs.spec("env")
    jobs.launch(spec)
    jobs.over(spec["id"])
    names = {line.partition("=")[0] for line in (jobs.root / "jobs" / spec["id"] / "log").read_text().splitlines()}
    assert "PATH" in names
    assert "HOME" in names
    assert not {"SSH_CONNECTION", "EAGLETUI_STATE"} & names


def _cut(jobs: Jobs, spec: dict[str, object], seconds: float) -> None:
    """Send the launch from a process that is killed after so many seconds."""
    pid = os.fork()
    if pid == 0:
        try:
            jobs.call("launch", spec=spec)
        finally:
            os._exit(0)
    time.sleep(seconds)  # the moment of the cut is the test's input, not a wait for something
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_cut_and_sent_again_starts_once(jobs: Jobs, tmp_path: Path) -> None:
    rng = random.Random(8)
    for number in range(8):
        mark = tmp_path / f"started-{number}"
        spec = jobs.spec("bash", "-c", f"echo $$ >> {mark}; exec sleep 60")
        jobs.launched.append(str(spec["id"]))
        for _ in range(2):
            _cut(jobs, spec, rng.uniform(0.0, 0.4))
        state = jobs.launch(spec)
        assert state["state"] == "running", state
        until(lambda mark=mark: mark.exists() and mark.read_text())
        assert mark.read_text().split() == [str(state["pid"])]
        assert len(jobs.members(str(spec["id"]))) == 1


def test_two_racers_for_one_port(jobs: Jobs) -> None:
    port = free_port()
    specs = [jobs.spec("sleep", "60", port=port, operator=name) for name in ("ann", "bob")]
    jobs.launched += [spec["id"] for spec in specs]
    results = []
    children = []
    for spec in specs:
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                try:
                    said = "won " + jobs.call("launch", spec=spec)["id"]
                except CallError as error:
                    said = "lost " + str(error)
                os.write(write_end, said.encode())
            finally:
                os._exit(0)
        os.close(write_end)
        children.append((pid, read_end))
    for pid, read_end in children:
        results.append(os.read(read_end, 4096).decode())
        os.close(read_end)
        os.waitpid(pid, 0)
    results.sort()
    assert [text.split()[0] for text in results] == ["lost", "won"], results
    winner = results[1].split()[1]
    assert f"port {port} is leased by job {winner} of " in results[0]
    loser = next(spec["id"] for spec in specs if spec["id"] != winner)
    assert not (jobs.root / "jobs" / loser).exists()


def test_a_port_of_a_stranger_refuses_the_launch(jobs: Jobs) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        spec = jobs.spec("sleep", "60", port=port)
        with pytest.raises(CallError, match=f"port {port} is held by pid {os.getpid()} ") as caught:
            jobs.launch(spec)
        assert caught.value.kind == "refused"
    assert not (jobs.root / "jobs" / spec["id"]).exists()
    assert jobs.launch(spec)["state"] == "running"


def test_the_gpus_of_a_running_job_refuse_another(jobs: Jobs) -> None:
    jobs.launch(jobs.spec("sleep", "60", id="first", gpus=["GPU-1", "GPU-2"], operator="ann"))
    with pytest.raises(CallError, match="gpu GPU-2 is leased by job first of ann, since 20"):
        jobs.launch(jobs.spec("sleep", "60", gpus=["GPU-2"]))


def test_a_state_directory_of_others_is_refused(jobs: Jobs) -> None:
    jobs.root.mkdir(mode=0o700)
    jobs.root.chmod(0o770)
    with pytest.raises(CallError, match="may be written by others"):
        jobs.launch(jobs.spec("true"))
    jobs.root.chmod(0o700)
    if os.geteuid() == 0:
        os.chown(jobs.root, 12345, -1)
        with pytest.raises(CallError, match="belongs to user 12345"):
            jobs.launch(jobs.spec("true"))


def test_where_state_lives() -> None:
    assert state_dir.locate({}, uid=0) == "/var/lib/eagletui"
    assert state_dir.locate({"HOME": "/home/a"}, uid=7) == "/home/a/.local/state/eagletui"
    assert state_dir.locate({"HOME": "/home/a", "XDG_STATE_HOME": "/s"}, uid=7) == "/s/eagletui"
    assert state_dir.locate({"HOME": "/home/a", "XDG_STATE_HOME": "relative"}, uid=7) == "/home/a/.local/state/eagletui"
    assert state_dir.locate({"EAGLETUI_STATE": "/t"}, uid=0) == "/t"
    assert state_dir.filesystem("/proc/self") == "proc"


def test_the_unit_gets_no_secret_and_no_dollar() -> None:
    program = ["/usr/bin/python3", "-c", "$code", "/s$/jobs/k25-1"]
    argv = units.unit_argv(units.SYSTEM_UNIT, "k25-1", program, {"HOME": "/root", "HF_TOKEN": "x"}, (60, 15, 30))
    assert argv[:2] == ["systemd-run", "--collect"]
    assert "--unit=eagletui-k25-1.service" in argv
    assert argv[argv.index("--") + 1 :] == ["/usr/bin/python3", "-c", "$$code", "/s$$/jobs/k25-1"]
    assert "--setenv=HOME=/root" in argv
    assert not [part for part in argv if "HF_TOKEN" in part]
    for wanted in ("KillMode=process", "TimeoutStopSec=135", "UMask=0077", "OOMPolicy=continue", "TasksMax=infinity"):
        assert argv[argv.index(wanted) - 1] == "-p"
    assert units.unit_argv(units.USER_UNIT, "k25-1", program, {}, (60, 15, 30))[:2] == ["systemd-run", "--user"]


def _systemd_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """A host with a systemd-run of ours; returns the directory where secrets wait for their unit."""
    tool = tmp_path / "bin" / "systemd-run"
    tool.parent.mkdir()
    tool.write_text(script)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(units, "RUN_DIR", str(tmp_path / "run"))
    monkeypatch.setattr(units, "find_way", lambda loop, found: found(units.Way(units.SYSTEM_UNIT)))
    return tmp_path / "run"


def test_the_unit_reads_its_secrets_once(jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The unit's way with a stand-in for systemd-run, which starts the supervisor as systemd would."""
    starts = '#!/bin/bash\nwhile [ "$1" != -- ]; do shift; done; shift\n"$@" </dev/null >/dev/null 2>&1 &\n'
    run = _systemd_run(tmp_path, monkeypatch, starts)
    spec = jobs.spec("sh", "-c", "echo ${#HF_TOKEN}")
    state = jobs.launch(spec, secrets={"HF_TOKEN": "hf_123"})
    assert (state["runner"], state["unit"], state.get("survival")) == ("system-unit", f"eagletui-{spec['id']}.service", None)
    jobs.over(spec["id"])
    assert (jobs.root / "jobs" / spec["id"] / "log").read_text() == "6\n"
    assert list(run.iterdir()) == []
    assert jobs.job(spec["id"]).spec["unit"] == f"eagletui-{spec['id']}.service"


def test_without_a_bus_it_forks_and_says_what_that_means(jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fails = "#!/bin/sh\necho Failed to connect to bus: No such file or directory >&2; exit 1\n"
    run = _systemd_run(tmp_path, monkeypatch, fails)
    spec = jobs.spec("sh", "-c", "echo ${#HF_TOKEN}")
    state = jobs.launch(spec, secrets={"HF_TOKEN": "hf_123"})
    assert (state["runner"], state.get("unit")) == ("process", None)
    assert state["survival"] == (
        "the job ends when its ssh session is terminated (loginctl terminate-session): "
        "systemd made no unit (Failed to connect to bus: No such file or directory)"
    )
    assert jobs.over(spec["id"])["rc"] == 0
    assert (jobs.root / "jobs" / spec["id"] / "log").read_text() == "6\n"
    assert list(run.iterdir()) == []


def test_secrets_of_a_launch_that_was_never_sent_again_do_not_stay(tmp_path: Path) -> None:
    stale = Path(supervisor.write_secrets(str(tmp_path), "old", {"HF_TOKEN": "x"}))
    young = Path(supervisor.write_secrets(str(tmp_path), "young", {}))
    os.utime(stale, (1, 1))
    now = Path(supervisor.write_secrets(str(tmp_path), "now", {}))
    assert sorted(tmp_path.iterdir()) == sorted((young, now))
    assert stat.S_IMODE(now.stat().st_mode) == 0o600


LOGIND = 'b true\nas 0\nas 1 "root"\n'


@pytest.mark.parametrize(
    ("said", "survival"),
    [
        (
            Said(0, LOGIND),
            "the job ends with the last session of ann: logind has KillUserProcesses=yes and ann does not linger; `logi",
        ),
        (Said(0, LOGIND.replace("true", "false")), None),
        (Said(0, LOGIND.replace('"root"', '"ann"')), None),
        (Said(0, 'b true\nas 1 "bob"\nas 0\n'), None),
        (Said(0, 'b true\nas 2 "bob" "ann"\nas 0\n'), "the job ends with the last session of ann: "),
        (
            Said(1, "", "Failed: no such service\n"),
            "the job may end at logout: ann does not linger, and logind does not say what it does",
        ),
        (Said(None), "the job may end at logout: ann does not linger, and logind does not say what it does then (busctl did not"),
    ],
)
def test_what_logind_says_of_leftover_processes(said: Said, survival: str | None) -> None:
    words = units.judge("ann", said)
    assert (words is None) == (survival is None)
    assert words is None or (words.startswith(survival or "") and "`loginctl enable-linger ann`" in words)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_supervisor_runs_from_the_agents_code_on_any_python(
    jobs: Jobs, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = find_python(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    monkeypatch.setattr(supervisor.bundle, "BLOB", bootstrap.bundle())
    monkeypatch.setattr(supervisor.sys, "executable", python)
    spec = jobs.server("--ignore-term", "--workers-ignore-term", graces=[0.2, 0.2, 10])
    spec["argv"][0] = python
    state = jobs.launch(spec)
    assert procfs.argv(state["shim_pid"])[0] == python
    jobs.wait(spec["id"], lambda s: s.get("smoke_tokens_per_s"))
    samples = jobs.root / "jobs" / spec["id"] / "samples.jsonl"
    until(samples.read_bytes)
    assert jobs.kill(spec["id"])["result"]["remaining"] == []
    assert jobs.over(spec["id"])["rc"] == -9
    assert len(list((jobs.root / "code").iterdir())) == 1
    shim_log = jobs.root / "jobs" / spec["id"] / "shim.log"
    assert shim_log.read_text() == ""
