"""`eagletui preflight`, and a launch that looks first: exit codes, JSON, 80 columns."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from eagletui.cli import main
from eagletui.cli.findings import lines
from eagletui.engines.preflight.findings import INFO, WARN, Finding, Report
from eagletui.profiles import Profile, save_profile
from eagletui.text import cells
from tests.commands.conftest import fake, places  # noqa: F401 - fixtures
from tests.preflight import world


def run(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(list(words))
    out, err = capfd.readouterr()
    return code, out, err


@pytest.fixture
def profile(places: Path) -> Profile:  # noqa: F811
    """A small engine for CPUs with a model that is whole."""
    venv = world.vllm(places / "venv", "0.32.0", families=None, kimi=True, cpu=True)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_attention_heads": 9, "hidden_size": 576}
    model = world.target(places / "model", config, shards=2, each=1 << 20)
    made = Profile("small", "vllm", str(model), venv=str(venv), port=fake().port)
    save_profile(made)
    return made


def test_exit_codes_and_json(profile: Profile, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capfd, "preflight", "local", "small", "--json")
    doc = json.loads(out)
    assert doc["verdict"] in ("clear", "warnings"), doc
    assert code == {"clear": 0, "warnings": 1}[doc["verdict"]]
    assert {"version", "verdict", "findings", "profile", "target"} <= set(doc)
    assert all({"id", "severity", "title", "evidence", "remedy"} <= set(finding) for finding in doc["findings"])
    assert doc["seconds"] > 0

    code, out, err = run(capfd, "preflight", "local", "small", "--set", "tp=2", "--set", "args=--max-num-sequences 4")
    assert (code, err) == (2, "")
    assert "9 attention heads cannot be split over 2 cards" in out
    assert "did you mean --max-num-seqs?" in out
    assert "small would not come up: 2 blocking" in out
    assert all(cells(line) <= 80 for line in out.splitlines())

    (Path(profile.model) / "model-00002-of-000002.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    code, out, _ = run(capfd, "preflight", "local", "small", "--json")
    assert code == 2
    assert [finding["id"] for finding in json.loads(out)["findings"] if finding["severity"] == "block"] == ["target-lfs"]


def test_what_cannot_be_asked_is_told_in_one_line(profile: Profile, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capfd, "preflight", "local", "smal")
    assert (code, out) == (2, "")
    assert "did you mean 'small'?" in err
    code, out, err = run(capfd, "preflight", "local", "small", "--set", "tp=none")
    assert (code, out) == (2, "")
    assert "expected a whole number" in err


def test_a_launch_that_is_blocked_starts_nothing_unless_forced(
    profile: Profile,
    places: Path,  # noqa: F811
    capfd: pytest.CaptureFixture[str],
) -> None:
    save_profile(replace(profile, name="cut", model=str(places / "nowhere")))
    code, out, err = run(capfd, "launch", "local", "cut")
    assert (code, out) == (2, "")
    assert "preflight: there is no target there: " in err
    assert "--force" in err

    def launched() -> int:
        jobs = json.loads(run(capfd, "jobs", "local", "--json")[1])["jobs"]
        return sum(job.get("profile") == "cut" for job in jobs)

    assert launched() == 0
    assert run(capfd, "launch", "local", "cut", "--dry-run")[0] == 0
    run(capfd, "launch", "local", "cut", "--force")
    assert launched() == 1


def test_cards_that_are_not_there_are_a_finding_beside_the_others(
    profile: Profile, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = run(capfd, "preflight", "local", "small", "--set", "gpus=64", "--set", "model=/nowhere", "--json")
    found = {finding["id"]: finding for finding in json.loads(out)["findings"]}
    assert code == 2
    assert {"cards", "target-absent"} <= set(found)
    assert "64 cards are wanted" in found["cards"]["evidence"]


def test_text_is_safe_and_fits() -> None:
    nasty = Finding("x", WARN, "a\x1b[31m title", "/" + "long" * 60 + " \x07 end", "why " * 60, "do " * 60)
    note = Finding("y", INFO, "a note", "e" * 300)
    for width in (60, 80, 110):
        out = lines(Report((nasty, note)), width, everything=False)
        assert all(cells(line) <= width for line in out)
        assert "\x1b" not in "".join(out)
        assert "\x07" not in "".join(out)
    assert len(lines(Report((note,)), 80, everything=False)) == 1
