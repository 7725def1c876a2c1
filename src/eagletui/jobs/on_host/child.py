"""A tool run by a program of ours: its output goes on into the log, its progress is told, and it never outlives us."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
from typing import Callable, List, Mapping, Optional, Sequence

from eagletui.engines.stream import LineSplitter, clean
from eagletui.jobs.seen import Mark, mark

_PR_SET_PDEATHSIG = 1
_LAST = 12


def _with_us() -> None:
    """In the child: end when the parent does, whatever ends it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Child:
    """The tool while it runs. ``last`` are the latest lines of its output, without its bars; ``complaint`` is the first thing
    that it complained of.
    """

    def __init__(
        self, argv: Sequence[str], env: Optional[Mapping[str, str]] = None, keep: Sequence[int] = (), complains: str = ""
    ) -> None:
        """``env`` goes over ours; ``keep``: descriptors that it holds too, as long as it lives. ``complains``: an expression with
        one group, for what it says of trouble anywhere in a line (behind a bar that has no end of its own, too)."""
        self.last: List[str] = []
        self.complaint: Optional[str] = None
        self._complains = re.compile(complains) if complains else None
        self.process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(os.environ, **(env or {})),
            pass_fds=tuple(keep),
            preexec_fn=_with_us,
        )

    def wait(self, seen: Callable[[Mark], None]) -> int:
        """Read to its end; ``seen`` is called with what its bars show. Returns the exit status, negative for a signal."""
        assert self.process.stdout is not None
        splitter = LineSplitter()
        out = self.process.stdout.fileno()
        while True:
            data = os.read(out, 65536)
            if not data:
                break
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
            for _, line, _dropped in splitter.feed(data):
                self._line(line, seen)
        for _, line, _dropped in splitter.finish():
            self._line(line, seen)
        return self.process.wait()

    def _line(self, line: bytes, seen: Callable[[Mark], None]) -> None:
        text = clean(line).decode("utf-8", "replace").strip()
        if self._complains is not None and self.complaint is None:
            complaint = self._complains.search(text)
            self.complaint = complaint.group(1) if complaint is not None else None
        found = mark(text)
        if found is not None:
            seen(found)
        elif text:
            self.last = [*self.last[1 - _LAST :], text]
