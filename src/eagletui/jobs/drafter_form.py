"""What a drafter's folder holds, by its config.json and the headers of its tensors: which form it has, and what does not fit."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from eagletui.jobs.checkpoints import read_json
from eagletui.jobs.tensors import BadTensors, Tensor, folder_headers

SPECULATORS, SGLANG, RAW = "speculators", "sglang", "raw"
_FLOATS = ("BF16", "F16", "F32")


class Drafter(NamedTuple):
    """``form``: speculators (vLLM reads it as well), or raw: EAGLE-3 as SpecForge, AQ-MedAI and SGLang have it."""

    path: str
    form: str
    config: Dict[str, Any]
    tensors: Dict[str, Tensor]


def read_drafter(path: str) -> Drafter:
    """Raises `BadTensors` when it is none that can be read, with what is wrong."""
    config = read_json(os.path.join(path, "config.json"))
    if config is None:
        raise BadTensors("%s has no config.json that can be read" % path)
    return Drafter(path, SPECULATORS if config.get("speculators_model_type") else RAW, config, folder_headers(path))


def layer_config(drafter: Drafter) -> Mapping[str, Any]:
    """Where the shape of its decoder layer is said."""
    inner = drafter.config.get("transformer_layer_config")
    return inner if isinstance(inner, dict) else drafter.config


def raw_problem(drafter: Drafter) -> Optional[str]:
    """Why a raw drafter cannot become speculators' form; None when it can."""
    latent = [name for name in drafter.tensors if "kv_a_proj" in name or "kv_b_proj" in name]
    if latent or str(drafter.config.get("model_type", "")).startswith("deepseek"):
        return "its attention is compressed (MLA), and only drafters with a Llama layer can be converted"
    if "fc.weight" not in drafter.tensors:
        return "it has no fc.weight: no EAGLE-3 drafter"
    layers = drafter.config.get("num_hidden_layers", 1)
    return "it has %s layers, and only one can be converted" % layers if layers != 1 else None


def speculators_problems(drafter: Drafter) -> List[str]:
    """Everything in which config and tensors of a drafter in speculators' form do not fit each other."""
    config, layer, tensors = drafter.config, layer_config(drafter), drafter.tensors
    width, vocab = layer.get("hidden_size"), layer.get("vocab_size")
    aux = config.get("eagle_aux_hidden_state_layer_ids")
    draft = config.get("draft_vocab_size") or vocab
    out: List[str] = []
    if not aux:
        out.append("its config names no eagle_aux_hidden_state_layer_ids: each engine then takes its own")
    base = "layers.0."
    head = layer.get("head_dim") or (width or 0) // max(1, int(layer.get("num_attention_heads") or 1))
    heads, groups = layer.get("num_attention_heads") or 0, layer.get("num_key_value_heads") or 0
    inner = layer.get("intermediate_size")
    wanted: Dict[str, Tuple[Any, ...]] = {
        "fc.weight": (width, (len(aux) if aux else 3) * (config.get("target_hidden_size") or width or 0)),
        "norm.weight": (width,),
        "lm_head.weight": (draft, width),
        base + "hidden_norm.weight": (width,),
        base + "input_layernorm.weight": (width,),
        base + "post_attention_layernorm.weight": (width,),
        base + "self_attn.q_proj.weight": (heads * head, 2 * (width or 0)),
        base + "self_attn.k_proj.weight": (groups * head, 2 * (width or 0)),
        base + "self_attn.v_proj.weight": (groups * head, 2 * (width or 0)),
        base + "self_attn.o_proj.weight": (width, heads * head),
        base + "mlp.gate_proj.weight": (inner, width),
        base + "mlp.up_proj.weight": (inner, width),
        base + "mlp.down_proj.weight": (width, inner),
    }
    if draft != vocab:
        wanted.update({"d2t": (draft,), "t2d": (vocab,)})
    if config.get("norm_before_fc"):
        wanted["input_norm.weight"] = (wanted["fc.weight"][1],)
    for name, shape in wanted.items():
        found = tensors.get(name)
        if found is None:
            out.append("it has no %s" % name)
        elif found.shape != shape:
            out.append("%s is %s instead of %s" % (name, list(found.shape), list(shape)))
    return out + dtype_problems(tensors)


def dtype_problems(tensors: Mapping[str, Tensor]) -> List[str]:
    """Weights in several number formats, or in one that no engine loads into a drafter."""
    floats = {tensor.dtype for name, tensor in tensors.items() if name not in ("d2t", "t2d")}
    strange = sorted(floats - set(_FLOATS))
    if strange:
        return ["weights are in %s" % ", ".join(strange)]
    return ["weights are in several formats: %s" % ", ".join(sorted(floats))] if len(floats) > 1 else []


def vocabulary_problem(d2t: Sequence[int], vocab: int, t2d: Optional[Sequence[bool]] = None) -> Optional[str]:
    """Unless ``d2t`` (target id minus draft id, by draft id) leads to distinct tokens of the target, those that ``t2d`` marks."""
    ids = [draft + offset for draft, offset in enumerate(d2t)]
    if any(not 0 <= token < vocab for token in ids):
        at = next(draft for draft, token in enumerate(ids) if not 0 <= token < vocab)
        return "d2t leads draft token %d to %d, and the target has %d tokens" % (at, ids[at], vocab)
    if len(set(ids)) != len(ids):
        return "d2t leads several draft tokens to the same token of the target"
    if t2d is not None and {token for token, marked in enumerate(t2d) if marked} != set(ids):
        return "t2d marks other tokens than d2t leads to"
    return None


__all__ = [
    "RAW",
    "SGLANG",
    "SPECULATORS",
    "BadTensors",
    "Drafter",
    "dtype_problems",
    "layer_config",
    "raw_problem",
    "read_drafter",
    "speculators_problems",
    "vocabulary_problem",
]
