"""What was measured, as files on this machine: JSON for programs, CSV for tables, Markdown with plots for people."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from pathlib import Path

from eagletui.hosts.base import HostError
from eagletui.paths import state_dir
from eagletui.records.bench import BenchResult, BenchVerdict
from eagletui.views.bench_report import as_csv, as_json, as_markdown


def export_bench(name: str, verdict: BenchVerdict | None, results: Sequence[BenchResult]) -> list[str]:
    """Write all three; their paths. Blocks. Raises `HostError` of kind config when the folder cannot be written."""
    word = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:60] or "bench"
    stem = f"{word}-{time.strftime('%Y%m%d-%H%M%S')}"
    folder = state_dir() / "exports"
    texts = {
        "json": json.dumps(as_json(verdict, results), indent=1, ensure_ascii=False) + "\n",
        "csv": as_csv(verdict, results),
        "md": as_markdown(verdict, results),
    }
    out = []
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for ending, text in texts.items():
            path: Path = folder / f"{stem}.{ending}"
            path.write_text(text, encoding="utf-8", errors="backslashreplace")
            out.append(str(path))
    except OSError as error:
        raise HostError("export", f"{error.filename}: {error.strerror}", "make room or rights there", kind="config") from None
    return out
