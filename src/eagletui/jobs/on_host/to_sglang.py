"""A drafter in speculators' form -> SGLang's: other names, another config, the same numbers. Piece by piece, without torch."""

from __future__ import annotations

import json
import os
import struct
from array import array
from typing import Any, Dict, List, Tuple

from eagletui.jobs.drafter_form import Drafter, layer_config, speculators_problems, vocabulary_problem
from eagletui.jobs.tensors import SIZES, BadTensors, Tensor, folder_files, read_piece

_PIECE = 16 << 20
_INTEGERS = {"I64": "q", "I32": "i", "I16": "h", "I8": "b", "U8": "B", "BOOL": "B"}
_COPIED = (
    "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_act", "rms_norm_eps",
    "max_position_embeddings", "bos_token_id", "eos_token_id", "attention_bias", "mlp_bias", "initializer_range",
)  # fmt: skip


class CannotConvert(ValueError):
    """SGLang has no place for something that the drafter has; the text says what."""


def convert(drafter: Drafter, output: str) -> List[str]:
    """Write ``output``/model.safetensors and config.json. What is worth knowing about the result, one line each.

    Raises `CannotConvert`, `BadTensors`, OSError.
    """
    problems = speculators_problems(drafter)
    if drafter.config.get("speculators_model_type") != "eagle3":
        problems.insert(0, "it is of the kind %s, not eagle3" % drafter.config.get("speculators_model_type"))
    layer = layer_config(drafter)
    if int(layer.get("num_hidden_layers") or 1) != 1:
        problems.append("it has %s layers, and SGLang's has one" % layer.get("num_hidden_layers"))
    if drafter.config.get("fc_norm"):
        problems.append("it has a norm for each layer that it reads (fc_norm), and SGLang's has none")
    if problems:
        raise CannotConvert("; ".join(problems))
    files = folder_files(drafter.path)
    _check_vocabulary(drafter, files)
    os.makedirs(output, exist_ok=True)
    _write_tensors(drafter, files, os.path.join(output, "model.safetensors"))
    path = os.path.join(output, "config.json")
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        json.dump(sglang_config(drafter), file, indent=1)
    os.rename(path + ".tmp", path)
    return remarks(drafter)


def new_name(name: str) -> str:
    """A tensor's name in SGLang's form."""
    return "midlayer." + name[len("layers.0.") :] if name.startswith("layers.0.") else name


def sglang_config(drafter: Drafter) -> Dict[str, Any]:
    """Its config.json. vLLM and speculators count the state that enters a layer; SGLang adds 1 to the layers it is given."""
    config, layer = drafter.config, layer_config(drafter)
    ids = [int(layer_id) for layer_id in config.get("eagle_aux_hidden_state_layer_ids") or ()]
    if any(layer_id < 1 for layer_id in ids):
        raise CannotConvert("it reads the state that enters layer 0, which SGLang cannot give")
    before_fc = bool(config.get("norm_before_fc"))
    dtype = str(config.get("dtype") or config.get("torch_dtype") or "bfloat16")
    out: Dict[str, Any] = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "vocab_size": layer["vocab_size"],
        "draft_vocab_size": config.get("draft_vocab_size") or layer["vocab_size"],
        "tie_word_embeddings": False,
        "torch_dtype": dtype,
        "norm_before_fc": before_fc,
        "norm_output": bool(config.get("norm_output")),
    }
    out.update({key: layer[key] for key in _COPIED if key in layer})
    rope = layer.get("rope_parameters")
    if isinstance(rope, dict):
        out["rope_theta"] = rope.get("rope_theta", 10000.0)
        if rope.get("rope_type", "default") != "default":
            out["rope_scaling"] = {key: value for key, value in rope.items() if key != "rope_theta"}
    else:
        out["rope_theta"] = layer.get("rope_theta", 10000.0)
        if layer.get("rope_scaling"):
            out["rope_scaling"] = layer["rope_scaling"]
    out["eagle_config"] = {
        "eagle_aux_hidden_state_layer_ids": [layer_id - 1 for layer_id in ids],
        "use_aux_hidden_state": True,
        "norm_before_fc": before_fc,
    }
    return out


def remarks(drafter: Drafter) -> List[str]:
    """Where the result may behave unlike the original."""
    out = []
    if drafter.config.get("norm_before_residual"):
        out.append("norm_before_residual is set, which SGLang's layer does not know: compare its acceptance with vLLM's")
    layer = layer_config(drafter)
    if "sliding_attention" in (layer.get("layer_types") or ()) and layer.get("sliding_window"):
        words = "its attention looks back %s tokens, SGLang's all of them: longer contexts may be drafted differently"
        out.append(words % layer["sliding_window"])
    return out


def _check_vocabulary(drafter: Drafter, files: Dict[str, Tuple[str, Tensor]]) -> None:
    if "d2t" not in files:
        return
    vocab = int(layer_config(drafter)["vocab_size"])
    t2d = _integers(files["t2d"]) if "t2d" in files else None
    problem = vocabulary_problem(_integers(files["d2t"]), vocab, None if t2d is None else [bool(mark) for mark in t2d])
    if problem is not None:
        raise CannotConvert(problem)


def _integers(place: Tuple[str, Tensor]) -> List[int]:
    path, tensor = place
    if tensor.dtype not in _INTEGERS:
        raise CannotConvert("%s holds a vocabulary mapping in %s" % (path, tensor.dtype))
    out = array(_INTEGERS[tensor.dtype])
    out.frombytes(read_piece(path, tensor))
    return list(out)


def _write_tensors(drafter: Drafter, files: Dict[str, Tuple[str, Tensor]], path: str) -> None:
    """The header first, then every tensor in pieces; widest elements first, as the format likes them aligned."""
    plan: List[Tuple[str, str, Tuple[int, ...], Tuple[str, Tensor]]] = []
    for name, (source, tensor) in files.items():
        dtype = "BOOL" if name == "t2d" else tensor.dtype
        plan.append((new_name(name), dtype, tensor.shape, (source, tensor)))
    plan.sort(key=lambda entry: (-SIZES.get(entry[1], 1), entry[0]))
    header: Dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, dtype, shape, _ in plan:
        size = SIZES[dtype]
        for number in shape:
            size *= number
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path + ".tmp", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for _, dtype, _, (source, tensor) in plan:
            if dtype == "BOOL" and tensor.dtype != "BOOL":
                out.write(bytes(1 if mark else 0 for mark in _integers((source, tensor))))
                continue
            size = tensor.end - tensor.start
            for first in range(0, size, _PIECE):
                out.write(read_piece(source, tensor, first, _PIECE))
        out.flush()
        os.fsync(out.fileno())
    os.rename(path + ".tmp", path)


__all__ = ["BadTensors", "CannotConvert", "convert", "new_name", "remarks", "sglang_config"]
