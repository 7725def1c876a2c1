"""What the way in which a process ended tells, beside its log."""

from __future__ import annotations

from typing import Iterator, Optional

from eagletui.engines.events import Failure
from eagletui.records import Cause

HOST_FACT = "the host"


def ending_causes(rc: Optional[int], oom: bool, failure: Optional[Failure]) -> Iterator[Cause]:
    """Causes that an exit status or a kill by the kernel gives. A log that names an error of its own makes most less likely."""
    if oom:
        yield Cause(
            "oom-killed",
            "the kernel killed it: the host (or its container) ran out of memory",
            0.97,
            "fewer loader threads, no prefetch, one shard at a time; more memory or swap; raise the container's or unit's"
            " memory limit",
            "the kernel's counter of kills for memory rose as the process ended",
            source=HOST_FACT,
            provenance="seen",
        )
        return
    if rc is None:
        return
    signal = -rc if rc < 0 else rc - 128 if rc > 128 else 0
    told = _SIGNALS.get(signal)
    if told is not None:
        # SGLang ends itself by signal 9 when one of its processes has failed: then the log's own error says more, known or not
        weight = 0.8 if failure is None else 0.25 if signal in (9, 15) else 0.35
        yield Cause(told[0], told[1], weight, told[2], told[3], source=HOST_FACT, provenance="seen")
    elif rc in (126, 127) and failure is None:
        yield Cause(
            "command-not-found" if rc == 127 else "not-executable",
            "its program was not found" if rc == 127 else "its program may not be executed",
            0.8,
            "check the path of the program in the profile, on the host",
            "a shell ends with %d then" % rc,
            source=HOST_FACT,
            provenance="seen",
        )


_SIGNALS = {
    9: (
        "killed-9",
        "it was killed from outside (signal 9)",
        "dmesg -T | grep -i 'killed process' tells whether the kernel did it for memory; else ask who else works on this host",
        "nobody can catch signal 9: the kernel, a container's or unit's limit, or another user sent it",
    ),
    11: (
        "segfault",
        "it crashed (segmentation fault)",
        "look for the last library named in the log; run again with PYTHONFAULTHANDLER=1; check that torch, CUDA and the"
        " kernels fit",
        "a library read memory that is not its own",
    ),
    7: (
        "bus-error",
        "it crashed (bus error)",
        "df -h /dev/shm: make room there or start the container with --shm-size=16g or --ipc=host; then check the disk of the"
        " model",
        "shared memory or a mapped file could not be backed: /dev/shm is full, or a file was cut or its disk failed",
    ),
    6: (
        "aborted",
        "it aborted itself (signal 6)",
        "the lines above the end of the log say which check failed; with NCCL or CUDA, run again with NCCL_DEBUG=INFO",
        "a library found a state that it cannot go on from",
    ),
    15: (
        "terminated",
        "it was ended from outside (signal 15)",
        "ask who or what ended it: a service manager, a container's stop, the end of a login session",
        "somebody other than eagletui sent signal 15",
    ),
    1: (
        "hangup",
        "it ended with the terminal or session it was started from (signal 1)",
        "start it with eagletui, or with systemd-run or tmux: then it outlives the session",
        "the session it belonged to has ended",
    ),
    4: (
        "illegal-instruction",
        "it met an instruction that this processor does not have (signal 4)",
        "install a build for this processor; a wheel built for AVX-512 does not run without it",
        "the program or one of its libraries was built for another processor",
    ),
}
