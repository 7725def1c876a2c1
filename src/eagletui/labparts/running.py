"""Run the commands of a step: output to the log, progress to the reporter, and an end that leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from eagletui.labparts.report import LabError, Reporter
from eagletui.text import clean

_CAUSE = re.compile(
    r"(Failed to establish a new connection[^')]*|Connection (refused|reset|aborted)|Temporary failure in name resolution"
    r"|Name or service not known|Read timed out|Tunnel connection failed[^')]*|No space left on device)"
)
_ERROR = re.compile(r"(ERROR|error:|[A-Za-z_.]*(Error|Exception)\b)")


def _lines(log: Path, start: int, limit: int) -> list[str]:
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - limit))
            text = file.read(limit).decode("utf-8", "replace")
    except OSError:
        return []  # not written yet, or gone: there is nothing to quote
    lines = (clean(line).strip() for line in re.split(r"[\r\n]+", text))
    return [line for line in lines if line]


def tail_line(log: Path) -> str:
    """The last line with something in it, of the last 4 KiB of a log."""
    lines = _lines(log, 0, 4096)
    return lines[-1] if lines else ""


def error_line(log: Path, start: int) -> str:
    """The line of a log from offset ``start`` on that tells best why a command failed: its last error line, else its last.

    A trouble of network or disk that stands in an earlier line is added: installers only say what they then did not find.
    """
    lines = _lines(log, start, 1 << 20)
    errors = [line for line in lines if _ERROR.match(line)]
    best = (errors or lines or [""])[-1][:300]
    causes = [match[0] for match in map(_CAUSE.search, lines) if match]
    return f"{best} ({causes[-1]})" if causes and causes[-1] not in best else best


def folder_size(folder: Path) -> int:
    """Bytes of all files below a folder; files that go away meanwhile count nothing."""
    total = 0
    for base, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(base, name)).st_size
            except OSError:
                continue  # deleted between the listing and the look: it takes no room
    return total


class Child:
    """A command in its own session with its output appended to a log. `stop` ends it and everything in its group."""

    def __init__(self, argv: Sequence[str], log: Path, *, env: Mapping[str, str], cwd: Path) -> None:
        self.argv, self.log = list(argv), log
        with log.open("ab") as out:
            out.write(("$ " + " ".join(argv) + "\n").encode())
            out.flush()
            self.start = out.tell()
            self.process = subprocess.Popen(  # an argument list, never a shell
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=cwd,
                start_new_session=True,
            )

    def poll(self, seconds: float) -> int | None:
        """Wait up to ``seconds``; the exit status, or None while it runs."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def stop(self, patience: float = 20.0) -> None:
        """SIGTERM to the command, then SIGKILL to what is left of its group; returns when the group is gone."""
        if self.process.poll() is None:
            self.process.terminate()
            self.poll(patience)
        deadline = time.monotonic() + 5.0
        while time.monotonic() < deadline:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                break
            self.process.poll()
            time.sleep(0.05)  # its children are init's to reap: that takes a moment
        self.process.wait()


def run(
    step: str,
    argv: Sequence[str],
    log: Path,
    reporter: Reporter,
    *,
    remedy: str,
    env: Mapping[str, str],
    cwd: Path,
    note: Callable[[], str] | None = None,
) -> None:
    """Run one command to its end, telling about twice a second how it goes.

    ``note`` adds a measured figure to the log's last line. Raises `LabError` with the best line of the log when the
    command fails; an interrupt ends the command and its group first.
    """
    try:
        child = Child(argv, log, env=env, cwd=cwd)
    except OSError as error:
        raise LabError(step, f"{argv[0]} does not start: {error.strerror}", remedy) from error
    try:
        while (status := child.poll(0.5)) is None:
            reporter.progress("  ".join(part for part in (note() if note else "", tail_line(log)) if part))
    except BaseException:
        child.stop(3.0)
        raise
    if status != 0:
        how = f"exit status {status}" if status >= 0 else f"ended by signal {-status}"
        why = error_line(log, child.start) or "no output"
        raise LabError(step, f"{Path(argv[0]).name} failed ({how}): {why}", f"{remedy}; the whole output is in {log}")


def output(step: str, argv: Sequence[str], *, env: Mapping[str, str], remedy: str, timeout: float = 120.0) -> str:
    """The standard output of a short command, stripped. Raises `LabError` when it fails or hangs."""
    try:
        done = subprocess.run(  # an argument list, never a shell
            list(argv),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=env,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LabError(step, f"{Path(argv[0]).name} did not answer in {timeout:.0f} s", remedy) from None
    except OSError as error:
        raise LabError(step, f"{argv[0]} does not start: {error.strerror}", remedy) from error
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1][:300]
        raise LabError(step, f"{Path(argv[0]).name} failed: {last}", remedy)
    return done.stdout.strip()


def wait_until(step: str, child: Child, reporter: Reporter, ready: Callable[[], bool], *, limit: float, remedy: str) -> None:
    """Wait until a server that runs as ``child`` is ready; `LabError` when it ends or ``limit`` seconds pass first."""
    start = time.monotonic()
    while not ready():
        status = child.poll(1.0)
        if status is not None:
            why = error_line(child.log, child.start) or "no output"
            raise LabError(step, f"the server ended with status {status}: {why}", f"{remedy}; the whole output is in {child.log}")
        if time.monotonic() - start > limit:
            raise LabError(step, f"the server was not ready in {limit:.0f} s", f"{remedy}; its output is in {child.log}")
        reporter.progress(tail_line(child.log))
