"""The way out when the terminal has gone or a signal came: certain, even when the event loop no longer runs.

The loop can be stuck for good in a write to a terminal that takes no more, or in waiting for Textual's writer thread after that
has died of the error. Neither a timer nor a handler of the loop runs then; the thread here does.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

log = logging.getLogger("eagletui.app")

GRACE = 5.0
"""Seconds that an orderly way out may take."""
BEAT = 0.5
RESTORE = b"\x1b[?2004l\x1b[?7h\x1b[?2048l\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[<u\x1b[?1049l\x1b[?25h\x1b[?1004l"
"""What Textual writes to give a terminal back: modes, mouse and keyboard off, the other screen, the cursor."""


class Leaving(threading.Thread):
    """Watches the terminal; ``on_gone`` is called (in this thread) when it has hung up.

    From `begin` or a hang-up on, the process has `GRACE` seconds to end by itself; then it ends with 128 + the signal. A
    process that ends in time, or that nobody told to leave, never notices: the thread ends with it. ``modes`` tells how the
    terminal was before, as `termios.tcgetattr` gives it.
    """

    def __init__(self, on_gone: Callable[[], None], modes: Callable[[], list[Any] | None]) -> None:
        super().__init__(name="eagletui-leaving", daemon=True)
        self._on_gone = on_gone
        self._number: int | None = None
        self._modes = modes

    def begin(self, number: int, _frame: FrameType | None = None) -> None:
        """A signal handler, so no locks: the process is to end because of this signal."""
        if self._number is None:
            self._number = number
        stay_awake()

    def run(self) -> None:
        gone = False
        end: float | None = None
        while end is None or time.monotonic() < end:
            if not gone and terminal_gone():
                gone = True
                _write_nowhere()
                if self._number is None:
                    self._number = int(signal.SIGHUP)
                    self._on_gone()
            if end is None and self._number is not None:
                end = time.monotonic() + GRACE
            time.sleep(BEAT)
        self._end()

    def _end(self) -> None:
        # in a thread of its own: the one that is stuck may hold the log's lock
        told = threading.Thread(target=log.error, args=("did not end within %g s of being told to: ended", GRACE), daemon=True)
        told.start()
        told.join(1.0)
        _give_back(self._modes())
        os._exit(128 + (self._number or 0))


def stay_awake() -> None:
    """From here on no stop and no going on: Textual would take the terminal again. Of the main thread only."""
    for number in (signal.SIGTSTP, signal.SIGCONT):
        signal.signal(number, signal.SIG_IGN)


def terminal_gone(fd: int | None = None) -> bool:
    """Whether the terminal has hung up, also without a signal reaching us (SIGHUP ignored by nohup, some multiplexers)."""
    try:
        poll = select.poll()
        poll.register(sys.__stdin__.fileno() if fd is None else fd, 0)  # type: ignore[union-attr]
        return any(event & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, event in poll.poll(0))
    except (OSError, ValueError, AttributeError):
        return False  # no stdin to ask, as in a test: nothing to lose either


def _write_nowhere() -> None:
    """What is still written to the terminal that has gone is no error: a writer would die of it, and the exit status change."""
    with contextlib.suppress(OSError):  # no descriptor left for it: the writes fail as they would have
        null = os.open(os.devnull, os.O_WRONLY)
        for fd in (1, 2):
            if terminal_gone(fd):
                os.dup2(null, fd)
        os.close(null)


def _give_back(modes: list[Any] | None) -> None:
    """Without waiting for anything: a terminal that has gone or takes no more is left as it is."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})  # or setting it from the background stops us here
    with contextlib.suppress(OSError, termios.error):
        if modes is not None:
            termios.tcsetattr(0, termios.TCSANOW, modes)
    with contextlib.suppress(OSError):
        # opened anew: not to wait is a mark of the open file, and the one we were given is shared with the shell
        terminal = os.open(os.ttyname(0), os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        os.write(terminal, RESTORE)
