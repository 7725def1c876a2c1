"""What beside the weights has to lie in a checkpoint's folder: a model type, a tokenizer, what a quantization needs."""

from __future__ import annotations

import re
from typing import Any, Iterator, Mapping

from eagletui.engines.command import options_of
from eagletui.engines.preflight.case import Case, where
from eagletui.engines.preflight.checkpoint_checks import parts
from eagletui.engines.preflight.findings import BLOCK, WARN, Finding

PART = "checkpoint"
_TOKENIZER = re.compile(r"token|vocab|tekken|spiece|sentencepiece|merges|bpe|\.model$", re.IGNORECASE)
_DESCRIBES = ("tokenizer_config.json", "added_tokens.json", "special_tokens_map.json")
"""Files about a tokenizer that are none."""
_NO_TOKENIZER = ("--tokenizer", "--tokenizer-path", "--skip-tokenizer-init", "--tokenizer-mode")
_QUANTIZED = ("awq", "awq_marlin", "gptq", "gptq_marlin", "compressed-tensors", "modelopt", "modelopt_fp4")
"""Quantizations of which the checkpoint itself has to say the sizes: none of them is made while it is loaded."""
_OF_QUANTIZATION = re.compile(r"quant\w*_config\.json$")


def _seen(facts: Mapping[str, Any]) -> bool:
    """Whether the folder was looked into, and is none of GGUF, whose one file holds everything."""
    return bool(facts.get("names") is not None and facts.get("weights") != "gguf")


def model_type(case: Case) -> Iterator[Finding]:
    """The key by which the engine finds the class of a configuration."""
    for role, facts in parts(case):
        config = facts.get("config") or {}
        if not config or config.get("model_type") or config.get("auto_map") or "params.json" in (facts.get("names") or ()):
            continue
        if role == "drafter" and (case.speculators or "speculators_version" in config):
            continue
        yield Finding(
            "%s-no-type" % role,
            WARN,  # older versions guess it from the name of the folder
            "the %s's config.json names no model_type" % role,
            where(facts, "config.json"),
            "the launch may end with: Unrecognized model",
            "is this the configuration that belongs to these weights? an EAGLE-3 drafter of the Llama kind: model_type llama",
            PART,
        )


def tokenizer(case: Case) -> Iterator[Finding]:
    """A target without a tokenizer."""
    if not _seen(case.target) or any(flag in case.launch.flags for flag in _NO_TOKENIZER):
        return
    if case.target.get("config") and not any(n not in _DESCRIBES and _TOKENIZER.search(n) for n in case.target["names"]):
        yield Finding(
            "no-tokenizer",
            BLOCK,
            "the target has no tokenizer",
            "no tokenizer.json, tokenizer.model or the like in %s" % where(case.target),
            "the launch ends when the tokenizer is made",
            "fetch its tokenizer files as well, or name another folder with --tokenizer (SGLang: --tokenizer-path)",
            PART,
        )


def quantization(case: Case) -> Iterator[Finding]:
    """A quantization that is asked for, and of which the checkpoint says nothing."""
    asked = options_of(case.launch.argv).text(("--quantization", "-q"))
    config = case.target.get("config") or {}
    if asked not in _QUANTIZED or not _seen(case.target) or not config:
        return
    own = config.get("quantization_config") or case.text.get("quantization_config") or config.get("compression_config")
    if own or any(_OF_QUANTIZATION.search(name) for name in case.target["names"]):
        return
    yield Finding(
        "quantization",
        BLOCK,
        "the target is not quantized with %s" % asked,
        "--quantization %s; %s has no quantization_config" % (asked, where(case.target, "config.json")),
        "the launch ends: cannot find the config file for %s" % asked,
        "leave --quantization away: a quantized checkpoint says so itself",
        PART,
    )


CHECKS = (model_type, tokenizer, quantization)
