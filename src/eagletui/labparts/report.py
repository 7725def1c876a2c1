"""How the lab tells what it does: a small interface, and the one that writes to a terminal or a pipe."""

from __future__ import annotations

import shutil
import time
from typing import Protocol, TextIO

from eagletui.text import clean, clock


class LabError(Exception):
    """A step failed: which ``step``, ``why``, and what to do (``remedy``), each in words a user can read."""

    def __init__(self, step: str, why: str, remedy: str) -> None:
        super().__init__(f"{step}: {why} - {remedy}")
        self.step, self.why, self.remedy = step, why, remedy


class Reporter(Protocol):
    """Where the lab's words go. A screen, a terminal or a test can stand behind it."""

    def say(self, text: str) -> None:
        """One line of result."""

    def error(self, text: str) -> None:
        """One line that says what failed and what to do."""

    def begin(self, number: int, total: int, title: str) -> None:
        """A step starts: ``number`` of ``total``."""

    def progress(self, text: str) -> None:
        """What the running step is at; called about twice a second."""

    def end(self, text: str) -> None:
        """The running step is over, and how."""


class TerminalReporter:
    """Live progress in one line on a terminal; on a pipe one line at most every ten seconds."""

    EVERY = 10.0

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self.out, self.err = out, err
        self.live = out.isatty()
        self._head = ""
        self._start = self._told = 0.0

    def say(self, text: str) -> None:
        self._write(text + "\n")

    def error(self, text: str) -> None:
        if self._head and self.live:
            self._write("\n")
        self._head = ""
        self.err.write(text + "\n")
        self.err.flush()

    def begin(self, number: int, total: int, title: str) -> None:
        self._head = f"[{number}/{total}] {title}"
        self._start = self._told = time.monotonic()
        self._write(f"\r\x1b[2K{self._head}" if self.live else self._head + "\n")

    def progress(self, text: str) -> None:
        now = time.monotonic()
        line = f"{self._head}  {clock(now - self._start)}  {text}"
        if self.live:
            self._write(f"\r\x1b[2K{clean(line, shutil.get_terminal_size().columns - 1)}")
        elif now - self._told >= self.EVERY:
            self._told = now
            self._write(clean(line, 160) + "\n")

    def end(self, text: str) -> None:
        line = f"{self._head}  {clock(time.monotonic() - self._start)}  {text}\n"
        self._head = ""
        self._write(f"\r\x1b[2K{line}" if self.live else line)

    def _write(self, text: str) -> None:
        self.out.write(text)
        self.out.flush()
