"""Logging in to a real sshd: keys, encrypted keys, the agent, certificates, passwords, one-time codes, and refusals."""

# ruff: noqa: ASYNC221 - small files and short commands may block a test

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import asyncssh
import pytest

from eagletui.hosts import ssh
from eagletui.hosts.auth import Credentials
from eagletui.hosts.base import HostError
from eagletui.hosts.prompts import Handover
from eagletui.hosts.ssh import open_ssh
from eagletui.hosts.ssh_connection import Limits
from eagletui.hosts.ssh_transport import SshTransport
from eagletui.hosts.target import Target
from tests.host.sshd import Person, Sshd, write_key
from tests.host.test_host_keys import connects, refused


@pytest.fixture
def agent(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An ssh-agent with no keys yet."""
    path = short_path / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()  # it prints the socket's name once it listens
    monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
    yield path
    process.terminate()
    process.wait()
    process.stdout.close()


def add(private: Path) -> None:
    subprocess.run(["ssh-add", "-q", str(private)], check=True)


@pytest.fixture
async def bare(servers: Callable[[], Sshd], known: Path) -> Sshd:
    """A started, known server that lets nobody in yet."""
    sshd = servers()
    known.write_text(sshd.known_line())
    return await sshd.start()


@pytest.mark.parametrize("kind", ["ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa"])
async def test_a_default_key(bare: Sshd, home: Path, kind: str) -> None:
    name = {"ssh-ed25519": "id_ed25519", "ecdsa-sha2-nistp256": "id_ecdsa", "ssh-rsa": "id_rsa"}[kind]
    write_key(home / ".ssh" / name, kind)
    bare.allow(home / ".ssh" / f"{name}.pub")
    await connects(bare)


@pytest.mark.fault(37, how="a wrong passphrase")
async def test_an_encrypted_key_asks_three_times_and_is_kept_for_reconnects(bare: Sshd, home: Path) -> None:
    path = home / ".ssh" / "id_ed25519"
    write_key(path, passphrase="open sesame")
    bare.allow(Path(f"{path}.pub"))
    person, credentials = Person(secrets=["wrong", "also wrong", "open sesame"]), Credentials()
    await connects(bare, person, credentials=credentials)
    assert len(person.asked) == 3
    assert str(path) in person.asked[0]
    assert "try again" in person.asked[1]
    await connects(bare, person, credentials=credentials)
    assert len(person.asked) == 3
    credentials.forget()
    error = await refused(bare, Person(secrets=["a", "b", "c"]), credentials=credentials)
    assert error.kind == "auth"
    assert str(path) in error.why


async def test_the_passphrase_is_asked_only_for_a_key_that_the_host_takes(bare: Sshd, home: Path) -> None:
    write_key(home / ".ssh" / "id_ed25519", passphrase="x")
    write_key(home / ".ssh" / "id_ecdsa", "ecdsa-sha2-nistp256")
    (home / ".ssh" / "id_ed25519.pub").unlink()  # OpenSSH's format holds the public half in the clear
    bare.allow(home / ".ssh" / "id_ecdsa.pub")
    person = Person()
    await connects(bare, person)
    assert person.asked == []


@pytest.mark.fault(37, how="an encrypted key and nobody to ask")
async def test_an_encrypted_key_without_a_person_is_a_refusal(bare: Sshd, home: Path) -> None:
    path = home / ".ssh" / "id_ed25519"
    write_key(path, passphrase="x")
    bare.allow(Path(f"{path}.pub"))
    assert (await refused(bare)).kind == "auth"


async def test_a_key_of_the_agent(bare: Sshd, tmp_path: Path, agent: Path) -> None:
    write_key(tmp_path / "held")
    add(tmp_path / "held")
    bare.allow(tmp_path / "held.pub")
    await connects(bare)


async def test_identities_only_and_identity_agent(bare: Sshd, home: Path, tmp_path: Path, agent: Path) -> None:
    for name in ("first", "second", "third"):
        write_key(tmp_path / name)
        add(tmp_path / name)
    bare.allow(tmp_path / "third.pub")
    (tmp_path / "third").unlink()  # only the agent has it; the file names it by its public half
    config = home / ".ssh" / "config"
    config.write_text(f"IdentitiesOnly yes\nIdentityFile {tmp_path}/third.pub\n")
    await connects(bare)
    assert sum("Failed publickey" in line for line in bare.log) == 0
    config.write_text(f"IdentitiesOnly yes\nIdentityFile {tmp_path}/first\n")
    error = await refused(bare)
    assert error.kind == "auth"
    assert "third" not in error.why
    config.write_text("IdentityAgent none\n")
    assert "no key was offered" in (await refused(bare)).why
    config.write_text(f"IdentityAgent {tmp_path}/nobody\n")
    assert "does not answer" in (await refused(bare)).why


@pytest.mark.fault(37, how="an agent with more keys than the host takes")
async def test_too_many_keys(servers: Callable[[], Sshd], known: Path, tmp_path: Path, agent: Path) -> None:
    sshd = servers()
    known.write_text(sshd.known_line())
    await sshd.start("MaxAuthTries 2")
    for name in ("one", "two", "three"):
        write_key(tmp_path / name)
        add(tmp_path / name)
    error = await refused(sshd)
    assert error.kind == "auth"
    assert not error.retry
    assert "IdentitiesOnly" in error.remedy


async def test_a_user_certificate(servers: Callable[[], Sshd], known: Path, home: Path, tmp_path: Path) -> None:
    write_key(tmp_path / "ca")
    path = home / ".ssh" / "id_ed25519"
    write_key(path)
    subprocess.run(["ssh-keygen", "-q", "-s", str(tmp_path / "ca"), "-I", "me", "-n", "root", f"{path}.pub"], check=True)
    sshd = servers()
    known.write_text(sshd.known_line())
    await sshd.start(f"TrustedUserCAKeys {tmp_path}/ca.pub")
    await connects(sshd)


@pytest.mark.fault(37, how="sshd that does not take the key; its log counts the connections")
async def test_a_refusal_names_methods_and_keys_and_is_one_connection(bare: Sshd, key: Path) -> None:
    error = await refused(bare, Person())
    assert error.kind == "auth"
    assert not error.retry
    assert "it takes publickey" in error.why
    assert str(key) in error.why
    assert sum("Connection from" in line for line in bare.log) == 1


@pytest.mark.fault(37, how="sshd that does not take the key; its log counts the connections")
async def test_no_key_at_all(bare: Sshd) -> None:
    error = await refused(bare)
    assert "no key was offered" in error.why
    assert "ssh-add" in error.remedy


@pytest.mark.fault(37, how="an ssh-agent that is locked")
async def test_a_locked_agent_offers_nothing_until_it_is_unlocked(bare: Sshd, tmp_path: Path, agent: Path) -> None:
    write_key(tmp_path / "held")
    add(tmp_path / "held")
    bare.allow(tmp_path / "held.pub")
    await connects(bare)
    async with asyncssh.connect_agent(str(agent)) as locks:
        await locks.lock("secret")
        before = sum("Connection from" in line for line in bare.log)
        error = await refused(bare)
        assert (error.kind, error.retry) == ("auth", False)
        assert "no key was offered" in error.why
        assert sum("Connection from" in line for line in bare.log) - before <= 1
        await locks.unlock("secret")
    await connects(bare)


async def test_a_named_key_that_is_missing_is_told(bare: Sshd, home: Path) -> None:
    (home / ".ssh" / "config").write_text("IdentityFile ~/.ssh/gone\n")
    assert f"{home}/.ssh/gone: no such file" in (await refused(bare)).why
    error = await refused(bare, identity="~/.ssh/nothing")
    assert (error.kind, error.step) == ("config", "identity")


async def test_an_identity_given_by_hand(bare: Sshd, tmp_path: Path) -> None:
    write_key(tmp_path / "mine")
    bare.allow(tmp_path / "mine.pub")
    await connects(bare, identity=str(tmp_path / "mine"))


# ------------------------------------------------------------- what OpenSSH without PAM cannot ask: an asyncssh server does


class _Login(asyncssh.SSHServer):
    """Takes a password, or a password and a code by keyboard-interactive."""

    passwords = True

    def begin_auth(self, username: str) -> bool:
        return True

    def password_auth_supported(self) -> bool:
        return self.passwords

    def validate_password(self, username: str, password: str) -> bool:
        return password == "right"

    def kbdint_auth_supported(self) -> bool:
        return not self.passwords

    def get_kbdint_challenge(self, username: str, lang: str, submethods: str):  # type: ignore[no-untyped-def]
        return "Two steps", "Look at your \x1b[31mtelephone", "", [("Account: ", True), ("Code: ", False)]

    def validate_kbdint_response(self, username: str, responses: Sequence[str]) -> bool:
        return list(responses) == ["me", "123456"]


class _Codes(_Login):
    passwords = False


class _Pam(_Codes):
    """Asks for the password by keyboard-interactive, as sshd with PAM does."""

    def get_kbdint_challenge(self, username: str, lang: str, submethods: str):  # type: ignore[no-untyped-def]
        return "", "", "", [("Password: ", False)]

    def validate_kbdint_response(self, username: str, responses: Sequence[str]) -> bool:
        return list(responses) == ["right"]


Started = Callable[[type[asyncssh.SSHServer]], "asyncio.Future[Target]"]


@pytest.fixture
async def peer(tmp_path: Path, known: Path) -> AsyncIterator[Callable[[type[asyncssh.SSHServer]], object]]:
    made: list[asyncssh.SSHAcceptor] = []

    async def echo(process: asyncssh.SSHServerProcess[bytes]) -> None:
        while data := await process.stdin.read(100):
            process.stdout.write(data)
        process.exit(0)

    async def start(factory: type[asyncssh.SSHServer]) -> Target:
        key = write_key(tmp_path / "peer")
        acceptor = await asyncssh.listen(
            "127.0.0.1", 0, server_factory=factory, server_host_keys=[key], process_factory=echo, encoding=None
        )
        made.append(acceptor)
        port = acceptor.get_port()
        public = " ".join((tmp_path / "peer.pub").read_text().split()[:2])
        known.write_text(f"[127.0.0.1]:{port} {public}\n")
        return Target("127.0.0.1", "me", port)

    yield start
    for acceptor in made:
        acceptor.close()
        await acceptor.wait_closed()


async def through(target: Target, person: Person | None, **options: object) -> None:
    transport = await open_ssh(target, "anything", person, **options)  # type: ignore[arg-type]
    transport.write(b"hello")
    assert await transport.read() == b"hello"
    await transport.close()


@pytest.mark.fault(37, how="wrong passwords and codes")
async def test_a_password_is_asked_again_and_kept_only_when_right(peer: Callable[..., object]) -> None:
    target = await peer(_Login)  # type: ignore[misc]
    person, credentials = Person(secrets=["wrong", "right"]), Credentials()
    await through(target, person, credentials=credentials)
    await through(target, person, credentials=credentials)
    assert len(person.asked) == 2
    assert "not accepted" in person.asked[1]
    with pytest.raises(HostError) as caught:
        await through(target, Person(secrets=["a", "b", "c"]))
    assert caught.value.kind == "auth"
    assert caught.value.remedy == "what was typed was not accepted"
    with pytest.raises(HostError) as caught:
        await through(target, Person(secrets=[None]))
    assert caught.value.kind == "auth"


@pytest.mark.fault(37, how="wrong passwords and codes")
async def test_keyboard_interactive(peer: Callable[..., object]) -> None:
    target = await peer(_Codes)  # type: ignore[misc]
    person, credentials = Person(answers=[["me", "123456"], ["me", "123456"]]), Credentials()
    await through(target, person, credentials=credentials)
    assert person.asked == ["Two steps Look at your \x1b[31mtelephone Account:  Code: "]
    await through(target, person, credentials=credentials)
    assert len(person.asked) == 2  # a code is never used twice
    with pytest.raises(HostError) as caught:
        await through(target, None)
    assert caught.value.kind == "auth"


async def test_a_password_asked_by_keyboard_interactive_serves_without_a_person(peer: Callable[..., object]) -> None:
    target = await peer(_Pam)  # type: ignore[misc]
    person, credentials = Person(secrets=["right"]), Credentials()
    await through(target, person, credentials=credentials)
    await through(target, None, credentials=credentials)  # a reconnect asks nobody
    await through(target, None, credentials=credentials)
    assert len(person.asked) == 1
    with pytest.raises(HostError) as caught:
        await through(target, None)
    assert caught.value.kind == "auth"


async def test_no_time_limit_cuts_a_person_typing(peer: Callable[..., object]) -> None:
    target = await peer(_Login)  # type: ignore[misc]
    limits = Limits(greeting=0.2, login=0.2)

    class Slow(Person):
        async def secret(self, prompt: str) -> str | None:
            await asyncio.sleep(0.5)  # slower than every limit
            return "right"

    await through(target, Slow(), limits=limits)


def test_secrets_are_not_in_the_environment_of_the_tests() -> None:
    assert "SSH_AUTH_SOCK" not in os.environ


@pytest.mark.fault(37, how="a server that wants a password; a person at the terminal, then at a screen, then nobody")
async def test_a_screen_is_asked_again_for_a_new_connection_the_terminal_is_not(
    peer: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = await peer(_Login)  # type: ignore[misc]

    async def linked(transport: SshTransport, *_: object, **__: object) -> SshTransport:
        return transport  # the peer runs no agent: the login is what counts here

    monkeypatch.setattr(ssh, "open_link", linked)
    person, screen = Person(secrets=["right"]), Person(secrets=["right", "right"])
    asks, credentials = Handover(person), Credentials()
    connect = ssh.connector(target, asks, credentials=credentials)
    await (await connect(None)).close()
    credentials.forget()  # as with a code, which nothing keeps
    with pytest.raises(HostError) as caught:
        await connect(None)
    assert (caught.value.kind, caught.value.retry, len(person.asked)) == ("auth", False, 1)
    asks.hand_to(screen)
    for _ in range(2):
        await (await connect(None)).close()
        credentials.forget()
    assert (len(person.asked), len(screen.asked)) == (1, 2)
    asks.hand_to(None)
    with pytest.raises(HostError) as caught:
        await connect(None)
    assert (caught.value.kind, caught.value.retry) == ("auth", False)


class _Gone(_Codes):
    """Ends the login once it has asked, as sshd does when LoginGraceTime is over."""

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self.conn = conn

    def get_kbdint_challenge(self, username: str, lang: str, submethods: str):  # type: ignore[no-untyped-def]
        asyncio.get_running_loop().call_later(0.2, self.conn.abort)
        return super().get_kbdint_challenge(username, lang, submethods)


@pytest.mark.fault(37, how="a server that ends the login while a person looks for the code")
async def test_an_answer_that_comes_too_late_is_not_asked_for_again_by_itself(peer: Callable[..., object]) -> None:
    target = await peer(_Gone)  # type: ignore[misc]
    given_up = asyncio.Event()

    class Slow(Person):
        async def answer(self, title: str, instructions: str, prompts: Sequence[tuple[str, bool]]) -> list[str] | None:
            try:
                await asyncio.Event().wait()
            finally:
                given_up.set()
            raise AssertionError

    with pytest.raises(HostError) as caught:
        await through(target, Slow())
    assert (caught.value.kind, caught.value.retry) == ("auth", False)
    assert "before an answer came" in caught.value.why
    await asyncio.wait_for(given_up.wait(), 30)  # the box is taken away
