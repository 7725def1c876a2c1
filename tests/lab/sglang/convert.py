"""A drafter as speculators writes it -> the folder that SGLang's EAGLE-3 reads. Runs under SGLang's own python.

usage: convert.py FROM TO
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

SAME = (
    "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_act", "rms_norm_eps",
    "max_position_embeddings", "bos_token_id", "eos_token_id", "attention_bias", "mlp_bias",
)  # fmt: skip

source, target = map(Path, sys.argv[1:3])
target.mkdir(parents=True, exist_ok=True)
config = json.loads((source / "config.json").read_text())
layer = config["transformer_layer_config"]
weights = {}
for name, tensor in load_file(source / "model.safetensors").items():
    renamed = name.replace("layers.0.", "midlayer.")
    weights[renamed] = (tensor.to(torch.bool) if name == "t2d" else tensor).contiguous()
# both count d2t as target id minus draft id
assert (weights["d2t"] + torch.arange(weights["d2t"].numel())).max() < layer["vocab_size"]
save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
# speculators' norm_before_residual has no counterpart: SGLang always keeps the residual from before the norm
out = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "num_hidden_layers": 1,
    "vocab_size": layer["vocab_size"],
    "draft_vocab_size": config["draft_vocab_size"],
    "tie_word_embeddings": False,
    "torch_dtype": config.get("dtype", "bfloat16"),
    "norm_before_fc": config.get("norm_before_fc", False),
    "norm_output": config.get("norm_output", False),
    "rope_theta": layer["rope_parameters"]["rope_theta"],
    **{key: layer[key] for key in SAME},
}
layers = config.get("eagle_aux_hidden_state_layer_ids")
if layers:
    # vLLM counts the hidden state that enters layer i; SGLang adds 1 to what it is given
    out["eagle_config"] = {
        "eagle_aux_hidden_state_layer_ids": [number - 1 for number in layers],
        "use_aux_hidden_state": True,
        "norm_before_fc": out["norm_before_fc"],
    }
(target / "config.json").write_text(json.dumps(out, indent=1))
