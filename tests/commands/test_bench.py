"""A whole plan on this machine: servers started and stopped, both arms measured, a verdict; only the engine is a stand-in."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from eagletui import cli
from eagletui.profiles import Profile, save_profile
from tests.agent.jobs_harness import free_port

STAND_IN = str(Path(__file__).parents[1] / "bench" / "stand_in.py")


def run(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli.main(list(words))
    out, err = capfd.readouterr()
    assert "Traceback" not in err
    return code, out, err


def test_a_plan_from_its_file_to_the_verdict(places: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command = (sys.executable, STAND_IN)
    port = free_port()
    save_profile(Profile("stand-in", "vllm", "/models/tiny", drafter="/drafter", k=3, command=command, port=port, smoke=False))
    rows = [{"conversations": [{"from": "human", "value": f"question number {n} of many"}]} for n in range(30)]
    (places / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = places / "out"
    plan = places / "plan.toml"
    plan.write_text(
        f'profile = "stand-in"\noutput = "{out}"\nprompts = "{places / "prompts.jsonl"}"\npython = "{sys.executable}"\n'
        'tool = "own"\nconcurrency = [1]\ncount = 8\npasses = 1\nmax_tokens = 32\norder = "blocks"\n'
    )
    code, text, err = run(capfd, "bench", "run", "local", str(plan), "--dry-run")
    assert code == 0, err
    assert [line.split()[0] for line in text.splitlines()] == ["none", "trained", "verdict"]
    assert not out.exists()

    code, text, err = run(capfd, "bench", "run", "local", str(plan), "--wait")
    assert code == 0, err
    verdict = json.loads((out / "verdict.json").read_text())
    assert verdict["headline"] in text
    (load,) = verdict["comparisons"][0]["loads"]
    assert load["length"] == pytest.approx(2.0)
    assert load["same_outputs"] == 1.0
    result = json.loads((out / "arms" / "trained" / "result.json").read_text())
    assert "--speculative-config" in result["server"]["argv"], "as its process was really started"
    assert result["cells"][0]["passes"][0]["foreign"] == 0

    code, text, _ = run(capfd, "bench", "list", "local")
    assert code == 0
    assert sorted(line.split()[1] for line in text.splitlines()[1:]) == ["benchmark", "benchmark", "verdict"]
    code, text, _ = run(capfd, "bench", "report", "plan", "--on", "local", "--json")
    assert code == 0
    doc = json.loads(text)
    assert doc["verdict"]["headline"] == verdict["headline"]
    assert [one["arm"] for one in doc["results"]] == ["none", "trained"]
    code, text, _ = run(capfd, "bench", "compare", str(out / "arms" / "none"), str(out / "arms" / "none"), "--on", "local")
    assert code == 0
    assert "launched alike" in text
    code, _, err = run(capfd, "bench", "report", "nobody", "--on", "local")
    assert code == 2
    assert "there is no job 'nobody'" in err
