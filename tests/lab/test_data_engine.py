"""Answers from the real engine, killed and gone on with, and the real prepare-data on them: rows, tokens and files agree."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eagletui.jobs.keys import read_keys
from eagletui.jobs.kinds import kind
from eagletui.labparts.paths import Lab
from eagletui.profiles import load_profiles, with_changes
from tests.jobs.synthesis import SRC, by_id, rows_of
from tests.lab.test_lab_engine import served

PROMPTS = [
    {
        "id": f"p{n}",
        "conversations": [
            {"from": "system", "value": "You are brief."},
            {"from": "human", "value": f"Say something about the number {n}."},
            {"from": "gpt", "value": "-"},
            {"from": "human", "value": "Say it again, shorter."},
        ],
    }
    for n in range(8)
]
LOADED = """
import json, sys, datasets, torch
data = datasets.load_from_disk(sys.argv[1])
data.set_format("torch")
print(json.dumps([
    len(data), sum(int(row["seq_len"]) for row in data), sum(int(row["loss_mask"].sum()) for row in data),
    sum(torch.load(sys.argv[1] + "/token_freq.pt", weights_only=True).values()),
    sorted(row["input_ids"].tolist() for row in data),
]))
"""


def spec_of(name: str, lab: Lab, **values: Any) -> dict[str, Any]:
    checked, wrong = read_keys(kind(name).keys, {"kind": name, "python": str(lab.python), **values})
    assert not wrong
    return kind(name).spec(checked, "j", ())


def start(spec: dict[str, Any], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as out:
        env = {**os.environ, "PYTHONPATH": str(SRC), "HF_HUB_OFFLINE": "1"}
        return subprocess.Popen(spec["argv"], stdout=out, stderr=subprocess.STDOUT, env=env)


def judged(spec: dict[str, Any], log: Path) -> dict[str, Any]:
    """Run it to its end. Returns its result, after its own watcher has found that right."""
    watcher = kind(spec["kind"]).watcher(spec, str(log.parent))
    assert watcher is not None
    before = log.stat().st_size if log.exists() else 0
    status = start(spec, log).wait()
    watcher.feed(log.read_bytes()[before:], 1.0)
    outcome = watcher.outcome(status, False)
    assert outcome.ok is True, outcome.why
    return outcome.result


def killed_when(spec: dict[str, Any], log: Path, reached: Callable[[], bool]) -> None:
    """Kill it as soon as that is so (it must be so before it ends)."""
    process = start(spec, log)
    while not reached():
        assert process.poll() is None, log.read_text()[-2000:]
        time.sleep(0.02)
    process.kill()
    process.wait()


def test_answers_and_their_data(lab: Lab, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps(row) + "\n" for row in PROMPTS))
    log = tmp_path / "log"
    # its route that renders a conversation is off by default
    profile = with_changes(load_profiles("local", lab=lab)[0]["lab-plain"], ["args+=--enable-scale-out"])
    with served(profile, tmp_path / "server.log") as address:
        asked = {"prompts": str(prompts), "endpoint": address + "/v1", "max_tokens": 24, "temperature": 0, "seed": 5}
        ours = spec_of("synthesise", lab, output=str(tmp_path / "ours"), **asked)
        killed_when(ours, log, lambda: len(whole_lines(tmp_path / "ours/answers.jsonl")) >= 3)
        made = judged(ours, log)
        assert (made["rows"], made["answers"], made["without_ids"], made["missing"]) == (made["answers"], made["rows"], 0, 0)
        theirs = spec_of("synthesise", lab, output=str(tmp_path / "theirs"), tool="speculators", limit=3, **asked)
        killed_when(theirs, log, lambda: len(whole_lines(tmp_path / "theirs/regenerated.jsonl")) >= 1)
        other = judged(theirs, log)
        assert (other["complete"], other["missing"], other["failed"]) == (3, 0, 0)
        assert judged(theirs, log) == other
        text = tmp_path / "text.jsonl"
        turns = [{"role": "user", "content": "Hello?"}, {"role": "assistant", "content": "Hello!", "reasoning": "A greeting."}]
        text.write_text(
            "".join(json.dumps({"id": name, "messages": turns * times}) + "\n" for name, times in (("a", 1), ("b", 2)))
        )
        place = {"model": str(lab.model), "data": [str(text)], "output": str(tmp_path / "rendered"), "seq_length": 512}
        rendered = judged(spec_of("prepare", lab, endpoint=address + "/v1", **place), log)
    assert (rendered["rows"], rendered["read"], rendered["dropped"]) == (3, 2, 0), "a row of each answer"
    rows = rows_of({"output": str(tmp_path / "ours")})
    ids = by_id(rows)
    assert all(row["input_ids"][-row["usage"]["completion_tokens"] :] for row in rows)
    assert all(sum(row["loss_mask"]) == row["usage"]["completion_tokens"] for row in rows)
    assert {name.partition("_")[0] for name in ids} == {row["id"] for row in PROMPTS}
    data = spec_of(
        "prepare", lab, model=str(lab.model), data=[str(tmp_path / "ours")], output=str(tmp_path / "data"), seq_length=512
    )
    killed_when(data, log, lambda: (tmp_path / "data/.making/data").exists())
    result = judged(data, log)
    assert judged(data, log) == result
    found = json.loads(subprocess.check_output([str(lab.python), "-c", LOADED, str(tmp_path / "data")]))
    assert found[:4] == [result["rows"], result["tokens"], result["valid_tokens"], result["valid_tokens"]]
    assert found[4] == sorted(row["input_ids"] for row in rows)


def whole_lines(path: Path) -> list[bytes]:
    return path.read_bytes().split(b"\n")[:-1] if path.exists() else []
