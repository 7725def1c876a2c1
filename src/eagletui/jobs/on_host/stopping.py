"""What a program of a job raises when it cannot go on."""

from __future__ import annotations


class Stop(Exception):
    """It cannot go on; the text says why. ``code`` is the exit status."""

    def __init__(self, why: str, code: int = 1) -> None:
        super().__init__(why)
        self.code = code
