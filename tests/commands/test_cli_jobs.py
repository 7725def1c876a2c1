"""The verbs about jobs as a person types them: output, exit codes, JSON; real agent, real processes."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eagletui import cli
from eagletui.cli.desk import LiveLine
from eagletui.cli.jobs import plan_lines
from eagletui.cli.launch import progress, stage
from eagletui.cli.words import eta_words
from eagletui.commands import Desk
from eagletui.connection import Connection
from eagletui.profiles import Profile, save_profile, with_changes
from eagletui.records import Eta, JobState, KillPlan, Phase, Victim
from eagletui.store import Store
from eagletui.text import fold_words
from tests.agent.jobs_harness import until
from tests.commands.conftest import fake

DATA = Path(__file__).parent.parent / "data" / "engines"
CANARY = "canary-77aa"


@pytest.fixture
def profile(places: Path) -> Profile:
    made = fake()
    save_profile(made)
    return made


def run(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli.main(list(words))
    out, err = capfd.readouterr()
    assert "Traceback" not in err
    return code, out, err


def test_a_day_with_a_server(profile: Profile, places: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capfd, "jobs", "local")
    # servers of somebody else that run here are found, and are no jobs of ours
    assert (code, [line for line in out.splitlines() if not line.startswith(("ID ", "found-", "no jobs"))], err) == (0, [], "")
    code, out, err = run(capfd, "launch", "local", "fake", "--wait")
    assert code == 0
    assert f"ready in 2 s on port {profile.port}" in out or "ready in" in out
    assert "runs as pid" in err
    assert "ready" in err

    code, out, _ = run(capfd, "jobs", "local", "--json")
    (job,) = [found for found in json.loads(out)["jobs"] if not found["id"].startswith("found-")]
    assert (code, job["health"], job["port"]) == (0, "ready", profile.port)
    assert job["id"] in run(capfd, "jobs", "local")[1]

    code, out, _ = run(capfd, "status", "local", "--json")
    (server,) = [found for found in json.loads(out)["servers"] if found["id"] == job["id"]]
    assert server["running"] == 1
    assert server["window"] is None or server["window"]["seconds"] > 0
    assert "fake" in run(capfd, "status", "local")[1]

    log = Path(job["log"])
    assert run(capfd, "logs", "local", "fake", "--lines", "1")[1] == "INFO:     Application startup complete.\n"
    assert run(capfd, "logs", "local", job["id"], "--lines", "5000", "--raw")[1].encode() == log.read_bytes()

    code, out, err = run(capfd, "launch", "local", "fake")
    assert code == 2
    assert f"is leased by job {job['id']}" in err

    code, out, err = run(capfd, "kill", "local", "fake")
    assert code == 2
    assert f"frees port {profile.port}" in out
    assert "--yes" in err
    assert run(capfd, "remove", "local", "fake")[0] == 4
    code, out, _ = run(capfd, "kill", "local", job["id"][:20], "--yes", "--json")
    report = json.loads(out)
    assert (code, report["done"], report["remaining"], report["gpu_memory"]) == (0, True, [], None)
    assert f"port {profile.port}" in report["released"]
    assert run(capfd, "kill", "local", "fake", "--yes")[:2] == (0, f"nothing of fake ({job['id']}) runs\n")
    assert run(capfd, "logs", "local", "fake", "-f", "--lines", "0")[0] == 0  # it has ended: nothing more comes
    assert run(capfd, "remove", "local", "fake")[0] == 0
    assert not log.exists()
    assert run(capfd, "logs", "local", "fake")[0] == 2


def test_what_cannot_be_launched(profile: Profile, places: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capfd, "launch", "local", "fkae")
    assert code == 2
    assert "did you mean 'fake'?" in err
    (places / "config" / "eagletui" / "profiles" / "broken.toml").write_text('engine = "vlm"\nmodel = "m"\n')
    code, _, err = run(capfd, "launch", "local", "broken")
    assert code == 2
    assert "broken.toml:1" in err
    code, out, _ = run(capfd, "profiles", "local", "--json")
    listed = json.loads(out)
    assert code == 0
    assert "fake" in [entry["name"] for entry in listed["profiles"]]
    assert listed["notices"][0]["line"] == 1

    code, out, err = run(capfd, "launch", "local", "fake", "--wait", "--set", "args=--fail 'ValueError: bad shard'")
    assert (code, out) == (1, "")
    assert "ValueError: bad shard - eagletui diagnose local" in err
    save_profile(replace(profile, name="gone", command=(), venv="/nowhere"))
    code, out, err = run(capfd, "launch", "local", "gone")
    assert (code, out) == (2, "")
    assert "there is no program /nowhere/bin/vllm on this host" in err
    code, out, err = run(capfd, "launch", "local", "gone", "--json", "--force")
    assert code == 1
    assert json.loads(out)["outcome"] == "failed"
    assert "/nowhere/bin/vllm" in err
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        code, _, err = run(capfd, "launch", "local", "fake", "--set", f"port={stranger.getsockname()[1]}")
    assert code == 2
    assert f"pid {os.getpid()}" in err


def test_a_secret_is_shown_nowhere(
    profile: Profile, places: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("launch", "local", "fake", "--set", "secrets=HF_TOKEN", "--set", "env.MY_API_KEY=" + CANARY)
    code, out, err = run(capfd, *words, "--dry-run")
    assert code == 0
    assert "HF_TOKEN=(from your environment)" in out
    assert CANARY not in out + err
    assert json.loads(run(capfd, *words, "--dry-run", "--json")[1])["missing"] == ["HF_TOKEN"]
    monkeypatch.setenv("HF_TOKEN", CANARY)
    code, out, err = run(capfd, *words, "--wait", "--json")
    assert code == 0
    state = json.loads(out)
    assert state["outcome"] == "ready"
    shown = out + err + run(capfd, "jobs", "local", "--json")[1] + run(capfd, "logs", "local", "fake", "--lines", "999")[1]
    assert CANARY not in shown
    assert f"HF_TOKEN={CANARY}" in Path(f"/proc/{state['job']['pid']}/environ").read_text()
    kept = [path for path in places.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]
    assert kept == []


def test_a_kill_that_leaves_something(profile: Profile, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(capfd, "launch", "local", "fake", "--wait")[0] == 0
    assert profile.port is not None
    with socket.socket() as taker:
        taker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taker.bind(("127.0.0.2", profile.port))
        taker.listen()
        code, out, _ = run(capfd, "kill", "local", "fake", "--yes")
    assert code == 1
    assert "REMAINS:" in out
    assert f"port {profile.port}" in out


def test_ctrl_c_leaves_the_job_alone(profile: Profile, places: Path, capfd: pytest.CaptureFixture[str]) -> None:
    go_on = places / "go-on"
    words = [sys.executable, "-m", "eagletui", "launch", "local", "fake", "--wait", "--set", f"args=--hold {go_on}"]
    # a shell's background job ignores it, and what it starts would do so too: these tests may be one
    heard_again = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=heard_again) as waiting:
        assert waiting.stderr is not None
        # a busy machine may be warned of first
        assert any("runs as pid" in line for line in iter(waiting.stderr.readline, ""))
        waiting.send_signal(signal.SIGINT)
        err = waiting.stderr.read()
        assert waiting.wait(30) == 130
    assert "goes on loading" in err
    assert "Traceback" not in err
    follow = [sys.executable, "-m", "eagletui", "logs", "local", "fake", "-f"]
    with subprocess.Popen(follow, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        heard: list[str] = []
        reading = threading.Thread(target=lambda: heard.extend(following.stdout or ()))
        reading.start()
        go_on.touch()
        until(lambda: any("startup complete" in line for line in heard))
        assert run(capfd, "kill", "local", "fake", "--yes")[0] == 0
        assert following.wait(60) == 0
        reading.join()


@pytest.mark.parametrize(
    ("log", "engine", "outcome"),
    [
        ("vllm-0.32/serve_eagle3.log", "vllm", "stopped"),
        ("vllm-0.32/corrupt_shard.log", "vllm", "failed"),
        ("sglang-0.5.23/eagle3.log", "sglang", "stopped"),
        ("sglang-0.5.23/bad_draft_path.log", "sglang", "failed"),
        ("kimi-k2.5/vllm-0.16-load.txt", "vllm", "loading"),
    ],
)
def test_phases_of_real_logs(log: str, engine: str, outcome: str, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capfd, "phases", str(DATA / log), "--json")
    told = json.loads(out)
    assert (code, told["engine"], told["outcome"]) == (0, engine, outcome)
    assert (told["first_error"] is not None) == (outcome == "failed")
    code, out, _ = run(capfd, "phases", str(DATA / log))
    assert code == 0
    assert f": {outcome}" in out.splitlines()[0]
    assert (told["first_error"] or {"text": ""})["text"][:60] in out


def test_phases_of_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capfd, "phases", str(tmp_path / "none"))
    assert code == 2
    assert "No such file" in err
    assert run(capfd, "phases", str(tmp_path))[0] == 2
    (tmp_path / "text").write_text("hello\n")
    code, out, _ = run(capfd, "phases", str(tmp_path / "text"))
    assert (code, out) == (0, "no engine that is known: loading\n")


def test_a_live_line_off_a_terminal_is_told_when_it_changes() -> None:
    out = io.StringIO()
    now = 0.0
    line = LiveLine(out, lambda: now)
    for seconds, text, key in ((0, "a 1", "a"), (29, "a 2", "a"), (0, "b\x1b]0;x\x07 1", "b"), (29, "b 2", "b"), (1, "b 3", "b")):
        now += seconds
        line.show(text, key)
    line.end()
    assert out.getvalue() == "a 1\nb 1\nb 3\n"


def loading(**fields: Any) -> Desk:
    """A desk whose store has one job that loads."""
    phases = (Phase("weights", "target", 5.0, None, 13, 64, "shards"),)
    job = JobState(
        "j", "serve", "kimi-k2-thinking-eagle3-8-cards", "running", 1.0, started_boot=100.0, health="loading", phases=phases
    )
    eta = Eta(400.0, 190.0, 760.0, "first load of this profile here: shards so far, then a typical tail")
    store = Store(Connection("online"), jobs={"j": job._replace(**fields)}, etas={"j": eta}, jobs_boot=160.0)
    return cast(Desk, SimpleNamespace(store=store))


def test_the_line_of_progress_keeps_the_range_at_80_columns_and_is_cut_between_words() -> None:
    desk = loading()
    line = fold_words(progress(desk, desk.store.jobs["j"]), 79)
    assert "~3:10 to 12:40 left" in line
    assert re.search(r"left  .*weights.*(13/64 shards)?", line)
    assert line.endswith(" …")
    assert progress(desk, desk.store.jobs["j"]).startswith(line[:-2])


def test_words_are_told_once_a_stage_and_for_what_is_over() -> None:
    desk = loading()
    job = desk.store.jobs["j"]
    fewer = job._replace(phases=(job.phases[0]._replace(done=12),))
    assert stage(desk, job) == stage(desk, fewer) != stage(desk, job._replace(health="ready"))
    assert stage(desk, job._replace(health="ready", phases=())) == stage(desk, job._replace(health="ready"))
    assert "left" not in progress(desk, job._replace(health="ready"))
    assert eta_words(Eta(100.0, 0.0, 200.0, "")) == "up to 3:20 left"
    assert eta_words(Eta(0.0, 0.0, 0.0, "")) == "takes longer than expected"


def test_what_a_kill_frees_is_counted_and_not_listed_whole() -> None:
    shm = tuple(f"/dev/shm/psm_{n}" for n in range(12))
    plan = KillPlan(
        "j", "k25", "t", (Victim(1, 2, "root", "S", "vllm", 1, True),), shm=shm, tmp=("/tmp/x",), port=8000, listening=True
    )
    lines = list(plan_lines(plan))
    assert lines[2:] == [
        "  frees port 8000",
        "        12 segments of shared memory: /dev/shm/psm_0, /dev/shm/psm_1, /dev/shm/psm_2 and 9 more",
        "        1 temporary file: /tmp/x",
    ]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (["port=9000"], {"port": 9000}),
        (["gpus=all"], {"gpus": "all"}),
        (["gpus=[0, 2]"], {"gpus": (0, 2)}),
        (["args=--a 'b c'"], {"args": ("--a", "b c")}),
        (["args+=--z"], {"args": ("--x", "--z")}),
        (["env.A=", "env.C=3"], {"env": {"B": "2", "C": "3"}}),
        (["drafter="], {"drafter": None, "k": None}),
        (["served_model=123"], {"served_model": "123"}),
        (["smoke=false"], {"smoke": False}),
    ],
)
def test_changes_to_a_profile(changes: list[str], expected: dict[str, object]) -> None:
    profile = Profile("p", "vllm", "/m", drafter="/d", k=3, args=("--x",), env={"A": "1", "B": "2"})
    assert with_changes(profile, changes) == replace(profile, **expected)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("port", "not KEY=VALUE"),
        ("prot=1", "did you mean 'port'?"),
        ("port=x", "'port' is \"x\", expected a whole number"),
        ("model=", "'model' is missing"),
        ("venv=/v", "both say which program"),
    ],
)
def test_changes_that_cannot_be(change: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        with_changes(fake(), [change])
