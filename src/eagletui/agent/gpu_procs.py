"""Who the processes on the cards are: user and command by /proc, for the pids that NVML gives."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List, NamedTuple, Optional

from eagletui.agent import procfs

_INITIAL_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO of the kernel
_REFRESH = 15.0  # engines set their title some time after their start
_COMMAND = 200


class _Known(NamedTuple):
    start: int
    fields: Dict[str, Any]
    read: float


class GpuProcesses:
    """``{pid: [kind, bytes]}`` of NVML to ``{pid: GpuProcess document}``; what was read of a process is kept for a while."""

    def __init__(self) -> None:
        self._known: Dict[int, _Known] = {}
        self._contained = _in_container()

    def describe(self, found: Dict[str, List[Any]]) -> Dict[str, Dict[str, Any]]:
        out = {}
        for key, (kind, mem) in found.items():
            doc = {"pid": int(key), "kind": kind}
            if mem is not None:
                doc["mem"] = mem
            doc.update(self._fields(int(key)))
            out[key] = doc
        return out

    def _fields(self, pid: int) -> Dict[str, Any]:
        stat = procfs.read_stat(pid)
        if stat is None:
            self._known.pop(pid, None)
            return {}
        now, known = time.monotonic(), self._known.get(pid)
        if known is not None and known.start == stat.start and now - known.read < _REFRESH:
            return known.fields
        fields: Dict[str, Any] = {}
        if not self._contained or _holds_a_card(pid):
            uid = procfs.uid_of(pid)
            command = procfs.cmdline(pid) or stat.comm
            fields = {"start": stat.start, "command": command[:_COMMAND]}
            if uid is not None:
                fields["user"] = procfs.user(uid)
        if len(self._known) > 4096:
            self._known.clear()  # pids come and go; nothing is lost but a second look
        self._known[pid] = _Known(stat.start, fields, now)
        return fields


def _in_container() -> bool:
    """True where our pids are not the host's, so that NVML's pid may name somebody else here."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino != _INITIAL_PID_NAMESPACE
    except OSError:
        return True


def _holds_a_card(pid: int) -> bool:
    """True when the process has a device of the driver open: proof that this local pid is the one NVML means."""
    try:
        names = os.listdir("/proc/%d/fd" % pid)
    except OSError:
        return False
    for name in names:
        path: Optional[str] = procfs.fd_paths(pid, (int(name),)).get(int(name))
        if path is not None and path.startswith("/dev/nvidia"):
            return True
    return False
