"""The drafter loop on the real engine by one pipeline file, from prompts to the verdict, with kill -9 on the way."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eagletui.agent.syscalls import signal_process
from eagletui.jobfiles import find_job_file
from eagletui.jobs.kinds import kind
from eagletui.labparts.paths import Lab
from eagletui.pipelines import compile_pipeline
from eagletui.profiles import load_profiles
from tests.agent.jobs_harness import Jobs, free_port, until

ROWS = 16
LONG = 1200.0
"""Seconds that one part of it may take on a machine that does other things as well."""


class Loop:
    """The lab's loop in a directory of the test, small: its record, and a new run of it."""

    def __init__(self, jobs: Jobs, lab: Lab, place: Path) -> None:
        self.jobs, self.dir = jobs, place
        port = free_port()
        changes = [
            f"dir={place}",
            f"stages=[{ROWS}]",
            *(f"servers.{name}.port={port}" for name in ("target", "extractor", "drafted")),
            "step.answers.max_tokens=48",
            "step.trained.epochs=1",
            *(
                f"step.{name}.{key}"
                for name in ("bench-none", "bench-drafted")
                for key in ("count=4", "passes=2", "max_tokens=24")
            ),
        ]
        profiles, _ = load_profiles("local", lab=lab)
        self._values = compile_pipeline(find_job_file("lab-loop", "local", changes, lab=lab), profiles)
        self.runs = 0

    def run(self) -> str:
        self.runs += 1
        job = f"p-{self.runs}"
        self.jobs.launch(kind("pipeline").spec(self._values, job))
        return job

    def record(self) -> dict[str, Any]:
        doc: dict[str, Any] = json.loads((self.dir / "pipeline.json").read_text())
        return doc

    def entry(self, name: str) -> dict[str, Any]:
        return next((entry for entry in self.record()["steps"] if entry["id"] == name), {})

    def log(self, job: str) -> str:
        return (self.jobs.root / "jobs" / job / "log").read_text()

    def hit(self, pipeline: str, step: str, whom: str) -> bool:
        """kill -9 of the runner, or of the step's own process, while that step works; False when it was done too soon."""

        def look() -> str | None:
            entry = self.entry(step)
            if entry.get("state") == "done":
                return "done"
            assert self.jobs.state(pipeline).get("state") == "running", self.log(pipeline)
            if entry.get("state") != "running" or not entry.get("job"):
                return None
            state = self.jobs.state(entry["job"])
            return "works" if state.get("state") == "running" and state.get("work") else None

        if until(look, LONG, f"{step} works") == "done":
            return False
        state = self.jobs.state(pipeline if whom == "runner" else self.entry(step)["job"])
        return bool(signal_process(state["pid"], state["pid_start"], signal.SIGKILL))

    def clean(self) -> None:
        folder = self.jobs.root / "jobs"
        names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
        self.jobs.launched = [name for name in names if name.startswith("p-")]  # the runners first: they would start more
        self.jobs.clean()
        self.jobs.launched = names


@pytest.fixture
def loop(jobs: Jobs, lab: Lab, tmp_path: Path) -> Iterator[Loop]:
    found = Loop(jobs, lab, tmp_path / "loop")
    yield found
    found.clean()


@pytest.mark.timeout(3600)
def test_from_prompts_to_the_verdict_with_kills_on_the_way(loop: Loop) -> None:
    jobs = loop.jobs
    first = loop.run()
    until(lambda: (loop.dir / "pipeline.json").exists(), 60)
    states, trained = f"states.{ROWS}", f"trained.{ROWS}"
    job = first
    if loop.hit(first, states, "runner"):
        over = jobs.over(first)
        assert over.get("ok") or "what it had started goes on" in over["outcome"]
        job = loop.run()
    hurt = loop.hit(job, trained, "step")
    if hurt:
        over = jobs.over(job, LONG)
        assert over["outcome"].startswith(f"step {trained} failed: "), loop.log(job)
        assert loop.entry("bench-drafted").get("job") is None
        job = loop.run()
    assert jobs.over(job, LONG).get("ok") is True, loop.log(job)

    entries = {entry["id"]: entry for entry in loop.record()["steps"]}
    attempts = {name: entry["attempt"] for name, entry in entries.items()}
    assert attempts == {name: 2 if name == trained and hurt else 1 for name in entries}, (
        "each step once, but for the one that was hit"
    )
    figures = {name: entry["figures"] for name, entry in entries.items()}
    assert figures[f"answers.{ROWS}"]["failed_share"] == 0
    rows = [json.loads(line) for line in (loop.dir / "answers" / "answers.jsonl").read_text().splitlines()]
    assert len({row["id"] for row in rows}) == len(rows) == ROWS
    assert figures[states]["sane"] == 1
    assert figures[states]["samples"] == figures[f"prepared.{ROWS}"]["rows"]
    assert figures[trained]["finished"] == 1
    assert 1 <= figures[trained]["predicted_length"] <= 4

    verdict = json.loads((loop.dir / "verdict" / "verdict.json").read_text())
    assert verdict["arms"] == ["no drafter", "trained here"]
    load = verdict["comparisons"][0]["loads"][0]
    assert load["gain"] > 0
    assert 1 <= load["length"] <= 4
    assert load["sentence"], verdict
    ended = [jobs.state(server["job"]) for server in loop.record()["servers"].values()]
    assert [(server["state"], server["ended_by"]) for server in ended] == [("exited", "pipeline lab-loop")] * 3
    assert not [path.name for path in (jobs.root / "jobs").iterdir() if jobs.members(path.name)], "nothing is left running"
