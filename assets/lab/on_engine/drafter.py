"""Pack a trained drafter small, and unpack it again. Run by the lab's python.

usage: drafter.py pack CHECKPOINT_DIR PACKED_DIR      drops the token embeddings: they are the target's own, never trained
       drafter.py unpack PACKED_DIR TARGET_DIR OUT_DIR
"""

import json
import pathlib
import shutil
import sys

from safetensors import safe_open
from safetensors.torch import load_file, save_file

EMBEDDINGS = "embed_tokens.weight"
WEIGHTS = "model.safetensors"


def pack(checkpoint: pathlib.Path, packed: pathlib.Path) -> None:
    packed.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor for name, tensor in load_file(checkpoint / WEIGHTS).items() if name != EMBEDDINGS}
    save_file(tensors, packed / WEIGHTS, metadata={"format": "pt"})
    shutil.copyfile(checkpoint / "config.json", packed / "config.json")


def unpack(packed: pathlib.Path, target: pathlib.Path, out: pathlib.Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    tensors = load_file(packed / WEIGHTS)
    with safe_open(target / WEIGHTS, "pt") as file:
        tensors[EMBEDDINGS] = file.get_tensor("model." + EMBEDDINGS)
    config = json.loads((packed / "config.json").read_text())
    config["speculators_config"]["verifier"]["name_or_path"] = str(target)
    save_file(tensors, out / WEIGHTS, metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")


if sys.argv[1:2] == ["pack"] and len(sys.argv) == 4:
    pack(*map(pathlib.Path, sys.argv[2:]))
elif sys.argv[1:2] == ["unpack"] and len(sys.argv) == 5:
    unpack(*map(pathlib.Path, sys.argv[2:]))
else:
    sys.exit(__doc__)
