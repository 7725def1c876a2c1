"""Where processes are: each thread's wait in the kernel, and the Python stacks by py-spy where it is installed.

Asked for by a person about a server that seems to hang. Nothing of the processes is changed: py-spy reads their memory without
stopping them. Request ``stacks``: ``processes`` [[pid, start ticks] ...], at most `MOST`; the answer::

    {"tool": path of py-spy or null, "why": why there is none, "processes": [{pid, comm, state, threads, waits: {wait: number},
     kernel: [frame ...], python: [line ...], problem}]}

``kernel`` is root's to read. A wait is the kernel's function (``futex_wait_queue``), or ``running``.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Tuple

from eagletui.agent import procfs
from eagletui.agent.calls import Call, CallError, Handler
from eagletui.agent.child import NOT_FOUND, Child

MOST = 16
MOST_THREADS = 2048
EACH = 20.0
"""Seconds that py-spy may take for one process: of a large one it reads the symbols of hundreds of libraries."""
MOST_BYTES = 256 * 1024
NO_TOOL = "py-spy is not installed on the host: pip install py-spy, in the engine's environment or for everybody"


def stacks(call: Call) -> None:
    given = call.params.get("processes")
    if not isinstance(given, list) or not given or not all(_is_key(key) for key in given):
        raise CallError("stacks", "processes should be a list of [pid, start ticks]")
    _Stacks(call, [(int(pid), int(start)) for pid, start in given[:MOST]]).begin()


def _is_key(key: Any) -> bool:
    return isinstance(key, list) and len(key) == 2 and all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in key)


class _Stacks:
    """One request until it is answered: the processes one after the other, so that the host is not loaded by it."""

    def __init__(self, call: Call, keys: List[Tuple[int, int]]) -> None:
        self._call, self._keys = call, keys
        self._found: List[Dict[str, Any]] = []
        self._tool: Optional[str] = None
        self._child: Optional[Child] = None
        call.on_cancel = self._cancel

    def begin(self) -> None:
        self._tool = find_tool([pid for pid, _ in self._keys])
        self._next()

    def _cancel(self) -> None:
        self._keys = []
        if self._child is not None:
            self._child.close()

    def _next(self) -> None:
        while self._keys:
            pid, start = self._keys.pop(0)
            about = where(pid, start)
            if about is None:
                continue  # it has ended meanwhile
            self._found.append(about)
            if self._tool is not None:
                self._spy(pid, about)
                return
        self._call.reply({"tool": self._tool, "why": None if self._tool else NO_TOOL, "processes": self._found})

    def _spy(self, pid: int, about: Dict[str, Any]) -> None:
        said = bytearray()

        def ended(status: int, errors: str) -> None:
            self._child = None
            text = bytes(said[:MOST_BYTES]).decode("utf-8", "replace")
            if status == 0:
                about["python"] = text.splitlines()
            elif status == NOT_FOUND:
                about["problem"] = "%s cannot be run" % self._tool
            elif child.overdue:
                about["problem"] = "py-spy did not answer within %d s" % EACH
            else:
                about["problem"] = (errors.splitlines() or ["py-spy: exit status %d" % status])[-1]
            self._next()

        argv = [str(self._tool), "dump", "--nonblocking", "--pid", str(pid)]
        child = self._child = Child(self._call.loop, argv, said.extend, ended, seconds=EACH)


def find_tool(pids: List[int]) -> Optional[str]:
    """py-spy: beside the Python that runs the processes, in their environment, or on our PATH."""
    folders: List[str] = []
    for pid in pids:
        words = (procfs.read_bytes("%s/%d/cmdline" % (procfs.PROC, pid)) or b"").split(b"\0")
        program = os.fsdecode(words[0]) if words else ""
        if program.startswith("/"):
            folders.append(os.path.dirname(program))
        environ = (procfs.read_bytes("%s/%d/environ" % (procfs.PROC, pid)) or b"").split(b"\0")
        for entry in environ:
            if entry.startswith(b"VIRTUAL_ENV="):
                folders.append(os.path.join(os.fsdecode(entry[12:]), "bin"))
    folders += (os.environ.get("PATH") or "").split(os.pathsep)
    folders += ["/usr/local/bin", "/usr/bin", os.path.expanduser("~/.local/bin")]
    for folder in folders:
        path = os.path.join(folder, "py-spy")
        if folder.startswith("/") and os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def where(pid: int, start: int) -> Optional[Dict[str, Any]]:
    """What the kernel says of a process; None when it is not that one any more."""
    stat = procfs.read_stat(pid)
    if stat is None or stat.start != start or stat.dead:
        return None
    waits: Dict[str, int] = {}
    try:
        threads = os.listdir("%s/%d/task" % (procfs.PROC, pid))[:MOST_THREADS]
    except OSError:
        threads = []
    for thread in threads:
        base = "%s/%d/task/%s/" % (procfs.PROC, pid, thread)
        raw = procfs.read_bytes(base + "stat")
        one = procfs.parse_stat(raw) if raw else None
        if one is None:
            continue  # the thread has ended
        wait = (procfs.read_text(base + "wchan") or "").strip()
        name = "running" if one.state == "R" else "stopped" if one.state in ("T", "t") else wait if wait not in ("", "0") else "?"
        if one.state == "D":
            name += " (uninterruptible)"
        waits[name] = waits.get(name, 0) + 1
    kernel = procfs.read_text("%s/%d/stack" % (procfs.PROC, pid)) or ""
    return {
        "pid": pid,
        "comm": stat.comm,
        "state": stat.state,
        "threads": stat.threads,
        "waits": waits,
        "kernel": [line.split("] ", 1)[-1] for line in kernel.splitlines()][:40],
    }


METHODS: Dict[str, Handler] = {"stacks": stacks}
