"""What an installed SGLang can do, read out of its source text (0.4.6 to 0.5.23)."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Sequence

from eagletui.engines.preflight.source import ListDir, Read, inherits

PACKAGE = "sglang"
MODELS = "srt/models"
CAPTURE = "set_eagle3_layers_to_capture"
_READERS = (
    "srt/model_executor/model_runner.py",
    "srt/model_executor/model_runner_components/spec_aux_hidden_state.py",
    "srt/speculative/eagle_worker_v2.py",
)


def sglang_source(read: Read, names: ListDir, target: Sequence[str], drafter: Sequence[str]) -> Dict[str, Any]:
    """What this SGLang knows of a target and a drafter with these architectures.

    ``models``: architecture -> {file, class, eagle3}; ``drafters``: architecture -> {file, class}; ``all_drafters``: every model
    class with EAGLE-3 in its name; ``nested_ids``/``top_ids``: where layer ids are read from; ``norm_before_fc``, ``fc_norm``,
    ``norm_output``, ``norm_before_residual``; ``speculators``: empty, that format is not read.
    """
    out: Dict[str, Any] = {"speculators": []}
    files = ["%s/%s" % (MODELS, name) for name in names(MODELS) if name.endswith(".py")]
    for folder in names(MODELS):
        if "." not in folder and folder != "__pycache__":
            files += ["%s/%s/%s" % (MODELS, folder, name) for name in names("%s/%s" % (MODELS, folder)) if name.endswith(".py")]
    wanted = {*target, *drafter}
    where: Dict[str, str] = {}
    eagle3: List[str] = []
    # the likeliest files first: looking for a class reads one file after the other
    for file in sorted(files, key=lambda name: ("agle3" not in name, "kimi" not in name and "llama" not in name, name)):
        if wanted <= set(where) and "agle3" not in file:
            break
        text = read(file) or ""
        for name in re.findall(r"^class (\w+)\s*[(:]", text, re.MULTILINE):
            if name in wanted:
                where.setdefault(name, file)
            if "agle3" in name and "For" in name:
                eagle3.append(name)
    if files:
        out["models"] = {name: _model(read, where[name], name) for name in target if name in where}
        out["drafters"] = {name: {"class": name, "file": where[name]} for name in drafter if name in where}
        out["all_drafters"] = sorted(set(eagle3))
    readers = "".join(read(file) or "" for file in _READERS)
    if readers:
        out["nested_ids"] = "eagle_config" in readers
        out["top_ids"] = re.search(r"hf_config, *[\"']eagle_aux_hidden_state_layer_ids", readers) is not None
    llama = read("%s/llama_eagle3.py" % MODELS)
    if llama is not None:
        for key in ("norm_before_fc", "fc_norm", "norm_output", "norm_before_residual"):
            out[key] = key in llama
    return out


def _model(read: Read, file: str, name: str) -> Dict[str, Any]:
    out: Dict[str, Any] = {"file": file, "class": name}
    found: Optional[bool] = inherits(read, file, name, lambda cls: "def %s(" % CAPTURE in cls.body, PACKAGE)
    if found is not None:
        out["eagle3"] = found
    return out


def argument_files(names: ListDir) -> List[str]:
    """The files of the package in which options are declared."""
    found = ["srt/server_args.py"]
    for folder in ("srt/arg_groups", "srt/arg_groups/fields"):
        found += ["%s/%s" % (folder, name) for name in names(folder) if name.endswith(".py")]
    return found
