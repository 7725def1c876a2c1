"""Each rule about drafters: one that breaks it, and the nearest one that does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eagletui.engines.preflight.findings import BLOCK, INFO, WARN, Report
from tests.preflight import world
from tests.preflight.test_preflight_kimi import NEW

Change = dict[str, Any]


def judged(tmp_path: Path, config: Change, tensors: Change, engine: str = "vllm", format_: str = "plain", **more: Any) -> Report:
    """The findings for the usual drafter with changes: None takes a key or a tensor away."""
    changed = {key: value for key, value in {**world.DRAFTER, **config}.items() if value is not None}
    if format_ == "speculators":
        changed = {key: value for key, value in world.speculators(world.DRAFTER, **config).items() if value is not None}
    tables = {key: value for key, value in {**world.DRAFTER_TENSORS, **tensors}.items() if value is not None}
    venv = tmp_path / "venv"
    if engine == "vllm":
        world.vllm(venv, more.pop("version", "0.18.1"), families=NEW, kimi=True)
    else:
        world.sglang(venv, more.pop("version", "0.5.23"), kimi=True)
    asked = world.launch(
        {
            "engine": engine,
            "venv": str(venv),
            "model": str(world.target(tmp_path / "kimi")),
            "drafter": str(world.drafter(tmp_path / "drafter", changed, tables)),
            "tp": 8,
            "args": ["--trust-remote-code", *more.pop("args", [])],
            **more,
        }
    )
    return world.found(asked)


NESTED = {"eagle_aux_hidden_state_layer_ids": None}
TOP = {"eagle_config": None}
FOUR = {"eagle_aux_hidden_state_layer_ids": [2, 20, 40, 58], "eagle_config": None}

FOUR_WIDE = {"fc.weight": ("BF16", [7168, 28672])}
AT_TOP = "eagle_aux_hidden_state_layer_ids"
INPUT_NORM = {"input_norm.weight": ("BF16", [21504])}
WHOLE_HEAD = {"d2t": None, "lm_head.weight": ("BF16", [163840, 7168])}

CASES: list[tuple[str, str | None, Change, Change, Change, Change, str]] = [
    # id, severity, configuration and tensors of the one that breaks it; of the one that does not; engine
    ("drafter-width", BLOCK, {"hidden_size": 6144}, {"fc.weight": ("BF16", [6144, 18432])}, {}, {}, "vllm"),
    ("drafter-width", BLOCK, {"target_hidden_size": 6144}, {}, {"target_hidden_size": 7168}, {}, "vllm"),
    ("fc-shape", BLOCK, FOUR, FOUR_WIDE, {**FOUR, "num_aux_hidden_states": 4}, FOUR_WIDE, "vllm"),
    ("drafter-no-fc", WARN, {}, {"fc.weight": None}, {}, {"fc.weight": None, "model.fc.weight": ("BF16", [7168, 21504])}, "vllm"),
    ("no-d2t", BLOCK, {}, {"d2t": None}, {"draft_vocab_size": 163840}, WHOLE_HEAD, "vllm"),
    ("lm-head", BLOCK, {"draft_vocab_size": 16000}, {"d2t": ("I64", [16000])}, {}, {"lm_head.weight": None}, "vllm"),
    ("d2t-size", BLOCK, {}, {"d2t": ("I64", [31999])}, {}, {}, "vllm"),
    ("t2d-size", BLOCK, {}, {"t2d": ("BOOL", [128256])}, {}, {"t2d": None}, "vllm"),
    ("vocab", BLOCK, {"vocab_size": 128256}, {}, {"vocab_size": None}, {}, "vllm"),
    ("layer-ids-range", BLOCK, {AT_TOP: [2, 30, 62]}, {}, {AT_TOP: [2, 30, 61]}, {}, "vllm"),
    ("layer-ids-absent", WARN, {**NESTED, **TOP}, {}, TOP, {}, "vllm"),
    ("layer-ids-not-read", INFO, NESTED, {}, TOP, {}, "vllm"),
    ("layer-ids-not-read", BLOCK, {**NESTED, "eagle_config": {AT_TOP: [1, 29, 57]}}, {}, {}, {}, "vllm"),
    ("layer-ids-not-read", BLOCK, {AT_TOP: [3, 31, 59], **TOP}, {}, NESTED, {}, "sglang"),
    ("layer-ids-off-by-one", WARN, {AT_TOP: [1, 29, 57]}, {}, {}, {}, "vllm"),
    ("drafter-positions", WARN, {"max_position_embeddings": 4096}, {}, {"max_position_embeddings": 262144}, {}, "vllm"),
    ("input-norm-unused", WARN, {}, INPUT_NORM, {"norm_before_fc": True}, INPUT_NORM, "vllm"),
    ("drafter-fc-norm", WARN, {"fc_norm": True}, {}, {"fc_norm": False}, {}, "vllm"),
    ("drafter-norm-before-residual", WARN, {"norm_before_residual": True}, {}, {"norm_before_residual": False}, {}, "sglang"),
    ("drafter-heads", BLOCK, {"num_attention_heads": 28}, {}, {"num_attention_heads": 32}, {}, "vllm"),
    ("drafter-architecture", BLOCK, {"architectures": ["MedusaModel"]}, {}, {}, {}, "vllm"),
    ("drafter-is-mla", BLOCK, {}, {"midlayer.self_attn.kv_a_proj_with_mqa.weight": ("BF16", [576, 7168])}, {}, {}, "vllm"),
]


@pytest.mark.parametrize(
    ("id_", "severity", "config", "tensors", "near", "near_tensors", "engine"),
    CASES,
    ids=[f"{case[0]}-{at}" for at, case in enumerate(CASES)],
)
def test_a_rule_and_its_near_miss(
    id_: str, severity: str, config: Change, tensors: Change, near: Change, near_tensors: Change, engine: str, tmp_path: Path
) -> None:
    broken = judged(tmp_path / "broken", config, tensors, engine)
    assert id_ in world.ids(broken, severity), broken.findings
    fine = judged(tmp_path / "near", near, near_tensors, engine)
    assert id_ not in world.ids(fine), fine.findings


QWEN = {"name_or_path": "x", "architectures": ["Qwen3ForCausalLM"]}
SPECULATORS: list[tuple[str, Change, Change]] = [
    ("speculators-incomplete", {"transformer_layer_config": None}, {}),
    ("speculators-incomplete", {"speculators_config": {"proposal_methods": [], "verifier": {"name_or_path": "x"}}}, {}),
    ("residual-default", {"norm_before_residual": None}, {"norm_before_residual": False}),
    ("verifier-differs", {"speculators_config": {"proposal_methods": [{"speculative_tokens": 3}], "verifier": QWEN}}, {}),
]


@pytest.mark.parametrize(("id_", "config", "near"), SPECULATORS, ids=[f"{case[0]}-{at}" for at, case in enumerate(SPECULATORS)])
def test_a_rule_of_speculators_format(id_: str, config: Change, near: Change, tmp_path: Path) -> None:
    assert id_ in world.ids(judged(tmp_path / "broken", config, {}, format_="speculators"))
    assert id_ not in world.ids(judged(tmp_path / "near", near, {}, format_="speculators"))


def test_speculators_format_is_too_new_for_an_old_engine(tmp_path: Path) -> None:
    venv = world.vllm(tmp_path / "venv", "0.9.2", families=NEW, kimi=True)
    (venv / "lib/python3.11/site-packages/vllm/transformers_utils/configs/speculators/algos.py").unlink()
    paths = {"model": str(world.target(tmp_path / "kimi")), "drafter": str(world.drafter(tmp_path / "d", world.speculators()))}
    asked = world.launch({"engine": "vllm", "venv": str(venv), "tp": 8, "args": ["--trust-remote-code"], **paths})
    assert "speculators-too-old" in world.ids(world.found(asked), BLOCK)


def test_the_newer_runner_does_not_look_below_eagle_config(tmp_path: Path) -> None:
    """Which of the two runners is used is certain only where the environment says so."""
    config = {**NESTED, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 29, 57]}}
    for number, (env, severity) in enumerate(
        [({"VLLM_USE_V2_MODEL_RUNNER": "1"}, BLOCK), ({}, WARN), ({"VLLM_USE_V2_MODEL_RUNNER": "0"}, None)]
    ):
        folder = tmp_path / str(number)
        venv = world.vllm(folder / "venv", "0.32.0", families=None, kimi=True)
        package = venv / "lib/python3.11/site-packages/vllm"
        runner = package / "v1/worker/gpu_model_runner.py"
        runner.write_text(runner.read_text().replace("hf_config.ids", 'getattr(hf_config, "eagle_config", None)'))
        second = package / "v1/worker/gpu/spec_decode/eagle/eagle3_utils.py"
        second.parent.mkdir(parents=True)
        second.write_text('layer_ids = getattr(hf_config, "eagle_aux_hidden_state_layer_ids", None)\n')
        changed = {key: value for key, value in {**world.DRAFTER, **config}.items() if value is not None}
        paths = {"model": str(world.target(folder / "kimi")), "drafter": str(world.drafter(folder / "d", changed))}
        asked = world.launch({"engine": "vllm", "venv": str(venv), "tp": 8, "args": ["--trust-remote-code"], "env": env, **paths})
        finding = next((f for f in world.found(asked).findings if f.id == "layer-ids-not-read"), None)
        assert (finding.severity if finding else None) == severity


def test_a_version_that_raises_positions_itself_is_not_told(tmp_path: Path) -> None:
    venv = world.vllm(tmp_path / "venv", "0.32.0", families=None, kimi=True)
    config = venv / "lib/python3.11/site-packages/vllm/config/speculative.py"
    config.write_text(config.read_text() + "    def _maybe_override_draft_max_position_embeddings(self): ...\n")
    short = {**world.DRAFTER, "max_position_embeddings": 4096}
    paths = {"model": str(world.target(tmp_path / "kimi")), "drafter": str(world.drafter(tmp_path / "d", short))}
    asked = world.launch({"engine": "vllm", "venv": str(venv), "tp": 8, "args": ["--trust-remote-code"], **paths})
    assert "drafter-positions" not in world.ids(world.found(asked))
