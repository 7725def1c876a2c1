"""The world of the chaos run: a real sshd, a network for each of two clients, canaries, and the truth about every job.

The truth does not come from eagletui: the jobs note themselves when they start and how they end, and /proc says what lives.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eagletui.agent import procfs
from eagletui.agent.job_files import Job
from eagletui.agent.syscalls import signal_process
from eagletui.commands import Desk, open_desk
from eagletui.commands.jobs import LaunchPlan
from eagletui.hosts.base import HostError
from eagletui.hosts.target import Target
from eagletui.profiles import Profile
from tests.chaos.stand_in import LINE, line
from tests.host.proxy import TcpProxy
from tests.host.sshd import Sshd, free_port, write_key

STAND_IN = str(Path(__file__).with_name("stand_in.py"))
LOG_CAP = 4 << 20
PATIENCE = 120.0


class Late(Exception):
    """Something that had to happen did not, within a generous time."""


async def until(condition: Any, seconds: float, what: str) -> Any:
    """The first true value of ``condition``. Raises `Late`."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not (value := condition()):
        if asyncio.get_running_loop().time() > deadline:
            raise Late(f"not within {seconds:.0f} s: {what}")
        await asyncio.sleep(0.05)
    return value


@dataclass
class Record:
    """One job that was asked for. ``accepted`` is True once a client was told that it runs, False when it was refused."""

    id: str
    folder: Path
    port: int | None
    status: int | None
    accepted: bool | None = None
    signals: set[int] = field(default_factory=set)
    """What its main process may have died of, besides its own exit."""
    shim_killed: bool = False
    removed: bool = False

    @property
    def starts(self) -> list[int]:
        """The pid of every process that ever started as this job."""
        try:
            return [int(word) for word in (self.folder / f"{self.id}.starts").read_text().split()]
        except FileNotFoundError:
            return []

    @property
    def end(self) -> dict[str, Any] | None:
        """What the program noted before it ended by itself: its exit status, and how many bytes it wrote."""
        try:
            found: dict[str, Any] = json.loads((self.folder / f"{self.id}.ends").read_text())
        except FileNotFoundError:
            return None
        return found

    def order(self, text: str) -> None:
        path = self.folder / f"{self.id}.orders"
        path.with_suffix(".new").write_text(text)
        os.replace(path.with_suffix(".new"), path)

    def argv(self) -> list[str]:
        words = [sys.executable, "-I", "-S", STAND_IN, "--tag", self.id, "--worker"]
        for name in ("starts", "ends", "orders"):
            words += [f"--{name}", str(self.folder / f"{self.id}.{name}")]
        if self.port is not None:
            words += ["--port", str(self.port)]
        if self.status is not None:
            words += ["--lines", "200", "--status", str(self.status)]
        return words

    def plan(self, operator: str) -> LaunchPlan:
        """What `commands.launch` is given; for a server and for a plain job."""
        spec: dict[str, Any] = {"id": self.id, "kind": "command", "name": self.id, "argv": self.argv(), "cwd": "/"}
        spec.update(operator=operator, log_cap=LOG_CAP, graces=[10, 5, 20])
        if self.port is not None:
            spec.update(
                kind="serve", server=True, engine="vllm", port=self.port, model="/models/stand-in", leases={"port": self.port}
            )
            spec["ready"] = {"health": "/health", "poll": 0.5}
        profile = Profile(self.id, "vllm", "/models/stand-in", port=self.port)
        return LaunchPlan(profile, self.id, spec, tuple(spec["argv"]), {})


def expected(tag: str, start: int, end: int) -> bytes:
    """The bytes ``[start, end)`` of a job's log, as its program writes them."""
    first, last = start // LINE, -(-end // LINE)
    text = b"".join(line(tag, number) for number in range(first, last))
    return text[start - first * LINE : end - first * LINE]


class Client:
    """One person: a desk over a network of their own, which can be cut."""

    def __init__(self, name: str, world: World) -> None:
        self.name, self.world = name, world
        self.proxy = TcpProxy(world.sshd.port)
        self.desk: Desk | None = None
        self._opening = asyncio.Lock()

    async def open(self) -> Desk:
        """The desk; over a network that is down just now, as often as it takes."""
        async with self._opening, asyncio.timeout(PATIENCE):
            while self.desk is None:
                try:
                    self.desk = await open_desk(Target("localhost", "root", self.proxy.port), None, {}, ("jobs", "host"))
                except HostError as error:
                    if not error.retry:
                        raise
                    await asyncio.sleep(0.2)  # a person who tries again
            return self.desk

    async def close(self) -> None:
        if self.desk is not None:
            desk, self.desk = self.desk, None
            await desk.close()

    async def crash(self) -> None:
        """The client goes without a word: its connections are reset under it, and a new one takes its place."""
        self.proxy.reset()
        await self.close()
        await self.open()

    async def online(self) -> Desk:
        """The desk once it is connected; a new one when this client crashes meanwhile."""
        while True:
            desk = await self.open()
            try:
                await desk.session.wait_online(PATIENCE)
            except HostError as error:
                if error.kind != "closed" or self.desk is desk:
                    raise
                continue
            return desk


class Canary:
    """A process that has nothing to do with any job. It looks like one, notes every signal, and must get none."""

    def __init__(self, folder: Path, name: str, session: bool) -> None:
        self.path = folder / f"{name}.signals"
        code = (
            "import os,signal,sys,time\n"
            "def note(n, f):\n open(sys.argv[1],'a').write('%d\\n' % n)\n"
            "for n in range(1, 65):\n"
            "    if n not in (9, 17, 19, 32, 33):\n        signal.signal(n, note)\n"
            "open(sys.argv[1],'a').close()\n"
            "while True: time.sleep(600)\n"
        )
        self.child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", code, str(self.path), "serve", "--port", "1"], start_new_session=session
        )

    @property
    def trouble(self) -> str | None:
        if self.child.poll() is not None:
            return f"the canary was ended: {self.child.returncode}"
        text = self.path.read_text() if self.path.exists() else ""
        return f"the canary got signals {text.split()}" if text else None

    def end(self) -> None:
        self.child.kill()
        self.child.wait()


class World:
    """Everything of one run under ``root``. `begin` first, `end` last; a run that failed leaves nothing either."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.truth, self.state = root / "truth", root / "host"
        (root / "sshd").mkdir()
        self.sshd = Sshd(root / "sshd")
        self.records: dict[str, Record] = {}
        self.ports = [free_port() for _ in range(3)]
        self.clients = [Client("a", self), Client("b", self)]
        self.canaries: list[Canary] = []
        self._environment: dict[str, str | None] = {}

    async def begin(self) -> None:
        home = self.root / "home"
        (home / ".ssh").mkdir(parents=True, mode=0o700)
        self.truth.mkdir()
        self.state.mkdir(mode=0o700)
        own = {"HOME": str(home), "USER": "root", "LOGNAME": "root", "XDG_CONFIG_HOME": str(home / "config")}
        own["XDG_STATE_HOME"] = str(home / "state")
        for name, value in {**own, "SSH_AUTH_SOCK": None, "EAGLETUI_STATE": None}.items():
            self._environment[name] = os.environ.get(name)
            _set(name, value)
        write_key(home / ".ssh" / "id_ed25519")
        self.sshd.allow(home / ".ssh" / "id_ed25519.pub")
        await self.start_sshd()
        for client in self.clients:
            await client.proxy.start()
        names = [self.sshd.known_line(name=f"[localhost]:{client.proxy.port}") for client in self.clients]
        (home / ".ssh" / "known_hosts").write_text("".join(names))
        self.canaries = [Canary(self.truth, "canary1", True), Canary(self.truth, "canary2", False)]
        await until(lambda: all(canary.path.exists() for canary in self.canaries), 60, "the canaries sit")
        for client in self.clients:
            await client.open()

    async def start_sshd(self) -> None:
        await self.sshd.start(f"SetEnv EAGLETUI_STATE={self.state} HOME={self.state}", "MaxStartups 100:30:200")

    async def end(self) -> None:
        for client in self.clients:
            await client.close()
            await client.proxy.close()
        await self.sshd.stop()
        for canary in self.canaries:
            canary.end()
        for record in self.records.values():
            self.end_job(record)
        for name, value in self._environment.items():
            _set(name, value)

    def end_job(self, record: Record) -> None:
        """SIGKILL to what is left of a job, by pid and start."""
        job = self.job(record)
        with contextlib.suppress(Exception):  # damaged files of a run that failed: the pids that it noted are looked at below
            state = job.stored_state() or {}
            if state.get("shim_pid"):
                signal_process(state["shim_pid"], state["shim_start"], signal.SIGKILL)
        for pid, start in self.living(record):
            with contextlib.suppress(ProcessLookupError):
                signal_process(pid, start, signal.SIGKILL)

    # ------------------------------------------------------------------------------------------------------- the truth

    def job(self, record: Record) -> Job:
        return Job(str(self.state / "jobs" / record.id))

    def table(self) -> dict[str, list[tuple[int, int]]]:
        """{job: its live processes}, as /proc tells it: their command line names the job's files."""
        before, after = f"{self.truth}/", ".starts"
        found: dict[str, list[tuple[int, int]]] = {}
        for pid in procfs.pids():
            for word in (procfs.cmdline(pid) or "").split(" "):
                if word.startswith(before) and word.endswith(after):
                    stat = procfs.read_stat(pid)
                    if stat is not None and not stat.dead:
                        found.setdefault(word[len(before) : -len(after)], []).append((pid, stat.start))
        return found

    def living(self, record: Record) -> list[tuple[int, int]]:
        """Every live process of a job now."""
        return self.table().get(record.id, [])

    def main_lives(self, record: Record, table: dict[str, list[tuple[int, int]]] | None = None) -> bool:
        """Whether its main process lives now, or did when ``table`` was taken."""
        starts = record.starts
        table = self.table() if table is None else table
        return bool(starts) and any(pid == starts[0] for pid, _ in table.get(record.id, []))

    def agents(self) -> list[tuple[int, int]]:
        """The agents and their helpers that run on the host: python started through this sshd, with its environment."""
        mark = f"EAGLETUI_STATE={self.state}".encode()
        found = []
        for pid in procfs.pids():
            environ = procfs.read_bytes(f"/proc/{pid}/environ") or b""
            stat = procfs.read_stat(pid) if mark in environ.split(b"\0") else None
            words = procfs.cmdline(pid) or ""
            if stat is not None and not stat.dead and "python" in words and "shim_main" not in words:
                found.append((pid, stat.start))
        return found

    def shims(self) -> list[tuple[int, int]]:
        """The supervisors (and helpers that end a job) that run on the host."""
        mark = str(self.state / "jobs")
        found = []
        for pid in procfs.pids():
            words = procfs.cmdline(pid) or ""
            stat = procfs.read_stat(pid) if "shim_main" in words and mark in words else None
            if stat is not None and not stat.dead:
                found.append((pid, stat.start))
        return found


def _set(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
