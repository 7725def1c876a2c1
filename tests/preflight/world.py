"""A host for preflight in a folder: checkpoints whose files are real headers over holes, and engines of a few lines of source."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eagletui.agent.facts.clock import Clock
from eagletui.agent.facts.engine import engine
from eagletui.agent.facts.model import model
from eagletui.engines.command import serve_command
from eagletui.engines.preflight.findings import Report
from eagletui.engines.preflight.judge import judge
from eagletui.engines.preflight.launch import Launch, launch_of, wanted
from eagletui.records import GpuBoard, GpuSample

GIB = 1 << 30
WIDTHS = {"BF16": 2, "F32": 4, "I64": 8, "BOOL": 1, "I32": 4}
Tensors = Mapping[str, tuple[str, list[int]]]

KIMI: dict[str, Any] = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "model_type": "kimi_k25",
    "auto_map": {"AutoConfig": "configuration_kimi_k25.KimiK25Config"},
    "media_placeholder_token_id": 163605,
    "text_config": {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "kimi_k2",
        "hidden_size": 7168,
        "num_hidden_layers": 61,
        "num_attention_heads": 64,
        "num_key_value_heads": 64,
        "vocab_size": 163840,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "max_position_embeddings": 262144,
    },
}
DRAFTER: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": 7168,
    "num_hidden_layers": 1,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 163840,
    "draft_vocab_size": 32000,
    "max_position_embeddings": 262144,
    "eagle_aux_hidden_state_layer_ids": [2, 30, 58],
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 30, 58], "use_aux_hidden_state": True},
}
DRAFTER_TENSORS: dict[str, tuple[str, list[int]]] = {
    "fc.weight": ("BF16", [7168, 21504]),
    "midlayer.hidden_norm.weight": ("BF16", [7168]),
    "norm.weight": ("BF16", [7168]),
    "lm_head.weight": ("BF16", [32000, 7168]),
    "d2t": ("I64", [32000]),
    "t2d": ("BOOL", [163840]),
}


def safetensors(path: Path, tensors: Tensors, cut: int = 0) -> int:
    """A safetensors file: a whole header over a hole of the right length, ``cut`` bytes too short. Returns its data's bytes."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape) in tensors.items():
        size = WIDTHS[dtype]
        for count in shape:
            size *= count
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    data = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(data)) + data)
        file.truncate(8 + len(data) + at - cut)
    return at


def target(folder: Path, config: Mapping[str, Any] = KIMI, shards: int = 4, each: int = 8 * GIB) -> Path:
    """A target of so many files of ``each`` bytes, with its index; holes take no disk."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    weight_map = {}
    total = 0
    for at in range(shards):
        name = f"model-{at + 1:05d}-of-{shards:06d}.safetensors"
        tensors = {f"model.layers.{at}.weight": ("BF16", [each // 2])}
        total += safetensors(folder / name, tensors)
        weight_map.update(dict.fromkeys(tensors, name))
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map})
    )
    return folder


def drafter(folder: Path, config: Mapping[str, Any] = DRAFTER, tensors: Tensors = DRAFTER_TENSORS) -> Path:
    """A drafter of one file."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    safetensors(folder / "model.safetensors", tensors)
    return folder


def speculators(inner: Mapping[str, Any] = DRAFTER, **more: Any) -> dict[str, Any]:
    """A drafter's configuration in the format of speculators."""
    layer = {
        key: value
        for key, value in inner.items()
        if key not in ("architectures", "draft_vocab_size", "eagle_config") and "ids" not in key
    }
    return {
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "draft_vocab_size": inner["draft_vocab_size"],
        "eagle_aux_hidden_state_layer_ids": inner["eagle_aux_hidden_state_layer_ids"],
        "norm_before_residual": True,
        "speculators_config": {
            "algorithm": "eagle3",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
            "verifier": {"name_or_path": "/shared/kimi", "architectures": ["KimiK25ForConditionalGeneration"]},
        },
        "transformer_layer_config": layer,
        **more,
    }


# ----------------------------------------------------------------------------------------------------------------- engines

_NAMES = """
model tensor-parallel-size pipeline-parallel-size decode-context-parallel-size data-parallel-size host port trust-remote-code
gpu-memory-utilization max-model-len max-num-seqs max-num-batched-tokens max-cudagraph-capture-size served-model-name api-key
speculative-config load-format kv-cache-dtype attention-backend enforce-eager seed dtype disable-custom-all-reduce
model-loader-extra-config
"""
_FLAGS = "\n".join(f'        group.add_argument("--{name}")' for name in _NAMES.split())
_FLAGS += "".join(f'\n        group.add_argument("--other-{number}")' for number in range(60))

_KIMI_TOKEN = """            elif self.get_model_name(target_model) == "KimiK25ForConditionalGeneration":
                self.model.config.image_token_index = (
                    target_model.config.media_placeholder_token_id
                )
"""
_PROPOSER = """        if supports_multimodal(target_model):
            if self.get_model_name(target_model) in [
                "Qwen3VLForConditionalGeneration",
            ]:
                self.model.config.image_token_index = target_model.config.image_token_id
{kimi}            else:
                self.model.config.image_token_index = (
                    target_model.config.image_token_index
                )
            x = target_model.get_language_model()
"""


def vllm(root: Path, version: str, *, families: tuple[str, ...] | None, kimi: bool, mla: bool = False, cpu: bool = False) -> Path:
    """A venv with a vLLM of a few lines: what its list allows, and whether it knows Kimi as EAGLE-3 target and MLA drafters."""
    package = _venv(root, "vllm", version, cpu)
    listed = "".join(f'            "{name}",\n' for name in families or ())
    check = f"        aux_hidden_states_supported = [\n{listed}        ]\n" if families is not None else ""
    _write(
        package / "config/speculative.py", f"class SpeculativeConfig:\n    def _verify_args(self):\n{check}        return self\n"
    )
    interface = ", SupportsEagle3" if kimi else ""
    for name, cls, bases in (
        ("kimi_k25", "KimiK25ForConditionalGeneration", f"nn.Module, SupportsMultiModal, SupportsPP{interface}"),
        ("llama", "LlamaForCausalLM", "LocalBase, SupportsPP"),
    ):
        base = "class LocalBase(nn.Module, SupportsEagle3):\n    pass\n\n\n" if name == "llama" else ""
        _write(package / f"model_executor/models/{name}.py", f"{base}class {cls}(\n    {bases}\n):\n    pass\n")
    deepseek = '    "Eagle3DeepseekV2ForCausalLM": ("deepseek_eagle3", "Eagle3DeepseekV2ForCausalLM"),\n' if mla else ""
    _write(
        package / "model_executor/models/registry.py",
        "_MODELS = {\n"
        '    "KimiK25ForConditionalGeneration": (\n        "kimi_k25",\n        "KimiK25ForConditionalGeneration",\n    ),\n'
        '    "LlamaForCausalLM": ("llama", "LlamaForCausalLM"),\n'
        f'    "LlamaForCausalLMEagle3": ("llama_eagle3", "Eagle3LlamaForCausalLM"),\n{deepseek}}}\n',
    )
    _write(package / "v1/spec_decode/eagle.py", _PROPOSER.format(kimi=_KIMI_TOKEN if kimi else ""))
    runner = "    def _get_eagle3_aux_layers_from_config(\n        self,\n    ) -> tuple | None:\n        return hf_config.ids\n"
    _write(package / "v1/worker/gpu_model_runner.py", "class GPUModelRunner:\n" + runner)
    _write(package / "model_executor/models/llama_eagle3.py", "norm_before_residual = norm_before_fc = None\n")
    _write(
        package / "transformers_utils/configs/speculators/algos.py",
        '@register_speculator("eagle3")\ndef update_eagle3(a, b):\n    pass\n',
    )
    _write(package / "engine/arg_utils.py", f"class EngineArgs:\n    def add(self):\n{_FLAGS}\n")
    _write(
        package / "envs.py", 'environment_variables = {\n    "VLLM_CACHE_ROOT": lambda: 1,\n    "VLLM_USE_V1": lambda: 1,\n}\n'
    )
    return root


def sglang(root: Path, version: str, *, kimi: bool, mla: bool = False) -> Path:
    """A venv with an SGLang of a few lines."""
    package = _venv(root, "sglang", version, False)
    capture = "    def set_eagle3_layers_to_capture(self, layer_ids=None):\n        pass\n" if kimi else "    pass\n"
    _write(package / "srt/models/kimi_k25.py", f"class KimiK25ForConditionalGeneration(nn.Module):\n{capture}")
    _write(package / "srt/models/llama_eagle3.py", "class LlamaForCausalLMEagle3(LlamaForCausalLM):\n    pass\n")
    if mla:
        _write(package / "srt/models/kimi_k25_eagle3.py", "class Eagle3DeepseekV2ForCausalLM(nn.Module):\n    pass\n")
    _write(package / "srt/model_executor/model_runner.py", 'eagle_config = getattr(hf_config, "eagle_config", None)\n')
    return root


def _venv(root: Path, name: str, version: str, cpu: bool) -> Path:
    site = root / "lib/python3.11/site-packages"
    package = site / name
    (root / "bin").mkdir(parents=True)
    for program in ("python", "python3.11", name):
        path = root / "bin" / program
        path.write_text(f"#!{root}/bin/python3.11\n")
        path.chmod(0o755)
    _write(root / "pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.11.2\n")
    _write(package / "__init__.py", "")
    _write(package / "_version.py", f"__version__ = version = '{version}'\n")
    dist = f"{name}_cpu" if cpu else name
    for entry in (f"{dist}-{version}", "torch-2.10.0", "tiktoken-0.9.0"):
        _write(site / f"{entry}.dist-info" / "METADATA", f"Name: {entry.partition('-')[0]}\n")
    return package


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


# -------------------------------------------------------------------------------------------------------------- a judgement


def board(count: int = 8, used: int = GIB, total: int = 96 * GIB, **more: Any) -> GpuBoard:
    """Cards as an operator's host has them, idle."""
    fields = {
        "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "util": 0.0,
        "pstate": 8,
        "mem_used": used,
        "mem_total": total,
        "bar1_total": 128 * GIB,
        "pcie_gen": 1,
        "pcie_gen_max": 5,
        "pcie_width": 16,
        "pcie_width_max": 16,
        **more,
    }
    return GpuBoard(1.0, True, cards=tuple(GpuSample(f"GPU-{number}", number, **fields) for number in range(count)))


def launch(profile: Mapping[str, Any]) -> Launch:
    """The launch that a profile's keys make."""
    command = serve_command({"port": 8000, **profile})
    spec = {"argv": list(command.argv), "env": dict(command.env), "engine": profile["engine"], "model": profile["model"]}
    return launch_of({**spec, "drafter": profile.get("drafter"), "port": 8000, "gpus": profile.get("cards") or []})


def facts(asked: Launch) -> dict[str, Any]:
    """What the host's own gathering finds of engine and checkpoints; the machine it runs on says nothing."""
    params = wanted(asked)
    clock = Clock(60)
    env = {**os.environ, **asked.env}
    out: dict[str, Any] = {"place": {}, "machine": {}}
    for role, name in (("target", asked.model), ("drafter", asked.drafter)):
        if name:
            out[role] = model(name, "/", env, clock, role)
    names = {role: (out.get(role, {}).get("config") or {}).get("architectures") or [] for role in ("target", "drafter")}
    out["engine"] = engine(params, env, names, clock)
    return out


def found(asked: Launch, cards: GpuBoard | None = None, **parts: Any) -> Report:
    """The findings of a launch, with whole parts of the facts replaced by ``parts``."""
    return judge(asked, {**facts(asked), **parts}, cards if cards is not None else board())


def ids(report: Report, severity: str | None = None) -> set[str]:
    """The ids of the findings, of one severity when it is given."""
    return {finding.id for finding in report.findings if severity in (None, finding.severity)}
