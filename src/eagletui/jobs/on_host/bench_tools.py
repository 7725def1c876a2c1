"""The engines' own benchmark tools: their command lines, with what each would do by default and must not, and their results.

vLLM's tool shuffles and repeats prompts, renders the chat template a second time, and warms up with the very first prompt that it
then measures; SGLang's goes past the end of answers, takes the answer length that was asked for where the server does not count,
and warms up with a measured prompt too. Both end with status 0 when every request has failed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from typing import Any, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from eagletui.jobs.bench.passes import Run, from_sglang, from_vllm
from eagletui.jobs.on_host.bench_server import Server
from eagletui.jobs.on_host.child import Child
from eagletui.jobs.on_host.prompt_sets import PromptSet
from eagletui.records.bench import BenchPass

_HOMES = {
    # engine -> (module to run, its source files and folders below the engine's package), the newest first
    "vllm": (("vllm.entrypoints.cli.main", ("benchmarks/serve.py", "benchmarks/datasets.py", "benchmarks/datasets")),),
    "sglang": (("sglang.benchmark.serving", ("benchmark/serving.py",)), ("sglang.bench_serving", ("bench_serving.py",))),
}
_NEEDS = {
    "vllm": ("--skip-chat-template", "--disable-shuffle", "--no-oversample", "--save-detailed", "--custom-output-len",
             "--ready-check-timeout-sec"),
    "sglang": ("--disable-ignore-eos", "--output-details", "--extra-request-body", "--max-concurrency", "--warmup-requests",
               "sglang-oai-chat", "openai"),
}  # fmt: skip
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "NO_COLOR": "1",
}  # fmt: skip
_OPTIONAL = ("--num-warmups",)


class Unusable(Exception):
    """The tool cannot be run here at all (something that it imports is not there); the text says why."""


class Tool(NamedTuple):
    """A tool that is there and has the switches that it needs. ``module`` runs as ``PYTHON -m``."""

    engine: str
    module: str
    flags: FrozenSet[str]


class Load(NamedTuple):
    """One pass to be run: ``asked`` prompts of the set at this concurrency."""

    set: PromptSet
    asked: int
    concurrency: int
    max_tokens: int
    temperature: float
    seed: int
    ignore_eos: bool
    served: str
    tokenizer: str
    trust: bool = False


def find(engine: str) -> Tuple[Optional[Tool], str]:
    """The engine's tool in this python's environment, or None and why it cannot be taken.

    Its source is read for the switches that it knows: starting it for its help would take as long as a pass.
    """
    spec = importlib.util.find_spec(engine)  # a top package is found without being imported
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places:
        return None, "there is no %s in this environment" % engine
    why = "this %s has no benchmark tool" % engine
    for module, sources in _HOMES[engine]:
        text = "".join(_source(os.path.join(places[0], source)) for source in sources)
        if not text:
            continue
        known = frozenset(word for word in (*_NEEDS[engine], *_OPTIONAL) if '"%s"' % word in text)
        missing = [need for need in _NEEDS[engine] if need not in known]
        if not missing:
            return Tool(engine, module, known), ""
        why = "%s is too old: it knows no %s" % (module, ", ".join(missing))
    return None, why


def _source(path: str) -> str:
    if os.path.isdir(path):
        return "".join(_source(os.path.join(path, name)) for name in sorted(os.listdir(path)) if name.endswith(".py"))
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""  # this version has it elsewhere, or not at all


def vllm_command(tool: Tool, load: Load, server: Server, dataset: str, folder: str, name: str, python: str) -> List[str]:
    """``vllm bench serve`` for one pass; its result is ``folder/name``."""
    argv = [
        python, "-m", tool.module, "bench", "serve",
        "--backend", "openai-chat", "--endpoint", "/v1/chat/completions",
        "--base-url", "http://%s:%d" % (server.host, server.port),
        "--model", load.tokenizer, "--served-model-name", load.served, "--tokenizer", load.tokenizer,
        "--dataset-name", "custom", "--dataset-path", dataset,
        # the server renders the chat template: rendered here as well, the prompt would hold it twice
        "--skip-chat-template",
        "--custom-output-len", str(load.max_tokens),
        "--num-prompts", str(load.asked), "--no-oversample", "--disable-shuffle",
        "--max-concurrency", str(load.concurrency), "--request-rate", "inf",
        "--temperature", "%g" % load.temperature, "--seed", str(load.seed),
        # it would warm up and try out with the first prompt of the measured ones; that is done before, with others
        "--num-warmups", "0", "--ready-check-timeout-sec", "0",
        "--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,90,95,99",
        "--save-result", "--save-detailed", "--result-dir", folder, "--result-filename", name, "--disable-tqdm",
    ]  # fmt: skip
    if "--num-warmups" not in tool.flags:
        at = argv.index("--num-warmups")
        del argv[at : at + 2]
    if load.ignore_eos:
        argv.append("--ignore-eos")
    if load.trust:
        argv.append("--trust-remote-code")
    return argv


def sglang_command(tool: Tool, load: Load, server: Server, dataset: str, path: str, python: str) -> List[str]:
    """``sglang.benchmark.serving`` for one pass; its result is the line it adds to ``path``."""
    # without it the server sends no token counts, and the tool takes the length that was asked for
    extra: Dict[str, Any] = {"temperature": load.temperature, "stream_options": {"include_usage": True}}
    if load.temperature > 0:
        extra["seed"] = load.seed
    argv = [
        python, "-m", tool.module,
        # chat through the server, which renders the template; messages keep their order, unlike its other formats
        "--backend", "sglang-oai-chat", "--base-url", "http://%s:%d" % (server.host, server.port),
        "--model", load.tokenizer, "--tokenizer", load.tokenizer,
        "--dataset-name", "openai", "--dataset-path", dataset, "--sharegpt-output-len", str(load.max_tokens),
        "--num-prompts", str(load.asked), "--max-concurrency", str(load.concurrency), "--request-rate", "inf",
        "--seed", str(load.seed), "--warmup-requests", "0", "--extra-request-body", json.dumps(extra),
        "--output-file", path, "--output-details", "--disable-tqdm",
    ]  # fmt: skip
    if not load.ignore_eos:
        argv.append("--disable-ignore-eos")
    return argv


def run(tool: Tool, load: Load, server: Server, folder: str, name: str, key: Optional[str] = None) -> Tuple[BenchPass, str]:
    """One pass by the engine's tool, and the file with its result. Its output goes to our log. Raises `Unusable`."""
    dataset = os.path.join(folder, name + ".prompts.jsonl")
    result = os.path.join(folder, name + ".json")
    if os.path.exists(result):
        os.unlink(result)  # of a pass that was cut off: SGLang's tool would add to it
    vllm = tool.engine == "vllm"
    _write_rows(dataset, load, vllm)
    if vllm:
        argv = vllm_command(tool, load, server, dataset, folder, name + ".json", sys.executable)
    else:
        argv = sglang_command(tool, load, server, dataset, result, sys.executable)
    env = dict(ENVIRONMENT)
    if key:
        env["OPENAI_API_KEY"] = key
    asked = Run(load.asked, load.concurrency, load.max_tokens)
    try:
        tool_run = Child(argv, env)  # it ends with us: left alone it would go on asking the server, and spoil what comes next
        status, last = tool_run.wait(lambda _mark: None), tool_run.last
    finally:
        os.unlink(dataset)
    doc = read(result)
    if doc is None:
        words = last[-1][:200] if last else "status %d" % status
        if any(name in words for name in ("ModuleNotFoundError", "ImportError", "No module named")):
            raise Unusable("%s cannot be run here: %s" % (tool.module, words))
        why = "%s wrote no result (status %d): %s" % (tool.module, status, words)
        return BenchPass(0, tool=tool.module, asked=load.asked, command=tuple(argv), problems=(why,)), result
    found = from_vllm(doc, asked) if vllm else from_sglang(doc, asked)
    return found._replace(command=tuple(argv)), result


def read(path: str) -> Optional[Mapping[str, Any]]:
    """A tool's result: one JSON object, or the last line of several; None when there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read().strip()
        doc = json.loads(text) if text.count("\n") == 0 or text.startswith("{\n") else json.loads(text.splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return None  # not written, or cut off: told by who asked
    return doc if isinstance(doc, dict) else None


def _write_rows(path: str, load: Load, vllm: bool) -> None:
    rows: Sequence[Sequence[Mapping[str, str]]] = load.set.rows[: load.asked]
    with open(path, "w", encoding="utf-8", errors="surrogatepass") as file:
        for row in rows:
            doc = {"prompt": row[-1]["content"], "output_tokens": load.max_tokens} if vllm else {"messages": row}
            file.write(json.dumps(doc, ensure_ascii=False) + "\n")
