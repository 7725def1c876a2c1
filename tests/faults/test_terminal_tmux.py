"""The dashboard in a real terminal emulator: resized over and over, suspended, killed, and where there is little to draw with."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0
"""Seconds after which a test gives up; nothing is measured by it."""
DEMO = f"{sys.executable} -m tests.screens.demo board"
PROMPT = "ready>"


class Tmux:
    """A tmux of its own with one shell in one window."""

    def __init__(self, folder: Path, **environ: str) -> None:
        self._base = ["tmux", "-S", str(folder / "tmux"), "-f", "/dev/null"]
        rc = folder / "rc"
        rc.write_text(f"PS1='{PROMPT}'\n")
        env = {**os.environ, "XDG_STATE_HOME": str(folder), "TERM": "xterm-256color", **environ}
        env.pop("TMUX", None)
        # a size that no client decides, and a shell with job control
        self._run("new-session", "-d", "-x", "120", "-y", "40", f"bash --rcfile {rc} -i", env=env)
        self._run("set", "-g", "window-size", "manual")

    def _run(self, *words: str, env: dict[str, str] | None = None) -> str:
        return subprocess.run([*self._base, *words], check=True, capture_output=True, text=True, cwd=ROOT, env=env).stdout

    def text(self) -> str:
        return self._run("capture-pane", "-p")

    def type(self, text: str, enter: bool = True) -> None:
        self._run("send-keys", "-l", text)
        if enter:
            self._run("send-keys", "Enter")

    def resize(self, width: int, height: int) -> None:
        self._run("resize-window", "-x", str(width), "-y", str(height))

    def shows(self, *parts: str) -> str:
        return self.until(lambda text: all(part in text for part in parts))

    def until(self, true: Callable[[str], bool]) -> str:
        end = time.monotonic() + PATIENCE
        while not true(text := self.text()):
            assert time.monotonic() < end, text
            time.sleep(0.05)
        return text

    def program(self) -> int:
        """The pid of what the shell runs."""
        shell = self._run("display-message", "-p", "#{pane_pid}").strip()
        end = time.monotonic() + PATIENCE
        while not (children := Path(f"/proc/{shell}/task/{shell}/children").read_text().split()):
            assert time.monotonic() < end
            time.sleep(0.05)
        return int(children[0])

    def cursor_and_screen(self) -> str:
        """Whether the alternate screen is on, the cursor shown, the mouse asked for."""
        return self._run("display-message", "-p", "#{alternate_on} #{cursor_flag} #{mouse_any_flag}").strip()

    def close(self) -> None:
        subprocess.run([*self._base, "kill-server"], check=False, capture_output=True)


@pytest.fixture
def tmux(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Tmux]]:
    assert shutil.which("tmux"), "these tests need the Debian package tmux"
    opened: list[Tmux] = []

    def open_(**environ: str) -> Tmux:
        opened.append(Tmux(tmp_path_factory.mktemp("t"), **environ))
        opened[-1].shows(PROMPT)
        return opened[-1]

    yield open_
    for one in opened:
        one.close()


BACK = "0 1 0"
"""No alternate screen, the cursor shown, no mouse."""


@pytest.mark.fault(48, how="tmux resized 30 times in a row, from 20x5 to 500x200, while the dashboard draws")
def test_a_storm_of_sizes(tmux: Callable[..., Tmux]) -> None:
    screen = tmux()
    screen.type(DEMO)
    screen.shows("Overview", "quit")
    sizes = [(20, 5), (500, 200), (80, 24), (1, 1), (160, 50), (40, 12), (300, 8), (30, 120), (79, 23), (200, 60)]
    for _ in range(3):
        for width, height in sizes:
            screen.resize(width, height)
    screen.resize(20, 5)
    screen.until(lambda text: len(text.rstrip("\n").splitlines()) <= 5 and "alert" in text)
    screen.resize(120, 40)
    text = screen.shows("Overview", "GPUs", "Jobs", "quit")
    assert "Traceback" not in text
    screen.type("q", enter=False)
    text = screen.shows(PROMPT)
    assert "failed" not in text
    assert screen.cursor_and_screen() == BACK


@pytest.mark.fault(48, how="LANG=C, TERM=linux, xterm without colours: in tmux")
@pytest.mark.parametrize(
    "environ",
    [{"LANG": "C", "LC_ALL": "C"}, {"TERM": "linux"}, {"TERM": "vt100"}, {"NO_COLOR": "1"}],
    ids=lambda e: " ".join(e.values()),
)
def test_where_there_is_little_to_draw_with(environ: dict[str, str], tmux: Callable[..., Tmux]) -> None:
    screen = tmux()
    words = " ".join(f"{name}={value}" for name, value in environ.items())
    screen.type(f"{words} {DEMO}")
    text = screen.shows("Overview", "quit", "GPUs", "Jobs")
    assert "Traceback" not in text
    screen.type("q", enter=False)
    screen.shows(PROMPT)
    assert screen.cursor_and_screen() == BACK


@pytest.mark.fault(49, how="SIGTSTP and SIGCONT of the dashboard under a shell in tmux")
def test_it_is_suspended_and_goes_on(tmux: Callable[..., Tmux]) -> None:
    screen = tmux()
    screen.type(DEMO)
    screen.shows("Overview", "quit")
    os.kill(screen.program(), signal.SIGTSTP)
    screen.shows("Stopped", PROMPT)
    assert screen.cursor_and_screen() == BACK
    screen.type("echo typed-$((40+2))")
    screen.shows("typed-42")  # the shell is usable meanwhile
    screen.type("fg")
    screen.shows("Overview", "quit")
    screen.type("2", enter=False)
    screen.shows("command on the cards")
    screen.type("q", enter=False)
    screen.shows(PROMPT)
    assert screen.cursor_and_screen() == BACK


@pytest.mark.fault(49, how="SIGKILL of the dashboard in tmux, which is then opened again in the same terminal")
def test_it_is_killed_and_opened_again(tmux: Callable[..., Tmux]) -> None:
    screen = tmux()
    screen.type(DEMO)
    first = screen.shows("Overview", "quit")
    os.kill(screen.program(), signal.SIGKILL)
    screen.shows("Killed")
    screen.type(DEMO)
    again = screen.shows("Overview", "quit")
    cards = [line.split()[:2] for line in first.splitlines() if "GPUs" in line]
    assert [line.split()[:2] for line in again.splitlines() if "GPUs" in line] == cards
    screen.type("q", enter=False)
    screen.until(lambda text: text.rstrip().endswith(PROMPT))
    assert screen.cursor_and_screen() == BACK
