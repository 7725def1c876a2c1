"""Builds the stand-in for NVML, steers it, and runs a telemetry source in a process of its own against it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "tests/native/fake_nvml.c"
OLD_PYTHON = Path.home() / ".pyenv/versions/3.8.18/bin/python3"
Doc = dict[str, Any]


def build(folder: Path) -> Path:
    """Compile the stand-in; the folder to put into LD_LIBRARY_PATH."""
    command = ["gcc", "-Wall", "-Wextra", "-O1", "-shared", "-fPIC", "-o", str(folder / "libnvidia-ml.so.1"), str(SOURCE)]
    subprocess.run(command, check=True)
    return folder


def pythons() -> list[str]:
    """This Python, and the oldest one that a host may have, where it is installed."""
    return [sys.executable] + ([str(OLD_PYTHON)] if OLD_PYTHON.exists() else [])


class FakeNvml:
    """The stand-in's control file. `set` replaces all settings at once, also for a library that is already loaded."""

    def __init__(self, library: Path, folder: Path) -> None:
        self.library, self._path = library, folder / "nvml.txt"
        self._version = 0
        self.set()

    def set(self, *lines: str) -> None:
        self._version += 1
        new = self._path.with_suffix(".new")
        new.write_text("".join(line + "\n" for line in lines))
        os.utime(new, ns=(self._version, self._version))  # the library looks at the time: never twice the same
        new.replace(self._path)

    @property
    def environ(self) -> dict[str, str]:
        return {"LD_LIBRARY_PATH": str(self.library), "FAKE_NVML": str(self._path)}


class Running:
    """A source in its own process. `until` reads documents until one is as wanted."""

    def __init__(
        self,
        source: str,
        python: str = sys.executable,
        environ: dict[str, str] | None = None,
        prefix: Sequence[str] = (),
        **timing: Any,
    ) -> None:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("LD_", "PYTHON"))}
        self.process = subprocess.Popen(
            [*prefix, python, "-S", str(ROOT / "tests/agent/source_harness.py"), source, json.dumps(timing)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**env, "PYTHONPATH": str(ROOT / "src"), **(environ or {})},
        )
        self._buffer = b""
        self.docs: list[Doc] = []
        self.says: list[Doc] = []

    def send(self, **command: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write((json.dumps(command) + "\n").encode())
        self.process.stdin.flush()

    def until(self, wanted: Callable[[Doc], Any], what: str = "", seconds: float = 30.0) -> Doc:
        """The first document from now on that is as ``wanted``; what else was said is kept in ``says``."""
        end = time.monotonic() + seconds
        while True:
            doc = self._line(end, what)
            if "error" in doc:
                raise AssertionError(doc["error"])
            if "need" in doc or "log" in doc:
                self.says.append(doc)
                if "need" in doc:
                    import pynvml

                    self.send(provide=pynvml.__file__)
                continue
            self.docs.append(doc)
            if wanted(doc):
                return doc

    def _line(self, end: float, what: str) -> Doc:
        assert self.process.stdout is not None
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise AssertionError(f"no document with {what or 'what was wanted'}; the last one: {self.docs[-1:]}")
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            if not data:
                raise AssertionError(f"the source's process ended with {self.process.wait()}")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        doc: Doc = json.loads(line)
        return doc

    def children(self) -> list[int]:
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()]

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(20)
        finally:
            self.process.kill()
            self.process.stdout.close()
            self.process.wait()
