"""The supervisor tells by itself, with nobody watching, why a launch fails: an alert in events.jsonl, causes in its state."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import pytest

from eagletui.records import JobState, from_doc
from eagletui.screens.load_words import failed_lines
from tests.agent.jobs_harness import Jobs
from tests.agent.test_first_error import DATA, REPLAY, Keymap

SPEAKS_AND_STAYS = "import os, sys, time\nos.write(2, open(sys.argv[1], 'rb').read())\ntime.sleep(300)"


def events(jobs: Jobs, job: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (jobs.root / "jobs" / job / "events.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("log", "cause", "remedy"),
    [("corrupt_shard", "shard-corrupt", "download that one again"), ("bad_flag", "unknown-argument", "--help lists")],
)
def test_a_failed_launch_has_its_cause(log: str, cause: str, remedy: str, jobs: Jobs) -> None:
    argv = [sys.executable, "-I", "-S", "-c", REPLAY, str(DATA / f"{log}.log"), "1"]
    spec = jobs.spec(*argv, kind="serve", server=True, engine="vllm", port=1)
    jobs.launch(spec)
    state = from_doc(JobState, jobs.over(spec["id"]))
    assert state.causes[0].id == cause
    assert remedy in state.causes[0].remedy
    place = state.causes[0].evidence[0]
    line = (DATA / f"{log}.log").read_bytes().split(b"\n")[place.line - 1].decode()
    assert place.text in line
    (alert,) = [event for event in events(jobs, spec["id"]) if event["kind"] == "alert"]
    assert (alert["name"], alert["value"][0]["id"]) == (cause, cause)
    shown = "\n".join("".join(text for text, _ in line) for line in failed_lines(state, (), Keymap({}), 120))
    assert f"line {place.line}" in shown
    assert state.causes[0].title[:40] in shown
    assert remedy in shown


def test_a_launch_that_fails_is_told_while_it_still_runs(jobs: Jobs) -> None:
    argv = [sys.executable, "-I", "-S", "-c", SPEAKS_AND_STAYS, str(DATA / "bad_vocab_drafter.log")]
    spec = jobs.spec(*argv, kind="serve", server=True, engine="vllm", port=1, graces=[5, 5, 5])
    jobs.launch(spec)
    told = jobs.wait(spec["id"], lambda s: s.get("causes"))
    assert (told["state"], told["causes"][0]["id"]) == ("running", "drafter-shape")
    jobs.kill(spec["id"])


def test_a_process_that_was_killed_outright_says_so(jobs: Jobs) -> None:
    head = b"(APIServer pid=4) INFO 11-29 15:52:32 [api.py:1] vLLM API server version 0.32.0\n"
    argv = [sys.executable, "-I", "-S", "-c", f"import os, time\nos.write(2, {head!r})\ntime.sleep(300)"]
    spec = jobs.spec(*argv, kind="serve", server=True, engine="vllm", port=1)
    jobs.launch(spec)
    pid = int(jobs.wait(spec["id"], lambda s: s.get("engine_version"))["pid"])
    os.kill(pid, signal.SIGKILL)
    state = from_doc(JobState, jobs.over(spec["id"]))
    assert (state.rc, state.causes[0].id) == (-9, "killed-9")
    assert [event["name"] for event in events(jobs, spec["id"]) if event["kind"] == "alert"] == ["killed-9"]


def test_a_job_that_is_ended_on_request_has_no_cause(jobs: Jobs) -> None:
    argv = [sys.executable, "-I", "-S", "-c", "import time\ntime.sleep(300)"]
    spec = jobs.spec(*argv, kind="serve", server=True, engine="vllm", port=1, graces=[5, 5, 5])
    jobs.launch(spec)
    jobs.kill(spec["id"])
    state = from_doc(JobState, jobs.over(spec["id"]))
    assert state.causes == ()
    assert not [event for event in events(jobs, spec["id"]) if event["kind"] == "alert"]
