"""Commands that the lab runs: told by the line that matters when they fail, ended with all their children."""

from __future__ import annotations

import io
import os
import sys
import time
from pathlib import Path

import pytest

from eagletui.labparts.paths import Lab
from eagletui.labparts.report import LabError, TerminalReporter
from eagletui.labparts.running import Child, error_line, run, tail_line
from tests.lab_reporter import Heard


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "lab")


def start(lab: Lab, script: str) -> Child:
    lab.root.mkdir(exist_ok=True)
    return Child([sys.executable, "-c", script], lab.log, env=os.environ, cwd=lab.root)


def test_a_failed_command_is_told_by_its_error_line(lab: Lab) -> None:
    lab.root.mkdir()
    script = "import sys; print('ERROR: no such thing'); print('by the way'); sys.exit(3)"
    with pytest.raises(LabError) as caught:
        run("s", [sys.executable, "-c", script], lab.log, Heard(), remedy="mend it", env=os.environ, cwd=lab.root)
    assert caught.value.why == f"{Path(sys.executable).name} failed (exit status 3): ERROR: no such thing"
    assert caught.value.remedy == f"mend it; the whole output is in {lab.log}"


def test_a_killed_command_is_told_as_that(lab: Lab) -> None:
    lab.root.mkdir()
    with pytest.raises(LabError, match="ended by signal 9"):
        run("s", ["sh", "-c", "kill -9 $$"], lab.log, Heard(), remedy="r", env=os.environ, cwd=lab.root)


def test_a_command_that_is_not_there_is_told(lab: Lab) -> None:
    lab.root.mkdir()
    with pytest.raises(LabError, match="/no/such does not start: No such file"):
        run("s", ["/no/such"], lab.log, Heard(), remedy="r", env=os.environ, cwd=lab.root)


def test_an_interrupt_ends_the_command_and_its_children(lab: Lab) -> None:
    lab.root.mkdir()

    def interrupt() -> None:
        if (lab.root / "grandchild").exists():
            raise KeyboardInterrupt

    script = "sleep 600 & echo $! > grandchild.new; mv grandchild.new grandchild; wait"
    with pytest.raises(KeyboardInterrupt):
        run("s", ["sh", "-c", script], lab.log, Heard(interrupt), remedy="r", env=os.environ, cwd=lab.root)
    pid = int((lab.root / "grandchild").read_text())
    assert ended(pid)


def ended(pid: int) -> bool:
    """Whether a process has ended; a zombie that nobody reaps has."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
    return False


def test_stop_kills_what_ignores_the_first_signal(lab: Lab) -> None:
    child = start(lab, "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)")
    while tail_line(lab.log) != "deaf":
        assert child.poll(0.05) is None
    child.stop(patience=0.1)
    assert child.process.returncode == -9


def test_the_tail_of_a_log_is_its_last_line_without_escapes(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert tail_line(log) == ""
    log.write_bytes(b"first\n\x1b[1mCollecting\x1b[0m torch\r 10 %\r 50 %\n\n")
    assert tail_line(log) == "50 %"
    log.write_bytes(b"x" * 100_000 + b"\nlast \x1b]0;title\x07one")
    assert tail_line(log) == "last one"


def test_the_line_that_tells_best(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("OSError: an earlier step\nSTART\nValueError: the cause\nnote: see the manual\n")
    assert error_line(log, log.read_text().index("START")) == "ValueError: the cause"
    log.write_text("one\ntwo\n")
    assert error_line(log, 0) == "two"


def test_the_terminal_sees_one_live_line_and_a_pipe_few(monkeypatch: pytest.MonkeyPatch) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen, pipe, err = Screen(), io.StringIO(), io.StringIO()
    for out in (screen, pipe):
        reporter = TerminalReporter(out, err)
        reporter.begin(1, 5, "PyTorch")
        for _ in range(100):
            reporter.progress("190 MiB under way  " + "x" * 500)
        reporter.end("done")
        reporter.error("lab up: torch: no")
    assert screen.getvalue().count("\n") == 1
    assert all(len(line) < 200 for line in screen.getvalue().split("\r"))
    assert pipe.getvalue().splitlines()[0] == "[1/5] PyTorch"
    assert pipe.getvalue().splitlines()[-1].endswith("  done")
    assert len(pipe.getvalue().splitlines()) < 5
    assert "\x1b" not in pipe.getvalue()
    assert err.getvalue() == "lab up: torch: no\n" * 2
