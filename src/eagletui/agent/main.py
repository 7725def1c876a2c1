"""The agent's first steps: say the nonce, take the real descriptors away from everybody else, serve until the client is gone."""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from typing import Any, Deque, List

from eagletui.agent.loop import Loop

WATCHDOG = 60.0
MARK = b"\0"  # around the nonce: a shell that echoes its command line prints the nonce too, but not these


def main(argv: List[str]) -> int:
    """``argv``: the nonce, and optionally the seconds without a frame after which the agent ends. Does not return."""
    watchdog = float(argv[1]) if len(argv) > 1 else WATCHDOG
    source, sink, complaints = os.dup(0), os.dup(1), os.dup(2)
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)  # no import and no child can write into our frames now
    os.close(nothing)
    lines: Deque[str] = deque(maxlen=100)

    def log(line: str) -> None:
        lines.append("%.3f %s" % (time.time(), line[:8192]))

    def on_error(what: str, error: Exception) -> None:
        import traceback

        log("%s: %s" % (what, "".join(traceback.format_exception(type(error), error, error.__traceback__))))

    loop = Loop(on_error)

    def ended(_number: int, _frame: Any) -> None:
        loop.stop()

    def nothing_to_us(_number: int, _frame: Any) -> None:
        """Not SIG_IGN, which the programs that are launched from here would inherit."""

    signal.signal(signal.SIGTERM, ended)
    signal.signal(signal.SIGINT, nothing_to_us)  # a ctrl+c in the terminal that a local agent was started from
    signal.signal(signal.SIGHUP, nothing_to_us)  # the end of stdin tells the same, and lets us clean up

    from eagletui.agent.server import Server

    os.write(sink, MARK + argv[0].encode() + MARK)
    why = Server(loop, source, sink, watchdog, log, lines).run()
    if why:
        try:
            os.write(complaints, ("eagletui: the agent ended: %s\n" % why).encode())
        except OSError:
            pass  # nobody is left to be told
    os._exit(1 if why else 0)  # threads that hang in the kernel must not keep us
