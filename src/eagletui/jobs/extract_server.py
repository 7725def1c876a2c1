"""The server that gives hidden states: a profile of vLLM, made into one that only extracts."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Optional, Sequence

from eagletui.engines.command import CommandError

# options with a value, and switches, that contradict an extraction; both spellings of a word are met
_WITH_VALUE = ("--speculative-config", "-sc", "--kv-transfer-config", "--max-num-batched-tokens", "--max-model-len")
_SWITCHES = ("--enable-prefix-caching", "--no-enable-prefix-caching", "--enable-chunked-prefill", "--no-enable-chunked-prefill")


def extraction_profile(
    profile: Mapping[str, Any], layers: Sequence[int], last: int, storage: str, seq_length: Optional[int] = None
) -> Dict[str, Any]:
    """``profile`` is a server's (see `engines.command.serve_command`); what it says of a drafter is dropped.

    ``layers`` are those that the drafter reads, ``last`` the number of the target's layers: the state behind the last one is what
    the loss needs. ``storage`` is where the server leaves its files: an absolute path, on the same disk as the output of the
    extraction, since they are moved there. ``seq_length``: the longest sample in tokens; the context is cut to it.

    Without prefix caching, since what is not computed has no states; without chunked prefill where the context is known, so
    that a sample goes through in one piece. Raises `CommandError`.
    """
    if profile.get("engine") != "vllm":
        raise CommandError("engine: hidden states come from vLLM, not from %r" % (profile.get("engine"),))
    if profile.get("command"):
        raise CommandError("command: its options are unknown; give the server by venv or python")
    if not storage.startswith("/"):
        raise CommandError("storage: an absolute path is needed, got %r" % storage)
    wrong = [layer for layer in layers if not 0 <= layer <= last]
    if wrong or not layers:
        raise CommandError("layers: expected layers from 0 to %d, got %s" % (last, list(layers)))
    out = {key: value for key, value in profile.items() if key not in ("drafter", "k", "method", "args")}
    args = _without(profile.get("args") or ())
    speculation = {
        "method": "extract_hidden_states",
        "num_speculative_tokens": 1,
        "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": [*layers, last]}},
    }
    transfer = {
        "kv_connector": "ExampleHiddenStatesConnector",
        "kv_role": "kv_producer",
        "kv_connector_extra_config": {"shared_storage_path": storage},
    }
    context = seq_length + 8 if seq_length else profile.get("max_model_len")  # a token is generated behind the sample
    args.append("--no-enable-prefix-caching")
    if context:
        out["max_model_len"] = int(context)
        args += ["--no-enable-chunked-prefill", "--max-num-batched-tokens", str(max(int(context), 8192))]
    args += ["--speculative-config", json.dumps(speculation, separators=(",", ":"))]
    args += ["--kv-transfer-config", json.dumps(transfer, separators=(",", ":"))]
    out["args"] = args
    out["smoke"] = False  # a request without ids to compare leaves a file that nobody takes
    return out


def _without(args: Sequence[Any]) -> List[str]:
    """The options without those that contradict an extraction."""
    out: List[str] = []
    skip = False
    for word in map(str, args):
        if skip:
            skip = False
            continue
        name, equal, _ = word.partition("=")
        name = "--" + name[2:].replace("_", "-") if name.startswith("--") else name
        if name in _SWITCHES:
            continue
        if name in _WITH_VALUE or name.split(".")[0] in _WITH_VALUE:
            skip = not equal
            continue
        out.append(word)
    return out
