"""A TCP proxy with faults: delay, a rate limit, cut, reset, freeze (half-open), refuse."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct


class TcpProxy:
    """Listens on a loopback port and leads to ``target``; every fault is switched by a method, on live connections too."""

    def __init__(self, target: int, *, delay: float = 0.0, rate: float | None = None) -> None:
        self.target, self.delay, self.rate = target, delay, rate
        self.port = 0
        self.connections = 0
        self.passed = 0
        self._server: asyncio.Server | None = None
        self._flow = asyncio.Event()
        self._flow.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._cut_at: int | None = None
        self._moved = asyncio.Event()

    async def start(self) -> TcpProxy:
        self._server = await asyncio.start_server(self._client, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def refuse(self) -> None:
        """Stop listening and drop everything; `start` listens again on the same port."""
        assert self._server is not None
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """End all connections in good order (FIN)."""
        for writer in list(self._writers):
            writer.close()

    def reset(self) -> None:
        """End all connections with RST."""
        for writer in list(self._writers):
            sock = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):  # one that is just being closed has no socket any more
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    def cut_after(self, total: int) -> None:
        """Cut once that many bytes have passed, both ways together."""
        self._cut_at = total

    def freeze(self) -> None:
        """Pass nothing any more and keep every connection open: half-open for both sides."""
        self._flow.clear()

    def thaw(self) -> None:
        self._flow.set()

    async def traffic(self) -> None:
        """Wait until something has passed from now on."""
        self._moved.clear()
        await self._moved.wait()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        there_writer: asyncio.StreamWriter | None = None
        self._writers.add(writer)  # it may be cut before it leads anywhere
        try:
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self.target)
            if writer.transport.is_closing():
                return
            self._writers.add(there_writer)
            await asyncio.gather(self._pump(reader, there_writer), self._pump(there_reader, writer))
        except (OSError, asyncio.CancelledError):
            pass  # one side went away, or the test ends: both are closed below, as a router would see it
        finally:
            self._tasks.discard(task)
            for each in (writer, there_writer):
                if each is not None:
                    self._writers.discard(each)
                    each.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        async def send() -> None:
            while True:
                due, data = await queue.get()
                await asyncio.sleep(max(0.0, due - loop.time()))  # the delay itself, not a wait for something to happen
                await self._flow.wait()
                if not data:
                    break
                writer.write(data)
                await writer.drain()
                self.passed += len(data)
                self._moved.set()
                if self._cut_at is not None and self.passed >= self._cut_at:
                    self._cut_at = None
                    self.reset()
                if self.rate:
                    await asyncio.sleep(len(data) / self.rate)  # the rate itself
            with contextlib.suppress(OSError):
                writer.write_eof()

        sender = asyncio.create_task(send())
        try:
            while True:
                data = await reader.read(65536)
                queue.put_nowait((loop.time() + self.delay, data))
                if not data:
                    break
            await sender
        finally:
            sender.cancel()
