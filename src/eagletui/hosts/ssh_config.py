"""~/.ssh/config, read by asyncssh's own parser: aliases, keys, jump hosts; and which of its options we do not follow."""

from __future__ import annotations

import getpass
import os
import shlex
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from eagletui.hosts import known_hosts
from eagletui.hosts.base import HostError
from eagletui.hosts.target import Target, parse_target

# Options that people set and that change nothing here, with the reason; `doctor` lists those it finds.
NO_EFFECT = {
    "ControlMaster": "eagletui holds one connection of its own",
    "ControlPath": "eagletui holds one connection of its own",
    "ControlPersist": "eagletui holds one connection of its own",
    "StrictHostKeyChecking": "host keys are always checked, and an unknown one is always asked about",
    "VerifyHostKeyDNS": "host keys are checked against known_hosts only",
    "KnownHostsCommand": "host keys are checked against known_hosts files only",
    "CheckHostIP": "host keys are looked up by name",
    "UpdateHostKeys": "known_hosts is written only when you accept a key",
    "AddKeysToAgent": "keys are never added to an agent",
    "ForwardAgent": "the agent is never forwarded",
    "ForwardX11": "X11 is never forwarded",
    "LocalForward": "ports are forwarded on demand",
    "RemoteForward": "ports are forwarded on demand, from here to the host",
    "DynamicForward": "ports are forwarded on demand",
    "RemoteCommand": "eagletui runs its own command",
    "RequestTTY": "no terminal is asked for on the host",
    "SendEnv": "no environment is sent",
    "SetEnv": "no environment is sent",
    "GSSAPIAuthentication": "Kerberos is not used",
    "PKCS11Provider": "keys on a token are used through the agent",
    "HostbasedAuthentication": "host-based authentication is not used",
    "CanonicalizeHostname": "names are used as they are written",
    "ConnectTimeout": "eagletui has time limits of its own that never cut a person typing",
    "ServerAliveInterval": "eagletui watches the link by itself",
    "BindInterface": "the system chooses the interface",
    "EscapeChar": "there is no terminal on the host",
}
_NULL = ("/dev/null", "none")


class Note(NamedTuple):
    """An option that was found for this host and is not followed."""

    option: str
    value: str
    path: str
    line: int
    why: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.option} {self.value} has no effect: {self.why}"


class HostConfig(NamedTuple):
    """How to reach one host, with every default filled in. ``options`` go to asyncssh as they are (ciphers and the like)."""

    alias: str
    host: str
    port: int
    user: str
    identities: tuple[str, ...] = ()
    identities_only: bool = False
    identity_agent: str | None = None
    certificates: tuple[str, ...] = ()
    jumps: tuple[Target, ...] = ()
    proxy_command: str | None = None
    host_key_alias: str | None = None
    user_files: tuple[str, ...] = ()
    global_files: tuple[str, ...] = ()
    hash_known_hosts: bool = False
    host_key_algorithms: str | None = None
    family: int = socket.AF_UNSPEC
    bind_address: str | None = None
    options: dict[str, Any] = {}  # noqa: RUF012 - never changed
    notes: tuple[Note, ...] = ()

    @property
    def key_name(self) -> str:
        """The name under which the host's key is known."""
        return self.host_key_alias or self.host

    @property
    def key_port(self) -> int:
        """The port under which it is known: with an alias OpenSSH ignores the port."""
        return known_hosts.DEFAULT_PORT if self.host_key_alias else self.port


def default_path() -> str | None:
    """The user's own file when there is one."""
    path = Path.home() / ".ssh" / "config"
    return str(path) if path.is_file() else None


def _error(why: str) -> HostError:
    return HostError("ssh config", why, "mend that line, or connect with --no-ssh-config", kind="config")


def resolve(target: Target, path: str | None) -> HostConfig:
    """Everything the file at ``path`` says of ``target``; None reads no file at all.

    May run the commands of ``Match exec`` and reads files: call it in a thread. Raises `HostError` of kind config that names
    file and line.
    """
    raw, notes = _parse(target, path) if path else ({}, [])
    try:
        local_user = getpass.getuser()
    except (KeyError, OSError):
        raise HostError("ssh config", "this machine has no name for you", "write USER@HOST", kind="config") from None
    host = str(raw.get("Hostname") or target.host)
    user = str(target.user or raw.get("User") or local_user)
    for value in (host, user):
        if value.startswith("-"):
            raise _error(f"{value!r} may not begin with '-'")
    user_files, global_files = _key_files(raw, notes, path)
    jumps, proxy = _ways(raw)
    return HostConfig(
        alias=target.host,
        host=host,
        port=int(target.port or raw.get("Port") or known_hosts.DEFAULT_PORT),
        user=user,
        identities=tuple(_expand(p) for p in raw.get("IdentityFile", ())),
        identities_only=bool(raw.get("IdentitiesOnly")),
        identity_agent=_agent(raw),
        certificates=tuple(_expand(p) for p in raw.get("CertificateFile", ())),
        jumps=jumps,
        proxy_command=proxy,
        host_key_alias=raw.get("HostKeyAlias"),
        user_files=user_files,
        global_files=global_files,
        hash_known_hosts=bool(raw.get("HashKnownHosts")),
        host_key_algorithms=raw.get("HostKeyAlgorithms"),
        family=int(raw.get("AddressFamily", socket.AF_UNSPEC)),
        bind_address=raw.get("BindAddress"),
        options=_options(raw),
        notes=tuple(notes),
    )


def _expand(path: str) -> str:
    return str(Path(path).expanduser())


def _agent(raw: dict[str, Any]) -> str | None:
    """The agent's socket: None means SSH_AUTH_SOCK, an empty text means no agent."""
    if "IdentityAgent" not in raw:
        return None
    value = raw["IdentityAgent"]
    if value and value.startswith("$"):
        value = os.environ.get(value[1:], "")
    return None if value == "SSH_AUTH_SOCK" else _expand(value) if value else ""


def _key_files(raw: dict[str, Any], notes: list[Note], path: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    user, machine = known_hosts.default_files()
    for option, default in (("UserKnownHostsFile", user), ("GlobalKnownHostsFile", machine)):
        if option not in raw:
            continue
        given = [p for p in raw[option] if p.lower() not in _NULL]
        if given:
            default[:] = [_expand(p) for p in given]
        elif option == "UserKnownHostsFile":
            why = f"host keys are always checked, here against {default[0]}"
            notes.append(Note(option, " ".join(raw[option]) or "none", path or "", int(raw.get("_files_line", 0)), why))
        else:
            default.clear()
    return tuple(user), tuple(machine)


def _ways(raw: dict[str, Any]) -> tuple[tuple[Target, ...], str | None]:
    """Jump hosts, or a proxy command: whichever stands first in the file, as in OpenSSH."""
    jump, command = raw.get("ProxyJump"), raw.get("ProxyCommand")
    if jump and command:
        order = list(raw)
        if order.index("ProxyJump") < order.index("ProxyCommand"):
            command = None
        else:
            jump = None
    targets = tuple(parse_target(hop.strip().removeprefix("ssh://")) for hop in str(jump).split(",")) if jump else ()
    return targets, command


def _options(raw: dict[str, Any]) -> dict[str, Any]:
    names = {
        "Ciphers": "encryption_algs",
        "KexAlgorithms": "kex_algs",
        "MACs": "mac_algs",
        "PreferredAuthentications": "preferred_auth",
        "PubkeyAuthentication": "public_key_auth",
        "PasswordAuthentication": "password_auth",
        "KbdInteractiveAuthentication": "kbdint_auth",
        "ChallengeResponseAuthentication": "kbdint_auth",
    }
    options = {ours: raw[theirs] for theirs, ours in names.items() if raw.get(theirs) is not None}
    if raw.get("Compression"):
        options["compression_algs"] = "zlib@openssh.com,zlib,none"
    if "RekeyLimit" in raw:
        size, seconds = raw["RekeyLimit"]
        options.update({k: v for k, v in (("rekey_bytes", size), ("rekey_seconds", seconds)) if v not in ((), None)})
    return options


def _parse(target: Target, path: str) -> tuple[dict[str, Any], list[Note]]:
    from asyncssh import ConfigParseError
    from asyncssh.config import SSHClientConfig, SSHConfig

    notes: list[Note] = []

    class Config(SSHClientConfig):
        """asyncssh's parser, which also keeps HashKnownHosts and tells of the options that we do not follow."""

        def _note(self, option: str, args: list[str]) -> None:
            note = Note(option, shlex.join(args), str(self._path), self._line_no, NO_EFFECT[option])
            if note not in notes:
                notes.append(note)
            args.clear()

        def _files(self, option: str, args: list[str]) -> None:
            if option not in self._options:
                self._options["_files_line"] = self._line_no
            self._set_string_list(option, args)

        def _set_tokens(self) -> None:
            super()._set_tokens()
            self._tokens["k"] = str(self._options.get("HostKeyAlias") or self._orig_host)

        _percent_expand = SSHClientConfig._percent_expand | {"UserKnownHostsFile"}  # files may be named after the host
        _handlers = {  # noqa: RUF012 - as its base class
            **SSHClientConfig._handlers,
            "hashknownhosts": ("HashKnownHosts", SSHConfig._set_bool),
            "userknownhostsfile": ("UserKnownHostsFile", _files),
        }

    Config._handlers.update({name.lower(): (name, Config._note) for name in NO_EFFECT})

    user: Any = target.user if target.user is not None else ()
    port: Any = target.port if target.port is not None else ()
    try:
        arguments = (getpass.getuser(), user, target.host, port)
        config = Config.load(None, path, False, False, False, *arguments)
        if config.has_match_final():
            notes.clear()
            config = Config.load(config, path, True, False, True, *arguments)
    except ConfigParseError as error:
        raise _error(str(error)) from None
    except RecursionError:
        raise _error(f"{path}: its Include lines run in a circle") from None
    except UnicodeDecodeError as error:
        raise _error(f"{path}: not text ({error.reason})") from None
    except OSError as error:
        if error.errno == 24:  # EMFILE: a circle of Include opens file after file
            raise _error(f"{path}: its Include lines run in a circle") from None
        raise _error(f"{error.filename or path}: {error.strerror}") from None
    except ValueError as error:
        raise _error(f"{path}: {error}") from None
    return dict(config.get_options(False)), notes


def aliases(path: str | None = None) -> Sequence[str]:
    """The names after ``Host`` in the file that are no patterns, for completion; a file that cannot be read has none."""
    path = path or default_path()
    names: list[str] = []
    try:
        lines = Path(path).read_text(errors="replace").splitlines() if path else []
    except OSError:
        return ()  # completion only: connecting tells of the same file
    for line in lines:
        words = line.replace("=", " ", 1).split()
        if words[:1] and words[0].lower() == "host":
            for word in words[1:]:
                if not set(word) & set("*?!"):
                    names.append(word)
    return tuple(dict.fromkeys(names))
