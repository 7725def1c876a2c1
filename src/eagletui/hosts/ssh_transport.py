"""The agent's channel over SSH, and forwarded ports. Imports asyncssh: load it late, off the event loop."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncssh

from eagletui.hosts import failures
from eagletui.hosts.base import Forward, HostError
from eagletui.hosts.ssh_connection import Connection

# What may be under way to us unread. asyncssh's 2 MiB put two seconds of log before telemetry on a slow line.
WINDOW = 128 * 1024
_STDERR_KEPT = 4096


class SshForward:
    """A loopback port here that leads to 127.0.0.1 on the host."""

    def __init__(self, listener: asyncssh.SSHListener) -> None:
        self._listener = listener
        self.port: int = listener.get_port()

    async def close(self) -> None:
        self._listener.close()
        await self._listener.wait_closed()


class SshTransport:
    """Stdin and stdout of the starting agent. Everything else of the connection hangs on it and goes with it, unless it was kept.

    ``keeps`` the connection: closing the channel leaves it open, for another use.
    """

    keeps = False

    def __init__(self, connection: Connection, process: asyncssh.SSHClientProcess[bytes]) -> None:
        self.connection = connection
        self._process = process
        self._said = bytearray()
        self._lost = ""
        self._listener = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        try:
            while data := await self._process.stderr.read(4096):
                self._said += data
                del self._said[:-_STDERR_KEPT]
        except (asyncssh.Error, OSError):
            return  # the same loss is told by read()

    async def read(self) -> bytes:
        try:
            return await self._process.stdout.read(65536)
        except asyncssh.Error as error:
            self._lost = error.reason
        except OSError as error:
            self._lost = str(error.strerror or error)
        return b""

    def write(self, data: bytes) -> None:
        try:
            self._process.stdin.write(data)
        except BrokenPipeError:
            pass  # what runs there has ended, the connection has not: read() ends, and the exit status says why
        except (OSError, asyncssh.Error) as error:
            self._lost = str(error)  # read() ends as well, and the link asks for the reason

    async def drain(self) -> None:
        try:
            await self._process.stdin.drain()
        except BrokenPipeError:
            pass  # as above
        except (OSError, asyncssh.Error) as error:
            self._lost = str(error)  # as above

    async def close(self) -> None:
        """Close the channel and the connection; at most a second, also on a dead link."""
        self._process.close()
        self._listener.cancel()
        await asyncio.gather(self._listener, return_exceptions=True)
        if not self.keeps:
            await self.connection.close()

    @property
    def broken(self) -> bool:
        """Whether the connection itself was lost, and not only what ran in it has ended."""
        return bool(self._lost) or self.connection.raw.is_closed()

    async def reason(self) -> str:
        """Why it ended: what stderr said, the exit status or signal, or how the connection was lost."""
        if self._lost:
            return self._lost
        try:
            async with asyncio.timeout(1.0):
                await self._process.wait_closed()
                await asyncio.shield(self._listener)
        except TimeoutError:
            return "the host does not answer"
        parts = [" ".join(self._said.decode("utf-8", "replace").split())] if self._said.strip() else []
        if self._process.exit_signal:
            parts.append(f"ended by signal {self._process.exit_signal[0]}")
        elif self._process.exit_status is not None:
            parts.append(f"exit status {self._process.exit_status}")
        return ", ".join(parts) or "the host closed the channel"

    @property
    def exit_status(self) -> int | None:
        """The exit status of what ran on the host, once it has ended by itself."""
        return self._process.exit_status

    async def forward(self, port: int) -> Forward:
        """A loopback port here that leads to 127.0.0.1:``port`` there. Raises `HostError` when that is closed or forbidden."""
        return await open_forward(self.connection, port)


async def open_forward(connection: Connection, port: int) -> Forward:
    """As `SshTransport.forward`, on a logged-in connection."""
    raw, name = connection.raw, connection.name
    try:
        # forwarding is judged by the server only when a connection comes: make one now, to tell what would fail later
        _, writer = await raw.open_connection("127.0.0.1", port)
        writer.close()
        listener = await raw.forward_local_port("127.0.0.1", 0, "127.0.0.1", port)
    except asyncssh.ChannelOpenError as error:
        if error.code == asyncssh.OPEN_CONNECT_FAILED and "refused" in error.reason.lower():
            raise failures.nothing_listens(name, port) from None
        raise failures.no_forwarding(name, port, error.reason) from None
    except asyncssh.Error as error:
        raise HostError("forward", error.reason, kind="closed", retry=True) from None
    except OSError as error:
        raise HostError("forward", f"no loopback port is free here: {error.strerror}", kind="other") from None
    return SshForward(listener)


async def open_transport(connection: Connection, command: str, limit: float = 15.0) -> SshTransport:
    """Run the bootstrap ``command`` on a logged-in connection: the only text of ours that meets the host's shell."""
    name = connection.name
    process: asyncssh.SSHClientProcess[Any]
    try:
        async with asyncio.timeout(limit):
            process = await connection.raw.create_process(
                command, encoding=None, request_pty=False, window=WINDOW, send_eof=False, stdin=asyncssh.PIPE
            )
    except asyncssh.ChannelOpenError as error:
        if connection.raw.is_closed():  # it was cut just now: nothing was refused
            raise failures.lost("session", name, error.reason) from None
        if error.code == asyncssh.OPEN_REQUEST_SESSION_FAILED:
            raise failures.no_command(name, error.reason) from None
        raise failures.no_session(name, error.reason) from None
    except TimeoutError:
        raise failures.timeout("session", name, connection.config.port) from None
    except asyncssh.Error as error:
        raise failures.lost("session", name, error.reason) from None
    except OSError as error:
        raise failures.lost("session", name, str(error)) from None
    return SshTransport(connection, process)
