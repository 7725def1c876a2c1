"""The drafter loop on the real SGLang by one pipeline file: answers, a converted drafter, its benchmark, the verdict."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eagletui.jobfiles import find_job_file
from eagletui.jobs.kinds import kind
from eagletui.pipelines import compile_pipeline
from eagletui.records import from_doc
from eagletui.records.bench import BenchResult
from tests.agent.jobs_harness import Jobs, free_port
from tests.lab.sglang_server import Sglang

FILE = Path(__file__).parent / "sglang" / "loop.toml"
LIMIT = 1200
TOPICS = ("a GPU", "the ocean", "bread", "gravity", "chess", "a volcano", "coffee", "the moon", "honey", "a train", "sleep")


@pytest.fixture
def ended(jobs: Jobs) -> Iterator[Jobs]:
    """Whatever the pipeline launched is ended too, the runner first: it would start more."""
    yield jobs
    folder = jobs.root / "jobs"
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    jobs.launched = sorted(names, key=lambda name: name != "loop")


@pytest.mark.timeout(LIMIT + 60)
def test_from_prompts_to_the_verdict_on_sglang(sglang: Sglang, ended: Jobs, tmp_path: Path) -> None:
    jobs, place = ended, tmp_path / "loop"
    prompts = tmp_path / "prompts.jsonl"
    rows = [{"id": topic, "messages": [{"role": "user", "content": f"Explain {topic} in three sentences."}]} for topic in TOPICS]
    prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    changes = [
        f"dir={place}",
        f"vars.lab={sglang.lab.root}",
        f"vars.vllm={sglang.lab.root}/venv/bin/python",
        f"vars.prompts={prompts}",
        f"defaults.python={sglang.venv}/bin/python",
    ]
    profiles = {
        "sgl-plain": sglang.profile(tmp_path, free_port(), name="sgl-plain", drafter=None),
        "sgl-eagle3": sglang.profile(tmp_path, free_port(), name="sgl-eagle3"),
    }
    values = compile_pipeline(find_job_file(str(FILE), "local", changes), profiles)
    jobs.launch(kind("pipeline").spec(values, "loop"))
    over = jobs.over("loop", LIMIT)
    assert over.get("ok") is True, (jobs.root / "jobs" / "loop" / "log").read_text()

    record: dict[str, Any] = json.loads((place / "pipeline.json").read_text())
    figures = {entry["id"]: entry["figures"] for entry in record["steps"]}
    answers = [json.loads(line) for line in (place / "answers" / "answers.jsonl").read_text().splitlines()]
    assert len({row["id"] for row in answers}) == len(answers) == 8
    assert figures["answers"]["answers"] == 8
    assert (place / "converted" / "config.json").is_file()

    results = [
        from_doc(BenchResult, json.loads((place / name / "result.json").read_text())) for name in ("bench-none", "bench-drafted")
    ]
    assert [result.server.engine for result in results] == ["sglang"] * 2
    plain, drafted = (result.cells[0].passes[0] for result in results)
    for one in (plain, drafted):
        assert one.tool == "sglang.benchmark.serving"
        assert (one.asked, one.completed, one.failed, one.problems) == (6, 6, 0, ())
    assert plain.spec is None
    spec = drafted.spec
    assert spec is not None
    assert spec.drafted == 3 * spec.steps > 0
    # a step gives a token and what was accepted; an answer's first token is the prefill's, its last step may give too many
    assert abs(spec.steps + spec.accepted - (drafted.output_tokens or 0)) <= 4 * drafted.completed

    verdict = json.loads((place / "verdict" / "verdict.json").read_text())
    assert verdict["arms"] == ["no drafter", "trained here"]
    load = verdict["comparisons"][0]["loads"][0]
    assert load["gain"] > 0
    assert 1 <= load["length"] <= 4
    assert load["sentence"], verdict
    servers = [jobs.state(server["job"]) for server in record["servers"].values()]
    assert [(one["state"], one["ended_by"]) for one in servers] == [("exited", "pipeline loop")] * 2
    assert not [path.name for path in (jobs.root / "jobs").iterdir() if jobs.members(path.name)], "nothing is left running"
