"""Servers that eagletui did not start: real processes with an engine's argv and titles; and an agent's look at them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eagletui.agent import adopt, procfs
from eagletui.agent.jobs_source import JobsSource
from eagletui.agent.loop import Loop
from eagletui.agent.source import Context
from eagletui.agent.syscalls import signal_process
from tests.agent.jobs_harness import free_port, until

HERE = Path(__file__).parent
SGLANG_TITLES = "sglang::scheduler_TP0,sglang::detokenizer"
Doc = dict[str, Any]


def install(folder: Path, name: str = "vllm") -> Path:
    """The stand-in as the program ``name`` (``vllm``, or ``sglang``) in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "stand_in.py", folder / name)
    shutil.copy(HERE / "fake_server.py", folder / "fake_server.py")
    return folder / name


class Servers:
    """Starts stand-ins, and ends all of them, members included, by pid and start."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.closed = folder, False
        self.processes: list[subprocess.Popen[bytes]] = []
        self._seen: set[tuple[int, int]] = set()

    def argv(self, *flags: str, name: str = "vllm", model: str = "/models/fake", port: int | None = None) -> list[str]:
        program = install(self.folder / "bin", name)
        return [sys.executable, "-I", "-S", str(program), "serve", model, "--port", str(port or free_port()), *flags]

    def start(self, argv: list[str], **options: Any) -> subprocess.Popen[bytes]:
        """A process of its own session, as `nohup` from a login shell leaves it; ``log`` names where its output goes."""
        log = options.pop("log", self.folder / "server.log")
        with open(log, "ab") as file:
            options.setdefault("stdout", file)
            options.setdefault("stderr", file)
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True, **options)
        self.processes.append(process)
        return process

    def note(self, doc: Doc) -> None:
        """Remember the members of a server, so that they are ended even when they are orphans by then."""
        self._seen.update((int(pid), int(start)) for pid, start in doc.get("member_pids") or ())

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """SIGKILL to the server alone: what it started is left."""
        process.kill()
        process.wait(30)

    def _is_ours(self, pid: int) -> bool:
        """Whether a process was started from this folder or writes into it: nobody else knows the folder."""
        inside = [lead for lead in procfs.fd_paths(pid).values() if lead.startswith(f"{self.folder}/")]
        return bool(inside) or any(word.startswith(f"{self.folder}/bin/") for word in procfs.argv(pid)[:5])

    def clean(self) -> None:
        self._seen |= {key for key in map(_key, procfs.pids()) if key is not None and self._is_ours(key[0])}
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait(30)
        for pid, start in self._seen:
            signal_process(pid, start, signal.SIGKILL)
        until(lambda: not any(procfs.alive(pid, start) for pid, start in self._seen), 20, "the stand-ins end")


def _key(pid: int) -> tuple[int, int] | None:
    stat = procfs.read_stat(pid)
    return None if stat is None or pid == os.getpid() else (pid, stat.start)


class Look:
    """The stream ``jobs`` as an agent publishes it; `until` runs the agent's loop until a condition holds of the document."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.closed = folder, False
        self.errors: list[BaseException] = []
        self.loop = Loop(self._failed)
        self.said: list[str] = []
        self.doc: Doc | None = None
        self.count = 0
        self.source = JobsSource(Context(self.loop, self._published, lambda module: None, self.said.append))
        self.source.start(0.1, {})

    def _failed(self, what: str, error: Exception) -> None:
        self.errors.append(error)
        self.loop.stop()

    def _published(self, doc: Doc) -> None:
        self.doc = json.loads(json.dumps(doc, allow_nan=False))
        self.count += 1

    def until(self, condition: Callable[[Doc], Any], seconds: float = 60.0) -> Any:
        """The first true value of ``condition(document)``."""
        found: list[Any] = []

        def check() -> None:
            value = condition(self.doc) if self.doc is not None else None
            if value:
                found.append(value)
                self.loop.stop()
            else:
                self.loop.call_later(0.03, check)

        timer = self.loop.call_later(seconds, self.loop.stop)
        check()
        if not found:
            self.loop.run()
        timer.cancel()
        if self.errors:
            raise self.errors[0]
        assert found, f"not within {seconds} s; the document is {self.doc}"
        return found[0]

    def server(
        self,
        condition: Callable[[Doc], Any] = lambda doc: True,
        *,
        pid: int | None = None,
        id: str | None = None,  # noqa: A002 - the field's own name
        seconds: float = 60.0,
    ) -> Doc:
        """The document of a server that was found, once the condition holds of it: the one with this main process or this id,
        else one whose command lies in ``folder`` (others may run on this machine)."""

        def wanted(job: str, state: Doc) -> bool:
            if id is not None:
                return job == id
            if pid is not None:
                return bool(state.get("pid") == pid)
            return any(str(self.folder) in word for word in state.get("command") or ())

        def match(doc: Doc) -> Doc | None:
            for job, state in doc.items():
                if adopt.is_found(job) and wanted(job, state) and condition(state):
                    return dict(state)
            return None

        found: Doc = self.until(match, seconds)
        return found

    def read(self, path: str) -> bytes:
        """A file as the agent reads it for a client."""
        with open(path, "rb") as file:
            return file.read()

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self.source.stop()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.loop.close()


def children() -> set[int]:
    """The children of this process that are not zombies."""
    own = os.getpid()
    stats = (procfs.read_stat(pid) for pid in procfs.pids())
    return {stat.pid for stat in stats if stat is not None and stat.ppid == own and not stat.dead}
