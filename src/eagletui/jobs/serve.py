"""An engine's server: vLLM or SGLang, with or without a drafter. A success when it became ready and was ended by us."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Tuple

from eagletui.jobs.base import Kind, status_words

ENGINE_NAMES = {"vllm": "vLLM", "sglang": "SGLang"}


class Serve(Kind):
    name = "serve"
    server = True

    def title(self, spec: Mapping[str, Any]) -> str:
        engine = ENGINE_NAMES.get(str(spec.get("engine")), str(spec.get("engine") or "server"))
        text = "%s %s" % (engine, spec.get("model") or "")
        if spec.get("drafter"):
            text += " + %s" % spec["drafter"]
            if spec.get("k"):
                text += " k=%d" % spec["k"]
        return text.strip() + (" :%d" % spec["port"] if spec.get("port") else "")

    def progress(self, state: Mapping[str, Any]) -> Tuple[Optional[float], Optional[float], str]:
        """Of the running phase: shards, graphs, whatever its bar counts."""
        for phase in reversed(list(state.get("phases") or ())):
            doc = phase if isinstance(phase, Mapping) else phase._asdict()
            if doc.get("seconds") is None and doc.get("total"):
                return doc.get("done"), doc["total"], doc.get("unit") or ""
        return None, None, ""

    def verdict(self, spec: Mapping[str, Any], state: Mapping[str, Any], killed: bool) -> Tuple[Optional[bool], str]:
        ready, rc = state.get("ready_seconds"), state.get("rc")
        if state.get("state") == "oom":
            return False, "killed by the kernel for memory"
        if killed:
            return (True, "served, ended on request") if ready is not None else (None, "ended on request before it was ready")
        if state.get("first_error"):
            return False, str(state["first_error"])
        if ready is None:
            return False, "never ready: %s" % status_words(rc)
        return rc == 0, "was ready, then ended by itself: %s" % status_words(rc)
