"""Questions on a terminal: echo, restored settings, hostile text, cancellation, no terminal at all."""

from __future__ import annotations

import asyncio
import os
import pty
import termios
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from eagletui.hosts.prompts import TerminalPrompter


class Screen(NamedTuple):
    """The other end of a terminal: what the person sees and types."""

    fd: int
    path: str
    slave: int

    async def shows(self, text: str) -> str:
        """Read until ``text`` is on the screen; returns everything that came."""
        seen = b""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(10):
            while text.encode() not in seen:
                ready = loop.create_future()
                loop.add_reader(self.fd, lambda ready=ready: ready.done() or ready.set_result(None))
                try:
                    await ready
                finally:
                    loop.remove_reader(self.fd)
                seen += os.read(self.fd, 4096)
        return seen.decode()

    def types(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def settings(self) -> list[object]:
        return termios.tcgetattr(self.slave)


@pytest.fixture
def screen() -> Iterator[Screen]:
    master, slave = pty.openpty()
    yield Screen(master, os.ttyname(slave), slave)
    os.close(master)
    os.close(slave)


async def test_a_secret_is_not_echoed_and_the_terminal_is_restored(screen: Screen) -> None:
    before = screen.settings()
    asking = asyncio.create_task(TerminalPrompter(screen.path).secret("Passphrase for \x1b]52;c;x\x07key"))
    shown = await screen.shows("key: ")
    assert "\x1b" not in shown
    screen.types("open sesame\n")
    assert await asking == "open sesame"
    rest = await screen.shows("\n")
    assert "sesame" not in rest
    assert screen.settings() == before


async def test_an_empty_line_is_an_answer_and_ctrl_d_is_none(screen: Screen) -> None:
    prompter = TerminalPrompter(screen.path)
    for typed, expected in (("\n", ""), ("\x04", None)):
        asking = asyncio.create_task(prompter.secret("Password"))
        await screen.shows("Password: ")
        screen.types(typed)
        assert await asking == expected


async def test_several_questions(screen: Screen) -> None:
    asking = asyncio.create_task(
        TerminalPrompter(screen.path).answer("Two steps", "Look at\nyour telephone", [("User: ", True), ("Code: ", False)])
    )
    shown = await screen.shows("User: ")
    assert "Two steps" in shown
    assert "your telephone" in shown
    screen.types("me\n")
    assert "me" in await screen.shows("Code: ")
    screen.types("123456\n")
    assert await asking == ["me", "123456"]
    assert "123456" not in await screen.shows("\n")


@pytest.mark.parametrize(("typed", "expected"), [("yes", True), ("no", False), ("SHA256:abc", True), ("\x04", False)])
async def test_trust(screen: Screen, typed: str, expected: bool) -> None:
    asking = asyncio.create_task(TerminalPrompter(screen.path).trust("gpu", "10.0.0.5", "ssh-ed25519", "SHA256:abc", "+--+"))
    shown = await screen.shows("fingerprint: ")
    for part in ("gpu", "10.0.0.5", "ssh-ed25519", "SHA256:abc", "+--+"):
        assert part in shown
    if expected:
        screen.types("y\n")  # too short for such a decision
        await screen.shows("fingerprint: ")
    screen.types(typed if typed == "\x04" else typed + "\n")
    assert await asking is expected


async def test_a_question_that_is_no_longer_wanted(screen: Screen) -> None:
    before = screen.settings()
    prompter = TerminalPrompter(screen.path)
    asking = asyncio.create_task(prompter.secret("Password"))
    await screen.shows("Password: ")
    assert screen.settings() != before
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert screen.settings() == before
    again = asyncio.create_task(prompter.secret("Once more"))
    await screen.shows("Once more: ")
    screen.types("x\n")
    assert await again == "x"


async def test_without_a_terminal_everything_is_declined(tmp_path: os.PathLike[str]) -> None:
    prompter = TerminalPrompter(str(tmp_path) + "/none")
    assert await prompter.secret("Password") is None
    assert await prompter.answer("t", "i", [("p", True)]) is None
    assert await prompter.trust("gpu", "a", "t", "f", "r") is False
