"""prepare-data is never believed: what went in and what came out are counted, and nothing of an earlier run is taken over."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eagletui.jobs.on_host import prepare
from eagletui.jobs.on_host.arrow_rows import BadDataset, Held, files
from eagletui.jobs.on_host.prepare import Preparation
from eagletui.jobs.on_host.stopping import Stop
from eagletui.jobs.on_host.telling import Teller
from eagletui.jobs.prepare import Prepare
from tests.jobs.synthesis import SRC

TOOLS = Path(__file__).with_name("tools")


def look(directory: str) -> Held:
    """What the stand-in's files hold."""
    rows, size = [], 0
    for path in files(directory):
        if not os.path.exists(path):
            raise BadDataset(f"{path} cannot be read")
        rows += [json.loads(line) for line in Path(path).read_text().splitlines()]
        size += os.path.getsize(path)
    trained = sum(sum(row["loss_mask"]) for row in rows)
    return Held(len(rows), sum(row["seq_len"] for row in rows), trained, max((row["seq_len"] for row in rows), default=0), size)


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TOOLS), str(SRC)]))
    monkeypatch.setattr(prepare, "look", look)
    monkeypatch.setattr(prepare, "counted_tokens", lambda path: int(Path(path).read_text()))


def ids(n: int, size: int = 6, **more: Any) -> dict[str, Any]:
    return {"id": f"r{n}", "input_ids": [n] * size, "loss_mask": [0, 0] + [1] * (size - 2), **more}


def settings_for(tmp_path: Path, rows: list[Any], **more: Any) -> dict[str, Any]:
    data = tmp_path / "answers.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    values = {
        "model": "tiny",
        "data": [str(data)],
        "output": str(tmp_path / "out"),
        "seq_length": 16,
        "keep_truncated": True,
        "keep_empty": False,
        "token_freq": True,
        "seed": 0,
        "trust_remote_code": False,
        "skip_invalid": False,
        "overwrite": False,
    }
    return {**values, **more}


def run(settings: dict[str, Any]) -> dict[str, Any]:
    return Preparation(settings, Teller("rows")).go()


def test_the_dataset_is_counted_and_lies_where_it_is_looked_for(tmp_path: Path) -> None:
    settings = settings_for(
        tmp_path, [ids(1), ids(2, 8), ids(3, 20), ids(4, metadata={"finish_reason": "length"})], keep_truncated=False
    )
    made = run(settings)
    assert (made["rows"], made["tokens"], made["valid_tokens"], made["longest"]) == (3, 6 + 8 + 16, 4 + 6 + 14, 16)
    assert (made["read"], made["dropped"], made["dropped_by"], made["clipped"]) == (4, 1, {"truncated": 1}, 1)
    assert made["path"] == settings["output"]
    assert sorted(os.listdir(settings["output"])) == [
        "data-00000-of-00001.arrow",
        "dataset_info.json",
        "eagletui.json",
        "state.json",
        "summary.json",
        "token_freq.pt",
    ]


def test_a_directory_of_answers_stands_for_its_file(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, [ids(1)])
    assert run({**settings, "data": [str(tmp_path)]})["rows"] == 1


def test_made_again_it_is_taken_as_it_is_unless_it_was_hurt(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    settings = settings_for(tmp_path, [ids(1), ids(2)])
    made = run(settings)
    stamp = os.stat(tmp_path / "out/state.json").st_mtime_ns
    assert run(settings) == made
    assert os.stat(tmp_path / "out/state.json").st_mtime_ns == stamp
    arrow = tmp_path / "out/data-00000-of-00001.arrow"
    arrow.write_text(arrow.read_text().splitlines()[0] + "\n")
    assert run(settings) == made
    assert len(arrow.read_text().splitlines()) == 2


@pytest.mark.parametrize(
    "change", [{"seq_length": 8}, {"token_freq": False}, {"minimum_valid_tokens": 2}, {"model": "other"}, None]
)
def test_a_dataset_of_other_inputs_is_never_taken(tmp_path: Path, change: dict[str, Any] | None) -> None:
    """prepare-data would see the .arrow files, skip all work and end well."""
    settings = settings_for(tmp_path, [ids(1), ids(2)])
    run(settings)
    other = {**settings, **change} if change else settings_for(tmp_path, [ids(1), ids(2), ids(3)])
    with pytest.raises(Stop, match=r"was made of other inputs .* \(overwrite = true makes it anew\)"):
        run(other)
    made = run({**other, "overwrite": True})
    assert made["rows"] == (2 if change else 3)


def test_files_of_others_are_never_touched(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, [ids(1)], overwrite=True)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/data-00000-of-00001.arrow").write_text("somebody's")
    with pytest.raises(Stop, match="is not empty"):
        run(settings)
    assert (tmp_path / "out/data-00000-of-00001.arrow").read_text() == "somebody's"


def test_what_a_killed_run_has_left_is_not_taken_for_its_result(tmp_path: Path) -> None:
    """Arrow files and token frequencies that lie in the way would be reused without a word."""
    settings = settings_for(tmp_path, [ids(1), ids(2)])
    run(settings)
    out = tmp_path / "out"
    (out / "state.json").unlink()  # killed while it moved its files
    stale = out / prepare.MAKING / "data"
    stale.mkdir(parents=True)
    (stale / "data-00000-of-00001.arrow").write_text(json.dumps({"input_ids": [1], "loss_mask": [1], "seq_len": 1}) + "\n")
    (stale / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    (stale / "token_freq.pt").write_text("1")
    made = run(settings)
    assert (made["rows"], made["valid_tokens"]) == (2, 8)
    assert (out / "token_freq.pt").read_text() == "8"
    assert not (out / prepare.MAKING).exists()


def test_killed_while_the_tool_runs_neither_lives_on_and_the_next_run_makes_it(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, [ids(1), ids(2)])
    sign = tmp_path / "pid"
    os.mkfifo(sign)
    argv = [sys.executable, "-m", "eagletui.jobs.on_host.prepare", json.dumps(settings)]
    process = subprocess.Popen(argv, env={**os.environ, "TOOL_HANGS": str(sign)}, stdout=subprocess.DEVNULL)
    tool = os.pidfd_open(int(sign.read_text()))
    process.send_signal(signal.SIGKILL)
    process.wait()
    poll = select.poll()
    poll.register(tool)
    assert poll.poll(60_000), "the tool lives on"
    os.close(tool)
    assert run(settings)["rows"] == 2


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("TOOL_LOSES", "1", r"prepare-data ended well, but it has 1 rows and should have 2"),
        ("TOOL_LOSES", "2", r"the dataset is empty"),
        ("TOOL_STATUS", "1", r"prepare-data ended with status 1"),
    ],
)
def test_an_exit_status_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, words: str
) -> None:
    monkeypatch.setenv(variable, value)
    settings = settings_for(tmp_path, [ids(1), ids(2)])
    with pytest.raises(Stop, match=words):
        run(settings)
    assert not (tmp_path / "out/state.json").exists()
    monkeypatch.delenv(variable)
    assert run(settings)["rows"] == 2


def test_token_frequencies_of_other_data_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "counted_tokens", lambda path: 5)
    with pytest.raises(Stop, match="its token frequencies are of 5 tokens, and it has 4 to train on"):
        run(settings_for(tmp_path, [ids(1)]))


def test_frequencies_are_counted_unless_they_are_not_wanted(tmp_path: Path) -> None:
    """By default prepare-data leaves them out, and a reduced vocabulary is then taken from whatever lies around."""
    made = run(settings_for(tmp_path, [ids(1)], token_freq=False))
    assert made["token_freq"] is None
    assert not (tmp_path / "out/token_freq.pt").exists()
    assert next(key.default for key in Prepare.keys if key.name == "token_freq") is True


def test_text_needs_a_server_and_then_all_of_it_arrives(tmp_path: Path) -> None:
    rows = [{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "ans", "reasoning": "why"}]}]
    settings = settings_for(tmp_path, rows)
    with pytest.raises(Stop, match="a vLLM server of the model has to render them"):
        run(settings)
    made = run({**settings, "endpoint": "http://127.0.0.1:9/v1"})
    assert (made["rows"], made["tokens"]) == (1, len("qanswhy"))


def test_bad_rows_are_told_with_file_and_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    settings = settings_for(tmp_path, [ids(1), {"id": "x", "input_ids": [1], "loss_mask": []}])
    with pytest.raises(Stop, match=r"answers.jsonl: 1 rows cannot be used \(line 2: 1 input_ids and 0 loss_mask\)"):
        run(settings)
    assert "answers.jsonl, line 2: " in capfd.readouterr().out
    made = run({**settings, "skip_invalid": True})
    assert (made["rows"], made["dropped_by"]) == (1, {"invalid": 1})


def test_rows_of_another_model_are_told_by_their_tokens(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps({"text_config": {"vocab_size": 5}}))
    with pytest.raises(Stop, match="token 7, and the model has 5: it is of another model"):
        run(settings_for(tmp_path, [ids(7)], model=str(model)))


@pytest.mark.parametrize(("rows", "words"), [([], "is empty"), ([ids(1, empty=True)], r"no row is left of 1 \(1 empty\)")])
def test_nothing_to_train_on_is_told(tmp_path: Path, rows: list[Any], words: str) -> None:
    with pytest.raises(Stop, match=words):
        run(settings_for(tmp_path, rows))


def test_more_than_is_wanted_is_drawn_and_counted(tmp_path: Path) -> None:
    made = run(settings_for(tmp_path, [ids(n) for n in range(5)], max_samples=2))
    assert (made["rows"], made["dropped_by"]) == (2, {"beyond max_samples": 3})


def test_a_full_disk_is_told_before_the_tool_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = os.statvfs(tmp_path)
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result((*free[:4], 0, *free[5:])))
    with pytest.raises(Stop, match=r"needs about 0.0 GB more, and 0.0 GB are free"):
        run(settings_for(tmp_path, [ids(1)]))


def test_the_watcher_looks_at_the_files(tmp_path: Path) -> None:
    made = run(settings_for(tmp_path, [ids(1)]))
    watcher = Prepare().watcher({}, str(tmp_path))
    assert watcher is not None
    watcher.feed(("noise\n" + json.dumps({"eagletui": "result", **made}) + "\n").encode(), 1.0)
    assert watcher.outcome(0, False).ok is True
    assert watcher.outcome(0, False).result["tokens"] == 6
    os.unlink(tmp_path / "out/state.json")
    assert watcher.outcome(0, False).ok is False
    shutil.rmtree(tmp_path / "out")
    assert "No such file" in watcher.outcome(0, False).why
    assert watcher.outcome(1, False).ok is False
    assert watcher.outcome(None, True).ok is None
