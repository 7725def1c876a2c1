"""vLLM's periodic lines: throughput and load, and the acceptance of the interval. One pair every ten seconds while it works."""

from __future__ import annotations

import re
from typing import Any, Dict, Optional

from eagletui.engines.state import LoadState

_STATS = re.compile(
    rb"(?:Engine (?P<e>\d+)|\d+ Engines Aggregated): Avg prompt throughput: ([\d.]+) tokens/s, "
    rb"Avg generation throughput: ([\d.]+) tokens/s, Running: (\d+) reqs, Waiting: (\d+) reqs"
)
_STATS_KV = re.compile(rb"KV cache usage: ([\d.]+)%")
_STATS_PREFIX = re.compile(rb"[^l] Prefix cache hit rate: ([\d.]+)%")
_SPEC_LENGTH = re.compile(rb"Mean acceptance length: (nan|[\d.]+)")
_SPEC_ACCEPTED = re.compile(rb"Accepted: (\d+) tokens")
_SPEC_DRAFTED = re.compile(rb"Drafted: (\d+) tokens")
_SPEC_POSITIONS = re.compile(rb"Per-position acceptance rate: ((?:nan|[\d.]+)(?:, (?:nan|[\d.]+))*)")


def server(s: LoadState, message: bytes) -> None:
    """Throughput and load of the last interval; ``kv`` and ``prefix_hit_rate`` are 0 to 1."""
    match = _STATS.match(message)
    if match is None:
        return
    kv, prefix = _STATS_KV.search(message), _STATS_PREFIX.search(message)
    stats = {
        "prompt_per_s": float(match.group(2)),
        "generated_per_s": float(match.group(3)),
        "running": int(match.group(4)),
        "waiting": int(match.group(5)),
        "kv": round(float(kv.group(1)) / 100, 6) if kv else None,
        "prefix_hit_rate": round(float(prefix.group(1)) / 100, 6) if prefix else None,
    }
    s.stats = stats
    s.emit("stats", "server", value=stats)


def _float(raw: bytes) -> Optional[float]:
    return None if raw == b"nan" else float(raw)


def speculative(s: LoadState, message: bytes) -> None:
    """Acceptance of the last interval, in the common definition: length with the bonus token, rate accepted / drafted."""
    length, accepted = _SPEC_LENGTH.search(message), _SPEC_ACCEPTED.search(message)
    drafted, positions = _SPEC_DRAFTED.search(message), _SPEC_POSITIONS.search(message)
    mean = _float(length.group(1)) if length else None
    a = int(accepted.group(1)) if accepted else None
    d = int(drafted.group(1)) if drafted else None
    per_position = [_float(part) for part in positions.group(1).split(b", ")] if positions else []
    if (
        mean is not None
        and message.startswith(b"SpecDecoding metrics: Draft acceptance rate")
        and (s.version or "").startswith("0.8")
    ):
        mean += 1.0  # 0.8 printed accepted / rounds, without the bonus token
    stats: Dict[str, Any] = {
        "length": mean,
        "accepted": a,
        "drafted": d,
        "rate": round(a / d, 6) if d and a is not None else None,
    }
    stats["per_position"] = per_position
    s.emit("stats", "speculative", value=stats)
    s.stats = dict(s.stats or {}, **stats)
