"""Checks of the way to the host, as ~/.ssh/config and the known_hosts files here describe it. Reads local files only."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from eagletui.doctor.findings import Finding
from eagletui.hosts import known_hosts
from eagletui.hosts.ssh_config import HostConfig, default_path, resolve
from eagletui.hosts.target import Target


def judge_ssh(target: Target, *, read_config: bool, identity: str | None = None) -> list[Finding]:
    """Findings on the target before anything is connected. Blocking: call in a thread. Raises `HostError` of kind config."""
    path = default_path() if read_config else None
    config = resolve(target, path)
    return [*_way(target, config, path), *_options(config), *_host_key(config), *_identity(config, identity)]


def _way(target: Target, config: HostConfig, path: str | None) -> Iterator[Finding]:
    route = f"{config.user}@{config.host} port {config.port}"
    if config.jumps:
        route += " through " + ", ".join(str(jump) for jump in config.jumps)
    elif config.proxy_command:
        route += " through a ProxyCommand"
    source = (
        path or "~/.ssh/config is not read"
        if path is None and Path("~/.ssh/config").expanduser().is_file()
        else path or "no ~/.ssh/config"
    )
    yield Finding("target", "ok", f"{target} means", f"{route} ({source})")


def _options(config: HostConfig) -> Iterator[Finding]:
    for note in config.notes:
        # these change how safe or how reachable the host is; the others only how ssh itself behaves
        matters = note.option in ("StrictHostKeyChecking", "KnownHostsCommand", "GSSAPIAuthentication", "HostbasedAuthentication")
        yield Finding(f"ssh-option:{note.option}", "warn" if matters else "info", f"{note.option} has no effect", str(note))


def _host_key(config: HostConfig) -> Iterator[Finding]:
    known = known_hosts.load(config.user_files + config.global_files)
    for line in known.bad:
        yield Finding("known-hosts-line", "warn", "known_hosts line skipped", str(line), "remove or mend that line")
    found = known_hosts.look_up(known, config.key_name, None, config.key_port)
    name = known_hosts.host_name(config.key_name, config.key_port)
    if found.trusted:
        types = ", ".join(dict.fromkeys(entry.key.type for entry in found.trusted))
        yield Finding("host-key", "ok", "host key known", f"{name}: {types} ({found.trusted[0].where})")
    elif found.authorities:
        yield Finding("host-key", "ok", "host key vouched for", f"{name}: certificate authority ({found.authorities[0].where})")
    else:
        yield Finding(
            "host-key",
            "warn",
            "host key not known yet",
            f"no line for {name} in {config.user_files[0]}",
            "`eagletui connect` shows the fingerprint and asks; compare it with the provider's",
        )


def _identity(config: HostConfig, identity: str | None) -> Iterator[Finding]:
    agent = os.environ.get("SSH_AUTH_SOCK") if config.identity_agent is None else config.identity_agent
    files = (identity,) if identity else config.identities
    for name in files:
        yield from _key_file(name)
    if not files and not agent:
        ssh = Path.home() / ".ssh"
        keys = [path.name for kind in ("ed25519", "ecdsa", "rsa") if (path := ssh / f"id_{kind}").is_file()]
        if keys:
            yield Finding("identity", "ok", "keys to log in with", f"~/.ssh: {', '.join(keys)}; no SSH agent")
        else:
            yield Finding(
                "identity",
                "warn",
                "no key to log in with",
                "no SSH agent, no key in ~/.ssh",
                "ssh-keygen -t ed25519, then ssh-copy-id; or use a password",
            )
    elif agent:
        there = Path(agent).is_socket()
        yield Finding(
            "agent",
            "ok" if there else "warn",
            "SSH agent",
            agent,
            "" if there else "that socket is gone: start ssh-agent, or unset SSH_AUTH_SOCK",
        )


def _key_file(name: str) -> Iterator[Finding]:
    try:
        mode = Path(name).stat().st_mode
    except OSError as error:
        yield Finding("identity", "warn", "key cannot be used", f"{name}: {error.strerror}", "mend IdentityFile or --identity")
        return
    if stat.S_IMODE(mode) & 0o077:
        yield Finding(
            "identity", "warn", "private key open to others", f"{name} has mode {stat.S_IMODE(mode):o}", f"chmod 600 {name}"
        )
    else:
        yield Finding("identity", "ok", "key to log in with", name)
