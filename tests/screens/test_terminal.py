"""The dashboard in a real pseudo-terminal: what goes out on the wire, and how it gives the terminal back."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ENDINGS = pytest.mark.fault(49, how="signals, a terminal that closes, one that takes no more")

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE = 60.0
"""Seconds after which a test gives up; nothing is measured by it."""


class Terminal:
    """The program in a terminal of its own, and everything it has written there."""

    def __init__(self, name: str, *, owns: bool = True, hup_ignored: bool = False, env: dict[str, str] | None = None) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.output = b""

        def prepare() -> None:
            if owns:
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            if hup_ignored:
                signal.signal(signal.SIGHUP, signal.SIG_IGN)

        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.screens.demo", name],
            stdin=slave, stdout=slave, stderr=slave, cwd=ROOT, start_new_session=True, preexec_fn=prepare,
            env={**os.environ, "TERM": "xterm-256color", **(env or {})},
        )  # fmt: skip

    def until(self, true: Callable[[], bool]) -> None:
        """Read what it writes until something is so."""
        end = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < end, self.output[-3000:]
            ready, _, _ = select.select([self.master], [], [], 0.1)
            if ready:
                with contextlib.suppress(OSError):  # the other end is closed: it has left, which `true` sees
                    self.output += os.read(self.master, 1 << 16)

    def shows(self, text: str) -> None:
        self.until(lambda: text.encode() in self.output)

    def press(self, keys: str, text: str = "") -> None:
        """When it has written all it had to, press keys and wait until ``text`` is drawn because of them."""
        while select.select([self.master], [], [], 0.3)[0]:
            self.output += os.read(self.master, 1 << 16)
        mark = len(self.output)
        os.write(self.master, keys.encode())
        self.until(lambda: text.encode() in self.output[mark:])

    def ended(self) -> int:
        self.until(lambda: self.process.poll() is not None)
        with contextlib.suppress(OSError):
            while select.select([self.master], [], [], 0)[0]:
                self.output += os.read(self.master, 1 << 16)
        return self.process.returncode

    def restored(self) -> bool:
        left = self.output.rfind(b"\x1b[?1049l") > self.output.rfind(b"\x1b[?1049h")
        mouse = self.output.rfind(b"\x1b[?1003l") > self.output.rfind(b"\x1b[?1003h")
        return left and mouse and termios.tcgetattr(self.slave) == self.before

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for fd in (self.master, self.slave):
            with contextlib.suppress(OSError):
                os.close(fd)


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def open_(*args: Any, **options: Any) -> Terminal:
        opened.append(Terminal(*args, **options))
        return opened[-1]

    yield open_
    for one in opened:
        one.close()


@pytest.mark.fault(24, how="a host full of escape sequences, in a real terminal: what is written to it is read")
def test_no_text_of_the_host_reaches_the_terminal_raw(terminal: Callable[..., Terminal]) -> None:
    screen = terminal("hostile")
    screen.shows("quit")
    for keys, text in (
        ("7", "progress or result"),
        ("\r", "first error"),
        ("\x1b", "progress or result"),
        ("2", "command on the cards"),
        ("\r", "uuid"),
        ("\x1b", "command on the cards"),
        ("1", "what to do"),
        ("\r", "since"),
        ("\x1b", "what to do"),
    ):
        screen.press(keys, text)
    screen.press("q")
    assert screen.ended() == 0
    out = screen.output
    assert b"[@click=app.quit]x[/]" in out, "markup is drawn as it is"
    for hostile in (b"\x1b]52;", b"\x1b[2J", b"\x1b[31m", b"\x1b]0;title", "\u202e".encode(), b"\xc2\x9b", b"\x00", b"aGFja2Vk"):
        assert hostile not in out, hostile


@ENDINGS
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_gives_the_terminal_back(number: signal.Signals, terminal: Callable[..., Terminal]) -> None:
    screen = terminal("board")
    screen.shows("quit")
    screen.process.send_signal(number)
    assert screen.ended() == 128 + number
    assert screen.restored()
    assert b"Traceback" not in screen.output


def test_quit_gives_the_terminal_back(terminal: Callable[..., Terminal]) -> None:
    screen = terminal("board")
    screen.shows("quit")
    screen.press("q")
    assert screen.ended() == 0
    assert screen.restored()


@ENDINGS
def test_it_ends_when_the_terminal_goes_and_no_signal_comes(terminal: Callable[..., Terminal]) -> None:
    screen = terminal("board", owns=False, hup_ignored=True)
    screen.shows("quit")
    os.close(screen.slave)
    os.close(screen.master)
    assert screen.process.wait(PATIENCE) != 0


def stuck(screen: Terminal) -> None:
    """Open a dialog and press keys, reading nothing, until the terminal is full and the main thread waits for it."""
    screen.shows("quit")
    screen.press("l", "choose a profile")
    os.set_blocking(screen.master, False)
    end = time.monotonic() + PATIENCE
    while select.select([], [screen.slave], [], 0.05)[1] or not _deaf(screen):
        assert time.monotonic() < end, "it never filled the terminal"


def _deaf(screen: Terminal) -> bool:
    """Whether the queue of its writer is full too: its main thread waits for a lock, and no more for the loop's selector."""
    with contextlib.suppress(BlockingIOError):  # the terminal takes no more keys either
        os.write(screen.master, b"\x1b[B\x1b[A" * 8)
    return "epoll" not in Path(f"/proc/{screen.process.pid}/wchan").read_text() and _asleep(screen)


def _asleep(screen: Terminal) -> bool:
    return Path(f"/proc/{screen.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "S"


@ENDINGS
@pytest.mark.parametrize("owns", [True, False], ids=["hung up on", "no signal"])
def test_it_ends_when_a_terminal_goes_that_took_no_more(owns: bool, terminal: Callable[..., Terminal], tmp_path: Path) -> None:
    screen = terminal("board", owns=owns, hup_ignored=not owns, env={"XDG_STATE_HOME": str(tmp_path)})
    stuck(screen)
    os.close(screen.slave)
    os.close(screen.master)
    assert screen.process.wait(PATIENCE) == 128 + signal.SIGHUP
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] in ([], ["dashboard.log"])
    assert all(b"Traceback" not in path.read_bytes() for path in tmp_path.rglob("*.log"))


@ENDINGS
def test_a_signal_ends_it_while_the_terminal_takes_no_more(terminal: Callable[..., Terminal]) -> None:
    screen = terminal("board")
    stuck(screen)
    screen.process.send_signal(signal.SIGTERM)
    assert screen.process.wait(PATIENCE) == 128 + signal.SIGTERM
    assert termios.tcgetattr(screen.slave) == screen.before


def test_what_is_typed_at_once_behind_find_goes_to_the_prompt(terminal: Callable[..., Terminal]) -> None:
    screen = terminal("board")
    screen.shows("quit")
    screen.press("2", "command on the cards")
    screen.press("/needle\r", "no card holds 'needle'")
    assert b"choose a profile" not in screen.output
    screen.press("/needle\rq")
    assert screen.ended() == 0, "what comes behind the end of the prompt is a command again"


@pytest.mark.fault(49, how="a dashboard that fails")
def test_an_error_is_one_line_and_a_log(terminal: Callable[..., Terminal], tmp_path: Path) -> None:
    screen = terminal("crash", env={"XDG_STATE_HOME": str(tmp_path)})
    screen.shows("quit")
    screen.press("2")
    assert screen.ended() == 1
    assert screen.restored()
    last = screen.output[screen.output.rfind(b"\x1b[?1049l") :]
    assert b"eagletui: the dashboard failed: RuntimeError: a failure made for the test" in last
    assert b"Traceback" not in screen.output
    assert b"Traceback" in (tmp_path / "eagletui" / "dashboard.log").read_bytes()


@pytest.mark.fault(48, how="NO_COLOR and few colours in a real terminal")
@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_without_colour_the_words_remain(env: dict[str, str], terminal: Callable[..., Terminal]) -> None:
    screen = terminal("board", env=env)
    screen.shows("quit")
    screen.shows("outlier: 3")
    screen.press("q")
    assert screen.ended() == 0


def test_what_is_not_loaded_at_the_first_frame() -> None:
    code = """
import asyncio, sys
from tests.screens.demo import DeskDouble, board_store
from eagletui.app import EagleApp

async def main():
    app = EagleApp(board_store(seconds=1), DeskDouble())
    async with app.run_test(size=(160, 50)) as pilot:
        await pilot.pause()
        print(*sorted({"plotext", "asyncssh", "openai", "psutil", "numpy"} & set(sys.modules)))
asyncio.run(main())
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == ""
