"""Somebody at a machine: connects over real ssh as an operator would, launches, looks and kills."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from eagletui import commands
from eagletui.commands import Desk, open_desk
from eagletui.hosts.target import parse_target
from eagletui.records import JobState, KillReport, from_doc
from tests.agent.jobs_harness import FAKE
from tests.machine.nspawn import Machine, home_for, wait_for

TICKS = "while sleep 0.1; do date +%s.%N; done"
SERVER = "/opt/fake_server.py"
STATE = {"root": "/var/lib/eagletui", "ann": "/home/ann/.local/state/eagletui", "bob": "/home/bob/.local/state/eagletui"}


class Seat:
    """``user`` of the machine, with a client's home of its own. `desk` is open between `sit` and `leave`."""

    def __init__(self, machine: Machine, home: Path, user: str = "root") -> None:
        self.machine, self.home, self.user = machine, home, user
        self.env = home_for(machine, home)
        self.desk: Desk | None = None
        shutil.copy(FAKE, machine.path(SERVER))

    @property
    def target(self) -> str:
        return f"{self.user}@{self.machine.address}"

    async def sit(self) -> Desk:
        self.desk = await open_desk(parse_target(self.target), None, {}, ("jobs",))
        return self.desk

    async def leave(self) -> None:
        """The connection ends, and with it the login session."""
        if self.desk is not None:
            await self.desk.close()
            self.desk = None

    async def again(self) -> Desk:
        """Leave, wait until the machine has noticed, and come back."""
        await self.leave()
        wait_for("the end of the login sessions", lambda: not self.sessions())
        return await self.sit()

    def sessions(self) -> list[str]:
        """The login sessions of the user that are open; one that only a job is left of is not."""
        listed = self.machine.run("loginctl", "list-sessions", "--no-legend").splitlines()
        names = [words[0] for words in map(str.split, listed) if words[2] == self.user]
        return [name for name in names if self._state(name) in ("active", "online", "opening")]

    def _state(self, session: str) -> str:
        # it may end in this moment: then it has no state
        return self.machine.run("loginctl", "show-session", session, "--property=State", "--value", check=False).strip()

    def spec(self, *argv: str, **more: Any) -> dict[str, Any]:
        job = more.pop("id", None) or "t-" + uuid.uuid4().hex[:8]
        return {"id": job, "kind": "command", "name": "test", "argv": list(argv), "cwd": "/", "graces": [5, 5, 10], **more}

    async def launch(self, spec: dict[str, Any], **secrets: str) -> JobState:
        assert self.desk is not None
        return from_doc(JobState, await self.desk.session.request("launch", spec=spec, secrets=secrets))

    async def ticking(self, **more: Any) -> JobState:
        """A job that writes a line ten times a second."""
        return await self.launch(self.spec("bash", "-c", TICKS, **more))

    async def state(self, job: str) -> JobState:
        assert self.desk is not None
        return from_doc(JobState, (await self.desk.session.request("job", job=job))["state"])

    async def until(self, job: str, good: Callable[[JobState], Any], seconds: float = 60.0) -> JobState:
        """The job's state once ``good`` holds of it."""
        state = None
        try:
            async with asyncio.timeout(seconds):
                while True:
                    state = await self.state(job)
                    if good(state):
                        return state
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"the state stays {state}; shim.log: {self.file(job, 'shim.log')}") from None

    async def kill(self, job: str, **more: Any) -> KillReport:
        assert self.desk is not None
        await self.until_listed(job)
        return await commands.kill(self.desk, await commands.kill_plan(self.desk, job), **more)

    async def until_listed(self, job: str) -> None:
        assert self.desk is not None
        async with asyncio.timeout(30):
            while job not in self.desk.store.jobs:
                await self.desk.watch.sample("jobs", self.desk.watch.count("jobs") + 1)

    # ------------------------------------------------------------------------------------------------- what is true there

    def file(self, job: str, name: str) -> str:
        """The text of one of a job's files; empty when it is not there."""
        path = self.machine.path(f"{STATE[self.user]}/jobs/{job}/{name}")
        return path.read_text() if path.exists() else ""

    def doc(self, job: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.file(job, name) or "{}")
        return found

    def grows(self, job: str) -> None:
        """The log gets longer; a test fails when it does not."""
        size = len(self.file(job, "log"))
        wait_for(f"more in the log of {job}", lambda: len(self.file(job, "log")) > size, 30)

    def unit(self, job: str, *names: str) -> dict[str, str]:
        """Properties of the job's unit, as systemd has them now."""
        own = ("systemctl", "--user") if self.user != "root" else ("systemctl",)
        argv = (*own, "show", f"eagletui-{job}.service", *(f"--property={name}" for name in names))
        return dict(line.split("=", 1) for line in self.run(*argv).splitlines())

    def run(self, *argv: str, check: bool = True) -> str:
        """A command of the user's, beside every session."""
        if self.user == "root":
            return self.machine.run(*argv, check=check)
        uid = self.machine.run("id", "-u", self.user).strip()
        return self.machine.run("env", f"XDG_RUNTIME_DIR=/run/user/{uid}", *argv, user=self.user, check=check)

    def agents(self) -> list[int]:
        """The pids of the agents that run there."""
        listed = self.machine.run("ps", "-eo", "pid=,args=").splitlines()
        return [int(line.split()[0]) for line in listed if "eagletui.agent.main" in line and "/bin/sh" not in line]

    def signal(self, pid: int, number: int = signal.SIGKILL) -> None:
        self.machine.run("kill", f"-{int(number)}", str(pid))

    async def cli(self, *argv: str, check: bool = True) -> str:
        """What `eagletui ARGV` says: its output, and behind that what it said on stderr."""
        out, err, status = await self._run_cli(*argv)
        assert not check or status == 0, out + err
        return out + err

    async def cli_json(self, *argv: str) -> dict[str, Any]:
        """The object that `eagletui ARGV --json` prints."""
        out, err, _status = await self._run_cli(*argv, "--json")
        assert out, err
        found: dict[str, Any] = json.loads(out)
        return found

    async def _run_cli(self, *argv: str) -> tuple[str, str, int | None]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "eagletui", *argv,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env={**self.env, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        out, err = await process.communicate()
        return out.decode(), err.decode(), process.returncode


@contextlib.asynccontextmanager
async def seated(machine: Machine, home: Path, monkeypatch: pytest.MonkeyPatch, user: str = "root") -> AsyncIterator[Seat]:
    """A seat with an open desk."""
    seat = Seat(machine, home, user)
    monkeypatch.setenv("HOME", str(home))
    for name in ("SSH_AUTH_SOCK", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "EAGLETUI_STATE"):
        monkeypatch.delenv(name, raising=False)
    await seat.sit()
    try:
        yield seat
    finally:
        await seat.leave()
