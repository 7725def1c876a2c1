"""Checkpoints that are not whole: what is on the disk, read by headers alone."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from eagletui.agent.facts import headers
from eagletui.agent.facts.clock import Clock
from eagletui.agent.facts.model import model
from eagletui.engines.preflight.findings import BLOCK, INFO, WARN, Report
from tests.preflight import world
from tests.preflight.test_preflight_kimi import NEW


@pytest.fixture
def kimi(tmp_path: Path) -> Path:
    return world.target(tmp_path / "kimi")


def judged(tmp_path: Path, name: str, **more: Any) -> Report:
    venv = tmp_path / "venv"
    if not venv.exists():
        world.vllm(venv, "0.18.1", families=NEW, kimi=True)
    asked = world.launch({"engine": "vllm", "venv": str(venv), "model": name, "tp": 8, "args": ["--trust-remote-code"], **more})
    return world.found(asked)


def test_a_whole_one_is_clear(tmp_path: Path, kimi: Path) -> None:
    assert judged(tmp_path, str(kimi)).verdict == "clear"
    trailing = judged(tmp_path, f"{kimi}/")
    assert trailing.verdict == "clear"


def test_a_file_that_was_cut_is_named_with_its_bytes(tmp_path: Path, kimi: Path) -> None:
    file = kimi / "model-00003-of-000004.safetensors"
    whole = file.stat().st_size
    os.truncate(file, whole - 4096)
    finding = judged(tmp_path, str(kimi)).of(BLOCK)[0]
    assert finding.id == "target-damaged"
    assert "model-00003-of-000004.safetensors" in finding.evidence
    assert f"4096 bytes shorter than its header says ({whole - 4096} of {whole})" in finding.evidence


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"\x10\0\0", "shorter than a header"),
        (b"\xff" * 64, "its header should have"),
        (b"\x05\0\0\0\0\0\0\0{not}", "its header is damaged"),
        (b"\x02\0\0\0\0\0\0\0[]", "its header is damaged"),
    ],
)
def test_damage_is_told_in_words(content: bytes, words: str, tmp_path: Path, kimi: Path) -> None:
    (kimi / "model-00002-of-000004.safetensors").write_bytes(content)
    finding = next(f for f in judged(tmp_path, str(kimi)).of(BLOCK) if f.id == "target-damaged")
    assert words in finding.evidence


def test_pointers_of_git_lfs_are_no_files(tmp_path: Path, kimi: Path) -> None:
    for path in kimi.glob("*.safetensors"):
        path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 8589934592\n")
    report = judged(tmp_path, str(kimi))
    assert "target-lfs" in world.ids(report, BLOCK)
    assert "target-damaged" not in world.ids(report)


def test_missing_files_and_an_index_of_another_version(tmp_path: Path, kimi: Path) -> None:
    (kimi / "model-00004-of-000004.safetensors").unlink()
    report = judged(tmp_path, str(kimi))
    assert "target-files-missing" in world.ids(report, BLOCK)
    index = json.loads((kimi / "model.safetensors.index.json").read_text())
    index["weight_map"] = {name + ".old": file for name, file in index["weight_map"].items() if "model-00004" not in file}
    (kimi / "model.safetensors.index.json").write_text(json.dumps(index))
    report = judged(tmp_path, str(kimi))
    assert "target-mixed" in world.ids(report, BLOCK)
    assert "target-files-missing" not in world.ids(report)


def test_files_beside_the_index_do_not_count(tmp_path: Path, kimi: Path) -> None:
    (kimi / "consolidated.safetensors").write_bytes(b"junk")
    (kimi / "other.safetensors").write_bytes(b"junk")
    assert judged(tmp_path, str(kimi)).verdict == "clear"


def test_an_index_that_tells_more_than_there_is(tmp_path: Path, kimi: Path) -> None:
    path = kimi / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["metadata"]["total_size"] *= 2
    path.write_text(json.dumps(index))
    assert "target-total" in world.ids(judged(tmp_path, str(kimi)), WARN)
    path.write_text("{")
    assert "target-index" in world.ids(judged(tmp_path, str(kimi)), BLOCK)


def test_configurations_that_are_not_there_or_not_json(tmp_path: Path, kimi: Path) -> None:
    for content, words in (("{", "not JSON"), (None, "not there"), ("version https://git-lfs.github.com/spec/v1\n", "Git LFS")):
        (kimi / "config.json").unlink(missing_ok=True)
        if content is not None:
            (kimi / "config.json").write_text(content)
        finding = next(f for f in judged(tmp_path, str(kimi)).of(BLOCK) if f.id == "target-config")
        assert words in finding.evidence


def test_a_path_that_leads_nowhere_and_a_folder_without_weights(tmp_path: Path, kimi: Path) -> None:
    assert "target-absent" in world.ids(judged(tmp_path, str(tmp_path / "kimmi")), BLOCK)
    for path in kimi.glob("*.safetensors*"):
        path.unlink()
    assert "target-no-weights" in world.ids(judged(tmp_path, str(kimi)), BLOCK)


def test_a_name_on_the_hub(tmp_path: Path, kimi: Path) -> None:
    home = tmp_path / "hub"
    offline = {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    assert "target-not-cached" in world.ids(judged(tmp_path, "moonshotai/Kimi-K2.5", env=offline), BLOCK)
    online = {"HF_HOME": str(home), "HF_HUB_OFFLINE": "0"}
    assert "target-download" in world.ids(judged(tmp_path, "moonshotai/Kimi-K2.5", env=online), INFO)
    folder = home / "hub" / "models--moonshotai--Kimi-K2.5"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("4f3c")
    (folder / "snapshots").mkdir()
    shutil.move(kimi, folder / "snapshots" / "4f3c")
    (folder / "blobs").mkdir()
    report = judged(tmp_path, "moonshotai/Kimi-K2.5", env=offline)
    assert report.verdict == "clear", report.findings
    (folder / "blobs" / "abc.incomplete").write_bytes(b"")
    assert "target-incomplete" in world.ids(judged(tmp_path, "moonshotai/Kimi-K2.5", env=offline), BLOCK)
    assert "target-incomplete" in world.ids(judged(tmp_path, "moonshotai/Kimi-K2.5", env=online), WARN)


def test_data_is_never_read_and_time_is_bounded(kimi: Path) -> None:
    """64 files of 8 GiB are holes: only headers are read of them; without time the rest is named instead."""
    clock = Clock(60)
    facts = model(str(kimi), "/", {}, clock, "target")
    assert [shard["tensors"] for shard in facts["shards"]] == [1] * 4
    assert facts["bytes"] > 4 * 8 * world.GIB
    assert not clock.skipped
    late = Clock(0)
    assert model(str(kimi), "/", {}, late, "target")["shards"] == []
    assert "model-00001" in late.skipped[0]


def test_a_pipe_in_the_place_of_a_file_does_not_hang(tmp_path: Path, kimi: Path) -> None:
    victim = kimi / "model-00001-of-000004.safetensors"
    victim.unlink()
    os.mkfifo(victim)
    finding = next(f for f in judged(tmp_path, str(kimi)).of(BLOCK) if f.id == "target-damaged")
    assert "not a regular file" in finding.evidence


def test_tokenizers_are_compared(tmp_path: Path, kimi: Path) -> None:
    folder = world.drafter(tmp_path / "drafter")
    (kimi / "tokenizer.json").unlink()
    (kimi / "tiktoken.model").write_bytes(b"a")
    (folder / "tiktoken.model").write_bytes(b"a")
    assert judged(tmp_path, str(kimi), drafter=str(folder)).verdict == "clear"
    (folder / "tiktoken.model").write_bytes(b"b")
    assert "tokenizer-differs" in world.ids(judged(tmp_path, str(kimi), drafter=str(folder)), INFO)
    shutil.rmtree(tmp_path / "venv/lib/python3.11/site-packages/tiktoken-0.9.0.dist-info")
    assert "no-tiktoken" in world.ids(judged(tmp_path, str(kimi)), BLOCK)


def big_pair(folder: Path, drop: int = 0, extra: int = 0) -> Path:
    """A checkpoint whose index and headers are large enough to be read the quick way."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(world.KIMI))
    tensors = {f"model.layers.{at}.mlp.experts.weight_packed": ("I32", [2, 2]) for at in range(3000)}
    more = {f"extra.{at}": ("I32", [1]) for at in range(extra)}
    kept = dict(list(tensors.items())[drop:])
    total = world.safetensors(folder / "model-00001-of-000001.safetensors", {**kept, **more})
    index = {"metadata": {"total_size": total}, "weight_map": dict.fromkeys(tensors, "model-00001-of-000001.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    return folder


def test_large_headers_and_indexes_are_read_quickly_and_alike(tmp_path: Path) -> None:
    folder = big_pair(tmp_path / "whole")
    assert headers.quick_index((folder / "model.safetensors.index.json").read_bytes()) is not None
    facts = model(str(folder), "/", {}, Clock(60), "target")
    assert facts["index"] == {"total_size": 48000, "tensors": 3000, "files": 1}
    assert facts["shards"][0]["tensors"] == 3000
    assert facts["shards"][0]["end"] == facts["shards"][0]["size"]
    assert "absent" not in facts["shards"][0]
    data = (folder / "model-00001-of-000001.safetensors").read_bytes()
    text = data[8 : 8 + int.from_bytes(data[:8], "little")]
    assert len(text) > headers.LARGE
    quick, slow = headers.read_header(text), headers.read_header(b"\n" * 4 + text.replace(b'"dtype"', b'"dtype" '))
    assert quick is not None
    assert slow is not None
    assert (quick.end, quick.names.size) == (slow.end, slow.names.size) == (48000, 3000)
    assert headers.read_header(text[:-1]) is None


def test_a_large_file_that_lacks_tensors_or_has_more(tmp_path: Path) -> None:
    lacking = model(str(big_pair(tmp_path / "lacks", drop=7)), "/", {}, Clock(60), "target")
    assert lacking["shards"][0]["absent"] == 7
    more = model(str(big_pair(tmp_path / "more", extra=3)), "/", {}, Clock(60), "target")
    assert more["shards"][0]["absent"] == 0
