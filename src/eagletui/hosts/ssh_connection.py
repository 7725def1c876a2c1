"""One authenticated SSH connection under our own policy: host keys, keys and passwords, jump hosts, time limits.

This module imports asyncssh: load it late, off the event loop (`ssh.connect_ssh` does).
"""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import asyncssh
from asyncssh.encryption import get_encryption_algs
from asyncssh.kex import get_kex_algs
from asyncssh.mac import get_mac_algs
from asyncssh.public_key import get_certificate_algs, get_public_key_algs

from eagletui.hosts import auth, dial, failures, known_hosts, ssh_config
from eagletui.hosts.base import HostError, Prompter
from eagletui.hosts.known_hosts import Entry, HostKey, Known
from eagletui.hosts.ssh_config import HostConfig

PLAIN_ALGORITHMS = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
    "rsa-sha2-512",
    "rsa-sha2-256",
)
CERTIFICATE_ALGORITHMS = tuple(f"{name.removesuffix('@openssh.com')}-cert-v01@openssh.com" for name in PLAIN_ALGORITHMS)
MAX_HOPS = 8

_log = logging.getLogger("asyncssh")
_log.addHandler(logging.NullHandler())  # without a handler Python would print warnings over the dashboard
if _log.level == logging.NOTSET:
    _log.setLevel(logging.WARNING)


class Limits(NamedTuple):
    """Seconds. None of them runs while a person is asked. ``login`` lets a push to somebody's telephone take its time."""

    tcp: float = 10.0
    greeting: float = 15.0
    login: float = 120.0
    keepalive: float = 5.0
    keepalive_count: int = 3


class _Client(asyncssh.SSHClient):
    """Answers asyncssh's questions and records what happened, so that a failure can be told."""

    def __init__(self, config: HostConfig, found: auth.Found, maker: Connector, clock: auth.Pause) -> None:
        self._config, self._found, self._maker, self._clock = config, found, maker, clock
        self.connection: asyncssh.SSHClientConnection | None = None
        self.shown: HostKey | None = None
        self.authority: HostKey | None = None
        self.methods: dict[str, None] = {}
        self.offered: list[str] = []
        self.asked = False
        self.banner = self.verdict = ""
        self._next = iter(found.candidates)
        self._passwords = 0
        self._challenges = 0
        self._typed: str | None = None

    # ------------------------------------------------------------------------------------------ the connection

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self.connection = conn

    def stage(self) -> str:
        """How far it came: banner, key exchange or login."""
        if self.connection is None or self.connection.get_extra_info("server_version") is None:
            return "banner"
        return "key exchange" if self.connection.get_server_host_key() is None else "login"

    def auth_banner_received(self, msg: str, lang: str) -> None:
        self.banner = msg
        if self.offered or self.asked:
            self.verdict = msg  # not the greeting, which comes first: what PAM says of the account

    def auth_completed(self) -> None:
        self._clock.stop()
        if self._typed is not None:
            self._maker.credentials.passwords[self._password_name] = self._typed

    # ------------------------------------------------------------------------------------------ the host's key

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.shown = HostKey(key.get_algorithm(), key.public_data)
        return False  # trusted keys were given to asyncssh; this one is not among them, the policy judges it

    def validate_host_ca_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.authority = HostKey(key.get_algorithm(), key.public_data)
        return False

    # ------------------------------------------------------------------------------------------ who we are

    @property
    def _password_name(self) -> str:
        return f"{self._config.user}@{self._config.host}:{self._config.port}"

    def _progress(self) -> None:
        self._clock.limit = self._maker.limits.login
        self._clock.touch()
        if self.connection is not None:
            self.methods.update(dict.fromkeys(self.connection.get_server_auth_methods()))

    def public_key_auth_requested(self) -> asyncssh.SSHKeyPair | None:
        self._progress()
        candidate = next(self._next, None)
        if candidate is None:
            return None
        self.offered.append(candidate.name)
        return candidate.pair

    async def password_auth_requested(self) -> str | None:
        self._progress()
        return await self._password(f"{self._config.user}@{self._config.host}'s password")

    async def _password(self, prompt: str) -> str | None:
        kept = self._maker.credentials.passwords.pop(self._password_name, None)
        if kept is not None:
            self._typed = kept  # put back when it is accepted
            return kept
        if self._maker.prompter is None or self._passwords >= auth.TRIES:
            return None
        again = " (not accepted, try again)" if self._passwords else ""
        self._passwords += 1
        self.asked = True
        with self._clock.asking():
            self._typed = await self._maker.prompter.secret(prompt + again)
        return self._typed

    def kbdint_auth_requested(self) -> str | None:
        self._progress()
        self._challenges += 1
        kept = self._password_name in self._maker.credentials.passwords  # many hosts ask for the password this way
        return "" if (self._maker.prompter is not None or kept) and self._challenges <= auth.TRIES else None

    async def kbdint_challenge_received(
        self, name: str, instructions: str, lang: str, prompts: Sequence[tuple[str, bool]]
    ) -> Sequence[str] | None:
        self._progress()
        if not prompts:
            return []
        if len(prompts) == 1 and not prompts[0][1] and prompts[0][0].strip().lower().rstrip(":").endswith("password"):
            typed = await self._password(f"{self._config.user}@{self._config.host}: {prompts[0][0].strip().rstrip(':')}")
            return None if typed is None else [typed]
        if self._maker.prompter is None:
            return None
        self.asked = True
        with self._clock.asking():
            return await self._maker.prompter.answer(name or str(self._config.host), instructions, prompts)


class Connector:
    """Makes connections to one target again and again; what was typed or accepted is remembered in ``credentials``.

    ``prompter`` None or ``strict`` refuse unknown host keys. ``notice`` is told in one line what a person should know
    though it works: skipped lines of known_hosts, a key that could not be saved.
    """

    def __init__(
        self,
        prompter: Prompter | None,
        credentials: auth.Credentials,
        *,
        strict: bool = False,
        config_path: str | None = None,
        limits: Limits = Limits(),  # noqa: B008 - immutable
        notice: Callable[[str], None] | None = None,
    ) -> None:
        self.prompter, self.credentials = prompter, credentials
        self.strict, self.config_path, self.limits = strict, config_path, limits
        self._notice = notice or (lambda text: None)

    async def reach(self, config: HostConfig, depth: int = 0) -> Connection:
        """Connect and log in, through the jump hosts when the config names some. Raises `HostError`."""
        if depth > MAX_HOPS:
            raise HostError("ssh config", f"more than {MAX_HOPS} jump hosts: ProxyJump runs in a circle", kind="config")
        hops: list[Connection] = []
        try:
            for number, target in enumerate(config.jumps):
                hop = await asyncio.to_thread(ssh_config.resolve, target, self.config_path)
                if number:
                    hop = hop._replace(jumps=())  # what leads to this hop is the one before it
                try:
                    through = await self._login(hop, hops[-1]) if number else await self.reach(hop, depth + 1)
                except HostError as error:
                    raise failures.at_hop(str(target), error) from None
                hops.append(through)
            last = await self._login(config, hops[-1] if hops else None)
        except BaseException:
            for hop_connection in reversed(hops):
                await hop_connection.close()
            raise
        last.under = [*hops, *last.under]
        return last

    async def _login(self, config: HostConfig, via: Connection | None) -> Connection:
        try:
            return await self._attempt(config, via)
        except _Unknown as unknown:
            await self._ask(config, unknown)
        try:
            return await self._attempt(config, via)  # pinned to the accepted key
        except _Unknown as unknown:
            raise failures.unknown_key(config.key_name, unknown.address, unknown.key, asked=False) from None

    async def _ask(self, config: HostConfig, unknown: _Unknown) -> None:
        name, key = known_hosts.host_name(config.key_name, config.key_port), unknown.key
        if self.prompter is None or self.strict:
            raise failures.unknown_key(name, unknown.address, key, asked=False)
        accepted = await self.prompter.trust(name, unknown.address, key.type, key.fingerprint, known_hosts.randomart(key))
        if not accepted:
            raise failures.unknown_key(name, unknown.address, key, asked=True)
        self.credentials.accepted[(config.key_name, config.key_port)] = key
        path = config.user_files[0]
        try:
            await asyncio.to_thread(
                known_hosts.append, path, config.key_name, config.key_port, key, hashed=config.hash_known_hosts
            )
        except OSError as error:
            self._notice(f"{failures.known_hosts_unwritable(path, error)}; the key is kept for this session only")

    async def _known(self, config: HostConfig, address: str | None) -> Known:
        files = await asyncio.to_thread(known_hosts.load, [*config.user_files, *config.global_files])
        for bad in files.bad:
            self._notice(f"{bad} (skipped)")
        known = known_hosts.look_up(files, config.key_name, address, config.key_port)
        accepted = self.credentials.accepted.get((config.key_name, config.key_port))
        if accepted is not None and not known.named:  # it could not be saved
            entry = Entry("", config.key_name, accepted, "(accepted in this session)", 0)
            known = known._replace(trusted=(*known.trusted, entry), named=(entry,))
        return known

    async def _attempt(self, config: HostConfig, via: Connection | None) -> Connection:
        proxy: dial.Proxy | None = None
        sock: socket.socket | None = None
        address: str | None = None
        if via is None and config.proxy_command:
            try:
                proxy = await dial.Proxy.start(config.proxy_command)
            except OSError as error:
                raise failures.of_proxy(config.proxy_command, str(error)) from None
            sock = proxy.sock
        elif via is None:
            sock = await dial.tcp(config, self.limits.tcp)
            address = str(sock.getpeername()[0])
        try:
            return await self._handshake(config, sock, via, proxy, address)
        except BaseException:
            if sock is not None:
                sock.close()
            if proxy is not None:
                await proxy.close()
            raise

    async def _handshake(
        self,
        config: HostConfig,
        sock: socket.socket | None,
        via: Connection | None,
        proxy: dial.Proxy | None,
        address: str | None,
    ) -> Connection:
        known = await self._known(config, address)
        clock = auth.Pause(self.limits.greeting)
        found = await auth.find(config, self.credentials, self.prompter, clock)
        client = _Client(config, found, self, clock)
        where = f"through {via.name}" if via is not None else address or "through its ProxyCommand"
        clock.touch()
        try:
            options = self._options(config, known, client)
            way: dict[str, Any] = {"tunnel": via.raw} if via is not None else {"sock": sock}
            raw = await _until(asyncssh.connect(config.host, config.port, **way, **options), clock)
            return Connection(raw, config, proxy)
        except (asyncssh.Error, OSError, ValueError, _Expired) as error:
            raise await self._explain(error, config, known, client, via, proxy, where) from None
        finally:
            clock.stop()
            if found.agent is not None:
                found.agent.close()

    def _options(self, config: HostConfig, known: Known, client: _Client) -> dict[str, Any]:
        revoked = {entry.key.blob for entry in known.revoked}
        trusted = _keys(e for e in known.trusted if e.key.blob not in revoked)
        # A revoked plain key is not in ``trusted`` and so comes to the policy, which knows its line. Under an authority
        # asyncssh must know it too: a certificate over a revoked key is refused there.
        lists = (trusted, _keys(known.authorities), _keys(known.revoked) if known.authorities else [])
        return {
            "config": None,
            "client_factory": lambda: client,
            "known_hosts": lists,
            "host_key_alias": config.key_name,
            "server_host_key_algs": _choice("HostKeyAlgorithms", config.host_key_algorithms) or _algorithms(known),
            "username": config.user,
            "client_keys": None,
            "agent_forwarding": False,
            "x11_forwarding": False,
            "request_pty": False,
            "gss_host": None,
            "host_based_auth": False,
            "env": None,
            "send_env": None,
            "connect_timeout": None,
            "login_timeout": 0,
            "keepalive_interval": self.limits.keepalive,
            "keepalive_count_max": self.limits.keepalive_count,
            "encoding": None,
            **{name: value for name, value in config.options.items() if name not in _LISTS},
            **{name: chosen for name, value in config.options.items() if name in _LISTS and (chosen := _choice(name, value))},
        }

    async def _explain(
        self,
        error: Exception,
        config: HostConfig,
        known: Known,
        client: _Client,
        via: Connection | None,
        proxy: dial.Proxy | None,
        where: str,
    ) -> Exception:
        """The `HostError` for what asyncssh raised, or `_Unknown` for a host key that a person may accept."""
        stage = client.stage()
        if isinstance(error, _Expired):
            return failures.timeout(stage, config.host, config.port)
        if isinstance(error, asyncssh.HostKeyNotVerifiable):
            return _host_key(error, config, known, client, where)
        if isinstance(error, asyncssh.PermissionDenied):
            return failures.refused_login(
                config.user, config.host, list(client.methods), client.offered, client._found.problems, asked=client.asked
            )
        if client._clock.cut and isinstance(error, asyncssh.ConnectionLost):
            return failures.unanswered(config.user, config.host)
        if isinstance(error, asyncssh.KeyExchangeFailed):
            return failures.algorithms(config.host, error)
        if isinstance(error, asyncssh.ChannelOpenError):
            return failures.jump(via.name if via else "", config.host, config.port, error)
        if isinstance(error, asyncssh.DisconnectError) and "too many authentication" in error.reason.lower():
            return failures.too_many_keys(config.user, config.host, client.offered)
        if isinstance(error, ValueError):
            return HostError("ssh config", str(error), "mend it in ~/.ssh/config, or use --no-ssh-config", kind="config")
        if proxy is not None and stage == "banner":
            return failures.of_proxy(proxy.command, await proxy.said())
        if isinstance(error, asyncssh.Error) and stage == "banner" and via is None:
            seen = await dial.look(config.host, config.port)
            busy = failures.crowded(config.host, config.port, seen)
            if busy is not None:
                return busy
            if not seen.startswith("SSH-") and (seen or not isinstance(error, asyncssh.ConnectionLost)):
                return failures.not_ssh(config.host, config.port, seen)
        if isinstance(error, asyncssh.ConnectionLost) and stage == "login" and client.verdict.strip():
            return failures.turned_away(config.user, config.host, client.verdict)
        if isinstance(error, asyncssh.ConnectionLost):
            return failures.lost(stage, config.host, error.reason)
        if isinstance(error, OSError):
            return failures.of_socket(error, config.host, config.port)
        return HostError(stage, f"{config.host}: {getattr(error, 'reason', error)}", kind="protocol")


_LISTS: dict[str, Callable[[], Sequence[bytes]]] = {
    "encryption_algs": get_encryption_algs,
    "kex_algs": get_kex_algs,
    "mac_algs": get_mac_algs,
    "HostKeyAlgorithms": lambda: [*get_certificate_algs(), *get_public_key_algs()],
}


def _choice(name: str, wanted: str | None) -> str | None:
    """A list of algorithms from the config without those that only OpenSSH knows. Raises `ValueError` when none is left."""
    if wanted is None:
        return None
    prefix, names = (wanted[0], wanted[1:]) if wanted[:1] in ("+", "-", "^") else ("", wanted)
    known = [algorithm.decode() for algorithm in _LISTS[name]()]
    left = [pattern for pattern in names.split(",") if any(fnmatch.fnmatchcase(k, pattern) for k in known)]
    if not left and not prefix:
        raise ValueError(f"none of these algorithms is known here: {names}")
    return prefix + ",".join(left) if left else None


class _Expired(Exception):
    """A time limit ran out."""


class _Unknown(Exception):
    """The host showed a key that nothing is known of."""

    def __init__(self, key: HostKey, address: str) -> None:
        super().__init__(key.fingerprint)
        self.key, self.address = key, address


def _host_key(error: Exception, config: HostConfig, known: Known, client: _Client, where: str) -> Exception:
    if client.shown is not None:
        verdict = known_hosts.judge(known, client.shown)
        if verdict.kind in ("unknown", "trusted"):  # "trusted" cannot come here: asyncssh had that key
            return _Unknown(client.shown, where)
        return failures.bad_key(verdict, config.key_name, config.key_port, client.shown)
    if client.authority is not None:
        return failures.unknown_authority(config.key_name, client.authority)
    if "revoked" in str(error) and known.revoked:
        verdict = known_hosts.Verdict("revoked", known.revoked)
        return failures.bad_key(verdict, config.key_name, config.key_port, known.revoked[0].key)
    return HostError("host key", str(error), "the host's certificate must be renewed", kind="key-unknown")


def _keys(entries: Any) -> list[asyncssh.SSHKey]:
    keys = []
    for entry in entries:
        # a type that asyncssh does not know cannot be negotiated either
        with contextlib.suppress(asyncssh.KeyImportError):
            keys.append(asyncssh.import_public_key(entry.key.text))
    return keys


def _algorithms(known: Known) -> list[str]:
    """What to negotiate: types of known keys first, so that a host with several keys shows the one we know."""
    types = {e.key.type for e in known.trusted}
    wanted = [a for a in PLAIN_ALGORITHMS if a in types or ("ssh-rsa" in types and a.startswith("rsa-"))]
    plain = [*wanted, *(a for a in PLAIN_ALGORITHMS if a not in wanted)]
    return [*CERTIFICATE_ALGORITHMS, *plain] if known.authorities else plain


async def _until(connecting: Any, clock: auth.Pause) -> asyncssh.SSHClientConnection:
    """Wait for asyncssh, but no longer than the clock, which stands still while a person is asked."""
    task = asyncio.ensure_future(connecting)
    expiry = asyncio.ensure_future(clock.expired.wait())
    try:
        await asyncio.wait({task, expiry}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise _Expired
        return task.result()  # type: ignore[no-any-return]
    finally:
        for each in (task, expiry):
            each.cancel()
        await asyncio.gather(task, expiry, return_exceptions=True)


class Connection:
    """A logged-in connection, with the jump hosts ``under`` it and its proxy command."""

    def __init__(
        self,
        raw: asyncssh.SSHClientConnection,
        config: HostConfig,
        proxy: dial.Proxy | None,
    ) -> None:
        self.raw, self.config = raw, config
        self.under: list[Connection] = []
        self._proxy = proxy

    @property
    def name(self) -> str:
        return self.config.host

    async def close(self, limit: float = 0.3) -> None:
        """Close everything, also when the link is dead: nothing is waited for longer than ``limit`` seconds each."""
        self.raw.close()
        try:
            async with asyncio.timeout(limit):
                await self.raw.wait_closed()
        except (TimeoutError, OSError, asyncssh.Error):
            self.raw.abort()  # it does not answer any more
        if self._proxy is not None:
            await self._proxy.close()
        for hop in reversed(self.under):
            await hop.close(limit)
