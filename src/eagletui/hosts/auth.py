"""Proving who we are: keys of the agent, key files (a passphrase is asked only when the host accepts the key), passwords, codes.

`Credentials` live as long as the `Session` that made them: what a person typed is kept in memory for reconnects, nowhere else.
Answers to keyboard-interactive questions are kept only when the one question asks for a password: others are often codes that
hold once. This module imports asyncssh: load it late, off the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import asyncssh

from eagletui.hosts.base import Prompter
from eagletui.hosts.known_hosts import HostKey
from eagletui.hosts.ssh_config import HostConfig

DEFAULT_KEYS = ("id_ed25519", "id_ed25519_sk", "id_ecdsa", "id_ecdsa_sk", "id_rsa")
TRIES = 3


class Credentials:
    """What was typed, and which host keys were accepted, for as long as the session lives."""

    def __init__(self) -> None:
        self.keys: dict[str, asyncssh.SSHKey] = {}
        self.passwords: dict[str, str] = {}
        self.accepted: dict[tuple[str, int], HostKey] = {}

    def forget(self) -> None:
        self.keys.clear()
        self.passwords.clear()
        self.accepted.clear()


class Candidate(NamedTuple):
    """A key to offer: the pair for asyncssh, and how a person calls it."""

    pair: asyncssh.SSHKeyPair
    name: str


class Found(NamedTuple):
    """All keys to offer, in order, and what is wrong with key files that were named but cannot be used."""

    candidates: list[Candidate]
    problems: list[str]
    agent: asyncssh.SSHAgentClient | None


class Pause:
    """A clock that stops while a person is asked: time limits must never cut somebody typing.

    ``cut`` is set when a question ended without an answer because the connection had gone.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._asking = 0
        self.cut = False
        self._handle: asyncio.TimerHandle | None = None
        self.expired = asyncio.Event()

    def touch(self) -> None:
        """Progress was made: the limit counts from now."""
        if self._handle is not None:
            self._handle.cancel()
        self._handle = None if self._asking else asyncio.get_running_loop().call_later(self.limit, self.expired.set)

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """While inside, no time limit runs."""
        self._asking += 1
        self.touch()
        try:
            yield
        except BaseException:
            self.cut = True
            raise
        finally:
            self._asking -= 1
            self.touch()

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = None


async def find(config: HostConfig, credentials: Credentials, prompter: Prompter | None, clock: Pause) -> Found:
    """Collect the keys for one host: those of the agent that are also named first, then the agent's others, then files."""
    problems: list[str] = []
    agent, agent_pairs = await _agent_pairs(config, problems)
    files = await asyncio.get_running_loop().run_in_executor(None, _read_files, config, problems)
    ordered: list[Candidate] = []
    rest = dict(enumerate(agent_pairs))
    named: list[Candidate] = []
    for file in files:
        held = next((n for n, pair in rest.items() if pair.key_public_data == file.public_data), None)
        if held is not None:
            ordered.append(_agent_candidate(rest.pop(held)))
        elif not file.is_public_only:
            named.extend(file.candidates(credentials, prompter, clock))
        elif agent is None:
            problems.append(f"{file.path}: only the public half is there, and no agent holds the key")
    if not config.identities_only:
        ordered.extend(_agent_candidate(pair) for pair in rest.values())
    return Found(ordered + named, problems, agent)


def _agent_candidate(pair: asyncssh.SSHKeyPair) -> Candidate:
    return Candidate(pair, f"{pair.get_comment(errors='replace') or pair.get_algorithm()} (agent)")


async def _agent_pairs(
    config: HostConfig, problems: list[str]
) -> tuple[asyncssh.SSHAgentClient | None, list[asyncssh.SSHKeyPair]]:
    path = config.identity_agent if config.identity_agent is not None else os.environ.get("SSH_AUTH_SOCK", "")
    if not path:
        return None, []
    try:
        agent = await asyncssh.connect_agent(path)
        return agent, list(await agent.get_keys())
    except (OSError, ValueError, asyncssh.Error) as error:
        problems.append(f"the ssh agent at {path} does not answer: {error}")
        return None, []


class _KeyFile:
    """A key file on disk: the private key when it is not encrypted, else at least its public half if that is known."""

    def __init__(self, path: str, text: bytes, private: asyncssh.SSHKey | None, public: asyncssh.SSHKey | None) -> None:
        self.path, self.text, self.private, self.public = path, text, private, public
        self.certificates: list[Any] = []

    @property
    def is_public_only(self) -> bool:
        return b"PRIVATE KEY" not in self.text

    @property
    def public_data(self) -> bytes | None:
        key = self.private or self.public
        return key.public_data if key is not None else None

    def candidates(self, credentials: Credentials, prompter: Prompter | None, clock: Pause) -> list[Candidate]:
        if self.private is not None:
            pairs = asyncssh.load_keypairs([self.private], certlist=self.certificates)
            if self.certificates:  # with and without the certificate, as OpenSSH does
                pairs = [*pairs, *asyncssh.load_keypairs([self.private])]
            return [Candidate(pair, self.path) for pair in pairs]
        if self.public is None:
            return []
        return [
            Candidate(_locked_pair(self, cert, credentials, prompter, clock), self.path) for cert in [*self.certificates, None]
        ]


def _read_files(config: HostConfig, problems: list[str]) -> list[_KeyFile]:
    files: list[_KeyFile] = []
    defaults = [str(Path.home() / ".ssh" / name) for name in DEFAULT_KEYS]
    for path in config.identities or defaults:
        try:
            files.append(_read_file(path, config.certificates))
        except FileNotFoundError:
            if config.identities:
                problems.append(f"{path}: no such file")
        except (OSError, ValueError) as error:
            problems.append(f"{path}: {getattr(error, 'strerror', None) or error}")
    return files


def _read_file(path: str, certificates: tuple[str, ...]) -> _KeyFile:
    text = Path(path).read_bytes()
    private: asyncssh.SSHKey | None = None
    public: asyncssh.SSHKey | None = None
    if b"PRIVATE KEY" not in text:
        return _KeyFile(path, text, None, asyncssh.import_public_key(text))
    try:
        private = asyncssh.import_private_key(text)
        private.set_filename(path)
    except asyncssh.KeyImportError as error:
        if not str(error).startswith("Passphrase"):
            raise ValueError(str(error)) from None
        public = _public_half(path, text)
        if public is None:
            raise ValueError(
                f"encrypted, and its public half is unknown: write it with ssh-keygen -y -f {path} > {path}.pub"
            ) from None
    file = _KeyFile(path, text, private, public)
    for name in (*certificates, path + "-cert.pub"):
        if Path(name).is_file():
            file.certificates += [c for c in asyncssh.load_certificates(name) if c.key.public_data == file.public_data]
    return file


def _public_half(path: str, text: bytes) -> asyncssh.SSHKey | None:
    for source in (path + ".pub", None):
        try:
            # an encrypted key in OpenSSH's own format carries its public half in the clear
            return asyncssh.read_public_key(source) if source else asyncssh.import_public_key(text)
        except (OSError, asyncssh.KeyImportError):
            continue  # the next source may have it; the caller says so when none has
    return None


def _locked_pair(
    file: _KeyFile, cert: Any, credentials: Credentials, prompter: Prompter | None, clock: Pause
) -> asyncssh.SSHKeyPair:
    """A pair that signs only after the passphrase was typed; it is asked when the host has accepted the public key."""
    key = file.public
    assert key is not None

    class Locked(asyncssh.SSHKeyPair):
        async def sign_async(self, data: bytes) -> bytes:
            private = await _unlock(file, credentials, prompter, clock)
            if private is None:
                raise ValueError("no passphrase")  # asyncssh then goes on to the next key
            pair = asyncssh.load_keypairs([private])[0]
            pair.set_sig_algorithm(self.sig_algorithm)
            return await asyncio.get_running_loop().run_in_executor(None, pair.sign, data)

    return Locked(
        key.algorithm, key.algorithm, key.sig_algorithms, key.sig_algorithms, key.public_data, file.path, cert, file.path.encode()
    )


async def _unlock(file: _KeyFile, credentials: Credentials, prompter: Prompter | None, clock: Pause) -> asyncssh.SSHKey | None:
    kept = credentials.keys.get(file.path)
    if kept is not None and file.public is not None and kept.public_data == file.public.public_data:
        return kept
    if prompter is None:
        return None
    loop = asyncio.get_running_loop()
    for attempt in range(TRIES):
        prompt = f"Passphrase for {file.path}" + (" (that was not it, try again)" if attempt else "")
        with clock.asking():
            passphrase = await prompter.secret(prompt)
        if passphrase is None:
            return None
        try:
            key = await loop.run_in_executor(None, asyncssh.import_private_key, file.text, passphrase)
        except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError):
            continue  # a wrong passphrase: asked again
        credentials.keys[file.path] = key
        return key
    return None
