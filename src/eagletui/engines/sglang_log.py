"""What SGLang 0.4.6 to 0.5.23 prints between its start and its end, as rules: the start of a message -> what it means.

Every rank logs every line, so a phase begins with the first rank's. A second "Load weight begin" of the same rank is the
drafter's; up to 0.5.9 it comes only after the target's KV cache and graphs, in 0.5.23 right after the target.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, Optional, Tuple

from eagletui.engines.events import DRAFTER, TARGET
from eagletui.engines.state import LoadState

Rule = Tuple[bytes, Callable[[LoadState, bytes], None]]


_VALUE = re.compile(rb"'([^']*)'|(-?[\d.]+)")

_TEXTS = {
    "host": b"host",
    "served_model": b"served_model_name",
    "load_format": b"load_format",
    "kv_cache_dtype": b"kv_cache_dtype",
    "quantization": b"quantization",
    "method": b"speculative_algorithm",
}
_NUMBERS = {"port": b"port", "tp": b"tp_size", "max_model_len": b"context_length"}


def _value(name: bytes, message: bytes) -> Optional[str]:
    """An argument's value; None when it is None, true or false, or absent.

    ``ServerArgs(model_path='x', ...)`` up to 0.5.18, ``{'model_path': 'x', ...}`` later.
    """
    for before, after in ((b"'", b"': "), (b" ", b"="), (b"(", b"=")):
        key = before + name + after
        at = message.find(key)
        if at >= 0:
            match = _VALUE.match(message, at + len(key))
            if match is None:
                return None
            raw = match.group(1) if match.group(1) is not None else match.group(2)
            return raw.decode("utf-8", "replace")
    return None


def _whole(name: bytes, message: bytes) -> Optional[int]:
    value = _value(name, message)
    return int(value) if value is not None and value.isdigit() else None


def _server_args(s: LoadState, message: bytes) -> None:
    if s.engine is not None and (s.ready_at is not None or s.stopping or s.seen("workers")):
        s.restarts += 1
        s.reset()
        s.emit("notice", "restart", text="another launch begins in this log")
    s.engine = "sglang"
    s.enter("spawn")
    s.enter("config")
    for name, key in _TEXTS.items():
        s.fact(name, _value(key, message))
    for name, key in _NUMBERS.items():
        s.fact(name, _whole(key, message))
    s.model = _value(b"model_path", message)
    s.fact("model", s.model)
    if "method" in s.facts:
        s.drafter = _value(b"speculative_draft_model_path", message)
        s.speculative = True
        s.fact("drafter", s.drafter)
        s.fact("k", _whole(b"speculative_num_steps", message))
        s.fact("topk", _whole(b"speculative_eagle_topk", message))
    else:
        s.speculative = False


def _workers(s: LoadState, _message: bytes) -> None:
    s.enter("workers")
    if s.process is not None:
        s.ranks.add(s.process)
        s.fact("ranks", len(s.ranks))


def _nccl(s: LoadState, message: bytes) -> None:
    s.fact("nccl", message.split(b"nccl==", 1)[1].strip().decode("utf-8", "replace"))


_END = re.compile(rb"(?:elapsed=([\d.]+) s, )?type=(\w+), .*?mem usage=(-?[\d.]+) GB")


def _load_begin(s: LoadState, _message: bytes) -> None:
    s.engine = "sglang"
    times = s.loads[s.process] = s.loads.get(s.process, 0) + 1
    s.enter("weights", TARGET if times == 1 else DRAFTER)


def _load_end(s: LoadState, message: bytes) -> None:
    role = DRAFTER if s.loads.get(s.process, 1) > 1 else TARGET
    drafter = role == DRAFTER
    match = _END.search(message)
    if match is not None:
        if match.group(1) is not None:
            s.fact("drafter_weights_seconds" if drafter else "weights_seconds", float(match.group(1)), again=False)
        s.fact("drafter_class" if drafter else "target_class", match.group(2).decode("ascii"), again=False)
        s.fact("drafter_load_gb" if drafter else "load_gb", float(match.group(3)), again=False)
    if not drafter:
        s.target_done = True
    s.enter("process", role)


_TOKENS = re.compile(rb"#tokens: (\d+)")


def _kv(s: LoadState, message: bytes) -> None:
    s.enter("kv")
    match = _TOKENS.search(message)
    if match is not None:
        s.fact("kv_tokens", int(match.group(1)), again=False)


_CAPTURE_BEGIN = re.compile(rb"Capture (.*?)(?:cuda|CUDA) graph begin")
_CAPTURE_END = re.compile(rb"Capture (.*?)(?:cuda|CUDA) graph end\..*?(?:Time elapsed: |elapsed=)([\d.]+) s")


def _capture(s: LoadState, message: bytes) -> None:
    begin = _CAPTURE_BEGIN.match(message)
    if begin is not None:
        label = begin.group(1).strip()
        s.capture_role = DRAFTER if b"draft" in label else TARGET
        s.capture_label = label.decode("ascii", "replace") or "decode"
        s.enter("capture", s.capture_role)
        return
    end = _CAPTURE_END.match(message)
    if end is not None and s.process in (None, b"TP0", b"DP0 TP0"):
        s.add_seconds("capture_seconds", float(end.group(2)))


_SIZES = re.compile(rb"max_total_num_tokens=(\d+).*?max_running_requests=(\d+), context_len=(\d+)")


def _sizes(s: LoadState, message: bytes) -> None:
    match = _SIZES.match(message)
    if match is not None:
        s.fact("kv_tokens", int(match.group(1)))
        s.fact("max_running", int(match.group(2)))
        s.fact("max_model_len", int(match.group(3)))
    s.enter("finish")


_TIMINGS = {
    "load_seconds": re.compile(rb"load_weight=([\d.]+)"),
    "kv_seconds": re.compile(rb"kv_cache_allocation=([\d.]+)"),
    "init_seconds": re.compile(rb"scheduler_e2e=([\d.]+)"),
}


def _timings(s: LoadState, message: bytes) -> None:
    for name, pattern in _TIMINGS.items():
        match = pattern.search(message)
        if match is not None:
            s.fact(name, float(match.group(1)), again=False)
    s.enter("finish")


def _ready(s: LoadState, message: bytes) -> None:
    s.engine = "sglang"
    s.ready(message.decode("utf-8", "replace"))


def _stop(s: LoadState, message: bytes) -> None:
    s.stop(message.decode("utf-8", "replace"))


_DECODE = re.compile(
    rb"Decode batch[^#]*#running-req: (\d+), .*?token usage: ([\d.]+)(?:.*?accept len: ([\d.]+))?(?:.*?accept rate: ([\d.]+))?"
    rb".*?gen throughput \(token/s\): ([\d.]+), #queue-req: (\d+)"
)


def _decode(s: LoadState, message: bytes) -> None:
    """Statistics of the last interval of decode steps. ``accept len`` counts the bonus token in every version.

    The printed rate changed its meaning between versions, so the common one comes from the length: (length - 1) / k.
    """
    match = _DECODE.match(message)
    if match is None:
        return
    length = float(match.group(3)) if match.group(3) is not None else None
    k = s.facts.get("k")
    stats: Dict[str, Any] = {
        "running": int(match.group(1)),
        "waiting": int(match.group(6)),
        "kv": float(match.group(2)),
        "generated_per_s": float(match.group(5)),
    }
    if length is not None:
        stats["length"] = length
        stats["rate"] = round((length - 1) / k, 6) if k else None
    s.stats = stats
    s.emit("stats", "server", value=stats)


RULES: List[Rule] = [
    (b"server_args=", _server_args),
    (b"Init torch distributed begin", _workers),
    (b"Init parallel begin", _workers),
    (b"sglang is using nccl==", _nccl),
    (b"Load weight begin", _load_begin),
    (b"Load weight end", _load_end),
    (b"KV Cache is allocated", _kv),
    (b"Memory pool end", _kv),
    (b"Capture ", _capture),
    (b"max_total_num_tokens=", _sizes),
    (b"Engine startup timings", _timings),
    (b"The server is fired up and ready to roll!", _ready),
    (b"Decode batch", _decode),
    (b"SIGTERM received", _stop),
    (b"Gracefully exiting", _stop),
]
