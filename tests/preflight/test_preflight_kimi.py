"""The first user's launches, as trees of files: what vLLM 0.16, 0.17 and SGLang refused after minutes is told before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eagletui.engines.preflight.findings import BLOCK, WARN, Report
from tests.preflight import world

OLD = ("llama", "qwen", "minicpm", "gpt_oss", "hunyuan_vl", "hunyuan_v1_dense", "afmoe")
NEW = (*OLD, "deepseek_v3", "kimi_k2")


@pytest.fixture
def checkpoints(tmp_path: Path) -> dict[str, str]:
    return {"model": str(world.target(tmp_path / "kimi", shards=64)), "drafter": str(world.drafter(tmp_path / "drafter"))}


def launched(venv: Path, checkpoints: dict[str, str], engine: str = "vllm", **more: Any) -> Report:
    args = more.pop("args", ["--trust-remote-code"])
    asked = world.launch({"engine": engine, "venv": str(venv), "tp": 8, "args": args, **checkpoints, **more})
    return world.found(asked, more.pop("board", None))


def test_a_version_that_can_is_clear(tmp_path: Path, checkpoints: dict[str, str]) -> None:
    report = launched(world.vllm(tmp_path / "venv", "0.18.1", families=NEW, kimi=True), checkpoints)
    assert report.verdict == "clear", report.findings
    assert world.ids(report) <= {"kv-estimate"}


@pytest.mark.parametrize("version", ["0.16.0", "0.17.1", "0.16.1rc1.dev42+g1234abc"])
def test_all_three_refusals_are_told_at_once_with_the_first_version_that_works(
    version: str, tmp_path: Path, checkpoints: dict[str, str]
) -> None:
    report = launched(world.vllm(tmp_path / "venv", version, families=OLD, kimi=False), checkpoints)
    blocking = {finding.id: finding for finding in report.of(BLOCK)}
    assert set(blocking) == {"eagle3-target-not-allowed", "eagle3-interface-missing", "image-token-missing"}
    for finding in blocking.values():
        assert "vLLM 0.18.0" in finding.remedy
        assert "eagletui patch" in finding.remedy
    assert "config/speculative.py:" in blocking["eagle3-target-not-allowed"].evidence
    assert "media_placeholder_token_id" in blocking["image-token-missing"].evidence


def test_a_list_that_was_edited_by_hand_is_not_enough(tmp_path: Path, checkpoints: dict[str, str]) -> None:
    report = launched(world.vllm(tmp_path / "venv", "0.17.1", families=NEW, kimi=False), checkpoints)
    assert world.ids(report, BLOCK) == {"eagle3-interface-missing", "image-token-missing"}


def test_without_a_drafter_nothing_of_it_matters(tmp_path: Path, checkpoints: dict[str, str]) -> None:
    del checkpoints["drafter"]
    report = launched(world.vllm(tmp_path / "venv", "0.17.1", families=OLD, kimi=False), checkpoints)
    assert report.verdict == "clear", report.findings


def test_an_mla_drafter_needs_a_version_that_knows_it(tmp_path: Path, checkpoints: dict[str, str]) -> None:
    config = {**world.DRAFTER, "architectures": ["Eagle3DeepseekV2ForCausalLM"]}
    checkpoints["drafter"] = str(world.drafter(tmp_path / "mla", config))
    old = launched(world.vllm(tmp_path / "old", "0.17.1", families=NEW, kimi=True), checkpoints)
    assert "drafter-architecture" in world.ids(old, BLOCK)
    assert "0.18.0" in next(f for f in old.findings if f.id == "drafter-architecture").remedy
    new = launched(world.vllm(tmp_path / "new", "0.18.1", families=NEW, kimi=True, mla=True), checkpoints)
    assert "drafter-architecture" not in world.ids(new)


def test_an_engine_whose_source_cannot_be_read_is_judged_by_its_version(tmp_path: Path, checkpoints: dict[str, str]) -> None:
    venv = world.vllm(tmp_path / "venv", "0.17.1", families=OLD, kimi=False)
    for path in (venv / "lib/python3.11/site-packages/vllm").rglob("*.py"):
        if path.name not in ("__init__.py", "_version.py"):
            path.unlink()
    blocking = {finding.id: finding for finding in launched(venv, checkpoints).of(BLOCK)}
    assert set(blocking) == {"eagle3-target-not-allowed", "eagle3-interface-missing"}
    assert all("known history" in finding.evidence for finding in blocking.values())


@pytest.mark.parametrize(("version", "kimi"), [("0.5.9", False), ("0.5.12.post1", True)])
def test_sglang_needs_the_method_on_the_class(version: str, kimi: bool, tmp_path: Path, checkpoints: dict[str, str]) -> None:
    venv = world.sglang(tmp_path / "venv", version, kimi=kimi)
    report = launched(venv, checkpoints, "sglang", env={"SGLANG_ENABLE_SPEC_V2": "1"})
    assert world.ids(report, BLOCK) == (set() if kimi else {"eagle3-interface-missing"})
    if not kimi:
        assert "SGLang 0.5.12" in report.of(BLOCK)[0].remedy


def test_speculators_format_is_read_by_one_engine_alone(tmp_path: Path, checkpoints: dict[str, str]) -> None:
    checkpoints["drafter"] = str(world.drafter(tmp_path / "spec", world.speculators()))
    on_vllm = launched(world.vllm(tmp_path / "vllm", "0.18.1", families=NEW, kimi=True), checkpoints)
    assert on_vllm.verdict == "clear", on_vllm.findings
    on_sglang = launched(world.sglang(tmp_path / "sglang", "0.5.23", kimi=True), checkpoints, "sglang")
    assert world.ids(on_sglang, BLOCK) == {"speculators-on-sglang"}


def test_cards_that_hold_something_else_and_heads_that_do_not_split(tmp_path: Path, checkpoints: dict[str, str]) -> None:
    venv = world.vllm(tmp_path / "venv", "0.18.1", families=NEW, kimi=True)
    asked = world.launch({"engine": "vllm", "venv": str(venv), "tp": 8, "args": ["--trust-remote-code"], **checkpoints})
    assert "card-not-free" in world.ids(world.found(asked, world.board(used=20 * world.GIB)), BLOCK)
    assert "too-few-cards" in world.ids(world.found(asked, world.board(4)), BLOCK)
    assert "weights-too-big" in world.ids(world.found(asked, world.board(total=48 * world.GIB, used=0)), BLOCK)
    three = world.launch({"engine": "vllm", "venv": str(venv), "tp": 6, "args": ["--trust-remote-code"], **checkpoints})
    assert {"tp-heads", "drafter-heads"} <= world.ids(world.found(three), BLOCK)


def test_a_flag_with_a_slip_is_named_with_the_right_one(tmp_path: Path, checkpoints: dict[str, str]) -> None:
    venv = world.vllm(tmp_path / "venv", "0.18.1", families=NEW, kimi=True)
    args = ["--trust-remote-code", "--max-num-sequences", "64", "--max_num_seqs", "64", "--no-enforce-eager"]
    report = launched(venv, checkpoints, args=args, env={"VLLM_CACHE_ROT": "/x", "VLLM_CACHE_ROOT": "/y", "MY_VLLM_X": "1"})
    wrong = [finding for finding in report.findings if finding.id == "unknown-option"]
    assert [finding.remedy for finding in wrong] == ["did you mean --max-num-seqs?"]
    assert [(f.severity, f.title) for f in report.findings if f.id == "unknown-variable"] == [
        (WARN, "vLLM 0.18.1 does not know VLLM_CACHE_ROT")
    ]


def test_the_patch_is_offered_only_to_drafters_that_it_helps(tmp_path: Path, checkpoints: dict[str, str]) -> None:
    def remedies() -> str:
        report = launched(
            world.vllm(tmp_path / f"venv{len(list(tmp_path.iterdir()))}", "0.17.1", families=OLD, kimi=False), checkpoints
        )
        return " ".join(finding.remedy for finding in report.of(BLOCK))

    assert "patch apply" in remedies()
    for number, change in enumerate(({"architectures": ["Eagle3DeepseekV2ForCausalLM"]}, {"norm_before_fc": True})):
        checkpoints["drafter"] = str(world.drafter(tmp_path / f"other{number}", {**world.DRAFTER, **change}))
        assert "patch apply" not in remedies()
        assert "0.18" in remedies()
