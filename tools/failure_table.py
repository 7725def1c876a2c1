"""The failure catalogue as Markdown, for docs/failures.md."""

from __future__ import annotations

import re


def failure_table() -> str:
    """Every entry by theme: what stands in the log, what it means, what to do."""
    from eagletui.engines.diagnosis.entries import ENTRIES, THEMES

    engines = {"vllm": "vLLM", "sglang": "SGLang", None: "both engines"}
    out = [f"The catalogue has {len(ENTRIES)} entries.", ""]
    for theme, entries in THEMES:
        out += [f"## {theme}", ""]
        for entry in entries:
            versions = f" {entry.versions}" if entry.versions else ""
            sure = "tells only that something broke" if entry.weak else f"{round(100 * entry.confidence)} % sure"
            shown = _telling(entry.hit, entry.keys)
            out += [
                f"### {entry.id}",
                "",
                f"{_holes(entry.title)} ({engines[entry.engine]}{versions}; {entry.stage}; {sure}; {entry.provenance})",
                "",
                "```",
                shown if len(shown) <= 200 else shown[:199] + "…",
                "```",
                "",
                f"- why: {_holes(entry.cause)}",
                f"- do: {_holes(entry.remedy)}",
                f"- from: {entry.source}",
                "",
            ]
    return "\n".join(out).rstrip()


def _telling(example: str, keys: tuple[str, ...]) -> str:
    """The line of the example that the entry is found by."""
    lines = example.split("\n")
    return next((line.strip() for line in lines if any(key in line for key in keys)), lines[-1].strip())


def _holes(text: str) -> str:
    return re.sub(r"\{\w+\}", "…", text)
