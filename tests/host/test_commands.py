"""The commands as a user runs them: a process of its own, the real agent, a real sshd, the stand-in for NVML, a real terminal."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import select
import struct
import sys
import termios
from collections.abc import Mapping
from fcntl import ioctl
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from eagletui.records import GpuSample, HostInfo, HostSample
from tests.agent.fakenvml import FakeNvml, build
from tests.host.sshd import Sshd, free_port

PATIENCE = 60


class Done(NamedTuple):
    code: int
    out: str
    err: str


async def eagletui(*arguments: str, env: Mapping[str, str] | None = None) -> Done:
    """Run a command to its end, without a terminal."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "eagletui",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **(env or {})},
        start_new_session=True,  # no controlling terminal: nothing can be asked
    )
    async with asyncio.timeout(PATIENCE):
        out, err = await process.communicate()
    assert process.returncode is not None
    return Done(process.returncode, out.decode(), err.decode())


@pytest.fixture
def cards(tmp_path: Path) -> FakeNvml:
    return FakeNvml(build(tmp_path), tmp_path)


@pytest.fixture(autouse=True)
def own_places(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.setenv("EAGLETUI_STATE", str(home / "jobs"))


def assert_one_line(done: Done, code: int, *words: str) -> None:
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("eagletui: ")
    assert done.err.count("\n") == 1
    assert " - " in done.err
    for word in words:
        assert word in done.err


async def test_status_of_eight_cards(cards: FakeNvml) -> None:
    cards.set("count 8", "card 2 util 97", "card 2 power 412000", "card 5 error 15 *", "card 3 ecc 4", "card 3 recovery 1")
    done = await eagletui("status", "local", "--json", env=cards.environ)
    assert (done.code, done.err) == (0, "")
    shown: dict[str, Any] = json.loads(done.out)
    assert {"version", "host", "gpus", "servers", "jobs", "alerts"} <= set(shown)
    assert [card["number"] for card in shown["gpus"]] == list(range(8))
    assert set(shown["gpus"][0]) == set(GpuSample._fields)
    assert set(HostInfo._fields) | set(HostSample._fields) <= set(shown["host"])
    assert shown["gpus"][2]["util"] == 97
    assert shown["gpus"][2]["power"] == 412
    assert shown["gpus"][3]["ecc_uncorrected"] == 4  # comes with the second sample
    assert shown["gpus"][3]["recovery"]
    assert any(alert["key"].endswith(":ecc") for alert in shown["alerts"])
    assert shown["gpus"][5]["lost"]
    assert shown["gpus"][5]["util"] is None
    assert shown["host"]["cpu"] is not None
    assert any(alert["key"].endswith(":lost") for alert in shown["alerts"])
    text = await eagletui("status", "local", env=cards.environ)
    assert max(map(len, text.out.splitlines())) <= 80
    assert "7 of 8" in text.out
    assert "LOST" in text.out


@pytest.mark.fault(41, how="a machine without the library")
async def test_status_without_a_card(tmp_path: Path) -> None:
    done = await eagletui("status", "local", "--json", env={"LD_LIBRARY_PATH": str(tmp_path)})
    shown = json.loads(done.out)
    if Path("/proc/driver/nvidia/version").exists():
        assert shown["gpus"]
    else:
        assert shown["gpus"] == []
        assert shown["gpus_problem"]


async def test_status_and_doctor_over_ssh(server: Sshd) -> None:
    done = await eagletui("status", str(server.target), "--json", "--no-ssh-config")
    assert done.err == ""
    assert done.code == 0
    shown = json.loads(done.out)
    assert shown["target"] == str(server.target)
    assert shown["host"]["user"] == "root"
    done = await eagletui("doctor", str(server.target), "--json", "--no-ssh-config")
    assert done.err == ""
    examined = json.loads(done.out)
    findings = {finding["id"]: finding for finding in examined["findings"]}
    assert findings["host-key"]["severity"] == "ok"
    assert findings["connection"]["severity"] == "ok"
    assert findings["python"]["severity"] == "ok"
    worst = examined["verdict"]
    assert done.code == {"ok": 0, "warn": 1, "bad": 2}[worst]


async def test_an_unknown_host_is_refused_without_a_terminal(server: Sshd, known: Path) -> None:
    known.unlink()
    assert_one_line(await eagletui("status", str(server.target)), 3)
    assert not known.exists()


async def test_nothing_listens_there() -> None:
    assert_one_line(await eagletui("status", f"127.0.0.1:{free_port()}"), 3, "nothing listens")


async def test_the_doctor_tells_a_failed_connection_as_a_finding() -> None:
    done = await eagletui("doctor", f"127.0.0.1:{free_port()}")
    assert done.code == 3
    assert re.search(r"^bad .*nothing listens", done.out, re.MULTILINE)
    assert "Traceback" not in done.out + done.err


async def test_a_key_that_is_not_there() -> None:
    assert_one_line(await eagletui("status", "127.0.0.1", "--identity", "/nowhere/key"), 2, "/nowhere/key")


async def test_a_wrong_setting_is_an_alert_and_the_rest_works(home: Path) -> None:
    folder = home / "config" / "eagletui"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text("readonyl = true\n[hosts.local]\ngpus = 64\n")
    shown = json.loads((await eagletui("status", "local", "--json")).out)
    texts = " ".join(f"{alert['text']} {alert['remedy']}" for alert in shown["alerts"])
    assert "config.toml:1" in texts
    assert "did you mean 'readonly'?" in texts
    assert "64" in texts


async def test_the_dashboard_needs_a_terminal() -> None:
    assert_one_line(await eagletui("connect", "local"), 2, "no terminal", "eagletui status local")


async def test_the_dashboard_is_not_drawn_into_a_file(tmp_path: Path) -> None:
    with (tmp_path / "errors").open("w") as errors:
        terminal = Terminal("connect", "local")
        terminal.stderr = errors.fileno()
        try:
            await terminal.start()
            assert await terminal.ended() == 2
            assert terminal.seen.startswith("eagletui: connect: stderr is no terminal")
        finally:
            terminal.close()
    assert (tmp_path / "errors").read_text().count("\n") == 1


@pytest.mark.fault(48, how="TERM=dumb and no TERM")
async def test_a_terminal_that_cannot_draw() -> None:
    terminal = Terminal("connect", "local", term="dumb")
    try:
        await terminal.start()
        assert await terminal.ended() == 2
        assert terminal.seen.startswith("eagletui: connect: this terminal cannot draw")
    finally:
        terminal.close()


class Terminal:
    """A command in a pseudo-terminal of 100x30."""

    def __init__(self, *arguments: str, term: str = "xterm-256color") -> None:
        self.term = term
        self.master, slave = pty.openpty()
        ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.seen = ""
        self.stderr = slave
        self.arguments = arguments

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "eagletui",
            *self.arguments,
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.stderr,
            env={**os.environ, "TERM": self.term},
            start_new_session=True,
        )

    async def until(self, text: str) -> None:
        """Read until ``text`` has been drawn."""
        async with asyncio.timeout(PATIENCE):
            while text not in self.seen:
                await asyncio.to_thread(select.select, [self.master], [], [], 1.0)
                self.read()
                assert self.process.returncode is None or text in self.seen, self.seen

    def read(self) -> None:
        while select.select([self.master], [], [], 0)[0]:
            self.seen += os.read(self.master, 65536).decode(errors="replace")

    async def ended(self) -> int:
        """The exit code; what is written meanwhile is read, or the process would wait for room."""
        async with asyncio.timeout(PATIENCE):
            while self.process.returncode is None:
                self.read()
                await asyncio.wait([asyncio.ensure_future(self.process.wait())], timeout=0.1)
        self.read()
        return self.process.returncode

    def close(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        os.close(self.master)
        os.close(self.slave)


@pytest.mark.parametrize("over_ssh", [False, True])
async def test_the_dashboard_opens_and_leaves_the_terminal_as_it_was(over_ssh: bool, server: Sshd) -> None:
    terminal = Terminal("connect", str(server.target) if over_ssh else "local")
    try:
        await terminal.start()
        await terminal.until("Overview")
        await terminal.until("Host")
        os.write(terminal.master, b"q")
        assert await terminal.ended() == 0
        assert "\x1b[?1049l" in terminal.seen
        assert "Traceback" not in terminal.seen
        before, _, drawn = terminal.seen.partition("\x1b[?1049h")
        assert f"connecting to {server.target if over_ssh else 'local'} ..." in before
        assert before.endswith("\r\x1b[K")  # what was waited for is told no more
        assert "connecting to" not in drawn
        assert termios.tcgetattr(terminal.slave)[:4] == terminal.before[:4]
    finally:
        terminal.close()
