"""What vLLM 0.8 to 0.32 prints between its start and its end, as rules: the start of a message -> what it means.

A rule's function gets the `LoadState` and the whole message. The texts were read in the sources and seen in logs of the
versions; where two versions differ both forms are here.
"""

from __future__ import annotations

import re
from typing import Callable, List, Optional, Tuple

from eagletui.engines import vllm_stats
from eagletui.engines.events import DRAFTER, TARGET
from eagletui.engines.state import LoadState

Rule = Tuple[bytes, Callable[[LoadState, bytes], None]]


def text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def number(raw: bytes) -> float:
    return float(raw.replace(b",", b""))


def find(pattern: "re.Pattern[bytes]", message: bytes) -> Optional[str]:
    """The first group of the pattern in the message as text, or None."""
    match = pattern.search(message)
    return None if match is None else text(match.group(1))


# ------------------------------------------------------------------------------------------------------ start and config

_LOGO_VERSION = re.compile(rb"\bversion\s+(\d\S*)")
_LOGO_MODEL = re.compile(rb"\bmodel\s+(\S+)\s*$")
_FLAT_VERSION = re.compile(rb"version (\S+)")
_ARG_TEXT = {
    "host": re.compile(rb"'host': '([^']*)'"),
    "served_model": re.compile(rb"'served_model_name': \[?'([^']*)'"),
    "dtype": re.compile(rb"'dtype': '([^']*)'"),
    "kv_cache_dtype": re.compile(rb"'kv_cache_dtype': '([^']*)'"),
    "load_format": re.compile(rb"'load_format': '([^']*)'"),
}
_ARG_NUMBER = {
    "port": re.compile(rb"'port': (\d+)"),
    "max_model_len": re.compile(rb"'max_model_len': (\d+)"),
    "tp": re.compile(rb"'tensor_parallel_size': (\d+)"),
}
_ARG_MODEL = re.compile(rb"'model(?:_tag)?': '([^']*)'")
_ENGINE = re.compile(rb"Initializing a V\d LLM engine \(v([^)\s]+)\)(?: with config: model='([^']*)')?")
_SPEC = re.compile(
    rb"speculative_config=SpeculativeConfig\(method='?([\w.]+)'?, model=(?:'([^']*)'|None)(?:, num_spec_tokens=(\d+))?"
)
_TP = re.compile(rb"\btensor_parallel_size=(\d+)")
_QUANT = re.compile(rb"\bquantization=(?!None)([\w-]+)")
_EAGER = re.compile(rb"\benforce_eager=(True|False)|'enforce_eager': (True|False)")


def _begin(s: LoadState) -> None:
    if s.engine is not None and (s.ready_at is not None or s.stopping or s.seen("workers")):
        s.restarts += 1
        s.reset()
        s.emit("notice", "restart", text="another launch begins in this log")
    s.engine = "vllm"
    s.enter("spawn")
    s.enter("config")


def _banner(s: LoadState, message: bytes) -> None:
    _begin(s)
    version = find(_FLAT_VERSION, message)
    if version is not None:
        _version(s, version)


def _version(s: LoadState, version: str) -> None:
    if s.version is None:
        s.version = version
        s.fact("engine_version", version)


def logo(s: LoadState, message: bytes) -> None:
    """A row of the ASCII logo (0.20 and later): the version stands in one, the model in the next."""
    version = find(_LOGO_VERSION, message)
    if version is not None:
        _begin(s)
        _version(s, version)
        return
    model = find(_LOGO_MODEL, message)
    if model is not None and s.engine == "vllm" and s.model is None:
        s.model = model
        s.fact("model", model)


def _arguments(s: LoadState, message: bytes) -> None:
    if not s.seen("config") or s.ready_at is not None or s.stopping:
        _begin(s)
    for name, pattern in _ARG_TEXT.items():
        s.fact(name, find(pattern, message))
    for name, pattern in _ARG_NUMBER.items():
        value = find(pattern, message)
        if value is not None:
            s.fact(name, int(value))
    # the drafter's path stands in the same line, inside 'speculative_config': {...}
    head, _, spec = message.partition(b"'speculative_config': ")
    model = find(_ARG_MODEL, head) or find(_ARG_MODEL, spec.partition(b"}")[2])
    if model is not None and s.model is None:
        s.model = model
        s.fact("model", model)
    eager = _EAGER.search(message)
    if eager is not None:
        s.fact("enforce_eager", b"True" in eager.group(0))


def _architecture(s: LoadState, message: bytes) -> None:
    name = text(message[len(b"Resolved architecture: ") :]).strip()
    # the second one is the drafter's; the engine process may print the first again
    if "target_class" not in s.facts:
        s.fact("target_class", name)
    elif "drafter_class" not in s.facts and not s.seen("workers"):
        s.fact("drafter_class", name)


def _max_len(s: LoadState, message: bytes) -> None:
    match = re.match(rb"Using max model len (\d+)", message)
    # the drafter's own length follows as a second line
    if match is not None:
        s.fact("max_model_len", int(match.group(1)), again="drafter_class" not in s.facts)


def _engine(s: LoadState, message: bytes) -> None:
    match = _ENGINE.match(message)
    if match is None:
        return
    s.engine = "vllm"
    _version(s, text(match.group(1)))
    if match.group(2) and s.model is None:
        s.model = text(match.group(2))
        s.fact("model", s.model)
    spec = _SPEC.search(message)
    if spec is not None:
        s.fact("method", text(spec.group(1)))
        s.speculative = spec.group(2) is not None and spec.group(1) not in (b"extract_hidden_states", b"ngram", b"suffix")
        if s.speculative:
            s.drafter = text(spec.group(2))
            s.fact("drafter", s.drafter)
        if spec.group(3) is not None:
            s.fact("k", int(spec.group(3)))
    elif b"speculative_config=None" in message:
        s.speculative = False
    tp = find(_TP, message)
    if tp is not None:
        s.fact("tp", int(tp))
    s.fact("quantization", find(_QUANT, message))
    eager = _EAGER.search(message)
    if eager is not None:
        s.fact("enforce_eager", b"True" in eager.group(0))
    s.enter("workers")


# ------------------------------------------------------------------------------------------------------------- workers

_WORLD = re.compile(rb"world_size=(\d+)")
_RANK = re.compile(rb"world_size=(\d+) rank=(\d+)")


def _leader(s: LoadState, message: bytes) -> None:
    s.enter("workers")
    match = _WORLD.search(message)
    if match is not None:
        s.fact("world_size", int(match.group(1)))


def _rank_init(s: LoadState, message: bytes) -> None:
    match = _RANK.match(message)
    if match is not None:
        s.enter("workers")
        s.fact("world_size", int(match.group(1)))
        s.ranks.add(match.group(2))
        s.fact("ranks", len(s.ranks))


def _nccl(s: LoadState, message: bytes) -> None:
    s.fact("nccl", text(message.split(b"nccl==", 1)[1]).strip())


def _no_custom_allreduce(s: LoadState, _message: bytes) -> None:
    s.fact("custom_allreduce", "off")


# ------------------------------------------------------------------------------------------------------------- weights

_FS = re.compile(rb"Filesystem type for checkpoints: (\S+)\. Checkpoint size: ([\d.]+) GiB")
_TOOK = re.compile(rb"Loading weights took ([\d.]+) seconds")
_LOADED = re.compile(rb"Model loading took ([\d.]+) GiB(?: memory)? and ([\d.]+) seconds")
_AUX = re.compile(rb"\(([\d, ]+)\)|\[([\d, ]+)\]")
_PREFETCH = re.compile(rb"Prefetching checkpoint files: *\d+% \((\d+)/(\d+)\)")


def _load(s: LoadState, _message: bytes) -> None:
    s.enter("weights", TARGET)


def _filesystem(s: LoadState, message: bytes) -> None:
    match = _FS.match(message)
    if match is None:
        return
    if s.target_done:
        # the V2 runner does not announce the drafter; this is its first line
        if s.speculative is not False:
            s.enter("weights", DRAFTER)
        s.fact("drafter_checkpoint_gib", float(match.group(2)))
        return
    s.enter("weights", TARGET)
    s.fact("filesystem", text(match.group(1)))
    s.fact("checkpoint_gib", float(match.group(2)))


def _prefetch(s: LoadState, message: bytes) -> None:
    match = _PREFETCH.match(message)
    if match is not None:
        s.emit("progress", "prefetch", done=float(match.group(1)), total=float(match.group(2)), unit="files")


def _weights_done(s: LoadState, message: bytes) -> None:
    match = _TOOK.match(message)
    if match is None:
        return
    times = s.loads[s.process] = s.loads.get(s.process, 0) + 1
    if times == 1:
        s.target_done = True
        s.fact("weights_seconds", float(match.group(1)), again=False)
        s.enter("process", TARGET)
    elif s.seen("weights", DRAFTER):
        s.fact("drafter_weights_seconds", float(match.group(1)), again=False)
        s.enter("process", DRAFTER)


def _drafter(s: LoadState, _message: bytes) -> None:
    if s.speculative is not False:
        s.enter("weights", DRAFTER)


def _aux(s: LoadState, message: bytes) -> None:
    match = _AUX.search(message)
    if match is not None:
        digits = match.group(1) or match.group(2)
        s.fact("aux_layers", [int(part) for part in digits.split(b",") if part.strip()])
    if b"auxiliary layers from" in message:
        s.fact("aux_source", text(message.split(b"auxiliary layers from ", 1)[1].split(b":")[0]).strip())


def _shares(s: LoadState, message: bytes) -> None:
    if b"embed_tokens" in message:
        s.fact("drafter_embedding", "own" if b"with distinct" in message else "shared", again=False)


def _model_loaded(s: LoadState, message: bytes) -> None:
    match = _LOADED.match(message)
    if match is not None:
        s.fact("load_gib", float(match.group(1)), again=False)
        s.fact("load_seconds", float(match.group(2)), again=False)
    s.enter("profile" if s.facts.get("enforce_eager") else "compile", TARGET)


# ----------------------------------------------------------------------------------------------------- compile, profile

_COMPILED = re.compile(rb"torch\.compile (?:took|takes) ([\d.]+) s in total")
_TAG = re.compile(rb"\[(backbone|eagle_head|draft_model|mtp_head)\] ?")


def _compile(s: LoadState, message: bytes) -> None:
    role = DRAFTER if b"eagle_head" in message or b"/draft" in message else TARGET
    s.compile_role = role
    s.enter("compile", role)


def _compiling(s: LoadState, _message: bytes) -> None:
    s.enter("compile", s.compile_role or TARGET)


def _compiled(s: LoadState, message: bytes) -> None:
    match = _COMPILED.match(message)
    if match is not None:
        if "compile_seconds" not in s.facts:
            s.compile_by = s.process
        if s.compile_by == s.process:  # every rank may print its own: add up those of one
            s.add_seconds("compile_seconds", float(match.group(1)))
    s.enter("profile", s.compile_role or TARGET)


def _tagged(s: LoadState, message: bytes) -> None:
    match = _TAG.match(message)
    if match is None:
        return
    s.compile_role = TARGET if match.group(1) == b"backbone" else DRAFTER
    rest = message[match.end() :]
    if rest.startswith((b"torch.compile took", b"torch.compile takes")):
        _compiled(s, rest)
    elif rest.startswith(b"Initial profiling"):
        s.enter("profile", s.compile_role)
    else:
        s.enter("compile", s.compile_role)


def _profile(s: LoadState, _message: bytes) -> None:
    s.enter("profile")


# -------------------------------------------------------------------------------------------- KV cache, graphs, the rest

_AVAILABLE = re.compile(rb"Available KV cache memory: ([\d.]+) GiB")
_EXPLICIT = re.compile(rb"Explicitly set \(([\d.]+)/")
_KV_SIZE = re.compile(rb"\w+ KV cache size: ([\d,]+) tokens")
_CONCURRENCY = re.compile(rb"Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x")
_CAPTURED = re.compile(rb"Graph capturing finished in ([\d.]+) secs?, took (-?[\d.]+) GiB")
_INIT = re.compile(rb"init engine \([^)]*\) took ([\d.]+) s(?:econds)?(?: \(compilation: ([\d.]+) s)?")
_USAGE = re.compile(
    rb"([\d.]+) GiB for weight, ([\d.]+) GiB for peak activation, ([\d.]+) GiB for non-torch memory"
    rb"(?:, and ([\d.]+) GiB for CUDAGraph)?"
)
_LISTEN = re.compile(rb"on (?:https?://)?(\[[^\]]+\]|[^:\s]+):(\d+)")


def _kv(s: LoadState, message: bytes) -> None:
    s.enter("kv")
    for pattern in (_AVAILABLE, _EXPLICIT):
        match = pattern.match(message)
        if match is not None:
            s.fact("kv_gib", float(match.group(1)), again=False)
    match = _KV_SIZE.match(message)
    if match is not None:
        s.fact("kv_tokens", int(number(match.group(1))))
    match = _CONCURRENCY.search(message)
    if match is not None:
        s.fact("max_concurrency", float(match.group(2)))


def _warmup(s: LoadState, message: bytes) -> None:
    if s.seen("workers") and not message.startswith(b"Warming up done"):
        s.enter("warmup")


def _capture_drafter(s: LoadState, _message: bytes) -> None:
    s.capture_role = DRAFTER
    s.enter("capture", DRAFTER)


def _captured(s: LoadState, message: bytes) -> None:
    match = _CAPTURED.match(message)
    if match is not None:
        s.fact("capture_seconds", float(match.group(1)), again=False)
        s.fact("capture_gib", float(match.group(2)), again=False)
    s.enter("finish")


def _memory(s: LoadState, message: bytes) -> None:
    match = _USAGE.search(message)
    if match is not None:
        for name, value in zip(("weights_gib", "activation_gib", "non_torch_gib", "graphs_gib"), match.groups()):
            if value is not None:
                s.fact(name, float(value), again=False)
    if s.seen("kv"):
        s.enter("finish")


def _init(s: LoadState, message: bytes) -> None:
    match = _INIT.match(message)
    if match is not None:
        s.fact("init_seconds", float(match.group(1)), again=False)
        if match.group(2) is not None:
            s.fact("compile_seconds", float(match.group(2)))
    s.enter("api")


def _api(s: LoadState, message: bytes) -> None:
    s.enter("api")
    match = _LISTEN.search(message)
    if match is not None:
        s.fact("host", text(match.group(1)).strip("[]"))
        s.fact("port", int(match.group(2)))


def _tasks(s: LoadState, _message: bytes) -> None:
    s.enter("api")


def _waiting_for_block(s: LoadState, message: bytes) -> None:
    s.count("shm_broadcast_waits")
    s.quiet_waits += 1
    s.emit("notice", "shm_broadcast", text=text(message))


def _stop(s: LoadState, message: bytes) -> None:
    s.stop(text(message))


RULES: List[Rule] = [
    (b"vLLM API server version ", _banner),
    (b"vLLM is using nccl==", _nccl),
    (b"non-default args: ", _arguments),
    (b"Resolved architecture: ", _architecture),
    (b"Using max model len ", _max_len),
    (b"Initializing a V", _engine),
    (b"DP group leader: ", _leader),
    (b"world_size=", _rank_init),
    (b"Custom allreduce is disabled", _no_custom_allreduce),
    (b"Starting to load model ", _load),
    (b"Loading model from scratch", _load),
    (b"Filesystem type for checkpoints: ", _filesystem),
    (b"Prefetching checkpoint files: ", _prefetch),
    (b"Loading weights took ", _weights_done),
    (b"Loading drafter model", _drafter),
    (b"Detected EAGLE model ", _shares),
    (b"Using auxiliary layers from speculative config", _aux),
    (b"Using Eagle3 auxiliary layers from ", _aux),
    (b"Model loading took ", _model_loaded),
    (b"Using cache directory: ", _compile),
    (b"Starting torch.compile", _compiling),
    (b"Dynamo bytecode transform time", _compiling),
    (b"Compiling a graph for ", _compiling),
    (b"Warming up model for the compilation", _compiling),
    (b"torch.compile takes ", _compiled),
    (b"torch.compile took ", _compiled),
    (b"[backbone] ", _tagged),
    (b"[eagle_head] ", _tagged),
    (b"Profiling CUDA graph memory", _profile),
    (b"Available KV cache memory: ", _kv),
    (b"Explicitly set (", _kv),
    (b"GPU KV cache size: ", _kv),
    (b"CPU KV cache size: ", _kv),
    (b"Maximum concurrency for ", _kv),
    (b"Pre-warming ", _warmup),
    (b"JIT kernel warmup starting", _warmup),
    (b"Warming up ", _warmup),
    (b"Running FlashInfer autotune", _warmup),
    (b"Autotuning process starts", _warmup),
    (b"Capturing model for speculator", _capture_drafter),
    (b"Graph capturing finished in ", _captured),
    (b"Free memory on device ", _memory),
    (b"init engine (", _init),
    (b"Supported tasks: ", _tasks),
    (b"Supported_tasks: ", _tasks),
    (b"Starting vLLM server on ", _api),
    (b"Starting vLLM API server ", _api),
    (b"Engine ", vllm_stats.server),
    # with data parallelism the engines' numbers come together
    *((b"%d Engines Aggregated: " % n, vllm_stats.server) for n in range(2, 65)),
    (b"SpecDecoding metrics: ", vllm_stats.speculative),
    (b"No available shared memory broadcast block found in ", _waiting_for_block),
    (b"[shutdown] API server: shutdown triggered", _stop),
    (b"Shutting down FastAPI HTTP server", _stop),
]
