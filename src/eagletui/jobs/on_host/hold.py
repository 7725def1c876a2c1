"""One program at a time writes to a directory."""

from __future__ import annotations

import fcntl
import os


class Held(Exception):
    """Another program has the directory."""


def hold(directory: str) -> int:
    """Hold the directory until this process ends, however it ends. Returns the descriptor. Raises `Held`, ``OSError``."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise Held("another job writes to %s: wait for it, or choose another output" % directory) from None
    return fd
