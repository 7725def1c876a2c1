"""``eagletui bench`` without a host: reports and comparisons of files, in each form, and their exit codes."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from eagletui.cli import main
from eagletui.jobs.bench.judge import Arm, verdict
from eagletui.records import to_doc
from eagletui.records.bench import BenchResult
from tests.bench.making import made_arm, made_cell, recorded_arm


def written(path: Path, record: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(to_doc(record)))
    return path


@pytest.fixture
def plan_output(tmp_path: Path) -> Path:
    """What a plan leaves: two arms, a verdict, the record of its pipeline."""
    base = recorded_arm("none", "none", {1: "gpu_plain_c1", 8: "gpu_plain_c8"})
    other = recorded_arm("trained", "trained", {1: "gpu_eagle_c1", 8: "gpu_eagle_c8"})
    out = tmp_path / "plan"
    written(out / "arms" / "none" / "result.json", base)
    written(out / "arms" / "trained" / "result.json", other)
    written(out / "verdict.json", verdict([Arm(base), Arm(other)], "a-plan"))
    steps = [{"id": name, "state": "done"} for name in ("none", "trained", "verdict")]
    (out / "pipeline.json").write_text(json.dumps({"steps": steps}))
    return out


def bench(*words: object) -> int:
    return main(["bench", *map(str, words)])


def test_a_report_in_words_and_plots(plan_output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("report", plan_output) == 0
    out = capsys.readouterr().out
    assert out.startswith("No drafter pays at any of the loads measured; the best case: with this drafter (trained)")
    assert "54 % slower at concurrency 1; it needs 84 % acceptance and has 20 %" in out
    assert "loses at every concurrency measured (1 to 8)" in out
    assert "arm none" in out
    assert "┤" in out, "a plot"


def test_a_report_as_markdown(plan_output: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("report", plan_output, "--md", tmp_path / "report.md") == 0
    text = (tmp_path / "report.md").read_text()
    assert text.startswith("# Benchmark a-plan")
    assert "| 1 | as given | 559.6 | 255.2 | 0.46 |" in text
    assert "```" in text
    assert "## Arm trained" in text
    assert "bonus token included" in text, "the convention is said"
    assert bench("report", plan_output, "--md", tmp_path / "no" / "such" / "report.md") == 2
    assert "No such file" in capsys.readouterr().err


def test_a_report_as_json_and_csv(plan_output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("report", plan_output, "--json") == 0
    doc = json.loads(capsys.readouterr().out)
    assert [result["arm"] for result in doc["results"]] == ["none", "trained"]
    assert doc["verdict"]["comparisons"][0]["loads"][0]["gain"] == pytest.approx(0.456, abs=0.001)
    assert bench("report", plan_output, "--csv") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["concurrency"] for row in rows] == ["1", "8"]
    assert float(rows[0]["needed"]) == pytest.approx(0.839, abs=0.001)
    assert bench("report", plan_output / "arms" / "none" / "result.json", "--csv") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert float(rows[1]["tokens_per_s"]) == pytest.approx(3218.4, abs=0.1)


def arm(step: float, noise: float = 0.02, **server: object) -> BenchResult:
    cells = [made_cell(c, step=step, noise=noise) for c in (1, 4)]
    return made_arm("none", "none", cells, **server)


def test_a_comparison_shows_launch_and_result_and_flags_regressions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = written(tmp_path / "a.json", arm(0.010, version="0.31.0", argv=("vllm", "serve", "/m")))
    after = written(tmp_path / "b.json", arm(0.012, version="0.32.0", argv=("vllm", "serve", "/m", "--enforce-eager")))
    assert bench("compare", before, after) == 1
    out = capsys.readouterr().out
    assert "REGRESSION" in out
    assert "--enforce-eager" in out
    assert "0.31.0" in out
    assert "two versions are compared" in out
    assert "17 % slower" in out
    assert bench("compare", after, before) == 0, "faster is no regression"
    assert "REGRESSION" not in capsys.readouterr().out
    assert bench("compare", before, after, "--noise", "30") == 0, "within the band that was asked for"


def test_what_lies_within_the_noise_is_no_regression(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = written(tmp_path / "a.json", arm(0.010, 0.5)), written(tmp_path / "b.json", arm(0.0104, 0.5))
    assert bench("compare", before, after, "--noise", "0", "--json") == 0
    assert json.loads(capsys.readouterr().out)["regressions"] == []


def test_plans_are_compared_arm_by_arm(plan_output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("compare", plan_output, plan_output) == 0
    out = capsys.readouterr().out
    assert "none -> none" in out
    assert "trained -> trained" in out
    assert "launched alike" in out
    assert bench("compare", plan_output, plan_output, "--csv") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {row["regression"] for row in rows} == {"0"}


def test_an_arm_measured_first_and_last_is_one_arm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slow, fast = (made_arm("none", "none", [made_cell(step=step, passes=2)]) for step in (0.010, 0.005))
    for name, block in (("none-1", slow), ("none-2", fast)):
        written(tmp_path / "arms" / name / "result.json", block)
    written(tmp_path / "verdict.json", verdict([Arm(slow)]))
    (tmp_path / "pipeline.json").write_text(json.dumps({"steps": [{"id": name} for name in ("none-1", "none-2", "verdict")]}))
    assert bench("report", tmp_path, "--json") == 0
    (arm,) = json.loads(capsys.readouterr().out)["results"]
    assert arm["cells"][0]["good"] == 4
    assert bench("compare", tmp_path, tmp_path, "--json") == 0
    (one,) = json.loads(capsys.readouterr().out)["comparisons"]
    assert one["loads"][0]["gain"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("content", "words"),
    [("{", "is no JSON"), ("{}", "is no result of a benchmark"), ('{"cells": [], "arm": "a"}', "'server' is missing")],
)
def test_what_is_no_result_is_told(tmp_path: Path, content: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "result.json").write_text(content)
    assert bench("report", tmp_path / "result.json") == 2
    assert words in capsys.readouterr().err


def test_a_place_without_results_and_words_that_are_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("report", tmp_path) == 2
    assert "neither result.json nor verdict.json" in capsys.readouterr().err
    assert bench("compare", tmp_path) == 2
    assert "bench compare takes A B" in capsys.readouterr().err


def test_terminal_commands_in_a_result_do_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = recorded_arm("none\x1b[2J", "none", {1: "cpu_base"})
    assert bench("report", written(tmp_path / "r.json", evil)) == 0
    assert "\x1b" not in capsys.readouterr().out
