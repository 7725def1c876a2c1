"""Whether a server answers, for what waits for one that eagletui did not start."""

from __future__ import annotations

import urllib.request


class Quiet:
    """A `Reporter` of the lab that says nothing."""

    def say(self, text: str) -> None:
        pass

    def error(self, text: str) -> None:
        pass

    def begin(self, number: int, total: int, title: str) -> None:
        pass

    def progress(self, text: str) -> None:
        pass

    def end(self, text: str) -> None:
        pass


def listens(port: int) -> bool:
    """Whether the server on this port of the loopback tells its models."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
