"""Preflight on the lab's real engine, model and drafter; and on the sources of other releases where they are at hand.

``EAGLETUI_ENGINE_SOURCES`` names a folder of unpacked wheels: ``vllm-0.17.1/vllm/...``, ``sglang-0.5.9/sglang/...``.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eagletui.agent.facts.clock import Clock
from eagletui.agent.facts.engine import reader
from eagletui.agent.facts.gather import gather
from eagletui.engines.patches.core import APPLICABLE, APPLIED, set_state, summary
from eagletui.engines.patches.kimi_eagle3 import KIMI_EAGLE3
from eagletui.engines.preflight import options, sglang_source, vllm_source
from eagletui.engines.preflight.findings import BLOCK, Report
from eagletui.engines.preflight.judge import judge
from eagletui.engines.preflight.launch import launch_of, wanted
from eagletui.labparts.paths import Lab
from eagletui.profile_launch import launch_spec
from eagletui.profiles import Profile, load_profiles, with_changes
from tests.agent.jobs_harness import free_port
from tests.preflight import world

LAB = Path(os.environ.get("EAGLETUI_LAB") or Path.home() / ".cache/eagletui/lab")
SOURCES = os.environ.get("EAGLETUI_ENGINE_SOURCES")


def in_lab(test: Any) -> Any:
    """Marks a test that needs the lab's engine and models."""
    return pytest.mark.engine(pytest.mark.skipif(not (LAB / "drafter").exists(), reason=f"no lab under {LAB}")(test))


def lab_profile(name: str = "lab-eagle3", *changes: str) -> Profile:
    profile = load_profiles("local", lab=Lab(LAB))[0][name]
    return with_changes(profile, [f"port={free_port()}", *changes])


def judged(profile: Profile) -> Report:
    asked = launch_of(launch_spec(profile, "job"))
    return judge(asked, gather(wanted(asked), Clock(30)))


def copy(part: str, tmp_path: Path) -> Path:
    """A part of the lab with its large files shared."""
    folder = tmp_path / part
    shutil.copytree(LAB / part, folder, copy_function=os.link if os.stat(LAB).st_dev == os.stat(tmp_path).st_dev else shutil.copy)
    return folder


def rewrite(path: Path, text: str) -> None:
    """Write a file anew: the lab's own, which the copy may share, stays."""
    path.unlink()
    path.write_text(text)


def header(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    return {k: v for k, v in json.loads(data[8 : 8 + length]).items() if k != "__metadata__"}


@in_lab
@pytest.mark.parametrize("name", ["lab-eagle3", "lab-plain", "lab-slow"])
def test_the_labs_own_profiles_have_nothing_in_the_way(name: str) -> None:
    report = judged(lab_profile(name))
    parts = [f for f in report.findings if f.part in ("engine", "target", "drafter", "checkpoint", "memory", "rules")]
    assert parts == []
    assert not report.unseen
    assert report.seconds is not None


@in_lab
def test_a_drafter_without_its_table(tmp_path: Path) -> None:
    folder = copy("drafter", tmp_path)
    tensors = {name: (value["dtype"], value["shape"]) for name, value in header(folder / "model.safetensors").items()}
    assert "d2t" in tensors
    (folder / "model.safetensors").unlink()
    world.safetensors(folder / "model.safetensors", {name: value for name, value in tensors.items() if name != "d2t"})
    assert world.ids(judged(lab_profile("lab-eagle3", f"drafter={folder}")), BLOCK) == {"no-d2t"}


@in_lab
def test_a_drafter_of_another_width(tmp_path: Path) -> None:
    folder = copy("drafter", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config["transformer_layer_config"]["hidden_size"] = 512
    rewrite(folder / "config.json", json.dumps(config))
    assert "drafter-width" in world.ids(judged(lab_profile("lab-eagle3", f"drafter={folder}")), BLOCK)


@in_lab
def test_a_drafter_in_speculators_format_on_sglang(tmp_path: Path) -> None:
    venv = world.sglang(tmp_path / "venv", "0.5.23", kimi=True)
    profile = Profile("s", "sglang", str(LAB / "smollm2"), drafter=str(LAB / "drafter"), k=3, venv=str(venv), port=free_port())
    assert "speculators-on-sglang" in world.ids(judged(profile), BLOCK)


@in_lab
def test_a_shard_that_was_cut(tmp_path: Path) -> None:
    folder = copy("smollm2-16shards", tmp_path)
    victim = folder / "model-00007-of-00016.safetensors"
    data = victim.read_bytes()
    victim.unlink()
    victim.write_bytes(data[:-1000])
    blocking = judged(lab_profile("lab-plain", f"model={folder}")).of(BLOCK)
    assert [finding.id for finding in blocking] == ["target-damaged"]
    assert "1000 bytes shorter" in blocking[0].evidence


@in_lab
def test_a_port_that_somebody_holds() -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        blocking = judged(lab_profile("lab-plain", f"port={stranger.getsockname()[1]}")).of(BLOCK)
    assert [finding.id for finding in blocking] == ["port-taken"]
    assert f"pid {os.getpid()}" in blocking[0].evidence


@in_lab
def test_every_option_of_the_real_engine_is_known_and_a_slip_is_not() -> None:
    """The names that the engine's own source declares; `tests/data` has no copy of its help."""
    read, names = reader(str(next(LAB.glob("venv/lib/python3*/site-packages/vllm"))))
    texts = [text for text in map(read, vllm_source.argument_files(names)) if text]
    known, _ = options.declared(texts)
    assert len(known) > 400
    usual = [
        "--tensor-parallel-size",
        "-tp",
        "--gpu-memory-utilization",
        "--no-enforce-eager",
        "--max_model_len",
        "--api-key",
        "-sc",
    ]
    slips = ["--max-num-sequences", "--gpu-mem-utilization", "--speculativ-config"]
    told = options.unknown_options([*usual, *slips], texts)
    assert [flag for flag, _ in told["flags"]] == slips
    assert dict(told["flags"])["--speculativ-config"] == "--speculative-config"


# ------------------------------------------------------------------------------------------------ sources of other releases

with_sources = pytest.mark.skipif(not SOURCES, reason="EAGLETUI_ENGINE_SOURCES is not set")
KIMI, LLAMA_DRAFT, MLA_DRAFT = "KimiK25ForConditionalGeneration", "LlamaForCausalLMEagle3", "Eagle3DeepseekV2ForCausalLM"


def releases(engine: str) -> Iterator[tuple[str, Path]]:
    for path in sorted(Path(SOURCES or "/nowhere").glob(f"{engine}-*/{engine}")):
        yield path.parent.name.partition("-")[2], path


@with_sources
@pytest.mark.parametrize(("version", "path"), list(releases("vllm")))
def test_a_release_of_vllm_is_read_right(version: str, path: Path) -> None:
    read, names = reader(str(path))
    told = vllm_source.vllm_source(read, names, [KIMI, "LlamaForCausalLM", "DeepseekV3ForCausalLM"], [LLAMA_DRAFT, MLA_DRAFT])
    number = tuple(map(int, version.split(".")))
    assert told["models"]["LlamaForCausalLM"] == {
        "file": "model_executor/models/llama.py",
        "class": "LlamaForCausalLM",
        "eagle3": True,
        "multimodal": False,
    }
    assert told["models"][KIMI]["eagle3"] is (number >= (0, 18))
    assert told["models"][KIMI]["multimodal"] is True
    assert told["models"][KIMI]["image"] == ("media_placeholder_token_id" if number >= (0, 18) else "image_token_index")
    assert told["models"]["DeepseekV3ForCausalLM"]["eagle3"] is (number >= (0, 18))
    assert (MLA_DRAFT in told["drafters"]) is (number >= (0, 18))
    assert (told["whitelist"] is None) is (number >= (0, 22))
    if told["whitelist"]:
        assert ("kimi_k2" in told["whitelist"]) is (number >= (0, 18))
    assert len(vllm_source.variables(read)) > 150
    assert told["nested_ids"] is (number >= (0, 22))


@with_sources
@pytest.mark.parametrize(("version", "path"), list(releases("sglang")))
def test_a_release_of_sglang_is_read_right(version: str, path: Path) -> None:
    read, names = reader(str(path))
    told = sglang_source.sglang_source(read, names, [KIMI, "LlamaForCausalLM"], [LLAMA_DRAFT, MLA_DRAFT])
    number = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    assert told["models"]["LlamaForCausalLM"]["eagle3"] is True
    assert told["models"][KIMI]["eagle3"] is (number >= (0, 5, 12))
    assert (MLA_DRAFT in told["drafters"]) is (number >= (0, 5, 12))
    assert told["nested_ids"] is True
    assert told["top_ids"] is False
    known, _ = options.declared(text for text in map(read, sglang_source.argument_files(names)) if text)
    assert {"--speculative-algorithm", "--mem-fraction-static", "--tp-size"} <= set(known)


@with_sources
@pytest.mark.parametrize(("version", "path"), [pair for pair in releases("vllm") if "0.16" <= pair[0] < "0.18"])
def test_the_patch_makes_of_a_release_what_the_next_one_is(version: str, path: Path) -> None:
    """On the real source: every function that it changes is then that of 0.18, or differs in lines that 0.18 changed besides."""
    texts = {file: (path / file).read_text() for file in KIMI_EAGLE3.files}
    states = set_state(KIMI_EAGLE3, texts)
    assert summary(states) == APPLICABLE
    changed = {state.file: state.becomes or "" for state in states}
    assert summary(set_state(KIMI_EAGLE3, changed)) == APPLIED
    for file, text in changed.items():
        compile(text, file, "exec")
    read, names = reader(str(path))
    told = vllm_source.vllm_source(lambda name: changed.get(name, read(name)), names, [KIMI], [LLAMA_DRAFT])
    assert told["models"][KIMI] | {"eagle3": True, "image": "media_placeholder_token_id"} == told["models"][KIMI]
    assert "kimi_k2" in told["whitelist"]
    next_one = Path(SOURCES or "") / "vllm-0.18.0" / "vllm"
    if not next_one.exists():
        pytest.skip("the source of 0.18.0 is not there to compare")
    besides = {"DeepseekV2Model.forward", "SpecDecodeBaseProposer.load_model", "SpeculativeConfig._verify_args"}
    for file, text in changed.items():
        ours, before, later = (_functions(ast.parse(t)) for t in (text, texts[file], (next_one / file).read_text()))
        touched = {name for name in ours if ours[name] != before.get(name)}
        assert touched
        assert {name for name in touched if ours[name] != later.get(name)} <= besides


@with_sources
@pytest.mark.parametrize(("version", "path"), [pair for pair in releases("vllm") if "0.16" <= pair[0] < "0.18"])
def test_the_patched_target_hands_out_what_the_next_release_does(version: str, path: Path) -> None:
    """The model's own forward, run on numbers in place of tensors: the same states, in the same order, as in 0.18."""
    file = "model_executor/models/deepseek_v2.py"
    next_one = Path(SOURCES or "") / "vllm-0.18.0" / "vllm" / file
    if not next_one.exists():
        pytest.skip("the source of 0.18.0 is not there to compare")
    texts = {name: (path / name).read_text() for name in KIMI_EAGLE3.files}
    patched = next(state.becomes or "" for state in set_state(KIMI_EAGLE3, texts) if state.file == file)
    for layers in ((2, 30, 58), (0, 60), ()):
        ours, theirs = _forward(patched, layers), _forward(next_one.read_text(), layers)
        assert ours == theirs
        if layers == (2, 30, 58):
            assert ours == (((1 + 61) + 61) * 2, [1 + 2 + 2, 1 + 30 + 30, 1 + 58 + 58])
    assert _forward(texts[file], ()) == _forward(patched, ()) == ((1 + 61) + 61) * 2  # without a drafter nothing is different


def _forward(text: str, layers: tuple[int, ...]) -> Any:
    """`DeepseekV2Model.forward` of a source with 61 layers that each add one to state and residual."""
    import __future__

    from itertools import islice
    from types import SimpleNamespace

    model = next(node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef) and node.name == "DeepseekV2Model")
    forward = next(node for node in model.body if isinstance(node, ast.FunctionDef) and node.name == "forward")
    rank = SimpleNamespace(is_first_rank=True, is_last_rank=True)
    space: dict[str, Any] = {"get_pp_group": lambda: rank, "islice": islice, "IntermediateTensors": dict}
    code = compile(ast.Module([forward], []), "forward", "exec", flags=__future__.annotations.compiler_flag, dont_inherit=True)
    exec(code, space)
    this = SimpleNamespace(
        config=SimpleNamespace(),
        layers=[lambda positions, hidden, residual, scaling: (hidden + 1, (residual or 0) + 1)] * 61,
        start_layer=0,
        end_layer=61,
        aux_hidden_state_layers=tuple(layer for layer in layers if layer),  # before the first layer there is no residual
        embed_input_ids=lambda ids: 1,
        norm=lambda hidden, residual: ((hidden + residual) * 2, residual),
    )
    return space["forward"](this, [1], [0], None)


def _functions(tree: Any) -> dict[str, str]:
    out = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            out[f"{node.name}:bases"] = ", ".join(ast.unparse(base) for base in node.bases)
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    out[f"{node.name}.{inner.name}"] = ast.dump(inner)
    return out
