"""What must not be called a hindrance: launches that work, and hosts of which too little is known to say that one would not."""

from __future__ import annotations

from typing import Any

import pytest

from eagletui.agent.facts.clock import Clock
from eagletui.agent.facts.engine import engine
from eagletui.engines.preflight.findings import BLOCK, WARN
from eagletui.engines.preflight.judge import judge
from eagletui.engines.preflight.options import unknown_options
from eagletui.engines.preflight.vllm_source import vllm_source
from tests.preflight import world
from tests.preflight.test_preflight_host import DRAFT, ENGINE, GIB, TARGET, judged

SMALL = world.board(total=48 * GIB, used=0)
NESTED = {key: value for key, value in world.DRAFTER.items() if key != "eagle_aux_hidden_state_layer_ids"}

WORKS: list[tuple[str, str, dict[str, Any]]] = [
    (
        "too-few-cards",
        "attention replicas share the cards",
        {"serves": "sglang", "args": ["--dp-size", "8", "--enable-dp-attention"]},
    ),
    ("too-few-cards", "ranks on other hosts", {"tp": 16, "args": ["--nnodes", "2"]}),
    ("too-few-cards", "ray may know other hosts", {"tp": 16, "args": ["--distributed-executor-backend", "ray"]}),
    ("weights-too-big", "part of them stays in memory", {"cards": SMALL, "args": ["--cpu-offload-gb", "60"]}),
    ("weights-too-big", "experts on processors", {"cards": SMALL, "serves": "sglang", "args": ["--kt-num-gpu-experts", "1"]}),
    (
        "sglang-spec-some",
        "a chain",
        {"serves": "sglang", "args": ["--speculative-num-steps", "3", "--speculative-eagle-topk", "1"]},
    ),
    ("tp-heads", "heads over fewer cards", {"serves": "sglang", "tp": 6, "args": ["--dp-size", "2", "--enable-dp-attention"]}),
    ("max-model-len", "the configuration is overridden", {"args": ["--max-model-len", "300000", "--hf-overrides", "{}"]}),
]


@pytest.mark.parametrize(("id_", "why", "profile"), WORKS, ids=[case[1] for case in WORKS])
def test_a_launch_that_works_is_not_blocked(id_: str, why: str, profile: dict[str, Any]) -> None:
    if "--speculative-num-steps" in profile["args"]:
        profile = {**profile, "drafter": "/d", "args": [*profile["args"], "--speculative-algorithm", "EAGLE3"]}
    assert id_ not in world.ids(judged(**profile), BLOCK), why
    plain = {key: value for key, value in profile.items() if key in ("cards", "tp", "serves")}
    if id_ in ("weights-too-big", "tp-heads") or plain.get("tp") == 16:
        assert id_ in world.ids(judged(**plain), BLOCK)


def test_experts_are_spread_over_replicas() -> None:
    config = {**world.KIMI, "text_config": {**world.KIMI["text_config"], "n_routed_experts": 384}}
    asked = world.launch({"engine": "vllm", "model": "/kimi", "args": ["--trust-remote-code", "--data-parallel-size", "8"]})
    for target, told in (({**TARGET, "config": config}, False), (TARGET, True)):
        assert ("weights-too-big" in world.ids(judge(asked, {"engine": ENGINE, "target": target}, world.board()))) is told


def test_the_cards_that_are_visible_are_those_that_count() -> None:
    board = world.board()
    full = [card._replace(mem_used=card.mem_total - GIB) if card.number < 4 else card for card in board.cards]
    board = board._replace(cards=tuple(full))
    asked: dict[str, Any] = {"tp": 4, "cards": board}
    assert "card-not-free" in world.ids(judged(**asked), BLOCK)
    for chosen in ("4,5,6,7", ",".join(card.uuid for card in board.cards[4:]), "MIG-1/2"):
        assert "card-not-free" not in world.ids(judged(**asked, env={"CUDA_VISIBLE_DEVICES": chosen})), chosen
    assert "card-not-free" in world.ids(judged(**asked, env={"CUDA_VISIBLE_DEVICES": "7,6,5,0"}), BLOCK)


def test_cards_that_no_driver_answers_for_are_not_called_absent() -> None:
    none = world.board(0)
    assert "no-cards" in world.ids(judged(cards=none._replace(present=False)), BLOCK)
    assert "no-cards" in world.ids(judged(cards=none._replace(present=True, problem="NVML does not answer")), WARN)
    assert "no-cards" not in world.ids(judged(cards=none._replace(present=False), engine={"version": "0.20.2+rocm700"}))


def test_layer_ids_are_not_called_unread_where_neither_source_nor_version_is_known() -> None:
    asked = world.launch({"engine": "vllm", "model": "/kimi", "drafter": "/d", "tp": 8, "args": ["--trust-remote-code"]})
    odd = {**NESTED, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 20, 40]}}
    draft = {**DRAFT, "config": odd, "tensors": {"fc.weight": ["BF16", [7168, 21504]]}, "shards": [{"name": "m"}]}
    for version, told in (({}, False), ({"version": "0.20.2"}, True), ({"version": "0.23.0"}, False)):
        found = world.ids(judge(asked, {"engine": version, "target": TARGET, "drafter": draft}))
        assert ("layer-ids-not-read" in found) is told, version


def test_a_table_is_missing_only_from_a_drafter_that_was_read_whole() -> None:
    asked = world.launch({"engine": "vllm", "model": "/kimi", "drafter": "/d", "tp": 8, "args": ["--trust-remote-code"]})
    draft = {**DRAFT, "tensors": {"fc.weight": ["BF16", [7168, 21504]]}, "shards": [{"name": "a"}]}
    for files, told in ((1, True), (2, False)):
        found = judge(asked, {"engine": ENGINE, "target": TARGET, "drafter": {**draft, "index": {"files": files}}})
        assert ("no-d2t" in world.ids(found, BLOCK)) is told


def test_a_wrapper_with_values_of_its_own_hides_the_engine_and_does_not_lack_it() -> None:
    for words in (["taskset", "-c", "0-31"], ["numactl", "--cpunodebind", "0"], ["nice", "-n", "10"]):
        found = engine({"engine": "vllm", "argv": [*words, "vllm", "serve", "/m"]}, {"PATH": "/nowhere"}, {}, Clock(5.0))
        assert found.get("where") == "wrapper", found
    assert engine({"engine": "vllm", "argv": ["vllm", "serve"]}, {"PATH": "/nowhere"}, {}, Clock(5.0))["absent"] == "vllm"


def test_a_short_option_with_its_value_attached_is_known() -> None:
    told = unknown_options(["-O3", "-tp8", "-x1", "--max-seqs"], ["'-O' '-tp' '--model'"])
    assert [flag for flag, _ in told["flags"]] == ["-x1", "--max-seqs"]


def test_where_an_image_token_is_taken_from_is_not_guessed() -> None:
    registry = '    "Kimi": ("kimi", "Kimi"),\n'
    model = "class Kimi(nn.Module, SupportsMultiModal):\n    pass\n"
    head = "        if supports_multimodal(target_model):\n            "
    for body, told in (
        ("self.model.config.image_token_index = target_model.config.image_token_index\n", "image_token_index"),
        ("self.model.config.image_token_index = token_of(target_model)\n", None),
    ):
        files = {
            "model_executor/models/registry.py": registry,
            "model_executor/models/kimi.py": model,
            "v1/spec_decode/eagle.py": head + body,
        }
        assert vllm_source(files.get, lambda folder: [], ["Kimi"], [])["models"]["Kimi"].get("image") == told


def test_a_model_that_is_no_path_of_this_host_is_not_called_absent() -> None:
    for given, told in (("/kimi", True), ("models/kimi/v2", True), ("s3://bucket/kimi", False), ("gpt2", False)):
        asked = world.launch({"engine": "vllm", "model": given, "tp": 8})
        found = judge(asked, {"engine": ENGINE, "target": {"given": given, "kind": "absent"}})
        assert ("target-absent" in world.ids(found, BLOCK)) is told, given
    hub = {"given": "a/b", "kind": "hub", "hub": {"offline": True, "cache": "/c"}}
    for args, told in (([], True), (["--revision", "v2"], False)):
        asked = world.launch({"engine": "vllm", "model": "a/b", "tp": 8, "args": args})
        assert ("target-not-cached" in world.ids(judge(asked, {"engine": ENGINE, "target": hub}), BLOCK)) is told
