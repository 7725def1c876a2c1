"""A private, real sshd: own port, config, host keys, authorized keys and log; and a person who answers questions."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path

import asyncssh

from eagletui.hosts.target import Target

MISSING = "the tests of connecting need a real sshd: install the Debian package openssh-server (and openssh-client)"


def sshd_path() -> str:
    """Where sshd is; a test fails, and is not skipped, when it is missing."""
    path = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    assert path is not None, MISSING
    assert os.geteuid() == 0, "the tests of connecting start sshd with logins for root: run them as root"
    return path


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def write_key(path: Path, kind: str = "ssh-ed25519", passphrase: str | None = None) -> asyncssh.SSHKey:
    """Make a key pair at ``path`` and ``path``.pub."""
    key = asyncssh.generate_private_key(kind, comment=path.name)
    key.write_private_key(str(path), passphrase=passphrase)
    path.chmod(0o600)
    key.write_public_key(f"{path}.pub")
    return key


class Sshd:
    """One server. ``extra`` are lines of sshd_config; ``shell`` is a script that gets the command in $SSH_ORIGINAL_COMMAND."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.authorized = directory / "authorized_keys"
        self.authorized.touch()
        self.log: list[str] = []
        self.address = "127.0.0.1"
        self.prefix: tuple[str, ...] = ()
        """What sshd is started through: ``nsenter`` into another network."""
        self._line = asyncio.Condition()
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None

    @property
    def target(self) -> Target:
        return Target(self.address, "root", self.port)

    def allow(self, public: Path) -> None:
        with self.authorized.open("a") as file:
            file.write(public.read_text())

    def host_key(self, kind: str = "ssh-ed25519") -> Path:
        path = self.directory / f"host_{kind}"
        if not path.exists():
            write_key(path, kind)
        return path

    def known_line(self, kind: str = "ssh-ed25519", name: str | None = None, marker: str = "") -> str:
        key_type, blob = Path(f"{self.host_key(kind)}.pub").read_text().split()[:2]
        return f"{marker}{name or f'[{self.address}]:{self.port}'} {key_type} {blob}\n"

    async def start(self, *extra: str, shell: str | None = None, kinds: Sequence[str] = ("ssh-ed25519",)) -> Sshd:
        os.makedirs("/run/sshd", exist_ok=True)
        lines = [
            f"Port {self.port}",
            f"ListenAddress {self.address}",
            *(f"HostKey {self.host_key(kind)}" for kind in kinds),
            f"AuthorizedKeysFile {self.authorized}",
            f"PidFile {self.directory}/pid",
            "PermitRootLogin yes",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "UsePAM no",
            "StrictModes no",
            "LogLevel VERBOSE",
        ]
        if shell is not None:
            script = self.directory / "shell"
            script.write_text(shell)
            script.chmod(0o755)
            extra = (*extra, f"ForceCommand {script}")
        config = self.directory / "sshd_config"
        config.write_text("\n".join((*extra, *lines)) + "\n")  # the first value of an option counts
        # a pipe of our own: asyncio's would hold up `stop` until the last process of a session has let go of it
        ours, theirs = os.pipe()
        self._process = await asyncio.create_subprocess_exec(
            *self.prefix, sshd_path(), "-D", "-e", "-f", str(config), stdin=asyncio.subprocess.DEVNULL, stderr=theirs
        )
        os.close(theirs)
        self._reader = asyncio.create_task(self._read(ours))
        await self.logged("Server listening on")
        return self

    async def _read(self, fd: int) -> None:
        lines = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(lines)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(fd, "rb", 0))
        try:
            async for raw in lines:
                async with self._line:
                    self.log.append(raw.decode(errors="replace").rstrip())
                    self._line.notify_all()
        finally:
            transport.close()

    async def logged(self, text: str, count: int = 1) -> None:
        """Wait until sshd has logged ``text`` that often."""
        async with asyncio.timeout(20), self._line:
            await self._line.wait_for(lambda: sum(text in line for line in self.log) >= count)

    async def stop(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)


class Person:
    """A `base.Prompter` that gives prepared answers and remembers what was asked."""

    def __init__(self, secrets: Sequence[str | None] = (), answers: Sequence[list[str] | None] = (), trusts: bool = True) -> None:
        self.secrets, self.answers, self.trusts = list(secrets), list(answers), trusts
        self.asked: list[str] = []
        self.keys: list[tuple[str, str, str, str, str]] = []

    async def secret(self, prompt: str) -> str | None:
        self.asked.append(prompt)
        return self.secrets.pop(0)

    async def answer(self, title: str, instructions: str, prompts: Sequence[tuple[str, bool]]) -> list[str] | None:
        self.asked.append(" ".join((title, instructions, *(prompt for prompt, _ in prompts))))
        return self.answers.pop(0)

    async def trust(self, host: str, address: str, key_type: str, fingerprint: str, randomart: str) -> bool:
        self.keys.append((host, address, key_type, fingerprint, randomart))
        return self.trusts
