"""The order of the checks: this terminal, the way to the host, the connection, the host."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from eagletui.doctor.facts import Asker, gather
from eagletui.doctor.findings import Finding
from eagletui.doctor.host_checks import judge_host
from eagletui.doctor.leftover_checks import judge_leftovers
from eagletui.doctor.ssh_checks import judge_ssh
from eagletui.doctor.terminal import judge_terminal, look
from eagletui.hosts.base import HostError
from eagletui.hosts.target import Target


class Closable(Asker, Protocol):
    """A session that the doctor may close."""

    async def close(self) -> None: ...


def examine_client() -> list[Finding]:
    """Findings on this terminal."""
    return judge_terminal(look())


async def examine_host(host: Asker, expected_cards: int | None = None) -> list[Finding]:
    """Findings on a connected host."""
    return [*judge_host(await gather(host), expected_cards), *await judge_leftovers(host)]


async def examine(
    target: Target,
    connect: Callable[[], Awaitable[Closable]],
    *,
    read_config: bool = True,
    identity: str | None = None,
    expected_cards: int | None = None,
) -> tuple[list[Finding], HostError | None]:
    """Every check there is. A connection that fails is a finding too, and is returned beside them."""
    findings = examine_client()
    try:
        if not target.local:
            findings += await asyncio.to_thread(judge_ssh, target, read_config=read_config, identity=identity)
        session = await connect()
    except HostError as error:
        return [*findings, _failed(error)], error
    try:
        findings.append(Finding("connection", "ok", "connected", f"as {session.info.user} on {session.info.hostname}"))
        findings += await examine_host(session, expected_cards)
    except HostError as error:
        return [*findings, _failed(error)], error
    finally:
        await session.close()
    return findings, None


def _failed(error: HostError) -> Finding:
    return Finding("connection", "bad", f"{error.step} failed", error.why, error.remedy)
