"""Command lines of the engines' servers: a profile -> argv and environment, and a running server's argv -> what it serves.

vLLM takes the drafter as one JSON object, SGLang as four flags of which all or none must be given. A chain of k draft tokens
is ``num_speculative_tokens`` = k for vLLM, and for SGLang steps k, top-k 1 and k + 1 draft tokens (its number counts the
token that is verified along with them).
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

DEFAULT_PORTS = {"vllm": 8000, "sglang": 30000}
ENGINES = tuple(DEFAULT_PORTS)


class CommandError(ValueError):
    """A profile of which no command can be made; the text names the key and what it should be."""


class Command(NamedTuple):
    """What to run: ``argv`` and the variables to add to the environment."""

    argv: Tuple[str, ...]
    env: Dict[str, str]


# every spelling of an option, the canonical one first
_VLLM_FLAGS: Dict[str, Tuple[str, ...]] = {
    "model": ("--model",),
    "host": ("--host",),
    "port": ("--port",),
    "tp": ("--tensor-parallel-size", "-tp"),
    "max_model_len": ("--max-model-len",),
    "served_model": ("--served-model-name",),
    "speculative": ("--speculative-config", "-sc"),
    "api_key": ("--api-key",),
}
_SGLANG_FLAGS: Dict[str, Tuple[str, ...]] = {
    "model": ("--model-path", "--model"),
    "host": ("--host",),
    "port": ("--port",),
    "tp": ("--tensor-parallel-size", "--tp-size", "--tp"),
    "max_model_len": ("--context-length",),
    "served_model": ("--served-model-name",),
    "algorithm": ("--speculative-algorithm", "--speculative-algo"),
    "drafter": ("--speculative-draft-model-path", "--speculative-draft-model"),
    "steps": ("--speculative-num-steps",),
    "topk": ("--speculative-eagle-topk",),
    "draft_tokens": ("--speculative-num-draft-tokens",),
    "metrics": ("--enable-metrics",),
    "api_key": ("--api-key",),
}


def _canonical(flag: str) -> str:
    # both parsers read --max_model_len as --max-model-len
    return "--" + flag[2:].replace("_", "-") if flag.startswith("--") else flag


# switches take no value, so what follows one may be the model
_SWITCH = re.compile(r"^--(?:enable-|disable-|no-|skip-|trust-remote-code$|enforce-eager$|language-model-only$|headless$)")


class _Options:
    """The options in an argv, as the engines' parsers read them: ``--a b``, ``--a=b``, ``--a_b``; the last one counts."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._found: Dict[str, Optional[str]] = {}
        self.positional: List[str] = []
        at = 0
        while at < len(argv):
            word = argv[at]
            at += 1
            if not word.startswith("-") or word == "-":
                self.positional.append(word)
                continue
            name, equal, value = word.partition("=")
            name = _canonical(name)
            if equal:
                self._found[name] = value
            elif at < len(argv) and not _SWITCH.match(name) and not _is_flag(argv[at]):
                self._found[name] = argv[at]
                at += 1
            else:
                self._found[name] = None

    def names(self) -> List[str]:
        """Every option that is given, in its canonical spelling."""
        return list(self._found)

    def has(self, names: Sequence[str]) -> bool:
        return any(name in self._found for name in names)

    def text(self, names: Sequence[str]) -> Optional[str]:
        for name in names:
            if self._found.get(name) is not None:
                return self._found[name]
        return None

    def number(self, names: Sequence[str]) -> Optional[int]:
        """A whole number; vLLM also takes ``32k`` (thousands) and ``32K`` (1024s). None when it is not one."""
        value = self.text(names)
        match = re.match(r"^(\d+)([kKmMgG]?)$", value or "")
        if match is None:
            return None
        scale = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}[match.group(2)]
        return int(match.group(1)) * scale

    def under(self, names: Sequence[str]) -> Dict[str, str]:
        """Dotted options, ``--speculative-config.model X``, by what follows the dot."""
        out: Dict[str, str] = {}
        for flag, value in self._found.items():
            for name in names:
                if flag.startswith(name + ".") and value is not None:
                    out[flag[len(name) + 1 :].replace("-", "_")] = value
        return out


def _is_flag(word: str) -> bool:
    return word.startswith("-") and re.match(r"^-?\d", word) is None and word != "-"


def speculative_config(drafter: str, k: int, method: str = "eagle3", **more: Any) -> str:
    """vLLM's ``--speculative-config`` for a drafter and k draft tokens, as compact JSON; ``more`` are further keys of it."""
    doc: Dict[str, Any] = {"method": method, "model": drafter, "num_speculative_tokens": k}
    doc.update(more)
    return json.dumps(doc, separators=(",", ":"))


def serve_command(profile: Mapping[str, Any], devices: Optional[Sequence[str]] = None) -> Command:
    """The server of a profile.

    Keys: ``engine`` (vllm or sglang) and ``model`` must be there; ``drafter`` with ``k`` (default 3), ``method`` (eagle3),
    ``host`` (default 127.0.0.1: what listens on all interfaces is open to everybody), ``port``, ``tp``,
    ``max_model_len``, ``served_model``, ``args``, ``env``; and how to start it: ``command`` (words that replace the program), or
    ``venv``, or ``python``. An option that stands in ``args`` is not added again. ``devices`` become CUDA_VISIBLE_DEVICES.

    Raises `CommandError`.
    """
    engine = profile.get("engine")
    if engine not in DEFAULT_PORTS:
        raise CommandError("engine: expected one of %s, got %r" % (", ".join(ENGINES), engine))
    model = profile.get("model")
    if not model or not isinstance(model, str):
        raise CommandError("model: a path or a name is needed")
    args = [str(word) for word in profile.get("args") or ()]
    argv = _vllm(profile, model, args) if engine == "vllm" else _sglang(profile, model, args)
    env = {str(name): str(value) for name, value in (profile.get("env") or {}).items()}
    if devices is not None and "CUDA_VISIBLE_DEVICES" not in env:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
    env.setdefault("PYTHONUNBUFFERED", "1")
    return Command(tuple(argv), env)


def _k(profile: Mapping[str, Any]) -> int:
    k = profile.get("k")
    if k is None:
        return 3
    if not isinstance(k, int) or k < 1:
        raise CommandError("k: expected a whole number of draft tokens, at least 1, got %r" % (k,))
    return k


def _add(argv: List[str], options: _Options, names: Tuple[str, ...], value: Any) -> None:
    if value is not None and not options.has(names):
        argv += [names[0], str(value)]


def _common(profile: Mapping[str, Any], flags: Mapping[str, Tuple[str, ...]], options: _Options, argv: List[str]) -> None:
    _add(argv, options, flags["host"], profile.get("host") or "127.0.0.1")
    _add(argv, options, flags["port"], profile.get("port") or DEFAULT_PORTS[profile["engine"]])
    _add(argv, options, flags["tp"], profile.get("tp"))
    _add(argv, options, flags["max_model_len"], profile.get("max_model_len"))
    _add(argv, options, flags["served_model"], profile.get("served_model"))


def _vllm(profile: Mapping[str, Any], model: str, args: List[str]) -> List[str]:
    if profile.get("command"):
        argv = [str(word) for word in profile["command"]]
    elif profile.get("venv"):
        argv = [str(profile["venv"]).rstrip("/") + "/bin/vllm", "serve"]
    elif profile.get("python"):
        argv = [str(profile["python"]), "-m", "vllm.entrypoints.cli.main", "serve"]
    else:
        argv = ["vllm", "serve"]
    options = _Options(args)
    argv.append(model)
    _common(profile, _VLLM_FLAGS, options, argv)
    if profile.get("drafter") and not options.has(_VLLM_FLAGS["speculative"]):
        config = speculative_config(str(profile["drafter"]), _k(profile), str(profile.get("method") or "eagle3"))
        argv += [_VLLM_FLAGS["speculative"][0], config]
    return argv + args


def _sglang(profile: Mapping[str, Any], model: str, args: List[str]) -> List[str]:
    if profile.get("command"):
        argv = [str(word) for word in profile["command"]]
    elif profile.get("venv"):
        argv = [str(profile["venv"]).rstrip("/") + "/bin/python", "-m", "sglang.launch_server"]
    else:
        argv = [str(profile.get("python") or "python3"), "-m", "sglang.launch_server"]
    options = _Options(args)
    argv += [_SGLANG_FLAGS["model"][0], model]
    _common(profile, _SGLANG_FLAGS, options, argv)
    if profile.get("drafter"):
        k = _k(profile)
        _add(argv, options, _SGLANG_FLAGS["algorithm"], str(profile.get("method") or "eagle3").upper())
        _add(argv, options, _SGLANG_FLAGS["drafter"], profile["drafter"])
        # giving only some of these three is refused with an assertion after minutes
        _add(argv, options, _SGLANG_FLAGS["steps"], k)
        _add(argv, options, _SGLANG_FLAGS["topk"], 1)
        _add(argv, options, _SGLANG_FLAGS["draft_tokens"], k + 1)
    if not options.has(_SGLANG_FLAGS["metrics"]):
        argv.append(_SGLANG_FLAGS["metrics"][0])
    return argv + args


# ------------------------------------------------------------------------------------------------- a running server's argv


class ServerFacts(NamedTuple):
    """What a server's argv says. None where it does not; ``port`` and ``host`` then are the engine's defaults.

    ``metrics`` is whether the server answers /metrics (SGLang only with a flag); ``key`` whether it asks for an API key.
    """

    engine: str
    model: Optional[str] = None
    host: str = "127.0.0.1"
    port: int = 0
    tp: int = 1
    max_model_len: Optional[int] = None
    served_model: Optional[str] = None
    drafter: Optional[str] = None
    k: Optional[int] = None
    method: Optional[str] = None
    metrics: bool = True
    key: bool = False


def engine_of(argv: Sequence[str]) -> Optional[str]:
    """The engine whose server this argv starts; None for anything else (clients, benchmarks, their helper processes)."""
    words = list(argv)
    for at, word in enumerate(words[:8]):
        base = word.rsplit("/", 1)[-1]
        after = words[at + 1] if at + 1 < len(words) else ""
        if base == "vllm" and after == "serve":
            return "vllm"
        if base == "sglang" and after == "serve":
            return "sglang"
        if word == "-m":
            if after in ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server"):
                return "vllm"
            if after in ("vllm.entrypoints.cli.main", "vllm") and words[at + 2 : at + 3] == ["serve"]:
                return "vllm"
            if after == "sglang.launch_server" or (after == "sglang" and words[at + 2 : at + 3] == ["serve"]):
                return "sglang"
        if base == "launch_server.py" and "sglang" in word:
            return "sglang"
        if base == "api_server.py" and "vllm" in word:
            return "vllm"
    return None


def _after_program(argv: Sequence[str]) -> List[str]:
    """The server's own words: what follows ``serve``, the module or the script."""
    words = list(argv)
    for at, word in enumerate(words[:8]):
        if word == "serve" and at > 0:
            return words[at + 1 :]
        if word in ("sglang.launch_server", "vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server"):
            return words[at + 1 :]
        if word.endswith(("/launch_server.py", "/api_server.py")):
            return words[at + 1 :]
    return words[1:]


def options_of(argv: Sequence[str]) -> _Options:
    """All options that a server's argv gives, for whoever needs more than `parse_command` tells."""
    return _Options(_after_program(argv))


def parse_command(argv: Sequence[str]) -> Optional[ServerFacts]:
    """What the argv of a running server says; None when it starts no server. Never raises on strange argv."""
    engine = engine_of(argv)
    if engine is None:
        return None
    options = _Options(_after_program(argv))
    return _vllm_facts(options) if engine == "vllm" else _sglang_facts(options)


def _vllm_facts(options: _Options) -> ServerFacts:
    f = _VLLM_FLAGS
    spec: Dict[str, Any] = dict(options.under(f["speculative"]))
    raw = options.text(f["speculative"])
    if raw:
        try:
            doc = json.loads(raw)
        except ValueError:
            doc = None  # vLLM refuses it too; the rest of the line is still worth knowing
        if isinstance(doc, dict):
            spec.update(doc)
    k = spec.get("num_speculative_tokens")
    drafter, method = spec.get("model"), spec.get("method")
    return ServerFacts(
        "vllm",
        options.positional[0] if options.positional else options.text(f["model"]),
        options.text(f["host"]) or "0.0.0.0",  # noqa: S104 - vLLM's default, told as it is
        options.number(f["port"]) or DEFAULT_PORTS["vllm"],
        options.number(f["tp"]) or 1,
        options.number(f["max_model_len"]),
        options.text(f["served_model"]),
        drafter if isinstance(drafter, str) else None,
        int(k) if isinstance(k, (int, str)) and str(k).isdigit() else None,
        method if isinstance(method, str) else None,
        True,
        options.has(f["api_key"]),
    )


def _sglang_facts(options: _Options) -> ServerFacts:
    f = _SGLANG_FLAGS
    method = options.text(f["algorithm"])
    steps, draft_tokens = options.number(f["steps"]), options.number(f["draft_tokens"])
    k = steps if steps is not None else draft_tokens - 1 if draft_tokens else None
    return ServerFacts(
        "sglang",
        options.text(f["model"]),
        options.text(f["host"]) or "127.0.0.1",
        options.number(f["port"]) or DEFAULT_PORTS["sglang"],
        options.number(f["tp"]) or 1,
        options.number(f["max_model_len"]),
        options.text(f["served_model"]),
        options.text(f["drafter"]),
        k,
        method.lower() if method else None,
        options.has(f["metrics"]),
        options.has(f["api_key"]),
    )
