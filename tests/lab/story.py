"""A user at a host with a real engine: a private sshd, a network that can be cut, desks, questions, and what is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import socket
import sys
import urllib.request
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from eagletui.commands import Desk, open_desk
from eagletui.hosts.target import Target
from eagletui.labparts.paths import Lab
from eagletui.records import JobState, KillPlan
from eagletui.store import Store
from tests.host.proxy import TcpProxy
from tests.host.sshd import Sshd, free_port, write_key
from tests.lab.story_numbers import Counts, of_line, of_page

LOAD_SECONDS = 600
STEP_SECONDS = 120
QUESTIONS = (
    "Explain the tides in three sentences.",
    "Write a short story about a lighthouse.",
    "List five facts about tea.",
    "Why is the sky blue?",
)


class Done(NamedTuple):
    """How a command line ended."""

    code: int
    out: bytes
    err: str


class Answered(NamedTuple):
    """What one question cost, as the server told the one who asked."""

    prompt: int
    generated: int


class Story:
    """One user, one host. Everything lies in ``root``; the server's port is ``port``. The host is called localhost."""

    def __init__(self, root: Path, lab: Lab, tmp: Path) -> None:
        self.root, self.lab = root, lab
        self.jobs = root / "host" / "jobs"
        self.sshd = Sshd(tmp)
        self.proxy = TcpProxy(self.sshd.port)
        self.port = free_port()
        self.desks: list[Desk] = []
        self.children: list[asyncio.subprocess.Process] = []
        self.pages: list[tuple[Counts, str]] = []
        # the loop's own pool is small on two cores, and the desks use it
        self.pool = ThreadPoolExecutor(8)

    async def begin(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A home with a key that the host lets in, and a host that keeps its jobs here."""
        home = self.root / "home"
        (home / ".ssh").mkdir(parents=True, mode=0o700)
        (self.root / "host").mkdir(mode=0o700)
        for name, value in {
            "HOME": str(home),
            "USER": "root",
            "LOGNAME": "root",
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_STATE_HOME": str(home / "state"),
            "EAGLETUI_LAB": str(self.lab.root),
            "TZ": "UTC",
        }.items():
            monkeypatch.setenv(name, value)
        for name in ("SSH_AUTH_SOCK", "EAGLETUI_STATE", "XDG_CACHE_HOME"):
            monkeypatch.delenv(name, raising=False)
        write_key(home / ".ssh" / "id_ed25519")
        self.sshd.allow(home / ".ssh" / "id_ed25519.pub")
        await self.sshd.start(f"SetEnv EAGLETUI_STATE={self.root / 'host'} HOME={self.root / 'host'}")
        await self.proxy.start()
        ports = (self.sshd.port, self.proxy.port)
        (home / ".ssh" / "known_hosts").write_text("".join(self.sshd.known_line(name=f"[localhost]:{port}") for port in ports))

    async def end(self) -> None:
        for child in self.children:
            if child.returncode is None:
                child.kill()
                await child.wait()
        for desk in self.desks:
            await desk.close()
        for state in self.jobs.glob("*/state.json"):
            await self._end_group(json.loads(state.read_text()))
        await self.proxy.close()
        await self.sshd.stop()
        self.pool.shutdown(wait=False)

    async def _end_group(self, state: dict[str, Any]) -> None:
        """A test that failed leaves a server: its main process leads a session of its own, and its supervisor waits for it."""
        pid, start = state.get("pid"), state.get("pid_start")
        if isinstance(pid, int) and started(pid) == start:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, 9)

    # ------------------------------------------------------------------------------------------------------- the client

    def target(self, *, far: bool = False) -> Target:
        """The host, directly, or ``far`` away: over the network that can be cut."""
        return Target("localhost", "root", self.proxy.port if far else self.sshd.port)

    async def desk(self, *, far: bool = False) -> Desk:
        desk = await open_desk(self.target(far=far), None, {})
        self.desks.append(desk)
        return desk

    async def close(self, desk: Desk) -> None:
        self.desks.remove(desk)
        await desk.close()

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        """Begin a command of the command line, without a terminal."""
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "eagletui", *arguments,
            stdin=DEVNULL, stdout=PIPE, stderr=PIPE, start_new_session=True,
        )  # fmt: skip
        self.children.append(child)
        return child

    async def finish(self, child: asyncio.subprocess.Process, seconds: float = STEP_SECONDS) -> Done:
        async with asyncio.timeout(seconds):
            out, err = await child.communicate()
        assert child.returncode is not None
        return Done(child.returncode, out, err.decode())

    async def cli(self, *arguments: str) -> Done:
        return await self.finish(await self.start(*arguments))

    # ------------------------------------------------------------------------------------------------------- the server

    async def ask(self, question: str, tokens: int = 100) -> Answered:
        """One question, straight to the server's port."""
        body = {
            "model": await self._call(self._model),
            "messages": [{"role": "user", "content": question}],
            "max_tokens": tokens,
            "temperature": 0,
        }
        answer = json.loads(await self._call(lambda: self._get("/v1/chat/completions", body)))
        assert answer["choices"][0]["message"]["content"]
        return Answered(answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"])

    def _model(self) -> str:
        return str(json.loads(self._get("/v1/models"))["data"][0]["id"])

    def _get(self, path: str, body: dict[str, Any] | None = None) -> str:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=STEP_SECONDS) as answer:
            return str(answer.read().decode())

    async def _call(self, what: Callable[[], str]) -> str:
        return await asyncio.get_running_loop().run_in_executor(self.pool, what)

    async def page(self) -> str:
        """The raw text of the server's metrics now."""
        return await self._call(lambda: self._get("/metrics"))

    def lines(self, job: str, until: float | None = None) -> list[dict[str, Any]]:
        """The scrapes that the host has recorded, up to the boot time ``until``."""
        text = (self.jobs / job / "samples.jsonl").read_text()
        found = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
        return [line for line in found if until is None or line["boot"] <= until]

    async def quiet(self, desk: Desk, job: str, finished: int) -> Counts:
        """Wait until ``finished`` questions are done, raw page and newest shown scrape agree in every counter; these then."""
        found: list[Counts] = []

        async def agree() -> bool:
            view = desk.store.servers.get(job)
            if view is None or view.sample.running or (view.sample.finished or 0) < finished:
                return False
            page = await self.page()
            counts = of_page(page)
            if counts.finished != finished or of_line(self.lines(job, view.boot)[-1]) != counts:
                return False
            self.pages.append((counts, page))
            found.append(counts)
            return True

        await self.until(desk, job, agree, f"{finished} questions are counted", STEP_SECONDS)
        return found[0]

    def raw(self, counts: Counts) -> Counts | None:
        """The same counts read from a raw page, when one was kept that agrees in all of them."""
        return next((of_page(page) for kept, page in self.pages if kept == counts), None)

    # ------------------------------------------------------------------------------------------------------ waiting, telling

    async def until(
        self,
        desk: Desk,
        job: str,
        true: Callable[[], bool | Awaitable[bool]],
        what: str,
        seconds: float,
        also: Callable[[], str] = str,
    ) -> None:
        """Wait until ``true()``, asked after each change of the store. Fails with all that is known, and ``also()``."""
        try:
            async with asyncio.timeout(seconds):
                await when(desk.store, true)
        except TimeoutError:
            pytest.fail(f"not within {seconds} s: {what}\n{also()}\n{self.told(desk, job)}", pytrace=False)

    def told(self, desk: Desk, job: str) -> str:
        """What a person would look at when something is wrong."""
        alerts = "\n".join(f"  {alert.severity}: {alert.text}" for alert in desk.store.alerts.values())
        log = self.jobs / job / "log"
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-40:]) if log.exists() else "(none)"
        return f"link: {desk.store.connection}\nalerts:\n{alerts}\njob: {desk.store.jobs.get(job)}\nend of its log:\n{tail}"

    def log_sum(self, job: str) -> str:
        return sha((self.jobs / job / "log").read_bytes())


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def when(store: Store, true: Callable[[], bool | Awaitable[bool]]) -> None:
    """Return once ``true()``; it is asked now and after each change of the store."""
    changed = asyncio.Event()
    unlisten = store.listen(lambda _topic: changed.set())
    try:
        while True:
            changed.clear()
            answer = true()
            if answer if isinstance(answer, bool) else await answer:
                return
            await changed.wait()
    finally:
        unlisten()


@contextlib.contextmanager
def states_of(desk: Desk, name: str) -> Any:
    """Every state of the job called ``name`` that this desk is shown, in order."""
    seen: list[JobState] = []

    def look(topic: str) -> None:
        found = [job for job in desk.store.jobs.values() if job.name == name]
        if topic == "jobs" and found and (not seen or seen[-1] != found[0]):
            seen.append(found[0])

    unlisten = desk.store.listen(look)
    try:
        yield seen
    finally:
        unlisten()


def phases_in_order(states: Iterable[JobState]) -> list[tuple[str, str | None]]:
    """(phase, role) in the order in which they were first shown as running."""
    return list(dict.fromkeys((phase.id, phase.role) for state in states for phase in state.phases))


# -------------------------------------------------------------------------------------------------------- what is left behind


def started(pid: int) -> int | None:
    """The start time of a live process in clock ticks: its identity with the pid. None when it is gone or only a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else int(fields[19])


def opened(pid: int) -> set[str]:
    """The files under /dev/shm and /tmp that a process has mapped or open."""
    found: set[str] = set()
    with contextlib.suppress(OSError):
        found |= set(re.findall(r"(/(?:dev/shm|tmp)/\S+)", Path(f"/proc/{pid}/maps").read_text()))
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found.add(os.readlink(entry.path))
    return {path for path in found if path.startswith(("/dev/shm/", "/tmp/")) and os.path.exists(path)}


class Traces:
    """What a server may leave: taken before its launch, ``living`` before its end, `assert_gone` afterwards."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._before = self._there()
        self._living: dict[int, int] = {}
        self._files: set[str] = set()

    def _there(self) -> set[str]:
        engines = re.compile(r"/dev/shm/|/vllm|/[0-9a-f]{8}-[0-9a-f-]{27}$|/tmp/torch")
        return {path for place in ("/dev/shm", "/tmp") for name in os.listdir(place) if engines.search(path := f"{place}/{name}")}

    def living(self, plan: KillPlan) -> None:
        """Remember the processes that the plan names, and the files they use."""
        for victim in plan.processes:
            assert started(victim.pid) == victim.start, f"pid {victim.pid} of the plan is not that process"
            self._living[victim.pid] = victim.start
            self._files |= {path for path in opened(victim.pid) if str(self._story.root) not in path}
        self._files |= {*plan.shm, *plan.tmp}

    def assert_gone(self) -> None:
        """No process, no listener, no file of it is left."""
        assert self._living, "no process was looked at before the end"
        left = {pid: start for pid, start in self._living.items() if started(pid) == start}
        assert left == {}, f"still alive: {left}"
        for host in ("127.0.0.1", "0.0.0.0"):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as a server does: old connections do not count
                probe.bind((host, self._story.port))
        files = sorted(path for path in self._files if os.path.exists(path))
        assert files == [], f"its files are still there: {files}"
        held = {path for pid in os.listdir("/proc") if pid.isdigit() for path in opened(int(pid))}
        left_over = sorted(self._there() - self._before - held)
        assert left_over == [], f"new since before the launch, and nobody alive uses it: {left_over}"


@contextlib.asynccontextmanager
async def story_in(root: Path, lab: Lab, tmp: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Story]:
    """A story with its host and network up; all of it ends with the block."""
    story = Story(root, lab, tmp)
    try:
        await story.begin(monkeypatch)
        yield story
    finally:
        await story.end()
