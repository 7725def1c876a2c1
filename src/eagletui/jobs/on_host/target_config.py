"""The shape of a target model, from its config.json; of a composed model (text and images) that of its text part."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, NamedTuple


class Shape(NamedTuple):
    """``width`` of the hidden states, number of ``layers``, size of the vocabulary, the longest context, the number format."""

    width: int
    layers: int
    vocab: int
    context: int
    dtype: str


def text_config(doc: Dict[str, Any]) -> Dict[str, Any]:
    """The part that describes the language model."""
    inner = doc.get("text_config")
    return inner if isinstance(inner, dict) else doc


def read_shape(target: str) -> Shape:
    """Raises `ValueError` with what is missing, and `OSError`. A name on a hub is looked for in its local cache alone."""
    path = os.path.join(target, "config.json")
    if not os.path.isdir(target):
        from importlib import import_module

        hub: Any = import_module("huggingface_hub")
        found = hub.try_to_load_from_cache(target, "config.json")
        if not isinstance(found, str):
            raise ValueError("%s is no directory here, and its configuration is not in the hub's cache" % target)
        path = found
    with open(path, encoding="utf-8") as file:
        outer = json.load(file)
    doc = text_config(outer)
    width, layers, vocab = (_number(path, doc, name) for name in ("hidden_size", "num_hidden_layers", "vocab_size"))
    dtype = next((str(part[key]) for part in (doc, outer) for key in ("dtype", "torch_dtype") if part.get(key)), "bfloat16")
    return Shape(width, layers, vocab, int(doc.get("max_position_embeddings") or 0), dtype)


def _number(path: str, doc: Dict[str, Any], name: str) -> int:
    value = doc.get(name)
    if not isinstance(value, int):
        raise ValueError("%s says no %s" % (path, name))
    return value
