"""The doctor's judgements on this side: the terminal, and the way to the host in the SSH files."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from eagletui.cli.doctor import lines
from eagletui.doctor import examine
from eagletui.doctor.findings import Finding
from eagletui.doctor.ssh_checks import judge_ssh
from eagletui.doctor.terminal import TerminalFacts, judge_terminal
from eagletui.hosts.base import HostError
from eagletui.hosts.target import parse_target
from tests.doctor.test_host_checks import host

GOOD = TerminalFacts("xterm-256color", "truecolor", False, "utf-8", (160, 50))


def by_id(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.id: finding for finding in findings}


@pytest.mark.parametrize(
    ("changes", "id_", "severity"),
    [
        ({}, "terminal", "ok"),
        ({"term": "dumb"}, "terminal", "bad"),
        ({"term": ""}, "terminal", "bad"),
        ({"encoding": "ANSI_X3.4-1968"}, "encoding", "warn"),
        ({"size": (79, 24)}, "size", "warn"),
        ({"size": (80, 24)}, "size", "ok"),
    ],
)
def test_terminal(changes: dict[str, Any], id_: str, severity: str) -> None:
    assert by_id(judge_terminal(GOOD._replace(**changes)))[id_].severity == severity


def test_without_a_terminal_its_size_is_not_judged() -> None:
    assert "size" not in by_id(judge_terminal(GOOD._replace(size=None)))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    (tmp_path / ".ssh").mkdir(mode=0o700)
    return tmp_path


def key_line(name: str) -> str:
    blob = len(b"ssh-ed25519").to_bytes(4, "big") + b"ssh-ed25519" + (32).to_bytes(4, "big") + bytes(32)
    return f"{name} ssh-ed25519 {base64.b64encode(blob).decode()}\n"


def test_a_host_that_is_set_up(home: Path) -> None:
    key = home / ".ssh" / "gpu"
    key.write_text("secret")
    key.chmod(0o600)
    (home / ".ssh" / "config").write_text(f"Host box\n HostName 10.0.0.5\n Port 2222\n User root\n IdentityFile {key}\n")
    (home / ".ssh" / "known_hosts").write_text(key_line("[10.0.0.5]:2222"))
    findings = by_id(judge_ssh(parse_target("box"), read_config=True))
    assert {finding.severity for finding in findings.values()} == {"ok"}
    assert "root@10.0.0.5 port 2222" in findings["target"].evidence
    assert "known_hosts:1" in findings["host-key"].evidence
    assert findings["identity"].evidence == str(key)


def test_what_is_not_set_up_has_a_remedy(home: Path) -> None:
    (home / ".ssh" / "config").write_text("Host box\n StrictHostKeyChecking no\n ControlMaster auto\n IdentityFile ~/.ssh/gone\n")
    (home / ".ssh" / "known_hosts").write_text("broken\n")
    findings = by_id(judge_ssh(parse_target("box"), read_config=True))
    assert findings["ssh-option:StrictHostKeyChecking"].severity == "warn"
    assert findings["ssh-option:ControlMaster"].severity == "info"
    for id_ in ("known-hosts-line", "host-key", "identity"):
        assert findings[id_].severity == "warn"
        assert findings[id_].remedy


def test_an_open_key_and_no_key_at_all(home: Path) -> None:
    assert by_id(judge_ssh(parse_target("box"), read_config=False))["identity"].severity == "warn"
    key = home / "key"
    key.write_text("secret")
    key.chmod(0o644)
    finding = by_id(judge_ssh(parse_target("box"), read_config=False, identity=str(key)))["identity"]
    assert finding.remedy == f"chmod 600 {key}"


async def test_everything_in_order_on_this_machine() -> None:
    fake = host()

    async def connect() -> Any:
        return fake

    findings, error = await examine(parse_target("local"), connect)
    assert error is None
    assert fake.closed
    assert [finding.id for finding in findings if finding.id in ("terminal", "connection", "nvml")] == [
        "terminal",
        "connection",
        "nvml",
    ]


async def test_a_connection_that_fails_is_a_finding() -> None:
    async def connect() -> Any:
        raise HostError("connect", "refused", "is sshd running?", kind="refused")

    findings, error = await examine(parse_target("local"), connect)
    assert error is not None
    assert findings[-1] == Finding("connection", "bad", "connect failed", "refused", "is sshd running?")


def test_the_lines_are_clean_and_end_with_the_counts() -> None:
    printed = lines(
        [Finding("a", "ok", "fine", "very"), Finding("b", "bad", "hurt\x1b[2J", "badly", "mend it"), Finding("c", "info", "t")]
    )
    assert printed[0] == "ok    " + "fine".ljust(28) + "  very"
    assert "\x1b" not in printed[1]
    assert printed[2] == "      -> mend it"
    assert printed[-1] == "2 fine, 0 to look at, 1 wrong"
