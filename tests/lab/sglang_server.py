"""The real SGLang on this machine's CPU: where it is, and how it is served as a profile says.

It is built by ``make sglang`` (tests/lab/sglang/build.sh) in ``EAGLETUI_SGLANG_LAB``, else in ~/.cache/eagletui/tests/sglang, and
serves the lab's target with the lab's drafter, which is converted for it.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagletui.labparts.paths import Lab
from eagletui.profiles import Profile

HERE = Path(__file__).parent / "sglang"
ENVIRONMENT = {
    "SGLANG_USE_CPU_ENGINE": "1",  # else it looks for CUDA's kernels
    "OMP_NUM_THREADS": "1",  # more threads than free cores make a token take a second instead of 30 ms
    "MKL_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}
PLAIN = (
    *("--device", "cpu", "--cuda-graph-backend-decode=disabled", "--cuda-graph-backend-prefill=disabled"),
    *("--mem-fraction-static", "0.2", "--max-total-tokens", "8192", "--max-running-requests", "8"),
)
# speculation is refused on torch_native; on intel_amx as the one choice for both, a machine without AMX falls back to that
DRAFTING = ("--prefill-attention-backend", "intel_amx", "--decode-attention-backend", "intel_amx")


@dataclass(frozen=True)
class Sglang:
    """An SGLang that was built, and the models it serves."""

    root: Path
    lab: Lab

    @property
    def venv(self) -> Path:
        return self.root / "venv"

    @property
    def drafter(self) -> Path:
        return self.root / "drafter"

    def prepare(self) -> None:
        """Convert the lab's drafter, once."""
        source, mark = self.lab.drafter / "model.safetensors", self.drafter / "config.json"
        if not mark.exists() or mark.stat().st_mtime < source.stat().st_mtime:
            command = [str(self.venv / "bin/python"), str(HERE / "convert.py"), str(self.lab.drafter), str(self.drafter)]
            subprocess.run(command, check=True, timeout=300)

    def profile(self, folder: Path, port: int, **more: Any) -> Profile:
        """A server with the drafter and 3 draft tokens; ``drafter=None`` for one without. ``folder`` is for its own files."""
        # without it torch's store listens on all interfaces
        env = {**ENVIRONMENT, "SGLANG_DISTRIBUTED_INIT_METHOD_OVERRIDE": f"file://{folder}/meeting-{port}", **more.pop("env", {})}
        drafter = more.pop("drafter", str(self.drafter))
        args = [*PLAIN, "--attention-backend", "torch_native", *(DRAFTING if drafter else ()), *more.pop("args", ())]
        given: dict[str, Any] = {
            "name": "sglang", "engine": "sglang", "venv": str(self.venv), "model": str(self.lab.model), "port": port,
            "drafter": drafter, "k": 3 if drafter else None, "env": env, "args": tuple(args), "cwd": str(folder),
        }  # fmt: skip
        return Profile(**{**given, **more})


def sglang_root() -> Path:
    """Where it is, or would be built."""
    return Path(os.environ.get("EAGLETUI_SGLANG_LAB") or Path.home() / ".cache/eagletui/tests/sglang")


def is_built(root: Path) -> bool:
    return (root / "built").is_file()
