"""A stand-in engine with a real engine's argv and process titles: ``python -I -S PATH/vllm serve MODEL --port N ...``.

Tests only, standard library. Installed under the name of the program that it stands for (see `adopt_harness.install`), beside
`fake_server.py`, which it is but for its children: they are renamed as the engines rename theirs.
"""

import argparse
import ctypes
import os
import sys

FAKE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fake_server.py")
TITLES = os.environ.get("STAND_IN_TITLES", "VLLM::EngineCore,VLLM::Worker_TP0,VLLM::Worker_TP1").split(",")


def rename(title):
    """What setproctitle does: write over the own argv, and set the thread's name."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    data = title.encode()[: end - start - 1]
    ctypes.memmove(start, data + b"\0" * (end - start - len(data)), end - start)
    ctypes.CDLL(None).prctl(15, data[:15], 0, 0, 0)


FORK, COUNT = os.fork, iter(range(1 << 30))


def forked():
    child = FORK()
    number = next(COUNT)
    if child == 0:
        rename(TITLES[number % len(TITLES)])
    return child


if __name__ == "__main__":
    os.fork = forked
    argparse.ArgumentParser.parse_args = lambda parser: parser.parse_known_args()[0]  # an engine has many more options
    sys.argv = [FAKE, *[word for word in sys.argv[1:] if word != "serve"]]
    with open(FAKE, encoding="utf-8") as source:
        exec(compile(source.read(), FAKE, "exec"), {"__name__": "__main__"})
