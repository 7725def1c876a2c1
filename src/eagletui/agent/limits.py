"""What the kernel allows a supervisor and its job: open files, locked memory, and who is chosen when memory runs out."""

from __future__ import annotations

import os
import resource
from typing import Iterator, Optional, Tuple

from eagletui.agent import procfs

FILES = 1 << 20
LOW_FILES, LOW_PROCESSES = 4096, 1024
_OOM = "/proc/self/oom_score_adj"
_SPARED = -900


def ours() -> None:
    """For the supervisor, and through it for the job: as much as a unit would give, as far as we may. Nothing is told where we
    may not: `low` says so before the launch. The kernel should end anything but us when memory runs out: we say what happened."""
    _raise(resource.RLIMIT_NOFILE, FILES)
    _raise(resource.RLIMIT_MEMLOCK, resource.RLIM_INFINITY)
    _set(resource.RLIMIT_CORE, 0, None)  # the core of an engine is as large as its memory
    _write_oom(_SPARED)


def the_jobs() -> None:
    """In the child: it is no more precious than a login's processes."""
    try:
        with open(_OOM, encoding="ascii") as file:
            spared = int(file.read()) < 0
    except (OSError, ValueError):
        return  # no such file in this container: nothing was changed either
    if spared:
        _write_oom(0)


def _write_oom(value: int) -> None:
    try:
        with open(_OOM, "w", encoding="ascii") as file:
            file.write(str(value))
    except OSError:
        pass  # without the right to it the kernel chooses by size, and we are small


def _raise(kind: int, wanted: int) -> None:
    """To ``wanted``, or as far as the hard limit lets us."""
    soft, hard = resource.getrlimit(kind)
    if _enough(soft, wanted):
        return
    if not _set(kind, wanted, wanted if not _enough(hard, wanted) else None):
        _set(kind, hard, None)


def _enough(value: int, wanted: int) -> bool:
    if value == resource.RLIM_INFINITY or wanted == resource.RLIM_INFINITY:
        return value == resource.RLIM_INFINITY
    return value >= wanted


def _may_raise() -> bool:
    """Whether we have CAP_SYS_RESOURCE: root in a container often has not."""
    try:
        return bool(int(procfs.status(os.getpid()).get("CapEff", "0"), 16) & (1 << 24))
    except ValueError:
        return False


def _set(kind: int, soft: int, hard: Optional[int]) -> bool:
    try:
        resource.setrlimit(kind, (soft, resource.getrlimit(kind)[1] if hard is None else hard))
    except (OSError, ValueError):
        return False  # not ours to raise
    return True


def low(unit: bool) -> Iterator[str]:
    """What a job would have too little of here, in words with the remedy. A system unit, and whoever may, sets its own limits."""
    if unit or _may_raise():
        return
    kinds: Tuple[Tuple[int, str, str, int], ...] = (
        (resource.RLIMIT_NOFILE, "open files", "nofile", LOW_FILES),
        (resource.RLIMIT_NPROC, "processes and threads", "nproc", LOW_PROCESSES),
    )
    for kind, what, name, least in kinds:
        hard = resource.getrlimit(kind)[1]
        if not _enough(hard, least):
            yield "the host allows a job only %d %s: raise %s in /etc/security/limits.conf" % (hard, what, name)
