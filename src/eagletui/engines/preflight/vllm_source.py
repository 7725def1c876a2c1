"""What an installed vLLM can do, read out of its source text: versions 0.8 to 0.32 differ in where it stands.

The answers are plain JSON values; a key that is absent could not be told from this source.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Sequence, Tuple

from eagletui.engines.preflight.source import ListDir, Read, classes, imported_from, inherits, line_of, module_file, strings
from eagletui.engines.preflight.vllm_spec import spec_config

PACKAGE = "vllm"
_SPECULATIVE = ("config/speculative.py", "config/__init__.py", "config.py")
_PROPOSERS = ("v1/spec_decode/llm_base_proposer.py", "v1/spec_decode/eagle.py")
_RUNNER = "v1/worker/gpu_model_runner.py"
_RUNNER2 = "v1/worker/gpu/spec_decode/eagle/eagle3_utils.py"
_REGISTRY = "model_executor/models/registry.py"
_ENTRY = re.compile(r"\"(\w+)\":\s*\(\s*\"(\w+)\",\s*\"(\w+)\",?\s*\)")


def vllm_source(read: Read, names: ListDir, target: Sequence[str], drafter: Sequence[str]) -> Dict[str, Any]:
    """What this vLLM knows of a target and a drafter with these architectures.

    ``whitelist``: the families that EAGLE-3 is allowed for, None where there is no such list; ``whitelist_at`` its place.
    ``models``: architecture -> {file, class, eagle3, multimodal, image}; ``image`` is the attribute of the target's configuration
    that the drafter's image token is taken from. ``drafters``: architecture -> {file, class} of those that are known.
    ``all_drafters``: every architecture with EAGLE-3 in its name. ``nested_ids``/``nested_ids_v2``: whether each of the runners
    reads layer ids below ``eagle_config``. ``raises_positions``, ``norm_before_fc``, ``fc_norm``, ``norm_output``,
    ``speculators`` (the algorithms), ``speculators_eagle3`` (model types), ``spec_keys`` and ``spec_methods`` (see `vllm_spec`).
    """
    out: Dict[str, Any] = {}
    out.update(_whitelist(read))
    registry = read(_REGISTRY)
    if registry is not None:
        entries = {name: (module, cls) for name, module, cls in _ENTRY.findall(registry)}
        image = _image_rules(read)
        out["models"] = {name: _model(read, *entries[name], image) for name in target if name in entries}
        out["drafters"] = {name: {"class": entries[name][1], "module": entries[name][0]} for name in drafter if name in entries}
        out["all_drafters"] = sorted(name for name in entries if "agle3" in name)
    out.update(_runners(read))
    out.update(_drafter_model(read))
    out.update(_speculators(read))
    out.update(spec_config(read))
    return out


def _whitelist(read: Read) -> Dict[str, Any]:
    for file in _SPECULATIVE:
        text = read(file)
        if text is None or "class SpeculativeConfig" not in text:
            continue
        match = re.search(r"(?:eagle3_target_supported|aux_hidden_states_supported)\s*=\s*\[([^\]]*)\]", text)
        if match:
            return {"whitelist": strings(match.group(1)), "whitelist_at": "%s:%d" % (file, line_of(text, match.start()))}
        old = re.search(r"if self\.method == \"eagle3\" and [^:]*?\"(\w+)\" not in", text, re.DOTALL)
        if old:  # before there was a list: one family, named in the condition
            return {"whitelist": [old.group(1)], "whitelist_at": "%s:%d" % (file, line_of(text, old.start()))}
        return {"whitelist": None, "whitelist_at": file}
    return {}


def _image_rules(read: Read) -> Optional[Tuple[Dict[str, str], str]]:
    """({class: attribute}, attribute of all others) by which the drafter gets the target's image token; None when not told."""
    for file in _PROPOSERS:
        text = read(file)
        start = re.search(r"if supports_multimodal\(target_model\):", text or "")
        if text is None or start is None:
            continue
        block = text[start.end() : start.end() + 6000]
        end = re.search(r"get_language_model\(\)", block)
        block = block[: end.start()] if end else block
        rules: Dict[str, str] = {}
        rest: Optional[str] = None
        for condition, attribute in re.findall(
            r"((?:el)?if\b.*?|else):\s*\n\s*self\.model\.config\.image_token_index = \(?\s*target_model\.config\.([\w.]+)",
            block,
            re.DOTALL,
        ):
            if condition == "else":
                rest = attribute
            for name in strings(condition):
                rules[name] = attribute
        if rest is None:
            plain = re.search(r"\bimage_token_index = \(?\s*target_model\.config\.([\w.]+)", block)
            if plain is None:
                return None  # written in a way that is not known
            rest = "image_token_index" if rules else plain.group(1)
        return rules, rest
    return None


def _model(read: Read, module: str, cls: str, image: Optional[Tuple[Dict[str, str], str]]) -> Dict[str, Any]:
    file = "model_executor/models/%s.py" % module
    text = read(file)
    if text is None:  # a model that is a package of its own
        folder = "model_executor/models/%s/__init__.py" % module
        text, file = read(folder), folder
    out: Dict[str, Any] = {"file": file, "class": cls}
    if text is not None and cls not in classes(text):
        origin = imported_from(text, cls)
        path = module_file(origin, file, PACKAGE) if origin else None
        if path is not None and read(path) is not None:
            file = out["file"] = path
    eagle3 = inherits(read, file, cls, lambda found: "SupportsEagle3" in found.bases, PACKAGE)
    if eagle3 is not None:
        out["eagle3"] = eagle3
    multimodal = inherits(read, file, cls, lambda found: "SupportsMultiModal" in found.bases, PACKAGE)
    if multimodal is not None:
        out["multimodal"] = multimodal
    if multimodal and image is not None:
        out["image"] = image[0].get(cls, image[1])
    return out


def _runners(read: Read) -> Dict[str, Any]:
    out: Dict[str, Any] = {}
    text = read(_RUNNER)
    if text is not None:
        part = _function(text, "_get_eagle3_aux_layers_from_config")
        if part is not None:
            out["nested_ids"] = "eagle_config" in part
    second = read(_RUNNER2)
    if second is not None:
        out["nested_ids_v2"] = re.search(r"get\(\s*\"eagle_aux_hidden_state_layer_ids\"", second) is not None
    return out


def _drafter_model(read: Read) -> Dict[str, Any]:
    out: Dict[str, Any] = {}
    text = read("model_executor/models/llama_eagle3.py")
    if text is not None:
        for key in ("norm_before_fc", "fc_norm", "norm_output", "norm_before_residual"):
            out[key] = key in text
    config = read("config/speculative.py")
    if config is not None:
        out["raises_positions"] = "_maybe_override_draft_max_position_embeddings" in config
    return out


def _speculators(read: Read) -> Dict[str, Any]:
    text = read("transformers_utils/configs/speculators/algos.py")
    if text is None:
        return {"speculators": []}
    out: Dict[str, Any] = {"speculators": re.findall(r"@register_speculator\(\"(\w+)\"\)", text)}
    eagle3 = _function(text, "update_eagle3")
    table = re.search(r"arch_map\s*=\s*\{([^}]*)\}", eagle3 or "")
    if table:
        out["speculators_eagle3"] = strings(table.group(1))[::2]
        out["speculators_archs"] = dict(zip(strings(table.group(1))[::2], strings(table.group(1))[1::2]))
    default = re.search(r"\"norm_before_residual\",\s*(True|False)", eagle3 or "")
    if default:
        out["speculators_residual"] = default.group(1) == "True"
    return out


def _function(text: str, name: str) -> Optional[str]:
    """The source of a function or method, from behind its name to the next line that is indented no deeper than its ``def``."""
    match = re.search(r"^([ ]*)def %s\b" % name, text, re.MULTILINE)
    if match is None:
        return None
    rest = text[match.end() :]
    # the closing bracket of a long signature stands at the indentation of `def`
    end = re.search(r"^ {0,%d}[^\s)\]}]" % len(match.group(1)), rest[rest.find("\n") + 1 :], re.MULTILINE)
    return rest[: rest.find("\n") + 1 + end.start()] if end else rest


# --------------------------------------------------------------------------------------------- flags and variables


def argument_files(names: ListDir) -> List[str]:
    """The files of the package in which options are declared."""
    found = ["engine/arg_utils.py"]
    for folder in ("entrypoints", "entrypoints/openai", "entrypoints/serve", "entrypoints/cli", "entrypoints/utils"):
        found += [
            "%s/%s" % (folder, name) for name in names(folder) if name in ("cli_args.py", "serve.py", "types.py", "main.py")
        ]
        found += ["%s/%s/cli_args.py" % (folder, name) for name in names(folder) if "." not in name]
    found += ["config/%s" % name for name in names("config") if name.endswith(".py")]
    return sorted(set(found))


def variables(read: Read) -> List[str]:
    """Every environment variable of this vLLM's own table; empty where that cannot be read."""
    text = read("envs.py")
    return re.findall(r"^    \"(VLLM_\w+)\":", text or "", re.MULTILINE)
