"""The byte stream under SSH: a TCP connection made with happy eyeballs, or the two ends of a ProxyCommand."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from typing import Any

from eagletui.hosts import failures
from eagletui.hosts.ssh_config import HostConfig

STAGGER = 0.25  # seconds before the next address is tried beside the first (RFC 8305)
ANEW = 2.0
"""Seconds after which a connection that nothing answers is begun anew: the kernel asks again after 1, 3 and 7 seconds, which
would notice a network that is back after four only three seconds late."""


async def tcp(config: HostConfig, limit: float) -> socket.socket:
    """A connected socket to the host; all its addresses are tried within ``limit`` seconds. Raises `HostError`."""
    loop = asyncio.get_running_loop()
    end = loop.time() + limit
    try:
        async with asyncio.timeout_at(end):
            found = await loop.getaddrinfo(config.host, config.port, family=config.family, type=socket.SOCK_STREAM)
            addresses = _alternate(found)
            turn = ANEW + STAGGER * len(addresses)
            while loop.time() + 2 * turn < end:
                with contextlib.suppress(TimeoutError):  # nothing has answered: begin anew
                    async with asyncio.timeout(turn):
                        return await _race(addresses, config.bind_address)
            return await _race(addresses, config.bind_address)
    except (OSError, UnicodeError) as error:
        if isinstance(error, UnicodeError):  # a name that IDNA cannot encode
            error = socket.gaierror(socket.EAI_NONAME, "not a host name")
        raise failures.of_socket(error, config.host, config.port) from None


def _alternate(found: list[Any]) -> list[Any]:
    """The addresses with the families in turn, beginning with the one that the resolver prefers."""
    families: dict[int, list[Any]] = {}
    for info in found:
        families.setdefault(info[0], []).append(info)
    return [info for row in itertools.zip_longest(*families.values()) for info in row if info is not None]


async def _race(addresses: list[Any], bind: str | None) -> socket.socket:
    waiting = list(addresses)
    running: set[asyncio.Task[socket.socket]] = set()
    errors: list[OSError] = []
    try:
        while waiting or running:
            if waiting:
                running.add(asyncio.create_task(_one(waiting.pop(0), bind)))
            done, running = await asyncio.wait(running, timeout=STAGGER if waiting else None, return_when=asyncio.FIRST_COMPLETED)
            winners: list[socket.socket] = []
            for task in done:
                error = task.exception()
                if error is None:
                    winners.append(task.result())
                elif isinstance(error, OSError):
                    errors.append(error)
                else:
                    raise error
            for loser in winners[1:]:
                loser.close()
            if winners:
                return winners[0]
    finally:
        for task in running:
            task.cancel()
        for late in await asyncio.gather(*running, return_exceptions=True):
            if isinstance(late, socket.socket):
                late.close()
    # a refusal says more than a missing route of the other family
    raise next((e for e in errors if isinstance(e, ConnectionRefusedError)), errors[0])


async def _one(info: Any, bind: str | None) -> socket.socket:
    family, kind, protocol, _, address = info
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        if bind:
            sock.bind((bind, 0))
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


class Proxy:
    """A ProxyCommand: our end of its stdin and stdout, and what it says on stderr (never mixed into the stream)."""

    def __init__(self, sock: socket.socket, process: asyncio.subprocess.Process, command: str) -> None:
        self.sock, self.command = sock, command
        self._process = process
        self._said = bytearray()
        self._reader = asyncio.create_task(self._listen())

    @classmethod
    async def start(cls, command: str) -> Proxy:
        ours, theirs = socket.socketpair()
        try:
            ours.setblocking(False)
            process = await asyncio.create_subprocess_exec(
                "/bin/sh",
                "-c",
                "exec " + command,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return cls(ours, process, command)

    async def _listen(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(1024):
            self._said += data
            del self._said[:-2048]

    async def said(self) -> str:
        """The last line of its stderr, once it has ended or after half a second."""
        with contextlib.suppress(TimeoutError):  # it still runs: what it said so far is all there is
            async with asyncio.timeout(0.5):
                await asyncio.shield(self._reader)
        lines = self._said.decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip()[:200] if lines else ""

    async def close(self) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
                self._process.kill()
        await self._process.wait()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)


async def look(host: str, port: int, limit: float = 3.0) -> str:
    """What a server that broke off before its SSH version says to a stranger: its first line, empty when nothing came."""
    try:
        async with asyncio.timeout(limit):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(b"SSH-2.0-eagletui\r\n\r\n")
                data = await reader.read(256)
            finally:
                writer.close()
    except OSError:
        return ""  # only a second look, to word a failure that is known already
    return data.decode("utf-8", "replace").strip().partition("\n")[0].strip()[:120]
