"""A launch that fails: the first real error of the engine's own log, through the supervisor, as the Load screen shows it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from eagletui.actions import Keymap
from eagletui.records import JobState, from_doc
from eagletui.screens.load_words import ended_lines, failed_lines
from eagletui.views.serving import has_failed
from tests.agent.jobs_harness import Jobs

DATA = Path(__file__).resolve().parent.parent / "data" / "engines" / "vllm-0.32"
REPLAY = "import os, sys\nos.write(2, open(sys.argv[1], 'rb').read())\nsys.exit(int(sys.argv[2]))"

LOGS = {
    "bad_flag": (2, "vllm: error: unrecognized arguments: --speculative-cfg x", None),
    "bad_path": (1, "Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/data/no-such-model'", None),
    "port_taken": (1, "OSError: [Errno 98] Address already in use", None),
    "bad_vocab_drafter": (1, "The size of tensor a (640) must match the size of tensor b (576)", "weights"),
    "corrupt_shard": (1, "Error while deserializing header: incomplete metadata, file not fully covered", "weights"),
}


def words(state: JobState) -> str:
    lines = failed_lines(state, (), Keymap({}), 100) if has_failed(state) else ended_lines(state, 100)
    return " ".join("".join(text for text, _ in line).strip() for line in lines)


@pytest.mark.parametrize("name", LOGS)
def test_the_first_error_of_a_real_failure(name: str, jobs: Jobs) -> None:
    status, error, phase = LOGS[name]
    argv = [sys.executable, "-I", "-S", "-c", REPLAY, str(DATA / f"{name}.log"), str(status)]
    spec = jobs.spec(*argv, kind="serve", server=True, engine="vllm", port=1)
    jobs.launch(spec)
    state = from_doc(JobState, jobs.over(spec["id"]))
    assert (state.state, state.rc, state.health, state.ready_seconds) == ("exited", status, "failed", None)
    assert state.first_error is not None
    assert error in state.first_error
    if phase is not None:
        assert state.phases[-1].id == phase
    assert json.loads((jobs.root / "jobs" / spec["id"] / "result.json").read_text())["ok"] is False
    shown = words(state)
    assert shown.startswith("✗ failed")
    assert f"exit status {status}" in shown
    assert error[:40] in shown


COMPLAINS = """
import os, signal, sys, time
def end(*_):
    os.write(2, b"(EngineCore pid=5) ERROR 11-29 15:52:33 [core.py:1] EngineCore failed to start.\\n")
    os.write(2, b'Traceback (most recent call last):\\n  File "x.py", line 1, in <module>\\n')
    os.write(2, b"RuntimeError: cut off while reading\\n")
    os._exit(1)
signal.signal(signal.SIGTERM, end)
os.write(2, b"(APIServer pid=4) INFO 11-29 15:52:32 [api.py:1] vLLM API server version 0.32.0\\n")
time.sleep(300)
"""


def test_what_an_engine_complains_of_while_it_is_ended_is_no_failure(jobs: Jobs) -> None:
    argv = [sys.executable, "-I", "-S", "-c", COMPLAINS]
    spec = jobs.spec(*argv, kind="serve", server=True, engine="vllm", port=1, graces=[20, 5, 10])
    jobs.launch(spec)
    jobs.wait(spec["id"], lambda s: s.get("engine_version"))
    jobs.kill(spec["id"], operator="ann")
    state = from_doc(JobState, jobs.over(spec["id"]))
    assert b"cut off while reading" in Path(str(state.log)).read_bytes()
    assert (state.state, state.rc, state.health, state.first_error) == ("exited", 1, "gone", None)
    assert state.detail == "ended by ann"
    assert not has_failed(state)
    assert words(state).startswith("- ended, exit status 1")
    assert "ended by ann" in words(state)
    result = json.loads((jobs.root / "jobs" / spec["id"] / "result.json").read_text())
    assert (result["ok"], result["why"]) == (None, "ended on request before it was ready")
