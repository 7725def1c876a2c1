"""Connect to a host over SSH: resolve the config, log in, start the agent there.

Light to import: asyncssh is loaded when the first connection is made, off the event loop.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from eagletui.hosts import bootstrap, ssh_config
from eagletui.hosts.base import HostError, Prompter
from eagletui.hosts.link import Link, open_link
from eagletui.hosts.session import Live
from eagletui.hosts.target import Target

if TYPE_CHECKING:
    from eagletui.hosts.auth import Credentials
    from eagletui.hosts.ssh_connection import Limits
    from eagletui.hosts.ssh_transport import SshTransport

SILENCE = 12.0
UNFIT = frozenset(("no-python", "old-python", "minimal-python"))
"""Kinds of failure after which the host is watched without an agent."""

Early = Callable[[Link], None]


class SshOptions(TypedDict, total=False):
    """How to connect; every key may be left out.

    ``strict`` never asks about an unknown host key, it refuses. ``config`` is True for ~/.ssh/config (the default), False for
    none, or the path of another file. ``identity`` is a key file to try before all others. ``notice`` is told in one line what
    a person should know though it works. ``credentials`` keep what was typed for later connections. ``silence`` is the number
    of seconds without a frame after which the link is given up; ``watchdog`` those after which the agent ends by itself.
    ``readonly``: the agent refuses whatever would change the host.
    """

    strict: bool
    config: bool | str
    identity: str | None
    limits: Limits
    notice: Callable[[str], None]
    credentials: Credentials
    silence: float
    watchdog: float
    readonly: bool


def connector(
    target: Target, prompter: Prompter | None = None, **options: Unpack[SshOptions]
) -> Callable[[Early | None], Awaitable[Live]]:
    """What a `Session` needs: a coroutine function that connects, as often as it is called. Its argument: see `open_link`.

    Passphrases and passwords typed for one connection serve the next ones; they live as long as the function. Once a connection
    has come about only a prompter that is ``lasting`` is asked any more (`prompts.Handover`): the terminal belongs to something
    else then, and a question would be written into it.
    """
    connected = False

    async def connect(early: Early | None = None) -> Live:
        nonlocal connected
        if "credentials" not in options:
            options["credentials"] = (await _load("auth")).Credentials()
        asks = None if connected and not getattr(prompter, "lasting", False) else prompter
        try:
            link = await connect_ssh(target, asks, early, **options)
        except HostError as error:
            if asks is None and prompter is not None and error.kind in ("auth", "key-unknown"):
                remedy = f"nothing is asked when a connection is made again: leave, and connect anew; else {error.remedy}"
                raise HostError(error.step, error.why, remedy, kind=error.kind) from None
            raise
        connected = True
        return link

    return connect


async def connect_ssh(
    target: Target, prompter: Prompter | None = None, early: Early | None = None, **options: Unpack[SshOptions]
) -> Live:
    """Connect, log in and start the agent; on a host without a usable python3, watch it without one (`plain.PlainHost`).

    Raises `HostError`; without a prompter nothing is asked, unknown keys are refused.
    """
    nonce = bootstrap.new_nonce()
    transport = await open_ssh(target, bootstrap.command(nonce, options.get("watchdog", 60.0)), prompter, **options)
    transport.keeps = True  # a login may have cost a person a code: it serves for the other way too
    try:
        link = await open_link(
            transport,
            nonce,
            target=str(target),
            early=early,
            silence=options.get("silence", SILENCE),
            readonly=options.get("readonly", False),
        )
    except HostError as error:
        if error.kind in UNFIT:
            return await _without_agent(transport, error)
        await transport.connection.close()
        raise
    except BaseException:
        await transport.connection.close()
        raise
    transport.keeps = False
    return link


async def _without_agent(transport: SshTransport, problem: HostError) -> Live:
    plain = await _load("plain")
    try:
        host: Live = await plain.PlainHost.start(transport.connection, problem)
    except BaseException:
        await transport.connection.close()
        raise
    return host


async def open_ssh(target: Target, command: str, prompter: Prompter | None = None, **options: Unpack[SshOptions]) -> SshTransport:
    """Connect and log in, then run the fixed ``command`` with its stdin and stdout as a byte stream. Raises `HostError`."""
    connections, transports = await _load("ssh_connection"), await _load("ssh_transport")
    config, path = await asyncio.to_thread(_resolve, target, options)
    maker = connections.Connector(
        prompter,
        options.get("credentials") or (await _load("auth")).Credentials(),
        strict=options.get("strict", False),
        config_path=path,
        limits=options.get("limits") or connections.Limits(),
        notice=options.get("notice"),
    )
    connection = await maker.reach(config)
    try:
        return await transports.open_transport(connection, command)  # type: ignore[no-any-return]
    except BaseException:
        await connection.close()
        raise


def _resolve(target: Target, options: SshOptions) -> tuple[ssh_config.HostConfig, str | None]:
    config, identity = options.get("config", True), options.get("identity")
    path = config if isinstance(config, str) else ssh_config.default_path() if config else None
    resolved = ssh_config.resolve(target, path)
    if identity is not None:
        file = Path(identity).expanduser()
        if not file.is_file():
            raise HostError("identity", f"{identity}: no such file", "name an existing private key", kind="config")
        resolved = resolved._replace(identities=(str(file), *resolved.identities))
    return resolved, path


async def _load(name: str) -> Any:
    """A module that imports asyncssh, loaded in a thread: that takes a fifth of a second, which the event loop does not have."""
    return await asyncio.to_thread(importlib.import_module, f"eagletui.hosts.{name}")
