"""A reporter of the lab that a test reads."""

from __future__ import annotations

from collections.abc import Callable


class Heard:
    """A reporter that remembers; ``on_progress`` can break in."""

    def __init__(self, on_progress: Callable[[], None] = lambda: None) -> None:
        self.said: list[str] = []
        self.errors: list[str] = []
        self.steps: list[str] = []
        self.on_progress = on_progress

    def say(self, text: str) -> None:
        self.said.append(text)

    def error(self, text: str) -> None:
        self.errors.append(text)

    def begin(self, number: int, total: int, title: str) -> None:
        self.steps.append(f"{number}/{total} {title}")

    def progress(self, text: str) -> None:
        self.on_progress()

    def end(self, text: str) -> None:
        self.steps.append(text)
