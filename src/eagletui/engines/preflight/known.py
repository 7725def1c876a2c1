"""What versions are known for, where the installed source cannot tell: each read in the source of that release."""

from __future__ import annotations

from typing import Dict, Optional, Tuple

WHITELISTS: Tuple[Tuple[str, Tuple[str, ...]], ...] = (
    ("0.8", ("llama",)),
    ("0.10", ("llama", "qwen")),
    ("0.11", ("llama", "qwen", "minicpm", "gpt_oss")),
    ("0.16", ("llama", "qwen", "minicpm", "gpt_oss", "hunyuan_vl", "hunyuan_v1_dense", "afmoe")),
    ("0.17", ("llama", "qwen", "minicpm", "gpt_oss", "hunyuan_vl", "hunyuan_v1_dense", "afmoe", "nemotron_h")),
    (
        "0.18",
        (
            "llama", "qwen", "minicpm", "gpt_oss", "hunyuan_vl", "hunyuan_v1_dense", "afmoe", "nemotron_h", "deepseek_v2",
            "deepseek_v3", "kimi_k2", "kimi_k25",
        ),
    ),
)  # fmt: skip
"""vLLM's families that EAGLE-3 was allowed for, from this version on; 0.22 dropped the list."""
NO_WHITELIST = "0.22"

FIRST: Dict[Tuple[str, str], str] = {
    # (engine, what): the first version in which it works
    ("vllm", "kimi"): "0.18.0",
    ("sglang", "kimi"): "0.5.12",
    ("vllm", "Eagle3DeepseekV2ForCausalLM"): "0.18.0",
    ("vllm", "Eagle3DeepseekV3ForCausalLM"): "0.18.0",
    ("sglang", "Eagle3DeepseekV2ForCausalLM"): "0.5.12",
    ("vllm", "LlamaForCausalLMEagle3"): "0.10.2",
    ("vllm", "Eagle3LlamaForCausalLM"): "0.8.5",
    ("vllm", "Eagle3Qwen2_5vlForCausalLM"): "0.11.2",
    ("vllm", "Eagle3Qwen3vlForCausalLM"): "0.14.1",
    ("vllm", "Eagle3MiniMaxM2ForCausalLM"): "0.20.2",
}
SPECULATORS_SINCE = "0.10.2"
RAISES_POSITIONS = "0.32"
NESTED_SINCE = "0.22"


def first_version(engine: str, what: str) -> Optional[str]:
    """The first version of an engine that has it, where that is known."""
    return FIRST.get((engine, what))


def whitelist_of(version: Optional[str]) -> Optional[Tuple[str, ...]]:
    """vLLM's list of families in a version; None where there was none, or the version is not known."""
    from eagletui.engines.preflight.versions import before

    if version is None or not before(version, NO_WHITELIST):
        return None
    found: Optional[Tuple[str, ...]] = None
    for since, families in WHITELISTS:
        if not before(version, since):
            found = families
    return found
