"""A forwarded port that outlives reconnects: one loopback port here, led to whatever connection is up now."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from eagletui.hosts.base import Forward, Host, HostError


class Relay:
    """Implements `base.Forward`. ``host`` gives the live host, or raises `HostError`; the port is opened on it when needed.

    ``closed`` is called with the relay once nothing is left of it to close.
    """

    def __init__(
        self, port: int, host: Callable[[], Awaitable[Host]], closed: Callable[[Relay], None] = lambda relay: None
    ) -> None:
        self._remote, self._host, self._closed = port, host, closed
        self._owner: Host | None = None
        self._inner: Forward | None = None
        self._server: asyncio.Server | None = None
        self._opening = asyncio.Lock()
        self._running: set[asyncio.Task[None]] = set()
        self.port = 0

    async def open(self) -> None:
        """Open both ends; raises `HostError` when the host's one cannot be reached."""
        await self._target()
        try:
            self._server = await asyncio.start_server(self._client, "127.0.0.1", 0)
        except OSError as error:
            await self.close()
            raise HostError("forward", f"no loopback port is free here: {error.strerror}", kind="other") from None
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        if self._inner is not None:
            await self._inner.close()
            self._inner = None
        self._closed(self)

    async def _target(self) -> int:
        async with self._opening:
            host = await self._host()
            if self._inner is None or host is not self._owner:
                self._inner, self._owner = await host.forward(self._remote), host
            return self._inner.port

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", await self._target())
            try:
                await asyncio.gather(_pipe(reader, there_writer), _pipe(there_reader, writer))
            finally:
                there_writer.close()
        except (HostError, OSError, asyncio.CancelledError):
            # the program that connected sees its connection close, as it would without us. Only `close` cancels, and nobody
            # awaits this task but `close`: a task of a stream server that ends cancelled is complained about on stderr
            pass
        finally:
            self._running.discard(task)
            writer.close()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    with contextlib.suppress(OSError):  # the other side is gone already
        if writer.can_write_eof():
            writer.write_eof()
