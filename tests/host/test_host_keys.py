"""Host keys against a real sshd: known, unknown, changed, revoked, of another type; and what known_hosts looks like after."""

# ruff: noqa: ASYNC221 - small files and short commands may block a test

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from eagletui.hosts.base import HostError
from eagletui.hosts.ssh import connector, open_ssh
from tests.host.sshd import Person, Sshd, write_key

HOST_KEYS = pytest.mark.fault(
    38, how="sshd with another key, another type, a revoked key; known_hosts with broken lines, hashed names, unwritable"
)


async def connects(server: Sshd, person: Person | None = None, **options: object) -> None:
    """Log in, see that a stream works, and close."""
    transport = await open_ssh(server.target, "cat", person, **options)  # type: ignore[arg-type]
    try:
        transport.write(b"through")
        assert await transport.read() == b"through"
    finally:
        await transport.close()


async def refused(server: Sshd, person: Person | None = None, **options: object) -> HostError:
    with pytest.raises(HostError) as caught:
        await connects(server, person, **options)
    return caught.value


async def test_a_known_host_is_entered_without_a_question(server: Sshd) -> None:
    person = Person()
    await connects(server, person)
    assert person.asked == []
    assert person.keys == []


@HOST_KEYS
async def test_an_unknown_key_is_shown_accepted_and_remembered(server: Sshd, known: Path) -> None:
    known.unlink()
    person = Person()
    await connects(server, person)
    ((host, address, key_type, fingerprint, art),) = person.keys
    listed = subprocess.run(
        ["ssh-keygen", "-lv", "-f", f"{server.host_key()}.pub"], capture_output=True, text=True, check=True
    ).stdout
    assert (host, address, key_type) == (f"[127.0.0.1]:{server.port}", "127.0.0.1", "ssh-ed25519")
    assert fingerprint == listed.split()[1]
    assert art == listed.partition("\n")[2].rstrip("\n")
    assert known.read_text() == server.known_line()
    assert known.stat().st_mode & 0o777 == 0o600
    await connects(server)  # nobody to ask any more


@HOST_KEYS
async def test_a_key_that_is_not_accepted_is_not_remembered(server: Sshd, known: Path) -> None:
    known.unlink()
    error = await refused(server, Person(trusts=False))
    assert error.kind == "key-unknown"
    assert not error.retry
    assert not known.exists()


async def test_nothing_is_asked_once_a_connection_has_come_about(server: Sshd, known: Path) -> None:
    """The dashboard has the terminal by then: a question would be written over it, and its keys would answer."""
    known.unlink()
    person = Person()
    connect = connector(server.target, person)
    await (await connect(None)).close()
    assert len(person.keys) == 1
    known.write_text(server.known_line(name="[127.0.0.1]:1"))
    await (await connect(None)).close()  # what was accepted for this session still holds
    again = connector(server.target, person)
    known.write_text(server.known_line())
    await (await again(None)).close()
    known.write_text("")
    with pytest.raises(HostError) as caught:
        await again(None)
    assert caught.value.kind == "key-unknown"
    assert "connect anew" in caught.value.remedy
    assert len(person.keys) == 1


@HOST_KEYS
@pytest.mark.parametrize("person", [None, Person()])
async def test_without_a_person_or_with_strict_an_unknown_key_is_refused(
    server: Sshd, known: Path, person: Person | None
) -> None:
    known.unlink()
    error = await refused(server, person, strict=True)
    assert error.kind == "key-unknown"
    assert "SHA256:" in error.why
    assert not known.exists()
    assert not any("Accepted" in line for line in server.log)


@HOST_KEYS
async def test_a_changed_key_is_refused_with_line_and_command(server: Sshd, known: Path, tmp_path: Path) -> None:
    write_key(tmp_path / "other")
    kind, blob = (tmp_path / "other.pub").read_text().split()[:2]
    before = f"# note\n[127.0.0.1]:{server.port} {kind} {blob}\n"
    known.write_text(before)
    person = Person()
    error = await refused(server, person)
    assert error.kind == "key-changed"
    assert "HAS CHANGED" in error.why
    assert f"{known}:2" in error.why
    assert f"ssh-keygen -f '{known}' -R '[127.0.0.1]:{server.port}'" in error.remedy
    assert person.keys == []
    assert known.read_text() == before
    # the command in the message does what it says
    subprocess.run(error.remedy[error.remedy.index("ssh-keygen -f") :], shell=True, check=True, capture_output=True)
    await connects(server, person)
    assert len(person.keys) == 1


@HOST_KEYS
@pytest.mark.parametrize("name", ["[127.0.0.1]:{port}", "127.0.0.1", "*"])
async def test_a_revoked_key_is_refused_even_when_it_is_listed_too(server: Sshd, known: Path, name: str) -> None:
    known.write_text(server.known_line() + server.known_line(name=name.format(port=server.port), marker="@revoked "))
    person = Person()
    error = await refused(server, person)
    assert error.kind == "key-revoked"
    assert f"{known}:2" in error.why
    assert person.keys == []


@HOST_KEYS
async def test_a_malformed_line_is_skipped_and_reported(server: Sshd, known: Path) -> None:
    known.write_text("what is this\n@new-marker host ssh-ed25519 AAAA\n" + server.known_line())
    notices: list[str] = []

    def notice(line: str) -> None:
        asyncio.get_running_loop()  # on the event loop, since it may change what a screen shows
        notices.append(line)

    await connects(server, notice=notice)
    assert [line.startswith(f"{known}:{n}: ") for n, line in enumerate(notices, 1)] == [True, True]


@HOST_KEYS
async def test_only_another_type_is_known(servers: Callable[[], Sshd], key: Path, known: Path) -> None:
    sshd = servers()
    sshd.allow(Path(f"{key}.pub"))
    await sshd.start(kinds=("ssh-ed25519",))
    known.write_text(sshd.known_line("ecdsa-sha2-nistp256"))
    person = Person()
    error = await refused(sshd, person)
    assert error.kind == "key-changed"
    assert "only its ecdsa-sha2-nistp256 key is known" in error.why
    assert person.keys == []


@pytest.mark.parametrize("kind", ["ecdsa-sha2-nistp256", "ssh-rsa"])
async def test_of_several_keys_the_known_one_is_asked_for(servers: Callable[[], Sshd], key: Path, known: Path, kind: str) -> None:
    sshd = servers()
    sshd.allow(Path(f"{key}.pub"))
    await sshd.start(kinds=("ssh-ed25519", kind))
    known.write_text(sshd.known_line(kind))
    await connects(sshd)


@HOST_KEYS
@pytest.mark.parametrize("setting", ["StrictHostKeyChecking no", "UserKnownHostsFile none", "UserKnownHostsFile /dev/null"])
async def test_nothing_in_the_config_switches_checking_off(server: Sshd, home: Path, known: Path, setting: str) -> None:
    (home / ".ssh" / "config").write_text(f"Host *\n  {setting}\n")
    known.write_text("")
    error = await refused(server)
    assert error.kind == "key-unknown"


@HOST_KEYS
async def test_hashed_names_and_a_file_of_ones_own(server: Sshd, home: Path, known: Path) -> None:
    known.unlink()
    mine = home / "hosts"
    (home / ".ssh" / "config").write_text(f"HashKnownHosts yes\nUserKnownHostsFile {mine}\n")
    await connects(server, Person())
    assert mine.read_text().startswith("|1|")
    found = subprocess.run(
        ["ssh-keygen", "-F", f"[127.0.0.1]:{server.port}", "-f", str(mine)], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found
    await connects(server)
    assert not known.exists()


@HOST_KEYS
async def test_a_key_that_cannot_be_saved_holds_for_the_session(server: Sshd, home: Path, known: Path) -> None:
    from eagletui.hosts.auth import Credentials

    known.unlink()
    (home / ".ssh" / "config").write_text("UserKnownHostsFile /proc/nowhere/known_hosts\n")
    notices: list[str] = []
    person, credentials = Person(), Credentials()
    await connects(server, person, notice=notices.append, credentials=credentials)
    await connects(server, person, notice=notices.append, credentials=credentials)
    assert len(person.keys) == 1
    assert any("cannot be written" in notice for notice in notices)


@HOST_KEYS
async def test_a_certificate_by_a_known_authority(servers: Callable[[], Sshd], key: Path, known: Path, tmp_path: Path) -> None:
    authority = write_key(tmp_path / "ca")
    sshd = servers()
    sshd.allow(Path(f"{key}.pub"))
    public = Path(f"{sshd.host_key()}.pub")
    subprocess.run(
        ["ssh-keygen", "-q", "-s", str(tmp_path / "ca"), "-I", "host", "-h", "-n", "127.0.0.1", str(public)], check=True
    )
    await sshd.start(f"HostCertificate {sshd.host_key()}-cert.pub")
    text = authority.export_public_key().decode().strip()
    known.write_text(f"@cert-authority [127.0.0.1]:* {text}\n")
    await connects(sshd)
    known.write_text(f"@cert-authority [127.0.0.1]:* {text}\n" + sshd.known_line(marker="@revoked "))
    assert (await refused(sshd)).kind == "key-revoked"
    known.write_text("")
    assert (await refused(sshd)).kind == "key-unknown"


def test_checking_is_never_left_out() -> None:
    root = Path(__file__).parents[2] / "src"
    sources = [path.read_text() for path in root.rglob("*.py")]
    assert any("known_hosts" in text for text in sources)
    for text in sources:
        squeezed = text.replace(" ", "")
        assert "known_hosts=None" not in squeezed
        assert '"known_hosts":None' not in squeezed
