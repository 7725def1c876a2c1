"""Runs a program of ours again and again in forks of one interpreter, so that killing it a hundred times costs little.

``forker.py MODULE``: a line of settings on stdin starts one run; its pid is printed, then its exit status, negative for a signal.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module


def main() -> None:
    program = import_module(sys.argv[1])
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            os.dup2(os.open(os.environ.get("FORKER_LOG", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644), 1)
            os._exit(program.main([line.strip()]))
        os.write(1, b"%d\n" % pid)
        _, status = os.waitpid(pid, 0)
        os.write(1, b"%d\n" % os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
