"""Where the lab lives on this machine and what is in it. Nothing here builds or starts anything."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

RECIPE = "1"  # raised when a change of the recipe needs a new build of finished steps
SHARDS = 16


@dataclass(frozen=True)
class Lab:
    """The lab's folder and the paths in it. The paths exist once their step is done."""

    root: Path

    @property
    def venv(self) -> Path:
        return self.root / "venv"

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    @property
    def vllm(self) -> Path:
        """The engine's own command."""
        return self.venv / "bin" / "vllm"

    @property
    def speculators(self) -> Path:
        return self.venv / "bin" / "speculators"

    @property
    def model(self) -> Path:
        """The target as one safetensors file."""
        return self.root / "smollm2"

    @property
    def sharded(self) -> Path:
        """The same target in 16 shards, for loads that are worth watching."""
        return self.root / "smollm2-16shards"

    @property
    def drafter(self) -> Path:
        """The EAGLE-3 drafter, in the format that speculators writes."""
        return self.root / "drafter"

    @property
    def slow(self) -> Path:
        """A folder for PYTHONPATH with the engine plugin that slows the load of each shard."""
        return self.root / "slow"

    @property
    def tmp(self) -> Path:
        """Temporary files and sockets of the lab's servers and of its installer: they go when the lab goes."""
        return self.root / "tmp"

    @property
    def log(self) -> Path:
        """What the steps of `lab up` printed."""
        return self.root / "up.log"

    @property
    def mark(self) -> Path:
        """The file that says that this folder is a lab and may be removed as one."""
        return self.root / "lab.json"

    @property
    def markers(self) -> Path:
        """One file for each finished step, with the recipe it was made by."""
        return self.root / "steps"

    def filled(self, text: str) -> str:
        """A profile or job file of the lab with its place and its number format in it."""
        return text.replace("{lab}", str(self.root)).replace("{dtype}", cpu_dtype())

    @property
    def built(self) -> bool:
        """Whether the last step of a build was finished by this recipe."""
        return self.finished("drafter")

    def finished(self, step: str) -> bool:
        """Whether ``step`` was finished by the recipe of this version."""
        try:
            return (self.markers / step).read_text().strip() == RECIPE
        except (OSError, UnicodeDecodeError):
            return False  # no marker, or no text in it: the step is simply not finished


def default_root(env: Mapping[str, str] | None = None) -> Path:
    """``$EAGLETUI_LAB``, else ``$XDG_CACHE_HOME/eagletui/lab``, else ``~/.cache/eagletui/lab``; absolute."""
    env = os.environ if env is None else env
    if env.get("EAGLETUI_LAB"):
        return Path(os.path.abspath(os.path.expanduser(env["EAGLETUI_LAB"])))
    cache = env.get("XDG_CACHE_HOME", "")
    # the specification asks to ignore a relative path here
    base = Path(cache) if os.path.isabs(cache) else Path(os.path.expanduser("~/.cache"))
    return base / "eagletui" / "lab"


def find_lab(root: str | os.PathLike[str] | None = None) -> Lab:
    """The lab at ``root`` or at its usual place, built or not."""
    return Lab(Path(os.path.abspath(os.path.expanduser(root))) if root else default_root())


def cpu_dtype(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The number format that this machine's CPU multiplies fast: ``bfloat16`` where it has instructions for it, else ``float32``.

    Without them bfloat16 is emulated: measured 4 to 5 times slower for a batch of 16 rows.
    """
    try:
        with cpuinfo.open() as file:
            flags = next((set(line.split()) for line in file if line.startswith("flags")), set())
    except OSError:
        return "float32"  # not told: the format that every CPU has
    return "bfloat16" if flags & {"avx512_bf16", "amx_bf16"} else "float32"
