"""The document of ``eagletui diagnose --json``."""

from __future__ import annotations

from typing import Any, Dict, Iterable, Optional

from eagletui.records import Cause

DIAGNOSIS_VERSION = 1


def diagnosis_json(engine: Optional[str], outcome: str, causes: Iterable[Cause]) -> Dict[str, Any]:
    """Keys may be added, never renamed; the best cause first, none when nothing failed."""
    return {"version": DIAGNOSIS_VERSION, "engine": engine, "outcome": outcome, "causes": [cause_json(cause) for cause in causes]}


def cause_json(cause: Cause) -> Dict[str, Any]:
    """One cause; ``line`` counts from 1 (None when lines before it were not read), ``offset`` in bytes."""
    return {
        "id": cause.id,
        "title": cause.title,
        "confidence": cause.confidence,
        "cause": cause.cause,
        "evidence": [{"line": place.line or None, "offset": place.offset, "text": place.text} for place in cause.evidence],
        "remedy": cause.remedy,
        "source": cause.source,
        "provenance": cause.provenance,
    }
