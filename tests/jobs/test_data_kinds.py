"""The kinds synthesise and prepare: what a job file may say, what is run, and how an end is judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eagletui.jobs.keys import read_keys
from eagletui.jobs.kinds import kind
from eagletui.jobs.synthesise import settings_of

BASIC = {
    "synthesise": {"python": "/v/bin/python", "prompts": "/d/p.jsonl", "output": "/d/a"},
    "prepare": {"python": "/v/bin/python", "model": "/m", "data": ["/d/a"], "output": "/d/p"},
}


def values_of(name: str, **more: Any) -> dict[str, Any]:
    values, wrong = read_keys(kind(name).keys, {"kind": name, **BASIC[name], **more})
    assert not wrong
    return values


@pytest.mark.parametrize("name", sorted(BASIC))
def test_a_spec_runs_our_program_under_the_engines_python(name: str) -> None:
    found = kind(name)
    values = values_of(name)
    assert list(found.check(values)) == []
    spec = found.spec(values, "j1", ())
    assert spec["argv"][:3] == ["/v/bin/python", "-m", f"eagletui.jobs.on_host.{name}"]
    assert spec["on_host"] is True
    settings = json.loads(spec["argv"][3])
    # all that the program reads is there, with its default
    assert {key.name for key in found.keys if key.default is not None or key.required} - {"python", "most_failed"} <= set(
        settings
    )
    assert spec["output"] == BASIC[name]["output"]
    assert BASIC[name]["output"] in found.title(spec)
    assert found.spec(values, "j2", ())["argv"] == spec["argv"], "a step's fingerprint does not depend on its job"


def test_a_request_waits_half_an_hour_unless_said_otherwise() -> None:
    settings = settings_of(kind("synthesise").spec(values_of("synthesise"), "j", ()))
    assert settings["request_timeout"] == 1800
    assert settings["endpoint"] == "http://127.0.0.1:8000/v1"
    assert "temperature" not in settings


@pytest.mark.parametrize(
    ("name", "more", "key", "words"),
    [
        ("synthesise", {"api_key_env": "sk-secret-key"}, "api_key_env", "not among the secrets"),
        ("synthesise", {"api_key_env": "K", "secrets": ["K"], "tool": "speculators"}, "api_key_env", "cannot send a key"),
        ("synthesise", {"tool": "speculators", "keep_empty": True}, "keep_empty", "keeps no empty answers"),
        ("synthesise", {"sampling": {"n": 4, "seed": 3}}, "sampling", "n, seed in [sampling]"),
        ("prepare", {"data": []}, "data", "'data' is empty"),
        ("prepare", {"data": ["/a", "b"]}, "data", "'b' in data is no absolute path"),
    ],
)
def test_what_does_not_go_together_is_told(name: str, more: dict[str, Any], key: str, words: str) -> None:
    [wrong] = kind(name).check(values_of(name, **more))
    assert wrong.key == key
    assert words in wrong.what
    assert "sk-secret" not in wrong.what + wrong.remedy


def test_a_key_is_never_in_the_spec() -> None:
    values = values_of("synthesise", api_key_env="ENGINE_KEY", secrets=["ENGINE_KEY"])
    assert list(kind("synthesise").check(values)) == []
    spec = kind("synthesise").spec(values, "j", ())
    assert settings_of(spec)["api_key_env"] == "ENGINE_KEY"
    assert spec["secrets"] == ["ENGINE_KEY"]


GOOD = {
    "ended_early": 0, "prompts": 10, "answers": 10, "rows": 10, "failed": 0, "missing": 0, "double": 0, "failed_share": 0.0,
    "bytes": 5, "why": "10 rows", "reasons": {}, "errors": "/e",
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, None),
        ({"failed": 1, "failed_share": 0.1}, None),
        ({"failed": 5, "failed_share": 0.5, "reasons": {"HTTP 400: long": 4, "x": 1}}, "5 of 10 prompts failed (HTTP 400: long)"),
        ({"rows": 0}, "no row to train on"),
        ({"double": 2}, "2 rows are there twice"),
        ({"missing": 3}, "3 prompts are not accounted for"),
        ({"bytes": 6}, "has 5 bytes and should have 6"),
        ({"path": "/nowhere/x"}, "/nowhere/x: No such file"),
    ],
)
def test_an_exit_status_of_0_is_believed_as_far_as_counts_and_files_go(
    tmp_path: Path, change: dict[str, Any], words: str | None
) -> None:
    (tmp_path / "answers.jsonl").write_text("12345")
    watcher = kind("synthesise").watcher({"most_failed": 0.2}, str(tmp_path))
    assert watcher is not None
    result = {**GOOD, "path": str(tmp_path / "answers.jsonl"), **change}
    watcher.feed(json.dumps({"eagletui": "result", **result}).encode() + b"\n", 1.0)
    outcome = watcher.outcome(0, False)
    assert outcome.ok is (words is None)
    assert words is None or words in outcome.why
    assert outcome.result["rows"] == result["rows"]
    assert watcher.outcome(1, False).ok is False
    assert watcher.outcome(-9, True).ok is None
