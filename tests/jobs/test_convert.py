"""Drafters in other forms: every number stays, every trap of a form is told, and the result is read back."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from eagletui.jobs import kinds
from eagletui.jobs.base import BadJob
from eagletui.jobs.drafter_form import (
    RAW,
    SPECULATORS,
    BadTensors,
    raw_problem,
    read_drafter,
    speculators_problems,
    vocabulary_problem,
)
from eagletui.jobs.keys import read_keys
from eagletui.jobs.on_host import convert as program
from eagletui.jobs.on_host import to_sglang
from eagletui.jobs.on_host.target_config import read_shape
from eagletui.jobs.tensors import folder_files, read_piece
from eagletui.jobs.watcher import Outcome
from tests.jobs.tensor_files import write

WIDTH, HEADS, GROUPS, HEAD, INNER, VOCAB, DRAFT = 4, 2, 1, 2, 6, 10, 3
D2T, T2D = [1, 3, 7], [False, True, False, False, True, False, False, False, False, True]


def shapes() -> dict[str, tuple[int, ...]]:
    base = "layers.0."
    return {
        "fc.weight": (WIDTH, 3 * WIDTH),
        "norm.weight": (WIDTH,),
        "lm_head.weight": (DRAFT, WIDTH),
        "embed_tokens.weight": (VOCAB, WIDTH),
        base + "hidden_norm.weight": (WIDTH,),
        base + "input_layernorm.weight": (WIDTH,),
        base + "post_attention_layernorm.weight": (WIDTH,),
        base + "self_attn.q_proj.weight": (HEADS * HEAD, 2 * WIDTH),
        base + "self_attn.k_proj.weight": (GROUPS * HEAD, 2 * WIDTH),
        base + "self_attn.v_proj.weight": (GROUPS * HEAD, 2 * WIDTH),
        base + "self_attn.o_proj.weight": (WIDTH, HEADS * HEAD),
        base + "mlp.gate_proj.weight": (INNER, WIDTH),
        base + "mlp.up_proj.weight": (INNER, WIDTH),
        base + "mlp.down_proj.weight": (WIDTH, INNER),
    }


def config(**more: Any) -> dict[str, Any]:
    layer = {
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "num_attention_heads": HEADS,
        "num_key_value_heads": GROUPS,
        "head_dim": HEAD,
        "num_hidden_layers": 1,
        "vocab_size": VOCAB,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_theta": 5e4, "rope_type": "default"},
        **more.pop("layer", {}),
    }
    return {
        "speculators_model_type": "eagle3",
        "draft_vocab_size": DRAFT,
        "eagle_aux_hidden_state_layer_ids": [2, 15, 27],
        "dtype": "bfloat16",
        "transformer_layer_config": layer,
        **more,
    }


def drafter(folder: Path, doc: dict[str, Any] | None = None, **tensors: Any) -> Path:
    """A drafter whose every tensor has bytes of its own; ``tensors`` replaces some ({name with __ for .}: entry or None)."""
    made: dict[str, Any] = {}
    for number, (name, shape) in enumerate(shapes().items()):
        count = 2
        for size in shape:
            count *= size
        made[name] = ("BF16", shape, bytes((number * 17 + at) % 251 for at in range(count)))
    made["d2t"] = ("I64", (DRAFT,), struct.pack("<3q", *D2T))
    made["t2d"] = ("BOOL", (VOCAB,), bytes(T2D))
    for name, entry in tensors.items():
        made[name.replace("__", ".")] = entry
    write(folder / "model.safetensors", {name: entry for name, entry in made.items() if entry is not None})
    (folder / "config.json").write_text(json.dumps(config() if doc is None else doc))
    return folder


def test_the_form_of_a_drafter(tmp_path: Path) -> None:
    found = read_drafter(str(drafter(tmp_path / "a")))
    assert found.form == SPECULATORS
    assert speculators_problems(found) == []
    assert read_drafter(str(drafter(tmp_path / "b", {"architectures": ["LlamaForCausalLMEagle3"]}))).form == RAW
    (tmp_path / "b" / "config.json").unlink()
    with pytest.raises(BadTensors, match=r"no config\.json"):
        read_drafter(str(tmp_path / "b"))


@pytest.mark.parametrize(
    ("doc", "tensors", "says"),
    [
        (config(eagle_aux_hidden_state_layer_ids=None), {}, "names no eagle_aux"),
        (config(eagle_aux_hidden_state_layer_ids=[2, 15]), {}, "fc.weight is"),
        (config(norm_before_fc=True), {}, "it has no input_norm.weight"),
        (None, {"norm__weight": None}, "it has no norm.weight"),
        (None, {"lm_head__weight": ("BF16", (2, WIDTH), None)}, "lm_head.weight is [2, 4] instead of [3, 4]"),
        (None, {"norm__weight": ("F32", (WIDTH,), None)}, "several formats: BF16, F32"),
        (None, {"d2t": None}, "it has no d2t"),
    ],
)
def test_what_does_not_fit(tmp_path: Path, doc: Any, tensors: dict[str, Any], says: str) -> None:
    problems = speculators_problems(read_drafter(str(drafter(tmp_path, doc, **tensors))))
    assert any(says in problem for problem in problems), problems


def test_a_vocabulary_that_leads_nowhere() -> None:
    assert vocabulary_problem(D2T, VOCAB, T2D) is None
    assert "leads draft token 2 to 10" in str(vocabulary_problem([1, 3, 8], VOCAB))
    assert "leads draft token 0 to -1" in str(vocabulary_problem([-1, 3, 7], VOCAB))
    assert "several draft tokens" in str(vocabulary_problem([1, 0, 7], VOCAB))
    assert "t2d marks other tokens" in str(vocabulary_problem(D2T, VOCAB, [True, *T2D[1:]]))


# ---------------------------------------------------------------------------------------------------------------- SGLang


def test_to_sglang_keeps_every_number(tmp_path: Path) -> None:
    source = read_drafter(
        str(
            drafter(
                tmp_path / "a",
                config(norm_before_residual=True, layer={"sliding_window": 2048, "layer_types": ["sliding_attention"]}),
            )
        )
    )
    remarks = to_sglang.convert(source, str(tmp_path / "b"))
    before, after = folder_files(str(tmp_path / "a")), folder_files(str(tmp_path / "b"))
    assert set(after) == {to_sglang.new_name(name) for name in before}
    assert "midlayer.self_attn.q_proj.weight" in after
    for name, (path, tensor) in before.items():
        there, found = after[to_sglang.new_name(name)]
        assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
        assert read_piece(there, found) == read_piece(path, tensor)
    doc = json.loads((tmp_path / "b" / "config.json").read_text())
    assert doc["architectures"] == ["LlamaForCausalLMEagle3"]
    assert doc["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [1, 14, 26]  # SGLang adds one
    assert (doc["vocab_size"], doc["draft_vocab_size"], doc["rope_theta"]) == (VOCAB, DRAFT, 5e4)
    assert "rope_scaling" not in doc
    assert any("norm_before_residual" in remark for remark in remarks)
    assert any("looks back 2048 tokens" in remark for remark in remarks)


def test_marks_that_are_numbers_become_marks(tmp_path: Path) -> None:
    source = read_drafter(str(drafter(tmp_path / "a", t2d=("I64", (VOCAB,), struct.pack("<10q", *T2D)))))
    to_sglang.convert(source, str(tmp_path / "b"))
    path, tensor = folder_files(str(tmp_path / "b"))["t2d"]
    assert tensor.dtype == "BOOL"
    assert list(read_piece(path, tensor)) == [int(mark) for mark in T2D]


def test_a_rope_that_is_scaled_stays_so(tmp_path: Path) -> None:
    rope = {"rope_theta": 5e4, "rope_type": "yarn", "factor": 64.0}
    source = read_drafter(str(drafter(tmp_path, config(layer={"rope_parameters": rope}))))
    assert to_sglang.sglang_config(source)["rope_scaling"] == {"rope_type": "yarn", "factor": 64.0}


@pytest.mark.parametrize(
    ("doc", "tensors", "says"),
    [
        (None, {"d2t": ("I64", (DRAFT,), struct.pack("<3q", 1, 3, 8))}, "leads draft token 2 to 10"),
        (config(fc_norm=True), {}, "fc_norm"),
        (config(layer={"num_hidden_layers": 2}), {}, "it has 2 layers"),
        (config(speculators_model_type="dflash"), {}, "not eagle3"),
        (config(eagle_aux_hidden_state_layer_ids=[0, 15, 27]), {}, "enters layer 0"),
    ],
)
def test_what_sglang_has_no_place_for(tmp_path: Path, doc: Any, tensors: dict[str, Any], says: str) -> None:
    source = read_drafter(str(drafter(tmp_path / "a", doc, **tensors)))
    with pytest.raises(to_sglang.CannotConvert, match=says):
        to_sglang.convert(source, str(tmp_path / "b"))
    assert not (tmp_path / "b" / "config.json").exists()


# ---------------------------------------------------------------------------------------------------------------- the job


def run(capfd: Any, *argv: str) -> tuple[int, dict[str, Any]]:
    status = program.main(argv)
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines() if line.startswith('{"eagletui": "result"')]
    return status, lines[-1]


def watched(tmp_path: Path, output: str, **values: Any) -> Outcome:
    kind = kinds.kind("convert")
    given = {"kind": "convert", "python": "/p", "source": "/s", "output": str(tmp_path / "b"), "to": "sglang", **values}
    read, wrong = read_keys(kind.keys, given)
    assert wrong == []
    watch = kind.watcher(kind.spec(read, "c-1"), str(tmp_path))
    assert watch is not None
    watch.feed(output.encode(), 1.0)
    return watch.outcome(0, False)


def test_the_whole_job_to_sglang(tmp_path: Path, capfd: Any) -> None:
    drafter(tmp_path / "a")
    argv = ("--source", str(tmp_path / "a"), "--output", str(tmp_path / "b"), "--to", "sglang")
    status, result = run(capfd, *argv)
    assert status == 0
    assert {entry.name for entry in (tmp_path / "b").iterdir()} == {"config.json", "model.safetensors", "eagletui.json"}
    ended = watched(tmp_path, json.dumps(result) + "\n")
    assert ended.ok is True
    assert ended.result["tensors"] == 16
    assert ended.result["path"] == str(tmp_path / "b")
    assert run(capfd, *argv)[0] == 0  # again: the same
    # a file that is cut short afterwards is not believed
    whole = (tmp_path / "b" / "model.safetensors").read_bytes()
    (tmp_path / "b" / "model.safetensors").write_bytes(whole[:-1])
    assert watched(tmp_path, json.dumps(result) + "\n").ok is False


def test_vllm_needs_nothing(tmp_path: Path, capfd: Any) -> None:
    drafter(tmp_path / "a")
    status, result = run(capfd, "--source", str(tmp_path / "a"), "--output", str(tmp_path / "b"), "--to", "vllm")
    assert status == 0
    assert result["path"] == str(tmp_path / "a")
    ended = watched(tmp_path, json.dumps(result) + "\n", to="vllm")
    assert ended.ok is True
    assert ended.why == "vLLM reads this form as it is: nothing was converted"
    assert not (tmp_path / "b").exists()


def test_keys_that_the_converter_only_warns_of_fail_it(tmp_path: Path) -> None:
    drafter(tmp_path / "b")
    said = '{"eagletui": "result", "path": "%s", "format": "speculators", "remarks": []}\n' % (tmp_path / "b")
    values = {"to": "speculators", "target": "/t", "layers": [2, 15, 27]}
    assert watched(tmp_path, said, **values).ok is True
    warning = (
        "2026-11-30 | WARNING | speculators.convert.eagle.eagle3_converter:_save - %s keys in checkpoint: ['input_norm.weight']\n"
    )
    for word in ("Missing", "Unexpected"):
        ended = watched(tmp_path, warning % word + said, **values)
        assert ended.ok is False
        assert f"{word.lower()} keys: ['input_norm.weight']" in ended.why
    # the layers must be the ones that were asked for, not a default
    ended = watched(tmp_path, said, **{**values, "layers": [2, 30, 58]})
    assert ended.ok is False
    assert "says the layers [2, 15, 27]" in ended.why


def test_layers_must_be_given(tmp_path: Path) -> None:
    with pytest.raises(BadJob, match="layers"):
        watched(tmp_path, "", to="speculators")


RAW_CONFIG = {"architectures": ["LlamaForCausalLMEagle3"], "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 14, 26]}}


def target(folder: Path, nested: bool = False) -> Path:
    inner = {"hidden_size": WIDTH, "num_hidden_layers": 30, "vocab_size": VOCAB, "max_position_embeddings": 131072}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"text_config": inner} if nested else inner))
    return folder


def test_what_cannot_become_speculators_form(tmp_path: Path, capfd: Any, monkeypatch: Any) -> None:
    drafter(tmp_path / "mla", RAW_CONFIG, layers__0__self_attn__kv_a_proj_with_mqa__weight=("BF16", (2, 2), None))
    assert "MLA" in str(raw_problem(read_drafter(str(tmp_path / "mla"))))
    drafter(tmp_path / "a", RAW_CONFIG)
    monkeypatch.setattr(program, "find_spec", lambda name: name)
    argv = ["--source", str(tmp_path / "a"), "--output", str(tmp_path / "b"), "--to", "speculators"]
    argv += ["--target", str(target(tmp_path / "t"))]
    status, result = run(capfd, *argv, "--layers", "2,15")
    assert status == 2
    assert "the drafter reads (12,) numbers a token, and 2 layers" in result["why"]
    status, result = run(capfd, *argv, "--layers", "2,15,31")
    assert status == 2
    assert "has 30" in result["why"]


def test_the_layers_of_its_own_config_are_compared(tmp_path: Path) -> None:
    source = read_drafter(str(drafter(tmp_path, RAW_CONFIG)))
    assert program._own_layers(source, [2, 15, 27]) == []  # SGLang's numbers are one less
    assert program._own_layers(source, [1, 14, 26]) == []
    (remark,) = program._own_layers(source, [2, 14, 27])
    assert "[1, 14, 26]" in remark


def test_a_context_that_the_converter_does_not_find_is_mended(tmp_path: Path) -> None:
    """A drafter of a composed target was left with 2048, and a server then refuses or cuts long contexts."""
    drafter(tmp_path / "a", config(layer={"max_position_embeddings": 2048}))
    shape = read_shape(str(target(tmp_path / "t", nested=True)))
    assert (shape.width, shape.layers, shape.context) == (WIDTH, 30, 131072)
    (remark,) = program._mend_context(str(tmp_path / "a"), shape.context)
    assert "raised from 2048 to the target's 131072" in remark
    doc = json.loads((tmp_path / "a" / "config.json").read_text())
    assert doc["transformer_layer_config"]["max_position_embeddings"] == 131072
    assert program._mend_context(str(tmp_path / "a"), shape.context) == []


def test_drafters_in_several_files(tmp_path: Path) -> None:
    entries = {name: ("BF16", shape, None) for name, shape in shapes().items()}
    names = list(entries)
    write(tmp_path / "model-1.safetensors", {name: entries[name] for name in names[:5]})
    write(tmp_path / "model-2.safetensors", {name: entries[name] for name in names[5:]})
    index = {"weight_map": {name: f"model-{1 + (names.index(name) >= 5)}.safetensors" for name in names}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert set(folder_files(str(tmp_path))) == set(names)
    index["weight_map"]["lost.weight"] = "model-1.safetensors"
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(BadTensors, match="lost"):
        folder_files(str(tmp_path))
