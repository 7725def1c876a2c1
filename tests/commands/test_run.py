"""Jobs from job files, as a person runs them: real agent, real processes; output, exit codes, secrets, ends of all sorts."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from eagletui import cli
from eagletui.agent.syscalls import signal_process
from eagletui.commands import Desk, kill, kill_plan
from eagletui.commands.run import job_file, plan_run, run_job, wait_over
from eagletui.hosts.base import HostError
from eagletui.records import GpuBoard, GpuSample, JobState
from tests.agent.jobs_harness import Jobs, until
from tests.commands.test_launch_and_kill import Lossy

CANARY = "canary-51f0aa"


@pytest.fixture
def file(places: Path) -> Path:
    """A job that waits for a file ``go`` beside it, showing how far it is, and makes ``made``."""
    go, made = places / "go", places / "made"
    path = places / "steps.toml"
    path.write_text(
        f"""kind = "command"
shell = "echo '[1/4] first'; while [ ! -e {go} ]; do sleep 0.1; done; echo '[4/4] last'; echo $HF_TOKEN | wc -c; touch {made}"
expect = ["{made}"]
secrets = ["HF_TOKEN"]
"""
    )
    return path


def run(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli.main(list(words))
    out, err = capfd.readouterr()
    assert "Traceback" not in err
    return code, out, err


async def start(desk: Desk, file: Path, *changes: str) -> JobState:
    return await run_job(desk, await plan_run(desk, job_file(desk, str(file), changes)), {"HF_TOKEN": CANARY})


async def over(desk: Desk, state: JobState) -> JobState:
    async with asyncio.timeout(90):
        return await wait_over(desk, state.id, lambda _state: None)


def test_from_the_file_to_its_judged_end(
    file: Path, places: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", CANARY)
    code, out, err = run(capfd, "run", "local", str(file), "--dry-run")
    assert code == 0
    assert "HF_TOKEN=(from your environment)" in out
    assert "bash -lc 'echo" in out
    assert CANARY not in out + err

    code, out, _ = run(capfd, "run", "local", str(file))
    assert (code, "started as pid" in out) == (0, True)
    jobs = Jobs(places / "jobs")
    (name,) = os.listdir(places / "jobs" / "jobs")
    jobs.wait(name, lambda s: (s.get("work") or {}).get("done") == 1)
    _, out, _ = run(capfd, "jobs", "local")
    (line,) = [line for line in out.splitlines() if line.startswith(name)]
    assert "running" in line
    assert "1 / 4 steps" in line
    (places / "go").touch()
    jobs.over(name)

    code, out, err = run(capfd, "run", "local", str(file), "--wait", "--set", "name=again")
    assert code == 0, err
    assert "again (" in out
    assert "exit status 0" in out
    assert "4 / 4 steps  100 %" in err
    _, out, _ = run(capfd, "jobs", "local")
    assert [line.split()[2] for line in out.splitlines() if "command" in line] == ["done", "done"]
    assert not [path for path in (places / "jobs").rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]


def test_exit_codes_say_how_it_ended(
    file: Path, places: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "x")
    code, out, err = run(capfd, "run", "local", str(file), "--wait", "--set", "shell=exit 3")
    assert (code, out) == (1, "")
    assert "failed: exit status 3" in err
    code, out, _ = run(capfd, "run", "local", str(file), "--wait", "--json", "--set", "shell=true")
    answer = json.loads(out)
    assert (code, answer["outcome"], answer["job"]["ok"]) == (1, "failed", False)
    assert "made is not there" in answer["job"]["outcome"]
    code, _, err = run(capfd, "run", "local", str(file), "--wait", "--set", "shell=", "--set", "argv=/no/such")
    assert (code, "no such file: /no/such" in err) == (1, True)


def test_who_ends_it_is_told_by_an_exit_code_of_its_own(
    file: Path, places: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "x")
    jobs = Jobs(places / "jobs")

    def end_it() -> None:
        root = places / "jobs" / "jobs"
        until(lambda: root.is_dir() and os.listdir(root), 60)
        (name,) = os.listdir(root)
        jobs.wait(name, lambda s: s.get("work"), 60)
        jobs.job(name)
        (root / name / "control.json").write_text(json.dumps({"operator": "somebody"}))

    thread = threading.Thread(target=end_it)
    thread.start()
    code, _, err = run(capfd, "run", "local", str(file), "--wait")
    thread.join()
    assert code == 6
    assert "ended: ended on request" in err


def test_files_that_cannot_be_run(file: Path, places: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file.write_text('kind = "command"\nargv = ["x"]\nprot = 3\ncwd = "here"\n')
    code, out, err = run(capfd, "run", "local", str(file))
    assert (code, out) == (2, "")
    first, second = err.splitlines()
    assert first == f"eagletui: {file}:3: unknown key 'prot' - did you mean 'port'?"
    assert second == f"eagletui: {file}:4: 'cwd' is 'here' - expected an absolute path"
    code, _, err = run(capfd, "run", "local", "no-such")
    assert (code, "there is no job file 'no-such'" in err) == (2, True)
    assert not (places / "jobs" / "jobs").exists()


def test_job_files_are_listed(places: Path, capfd: pytest.CaptureFixture[str]) -> None:
    own = places / "config" / "eagletui" / "jobs"
    own.mkdir(parents=True)
    (own / "mine.toml").write_text('kind = "command"\nargv = ["x"]\ndescription = "of my own"\n')
    (own / "bad.toml").write_text('kind = "x"\n')
    code, out, err = run(capfd, "run", "gpu-host")
    assert code == 0
    assert any(line.split()[:2] == ["mine", "command"] and "of my own" in line for line in out.splitlines())
    assert "bad.toml:1: there is no kind of job 'x'" in err
    listed = json.loads(run(capfd, "run", "gpu-host", "--json")[1])
    assert {"mine", "download"} <= {entry["name"] for entry in listed["files"]}
    assert len(listed["notices"]) == 1


async def test_a_launch_whose_answer_is_lost_starts_once(desk: Desk, file: Path, places: Path) -> None:
    lossy = Lossy(desk, "launch", 2)
    state = await start(desk, file)
    assert lossy.calls == 3
    assert os.listdir(places / "jobs" / "jobs") == [state.id]
    (places / "go").touch()
    assert (await over(desk, state)).ok is True


async def test_a_job_without_its_secret_is_not_run(desk: Desk, file: Path, places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    plan = await plan_run(desk, job_file(desk, str(file)))
    assert plan.missing == ("HF_TOKEN",)
    with pytest.raises(HostError, match="no value for HF_TOKEN"):
        await run_job(desk, plan, {})
    assert not (places / "jobs" / "jobs").exists()


async def test_a_read_only_desk_runs_nothing(desk: Desk, file: Path) -> None:
    plan = await plan_run(desk, job_file(desk, str(file)))
    desk.readonly = True
    with pytest.raises(HostError, match="read-only"):
        await run_job(desk, plan, {"HF_TOKEN": "x"})


async def test_a_job_whose_supervisor_died_is_not_waited_for_for_ever(desk: Desk, file: Path, places: Path) -> None:
    state = await start(desk, file)
    assert state.shim_pid is not None
    assert state.shim_start is not None
    assert signal_process(state.shim_pid, state.shim_start, signal.SIGKILL)
    (places / "go").touch()
    ended = await over(desk, state)
    assert (ended.state, ended.ok, ended.rc) == ("lost_supervisor", None, None)


async def test_kill_9_of_a_copy_and_the_next_run_goes_on(desk: Desk, places: Path) -> None:
    """The program is killed amid a file, not its supervisor: the job has failed, and a second one finishes its work."""
    source = places / "source"
    source.mkdir()
    (source / "big").write_bytes(os.urandom(1 << 20) * 200)
    (places / "copy.toml").write_text(f'kind = "download"\nsource = "{source}"\noutput = "{places / "copy"}"\nspare = 0\n')
    state = await start(desk, places / "copy.toml")
    part = places / "copy" / "big.part"
    await asyncio.to_thread(until, lambda: part.exists() or (places / "copy" / "big").exists(), 60)
    assert state.pid is not None
    assert state.pid_start is not None
    hit = signal_process(state.pid, state.pid_start, signal.SIGKILL)
    first = await over(desk, state)
    if first.ok is not True:  # else it was faster than we
        assert hit
        assert first.outcome is not None
        assert first.outcome.startswith("ended by SIGKILL")
        assert not (places / "copy" / "big").exists()
    done = await over(desk, await start(desk, places / "copy.toml"))
    assert (done.ok, done.rc) == (True, 0)
    assert (places / "copy" / "big").read_bytes() == (source / "big").read_bytes()


async def test_a_kill_is_neither_success_nor_failure(desk: Desk, file: Path) -> None:
    state = await start(desk, file)
    report: Any = await kill(desk, await kill_plan(desk, state.id))
    assert report.done
    ended = await over(desk, state)
    assert (ended.ok, ended.ended_by is not None) == (None, True)


async def test_a_job_that_leaves_a_process_behind_is_not_waited_for_for_ever(
    desk: Desk, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (places / "left.toml").write_text('kind = "command"\nshell = "sleep 600 & echo started"\n')
    monkeypatch.setattr("eagletui.commands.run.LEFT_SECONDS", 0.0)
    state = await over(desk, await start(desk, places / "left.toml"))
    assert (state.state, state.rc, state.ok) == ("exited", 0, None)
    assert state.detail is not None
    assert state.detail.startswith("left behind: pid ")


async def test_cards_are_leased_and_alone_seen(desk: Desk, places: Path) -> None:
    cards = tuple(GpuSample(f"GPU-{letter}", number, "card") for number, letter in enumerate("abc"))
    desk.store.gpus = GpuBoard(1.0, True, cards=cards)
    (places / "two.toml").write_text('kind = "command"\nargv = ["true"]\ngpus = [2, "GPU-a"]\n')
    plan = await plan_run(desk, job_file(desk, str(places / "two.toml")))
    assert plan.spec["gpus"] == plan.spec["leases"]["gpus"] == ["GPU-c", "GPU-a"]
    assert (plan.spec["env"]["CUDA_VISIBLE_DEVICES"], plan.spec["env"]["CUDA_DEVICE_ORDER"]) == ("2,0", "PCI_BUS_ID")
    every = await plan_run(desk, job_file(desk, str(places / "two.toml"), ('gpus="all"',)))
    assert (len(every.spec["gpus"]), "CUDA_VISIBLE_DEVICES" in every.spec["env"]) == (3, False)
    with pytest.raises(HostError, match="4 cards are wanted, and the host has 3"):
        await plan_run(desk, job_file(desk, str(places / "two.toml"), ("gpus=4",)))
