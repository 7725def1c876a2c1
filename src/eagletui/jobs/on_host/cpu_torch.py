"""Train where torch sees no accelerator: what speculators 0.9 asks of one is answered for the CPU. For laboratories."""

from __future__ import annotations

from importlib import import_module
from typing import Any, List


def has_accelerator() -> bool:
    """Whether torch sees one (CUDA, ROCm, ...)."""
    torch: Any = import_module("torch")
    return bool(torch.accelerator.is_available())


def answer_for_cpu() -> None:
    """The trainer takes an accelerator for granted in eight places. To be called before its modules are imported."""
    torch: Any = import_module("torch")
    cpu = torch.device("cpu")
    place = torch.accelerator
    # with check_available it asks whether there is something to empty after success: there is not, and it would fail on that
    place.current_accelerator = lambda check_available=False: None if check_available else cpu
    place.is_available = lambda: False
    place.synchronize = lambda *args: None
    place.current_device_index = lambda: 0
    place.set_device_index = lambda *args: None

    distributed: Any = import_module("torch.distributed")
    begin = distributed.init_process_group
    # its number of a card means nothing here
    distributed.init_process_group = lambda *args, **kwargs: begin(*args, **{k: v for k, v in kwargs.items() if k != "device_id"})

    import_module("speculators.train.trainer").get_local_rank = lambda: cpu  # type: ignore[attr-defined]
    import_module("speculators.train.recovery").get_local_rank = lambda: 0  # type: ignore[attr-defined]
    # where a resume reads a checkpoint to: "cpu:0" is no place to safetensors
    import_module("speculators.train.checkpointer").get_current_device = lambda: "cpu"  # type: ignore[attr-defined]


def cpu_words(words: List[str], cpuinfo: str = "/proc/cpuinfo") -> List[str]:
    """The trainer's arguments with what a CPU needs, unless they say otherwise: its kernels for cards do not run here.

    Without instructions for bfloat16 a CPU emulates it, many times slower than it computes float32.
    """
    given = {word.split("=", 1)[0] for word in words if word.startswith("--")}
    wanted = [("--draft-attn-impl", "sdpa"), ("--loss-implementation", "eager"), ("--num-workers", "1")]
    if not _has_bfloat16(cpuinfo):
        wanted.append(("--hidden-states-dtype", "float32"))
    out = list(words)
    for flag, value in wanted:
        if flag not in given:
            out += [flag, value]
    return out


def _has_bfloat16(cpuinfo: str) -> bool:
    try:
        with open(cpuinfo, encoding="utf-8", errors="replace") as file:
            flags = next((set(line.split()) for line in file if line.startswith("flags")), set())
    except OSError:
        return False  # not told: float32 is what every CPU computes
    return bool(flags & {"avx512_bf16", "amx_bf16"})
