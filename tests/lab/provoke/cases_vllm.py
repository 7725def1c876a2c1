"""The failures of vLLM: what is done, what diagnose has to say first, and what preflight finds beforehand."""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Any

from eagletui.profiles import Profile
from tests.lab.provoke.acts import killed, once_it, silent
from tests.lab.provoke.case import Case, World

_case = partial(Case, engine="vllm")
_RUNS = "nobody can know that it will be killed"
_VALUE = "the values of options are for the engine's own parser, which refuses them within seconds"


def _spec(world: World, **changes: Any) -> Profile:
    """The lab's drafter with another speculative configuration; a key whose value is None goes."""
    doc = {"method": "eagle3", "model": str(world.lab.drafter), "num_speculative_tokens": 3, **changes}
    kept = {key: value for key, value in doc.items() if value is not None}
    return world.vllm("--speculative-config", json.dumps(kept))


def _in_shell(world: World, words: str) -> Profile:
    """vLLM as a shell starts it after ``words``."""
    program = str(world.lab.vllm)
    return world.vllm(command=("bash", "-c", f'{words}; exec "$0" serve "$@"', program))


CASES = (
    # ----------------------------------------------------------------------------------------------------- speculation
    _case(
        name="drafter-path",
        what="the drafter's path does not exist",
        profile=lambda w: w.vllm(drafter="/data/none"),
        diagnosed=("path-missing",),
        preflight=("drafter-absent",),
    ),
    _case(
        name="spec-method",
        what="a speculative method that there is not",
        profile=lambda w: _spec(w, method="eagle9"),
        diagnosed=("spec-method-unknown",),
        preflight=("spec-method",),
    ),
    _case(
        name="spec-key",
        what="a key of --speculative-config that this version lacks",
        profile=lambda w: _spec(w, draft_attention_backend="X"),
        diagnosed=("spec-json-key",),
        preflight=("spec-key",),
    ),
    _case(
        name="spec-json",
        what="--speculative-config without its quotes",
        profile=lambda w: w.vllm("--speculative-config", "{method: eagle3}"),
        diagnosed=("spec-json-malformed",),
        preflight=("spec-json",),
    ),
    _case(
        name="spec-no-tokens",
        what="no num_speculative_tokens, and a drafter in the plain layout that does not say it either",
        profile=lambda w: _spec(w, num_speculative_tokens=None, model=w.models.make("drafter-plain")),
        diagnosed=("spec-tokens-missing",),
        preflight=("spec-no-tokens",),
    ),
    _case(
        name="spec-tp",
        what="a tensor parallel size of the drafter that is neither 1 nor the target's",
        profile=lambda w: _spec(w, draft_tensor_parallel_size=3),
        diagnosed=("spec-draft-tp",),
        preflight=("draft-tp",),
    ),
    # --------------------------------------------------------------------------------------------------------- the drafter
    _case(
        name="drafter-architecture",
        what="an architecture of the drafter that this vLLM has no class for",
        profile=lambda w: w.vllm(drafter="drafter-other-type"),
        diagnosed=("drafter-architecture", "architecture-unsupported"),
        preflight=("drafter-architecture",),
    ),
    _case(
        name="drafter-no-type",
        what="a drafter whose config.json has no model_type",
        profile=lambda w: w.vllm(drafter="drafter-no-type"),
        diagnosed=("config-no-type",),
        preflight=("drafter-no-type",),
    ),
    _case(
        name="drafter-incomplete",
        what="a drafter in the format of speculators without transformer_layer_config",
        profile=lambda w: w.vllm(drafter="drafter-incomplete"),
        diagnosed=("speculators-config",),
        preflight=("speculators-incomplete",),
    ),
    _case(
        name="drafter-width",
        what="the drafter of another target: its configuration says 640, the target has 576",
        profile=lambda w: w.vllm(drafter="drafter-of-another-target"),
        diagnosed=("drafter-shape", "drafter-width"),
        preflight=("drafter-width",),
    ),
    _case(
        name="drafter-fc",
        what="a drafter whose first matrix takes two hidden states, and three are given",
        profile=lambda w: w.vllm(drafter="drafter-narrow"),
        diagnosed=("drafter-shape", "drafter-width"),
        preflight=("fc-shape",),
    ),
    _case(
        name="drafter-vocabulary",
        what="draft_vocab_size is half of the rows in the drafter's lm_head",
        profile=lambda w: w.vllm(drafter="drafter-small-vocabulary"),
        diagnosed=("draft-vocabulary", "drafter-shape"),
        preflight=("lm-head", "d2t-size"),
    ),
    _case(
        name="drafter-cut",
        what="the drafter's file ends at 60 %",
        profile=lambda w: w.vllm(drafter="drafter-cut"),
        diagnosed=("shard-corrupt",),
        preflight=("drafter-damaged",),
    ),
    # ----------------------------------------------------------------------------------------------------------- the target
    _case(
        name="no-config",
        what="a folder without config.json and weights",
        profile=lambda w: w.vllm(model="model-without-config"),
        diagnosed=("config-missing",),
        preflight=("target-config",),
    ),
    _case(
        name="empty",
        what="an empty folder",
        profile=lambda w: w.vllm(model="model-empty"),
        diagnosed=("config-missing",),
        preflight=("target-config",),
    ),
    _case(
        name="config-cut",
        what="a config.json that ends after 100 bytes",
        profile=lambda w: w.vllm(model="model-config-cut"),
        diagnosed=("config-broken",),
        preflight=("target-config",),
    ),
    _case(
        name="type-unknown",
        what="a model_type and an architecture that no version has",
        profile=lambda w: w.vllm(model="model-type-unknown"),
        diagnosed=("model-type-unknown",),
        preflight=("target-unknown",),
    ),
    _case(
        name="architecture-unknown",
        what="an architecture that this vLLM lacks, of a known model_type",
        profile=lambda w: w.vllm(model="model-architecture-unknown"),
        diagnosed=("architecture-unsupported",),
        preflight=("target-unknown",),
    ),
    _case(
        name="own-code",
        what="a model with code of its own, and no --trust-remote-code",
        profile=lambda w: w.vllm(model="model-own-code"),
        diagnosed=("remote-code",),
        preflight=("trust-remote-code",),
    ),
    _case(
        name="no-tokenizer",
        what="a model without its tokenizer",
        profile=lambda w: w.vllm(model="model-without-tokenizer"),
        diagnosed=("tokenizer-backend",),
        preflight=("no-tokenizer",),
    ),
    _case(
        name="hub-offline",
        what="a name on the hub, and the hub is switched off",
        profile=lambda w: w.vllm(model="nobody/no-such-model"),
        diagnosed=("hub-offline",),
        preflight=("target-not-cached",),
    ),
    _case(
        name="no-weights",
        what="a model's folder without weights",
        profile=lambda w: w.vllm(model="model-without-weights"),
        diagnosed=("weights-not-found",),
        preflight=("target-no-weights",),
    ),
    _case(
        name="shard-missing",
        what="one of 16 shards is not there",
        profile=lambda w: w.vllm(model="shards-missing"),
        diagnosed=("shards-missing",),
        preflight=("target-files-missing",),
    ),
    _case(
        name="shard-cut",
        what="one of 16 shards ends in its middle",
        profile=lambda w: w.vllm(model="shards-cut"),
        diagnosed=("shard-corrupt",),
        preflight=("target-damaged",),
    ),
    _case(
        name="shard-pointer",
        what="one of 16 shards is a pointer of Git LFS",
        profile=lambda w: w.vllm(model="shards-pointer"),
        diagnosed=("shard-corrupt",),
        preflight=("target-lfs",),
    ),
    _case(
        name="index-cut",
        what="the index of the shards ends too early",
        profile=lambda w: w.vllm(model="shards-index-cut"),
        diagnosed=("config-broken",),
        preflight=("target-index",),
    ),
    # -------------------------------------------------------------------------------------------------- words and memory
    _case(
        name="option-unknown",
        what="an option that this version does not have",
        profile=lambda w: w.vllm("--speculative-cfg", "x"),
        diagnosed=("unknown-argument",),
        preflight=("unknown-option",),
    ),
    _case(
        name="option-value",
        what="a word where a number is expected",
        profile=lambda w: w.vllm("--tensor-parallel-size", "x"),
        diagnosed=("unknown-argument",),
        unknowable=_VALUE,
    ),
    _case(
        name="tp-heads",
        what="9 attention heads over 2 ranks",
        profile=lambda w: w.vllm(tp=2),
        diagnosed=("heads-not-divisible",),
        preflight=("tp-heads",),
    ),
    _case(
        name="length",
        what="a context length beyond the model's",
        profile=lambda w: w.vllm(max_model_len=999999),
        diagnosed=("max-len-beyond-model",),
        preflight=("max-model-len",),
    ),
    _case(
        name="quantization",
        what="a quantization that the model does not have",
        profile=lambda w: w.vllm("--quantization", "awq"),
        diagnosed=("quantization-config",),
        preflight=("quantization",),
    ),
    _case(
        name="load-format",
        what="a load format that there is not",
        profile=lambda w: w.vllm("--load-format", "nonsense"),
        diagnosed=("loader-config",),
        unknowable=_VALUE,
    ),
    _case(
        name="tool-parser",
        what="a tool parser that there is not",
        profile=lambda w: w.vllm("--enable-auto-tool-choice", "--tool-call-parser", "kimi_k99"),
        diagnosed=("parser-unknown",),
        unknowable=_VALUE,
    ),
    _case(
        name="chat-template",
        what="a chat template whose file is not there",
        profile=lambda w: w.vllm("--chat-template", "./none.jinja"),
        diagnosed=("chat-template",),
        preflight=("file-missing",),
    ),
    _case(
        name="cache-small",
        what="a KV cache of 1 MB, for requests of 8192 tokens",
        profile=lambda w: w.vllm("--kv-cache-memory-bytes", "1000000", max_model_len=8192),
        diagnosed=("kv-too-small",),
        unknowable="what the cache holds is known once the engine has measured itself",
    ),
    # ------------------------------------------------------------------------------------------------------------ the host
    _case(
        name="program-missing",
        what="a program that the host does not have",
        profile=lambda w: w.vllm(venv=None, command=("vllm-none", "serve")),
        diagnosed=("command-missing", "command-not-found"),
        preflight=("engine-missing",),
    ),
    _case(
        name="module-missing",
        what="a python without vLLM",
        profile=lambda w: w.vllm(venv=None, command=(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model")),
        diagnosed=("module-missing",),
        preflight=("engine-missing",),
    ),
    _case(
        name="files-limit",
        what="at most 40 open files",
        profile=lambda w: _in_shell(w, "ulimit -n 40"),
        diagnosed=("too-many-files",),
        unknowable="a shell in front of it sets the limit: what it does is not looked into",
    ),
    _case(
        name="port-silent",
        what="somebody else listens on the port",
        profile=lambda w: w.vllm(),
        diagnosed=("port-taken",),
        preflight=("port-taken",),
        around=silent,
    ),
    _case(
        name="core-killed",
        what="SIGKILL to EngineCore while it loads",
        profile=lambda w: w.vllm(),
        diagnosed=("core-killed", "process-killed", "killed-9"),
        unknowable=_RUNS,
        act=once_it(("workers", "weights", "process", "kv"), killed("EngineCor")),
    ),
    _case(
        name="server-killed",
        what="SIGKILL to the API server after it was ready",
        profile=lambda w: w.vllm(),
        diagnosed=("killed-9",),
        unknowable=_RUNS,
        act=once_it(("ready",), killed("")),
    ),
)
