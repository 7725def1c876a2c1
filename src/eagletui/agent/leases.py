"""Leases: one job per port and per card, by flock. The lock is the truth, free the instant its last holder dies; what the
file says (job, operator, since) is only for the message to the one who comes second.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from typing import Any, Dict, List, Mapping, Sequence


class LeaseTaken(Exception):
    """Another job holds it; the text says what, who and since when."""

    def __init__(self, lease: str, holder: Mapping[str, Any]) -> None:
        self.lease, self.holder = lease, dict(holder)
        what = lease.replace("-", " ", 1)
        by = "job %s" % holder["job"] if holder.get("job") else "another job"
        if holder.get("operator"):
            by += " of %s" % holder["operator"]
        if isinstance(holder.get("since"), (int, float)):
            by += ", since %s" % time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder["since"]))
        super().__init__("%s is leased by %s" % (what, by))


def names(port: Any, gpus: Sequence[str]) -> List[str]:
    """The leases of a job, in the one order in which everybody takes them."""
    found = ["port-%d" % port] if port else []
    return found + sorted("gpu-" + re.sub(r"[^A-Za-z0-9._-]", "_", str(gpu)) for gpu in set(gpus))


def take(root: str, wanted: Sequence[str], holder: Mapping[str, Any]) -> List[int]:
    """Take all leases or none. Returns their descriptors: the lease lasts as long as one copy of each is open.

    ``holder`` is ``{"job", "operator", "since"}``. Raises `LeaseTaken`, `OSError`.
    """
    held: List[int] = []
    try:
        for lease in wanted:
            fd = os.open(os.path.join(root, "leases", lease), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            held.append(fd)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LeaseTaken(lease, _read(fd)) from None
            os.ftruncate(fd, 0)
            os.pwrite(fd, json.dumps(dict(holder)).encode(), 0)
    except BaseException:
        for fd in held:
            os.close(fd)
        raise
    return held


def _read(fd: int) -> Dict[str, Any]:
    try:
        doc = json.loads(os.pread(fd, 4096, 0).decode("utf-8", "replace"))
    except ValueError:
        return {}  # the holder is just writing it; the lock itself says enough
    return doc if isinstance(doc, dict) else {}
