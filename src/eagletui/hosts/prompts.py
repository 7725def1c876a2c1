"""Asking a person in the terminal, before the dashboard is there: on /dev/tty, with the echo off for what is secret."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import termios
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from eagletui import text
from eagletui.hosts.base import Prompter

T = TypeVar("T")


class TerminalPrompter:
    """Implements `base.Prompter` on the controlling terminal. Without one every question is declined.

    The questions wait in a daemon thread that also watches a pipe: when the asking task is cancelled (Ctrl-C, a lost
    connection) the thread gives the terminal back as it was and ends; it never holds up the exit of the program.
    ``asking`` is called with True before a question and with False after it.
    """

    def __init__(self, path: str = "/dev/tty", asking: Callable[[bool], None] = lambda asks: None) -> None:
        self._path, self._asking = path, asking
        self._one_at_a_time = asyncio.Lock()

    async def secret(self, prompt: str) -> str | None:
        return await self._ask(lambda tty: tty.line(f"{_clean(prompt)}: ", echo=False))

    async def answer(self, title: str, instructions: str, prompts: Sequence[tuple[str, bool]]) -> list[str] | None:
        def questions(tty: _Terminal) -> list[str] | None:
            for line in (title, *instructions.splitlines()):
                if line.strip():
                    tty.write(_clean(line) + "\n")
            answers: list[str] = []
            for prompt, echo in prompts:
                answer = tty.line(_clean(prompt).rstrip() + " ", echo=echo)
                if answer is None:
                    return None
                answers.append(answer)
            return answers

        return await self._ask(questions)

    async def trust(self, host: str, address: str, key_type: str, fingerprint: str, randomart: str) -> bool:
        def question(tty: _Terminal) -> bool:
            tty.write(
                f"The host {_clean(host)} ({_clean(address)}) is not known yet. It shows this {_clean(key_type)} key:\n"
                f"  {fingerprint}\n{randomart}\n"
                "Compare it with what the host's owner tells you, or on the host: ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub\n"
            )
            while True:
                typed = tty.line("Trust this key and remember it? Type yes, no or the fingerprint: ", echo=True)
                if typed is None or typed.strip().lower() in ("no", "n"):
                    return False
                if typed.strip().lower() == "yes" or typed.strip() == fingerprint:
                    return True

        return bool(await self._ask(question))

    async def _ask(self, question: Callable[[_Terminal], T | None]) -> T | None:
        async with self._one_at_a_time:
            loop = asyncio.get_running_loop()
            answer: asyncio.Future[T | None] = loop.create_future()
            wake_read, wake_write = os.pipe()

            def give(value: T | None) -> None:
                if not answer.done():
                    answer.set_result(value)

            def work() -> None:
                value: T | None = None
                try:
                    with _Terminal(self._path, wake_read) as tty:
                        value = question(tty)
                except (OSError, termios.error):
                    value = None  # no terminal, or it is gone: nobody can answer, which is to decline
                with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits any more
                    loop.call_soon_threadsafe(give, value)

            thread = threading.Thread(target=work, name="prompt", daemon=True)
            self._asking(True)
            thread.start()
            try:
                return await answer
            finally:
                self._asking(False)
                os.close(wake_write)  # ends the thread's wait when it still asks
                await asyncio.shield(_joined(thread, wake_read))


class Handover:
    """Implements `base.Prompter` by asking whoever is there now: the terminal first, then the screen that took its place.

    ``lasting`` tells `ssh.connector` that questions may be asked for later connections too: a screen can, while the terminal
    belongs to something else once the first connection has come about.
    """

    def __init__(self, prompter: Prompter | None) -> None:
        self._now = prompter
        self.lasting = False

    def hand_to(self, prompter: Prompter | None) -> None:
        """From here on this one is asked; None: everything is declined."""
        self._now, self.lasting = prompter, prompter is not None

    async def secret(self, prompt: str) -> str | None:
        return None if self._now is None else await self._now.secret(prompt)

    async def answer(self, title: str, instructions: str, prompts: Sequence[tuple[str, bool]]) -> list[str] | None:
        return None if self._now is None else await self._now.answer(title, instructions, prompts)

    async def trust(self, host: str, address: str, key_type: str, fingerprint: str, randomart: str) -> bool:
        return self._now is not None and await self._now.trust(host, address, key_type, fingerprint, randomart)


async def _joined(thread: threading.Thread, fd: int) -> None:
    await asyncio.to_thread(thread.join, 1.0)
    os.close(fd)


def _clean(remote: str) -> str:
    """What a server wrote may hold escape sequences; none of them reaches the terminal."""
    return text.clean(remote)


class _Terminal:
    """The terminal, set so that a line can be read while the wake pipe is watched too; restored on leaving."""

    def __init__(self, path: str, wake: int) -> None:
        self._path, self._wake = path, wake
        self._fd = -1
        self._before: list[object] = []

    def __enter__(self) -> _Terminal:
        self._fd = os.open(self._path, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            self._before = termios.tcgetattr(self._fd)
        except termios.error:
            os.close(self._fd)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        termios.tcsetattr(self._fd, termios.TCSAFLUSH, self._before)  # type: ignore[arg-type]
        os.close(self._fd)

    def write(self, line: str) -> None:
        os.write(self._fd, line.encode("utf-8", "replace"))

    def line(self, prompt: str, *, echo: bool) -> str | None:
        """One typed line without its newline; None at Ctrl-D or when the question is no longer wanted."""
        mode = termios.tcgetattr(self._fd)
        mode[3] = (mode[3] | termios.ICANON | termios.ECHO) if echo else ((mode[3] | termios.ICANON) & ~termios.ECHO)
        termios.tcsetattr(self._fd, termios.TCSAFLUSH, mode)
        self.write(prompt)
        ready, _, _ = select.select([self._fd, self._wake], [], [])
        if self._wake in ready:
            self.write("\n")
            return None
        data = os.read(self._fd, 4096)
        if not echo:
            self.write("\n")
        return data.decode("utf-8", "replace").rstrip("\r\n") if data else None
