"""The few system calls that the standard library lacks on Python 3.8: prctl, pidfd, fallocate. ctypes is loaded when needed.

Where ctypes is missing (python3-minimal) or the kernel is too old, each says so with a return value; nothing is raised for that.
"""

from __future__ import annotations

import errno
import os
import platform
import signal
from typing import Any, Optional

from eagletui.agent.procfs import read_stat

_NUMBERS_ARE_COMMON = ("x86_64", "aarch64", "riscv64", "ppc64le", "s390x")  # 424 and 434 since the tables were merged
_PIDFD_SEND_SIGNAL, _PIDFD_OPEN = 424, 434
_PR_SET_CHILD_SUBREAPER, _PR_SET_NAME, _PR_SET_PDEATHSIG = 36, 15, 1
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_libc: Any = None


def _c() -> Any:
    """The C library, or None without ctypes."""
    global _libc
    if _libc is None:
        try:
            import ctypes
        except ImportError:
            return None
        _libc = ctypes.CDLL(None, use_errno=True)
    return _libc


def _errno() -> int:
    import ctypes

    return ctypes.get_errno()


def become_subreaper() -> bool:
    """Have orphaned descendants become our children, so that we reap them and know they are the job's."""
    libc = _c()
    return libc is not None and libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def load() -> None:
    """Have the C library at hand: a child just forked had better not load it."""
    _c()


def die_with_parent() -> None:
    """Have the kernel end this process when its parent does. Call `load` before the fork."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def set_name(name: str) -> None:
    """The process's short name in ps and top."""
    libc = _c()
    if libc is not None:
        libc.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def give_back_memory() -> None:
    """Return to the kernel what start-up (compiling our own modules) left unused in the heap."""
    trim = getattr(_c(), "malloc_trim", None)  # the GNU C library's; others keep little
    if trim is not None:
        trim(0)


def punch_hole(fd: int, offset: int, length: int) -> Optional[str]:
    """Give the blocks of ``[offset, offset + length)`` back; the file keeps its size and offsets. The reason when it cannot."""
    libc = _c()
    if libc is None:
        return "ctypes is missing"
    import ctypes

    call = libc.fallocate
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    if call(fd, _KEEP_SIZE | _PUNCH_HOLE, offset, length) == 0:
        return None
    return os.strerror(_errno())


def _pidfd_open(pid: int) -> Optional[int]:
    """A pidfd, or None where the kernel or the Python cannot. Raises `ProcessLookupError`."""
    opener = getattr(os, "pidfd_open", None)
    if opener is not None:
        try:
            return int(opener(pid, 0))
        except OSError as error:
            if error.errno in (errno.ENOSYS, errno.EPERM, errno.EINVAL):
                return None
            raise
    libc = _c()
    if libc is None or platform.machine() not in _NUMBERS_ARE_COMMON:
        return None
    fd = libc.syscall(_PIDFD_OPEN, pid, 0)
    if fd >= 0:
        return int(fd)
    if _errno() == errno.ESRCH:
        raise ProcessLookupError(errno.ESRCH, "no such process")
    return None


def _pidfd_send(fd: int, number: int) -> None:
    sender = getattr(signal, "pidfd_send_signal", None)
    if sender is not None:
        sender(fd, number)
    elif _c().syscall(_PIDFD_SEND_SIGNAL, fd, number, None, 0) != 0:
        raise OSError(_errno(), os.strerror(_errno()))


def signal_process(pid: int, start: int, number: int) -> bool:
    """Signal this very process: held by a pidfd while its start is compared, so a reused pid is never hit.

    False when it has gone (or a zombie is left). Raises `PermissionError`. Kernels before 5.3 lack pidfds: there the
    start is compared immediately before the signal.
    """
    if pid <= 1:
        return False
    try:
        fd = _pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        stat = read_stat(pid)
        if stat is None or stat.start != start or stat.dead:
            return False
        try:
            if fd is None:
                os.kill(pid, number)
            else:
                _pidfd_send(fd, number)
        except ProcessLookupError:
            return False
        return True
    finally:
        if fd is not None:
            os.close(fd)
