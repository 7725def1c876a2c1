"""What the log readers report: events as they happen, a summary at any time, and the names of the phases.

A load goes through these phases, under the same names for both engines (one may be missing, and SGLang before 0.5.10 loads
the drafter after the target's graphs):

spawn (imports, silent) - config - workers (processes, NCCL) - weights (target, then drafter) - process (repacking after the
read, silent) - compile - profile (memory profiling run) - kv - warmup (kernels, and SGLang's first request) - capture (CUDA
graphs) - finish (what the engine does between the graphs and its own "done") - api - ready.
"""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Optional, Tuple

from eagletui.records import Cause, Evidence, Phase

__all__ = ["DRAFTER", "OUTCOMES", "TARGET", "Event", "Evidence", "Failure", "Summary", "phases_json"]

PHASE_LABELS: Dict[str, str] = {
    "spawn": "spawn, imports",
    "config": "config",
    "workers": "workers, NCCL",
    "weights": "weights",
    "process": "repacking",
    "compile": "compile",
    "profile": "memory profile",
    "kv": "KV cache",
    "warmup": "warm-up",
    "capture": "CUDA graphs",
    "finish": "finishing",
    "api": "API server",
    "ready": "ready",
}

OUTCOMES = ("loading", "ready", "failed", "stopped")

TARGET, DRAFTER = "target", "drafter"


class Failure(NamedTuple):
    """Why a launch failed: the first root exception, not the wrappers that follow it.

    ``text`` is that line, ``process`` who printed it, ``phase`` and ``role`` what the load was doing then. ``evidence``
    holds the root line, the innermost stack frame and what the engine said when it gave up.
    """

    offset: int
    line: int
    text: str
    process: Optional[str] = None
    phase: Optional[str] = None
    role: Optional[str] = None
    evidence: Tuple[Evidence, ...] = ()


class Event(NamedTuple):
    """Something the log said.

    ``kind`` is phase (``name`` is the phase that begins), progress (``done``/``total`` of ``unit``), fact (``name``,
    ``value``), ready, stats (``value`` is a dict), failure (``value`` is a `Failure`), alert (``name`` is the id of the likeliest
    cause, ``value`` the causes), shutdown or notice. ``time`` is seconds from the first line; ``text`` the message.
    """

    kind: str
    offset: int
    time: float
    name: str = ""
    role: Optional[str] = None
    done: Optional[float] = None
    total: Optional[float] = None
    unit: Optional[str] = None
    value: Any = None
    text: str = ""


class Summary(NamedTuple):
    """All that is known of the (last) launch in a log. ``outcome`` is one of `OUTCOMES`; ``phase`` is the running phase's id.

    ``last_time`` is the time of the last line, ``lines`` the number of lines read, ``stats`` the last periodic statistics,
    ``causes`` why it failed.
    ``facts`` holds, as far as they were printed: host, port, k, method, tp, max_model_len, target_class, drafter_class,
    aux_layers, kv_tokens, kv_gib, load_gib, load_seconds, weights_seconds, drafter_weights_seconds, compile_seconds,
    capture_seconds, capture_gib, init_seconds, checkpoint_gib, drafter_checkpoint_gib, nccl, ranks and others.
    """

    engine: Optional[str]
    engine_version: Optional[str]
    outcome: str
    model: Optional[str]
    drafter: Optional[str]
    phases: Tuple[Phase, ...]
    facts: Dict[str, Any]
    phase: Optional[str] = None
    ready_seconds: Optional[float] = None
    failure: Optional[Failure] = None
    last_time: float = 0.0
    lines: int = 0
    stats: Optional[Dict[str, Any]] = None
    restarts: int = 0
    causes: Tuple[Cause, ...] = ()


PHASES_VERSION = 1


def phases_json(summary: Summary) -> Dict[str, Any]:
    """The document of ``eagletui phases --json``: keys may be added, never renamed. Times in seconds from the first line."""
    failure = summary.failure
    return {
        "version": PHASES_VERSION,
        "engine": summary.engine,
        "engine_version": summary.engine_version,
        "outcome": summary.outcome,
        "model": summary.model,
        "drafter": summary.drafter,
        "phases": [
            {
                "id": p.id,
                "role": p.role,
                "start": round(p.start, 3),
                "seconds": None if p.seconds is None else round(p.seconds, 3),
                "done": p.done,
                "total": p.total,
                "unit": p.unit,
            }
            for p in summary.phases
        ],
        "facts": summary.facts,
        "phase": summary.phase,
        "ready_seconds": summary.ready_seconds,
        "first_error": None if failure is None else {"line": failure.line, "offset": failure.offset, "text": failure.text},
    }
