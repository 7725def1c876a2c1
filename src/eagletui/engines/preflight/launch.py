"""A launch as preflight sees it: what its argv and environment ask for, and what has to be gathered on the host to judge it."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from eagletui.engines.command import DEFAULT_PORTS, options_of, parse_command


class Launch(NamedTuple):
    """What is about to be launched. None is what neither argv nor profile says: then the engine's default holds.

    ``util`` is vLLM's share of a card's whole memory, for SGLang the static share (weights and cache). ``spec`` is vLLM's
    speculative configuration as an object, ``spec_problem`` why it is none. ``flags`` are the names of all options. ``cards``
    are the UUIDs it runs on, None when the choice is the engine's. ``runner`` is how the job is run (see `JobState`). ``known``
    is False for a command of the user's own that starts neither engine's server: nothing is said of engine and models then.
    ``dp`` counts replicas that take cards of their own (SGLang's attention replicas share those of ``tp``); ``spread`` is True
    when some of the ranks may run on other hosts.
    """

    engine: str
    argv: Tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    model: Optional[str] = None
    drafter: Optional[str] = None
    k: Optional[int] = None
    method: Optional[str] = None
    port: Optional[int] = None
    address: str = "127.0.0.1"
    tp: int = 1
    pp: int = 1
    dcp: int = 1
    dp: int = 1
    util: Optional[float] = None
    max_num_seqs: Optional[int] = None
    max_model_len: Optional[int] = None
    capture: Optional[int] = None
    load_format: Optional[str] = None
    kv_dtype: Optional[str] = None
    trust_remote_code: bool = False
    eager: bool = False
    spec: Mapping[str, Any] = {}
    spec_problem: Optional[str] = None
    flags: Tuple[str, ...] = ()
    cards: Optional[Tuple[str, ...]] = None
    runner: Optional[str] = None
    cwd: str = "/"
    known: bool = True
    spread: bool = False


_NUMBERS: Dict[str, Dict[str, Tuple[str, ...]]] = {
    "vllm": {
        "pp": ("--pipeline-parallel-size", "-pp"),
        "dcp": ("--decode-context-parallel-size", "-dcp"),
        "dp": ("--data-parallel-size", "-dp"),
        "max_num_seqs": ("--max-num-seqs",),
        "capture": ("--max-cudagraph-capture-size", "--cuda-graph-max-bs"),
    },
    "sglang": {
        "pp": ("--pipeline-parallel-size", "--pp-size"),
        "dp": ("--data-parallel-size", "--dp-size"),
        "max_num_seqs": ("--max-running-requests",),
        "capture": ("--cuda-graph-max-bs",),
    },
}
_UTIL = {"vllm": ("--gpu-memory-utilization",), "sglang": ("--mem-fraction-static",)}
_EAGER = {"vllm": ("--enforce-eager",), "sglang": ("--disable-cuda-graph",)}
_SPEC = ("--speculative-config", "-sc")
_SEVERAL = (
    "--headless", "--data-parallel-size-local", "-dpl", "--data-parallel-address", "-dpa", "--data-parallel-backend", "-dpb",
    "--data-parallel-rank", "-dpn", "--data-parallel-start-rank", "-dpr",
)  # fmt: skip
"""With one of these, replicas of vLLM run in other processes or on other hosts."""


def launch_of(spec: Mapping[str, Any]) -> Launch:
    """The launch in a job's spec (see `jobs.base`); never raises on strange arguments."""
    inside = spec.get("container")  # the engine's own words stand there, argv is the container engine's
    program = inside.get("program") if isinstance(inside, Mapping) else None
    argv = tuple(str(word) for word in program or spec.get("argv") or ())
    facts = parse_command(argv)
    engine = facts.engine if facts is not None else str(spec.get("engine") or "vllm")
    options = options_of(argv)
    numbers = {name: options.number(flags) for name, flags in _NUMBERS[engine].items()}
    parsed, problem = _spec(options) if engine == "vllm" else ({}, None)
    drafter = (facts.drafter if facts is not None else None) or spec.get("drafter")
    gpus = tuple(spec.get("gpus") or ())
    return Launch(
        engine,
        argv,
        dict(spec.get("env") or {}),
        (facts.model if facts is not None else None) or spec.get("model"),
        drafter,
        (facts.k if facts is not None else None) or spec.get("k"),
        (facts.method if facts is not None else None),
        spec.get("port") or (facts.port if facts is not None else DEFAULT_PORTS[engine]),
        facts.host if facts is not None else str((spec.get("ready") or {}).get("address") or "127.0.0.1"),
        facts.tp if facts is not None else 1,
        numbers.get("pp") or 1,
        numbers.get("dcp") or 1,
        1 if options.has(("--enable-dp-attention",)) else numbers.get("dp") or 1,
        _fraction(options.text(_UTIL[engine])),
        numbers.get("max_num_seqs"),
        facts.max_model_len if facts is not None else None,
        numbers.get("capture"),
        options.text(("--load-format",)),
        options.text(("--kv-cache-dtype",)),
        options.has(("--trust-remote-code",)),
        options.has(_EAGER[engine]),
        parsed,
        problem,
        tuple(name.partition(".")[0] for name in options.names()),
        gpus or None,
        spec.get("runner"),
        str(spec.get("cwd") or "/"),
        facts is not None,
        _spread(options),
    )


def _spread(options: Any) -> bool:
    several = (options.number(("--nnodes", "-n")) or 1) > 1 or options.has(_SEVERAL)
    return several or options.text(("--distributed-executor-backend",)) == "ray"


def _spec(options: Any) -> Tuple[Dict[str, Any], Optional[str]]:
    out: Dict[str, Any] = dict(options.under(_SPEC))
    raw = options.text(_SPEC)
    if raw is None:
        return out, None
    try:
        doc = json.loads(raw)
    except ValueError as error:
        return out, "it is not JSON: %s" % error
    if not isinstance(doc, dict):
        return out, "it is not a JSON object"
    out.update(doc)
    return out, None


def _fraction(text: Optional[str]) -> Optional[float]:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None  # the engine's own parser will refuse it in words


_FILES = (
    "--chat-template", "--tool-parser-plugin", "--reasoning-parser-plugin", "--ssl-keyfile", "--ssl-certfile", "--ssl-ca-certs",
    "--speculative-token-map", "--log-config-file",
)  # fmt: skip
"""Options that name a file of the host."""
_SUFFIXES = (".jinja", ".j2", ".py", ".pem")


def files_named(argv: Tuple[str, ...]) -> Dict[str, str]:
    """{option: path}: the files that options name. What may be a name on the hub, or the text itself, is none."""
    options = options_of(argv)
    out: Dict[str, str] = {}
    for name in _FILES:
        value = options.text((name,))
        if value and "{" not in value and (value.startswith(("/", "./", "../", "~/")) or value.endswith(_SUFFIXES)):
            out[name] = value
    return out


def wanted(launch: Launch) -> Dict[str, Any]:
    """The parameters of the request ``facts``: all that the host has to look at for this launch."""
    out: Dict[str, Any] = {
        "engine": launch.engine,
        "known": launch.known,
        "argv": list(launch.argv),
        "env": dict(launch.env),
        "cwd": launch.cwd,
        "model": launch.model,
        "drafter": launch.drafter,
        "port": launch.port,
        "address": launch.address,
        "flags": list(launch.flags),
        "files": files_named(launch.argv) if launch.runner not in ("docker", "podman") else None,
        "cards": list(launch.cards or ()),
        "runner": launch.runner,
    }
    return {key: value for key, value in out.items() if value is not None}


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's part of a configuration: that of a multimodal model lies one level down."""
    for name in ("text_config", "llm_config", "language_config"):
        inner = config.get(name)
        if isinstance(inner, Mapping):
            return inner
    return config


def number(config: Mapping[str, Any], *names: str) -> Optional[int]:
    """The first of these keys that holds a whole number."""
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def architectures(config: Mapping[str, Any]) -> List[str]:
    """The names in ``architectures``; empty when there are none."""
    value = config.get("architectures")
    return [str(name) for name in value] if isinstance(value, list) else []
