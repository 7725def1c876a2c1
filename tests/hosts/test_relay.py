"""A forwarded port that is closed while it is in use."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from eagletui.hosts.base import Host
from eagletui.hosts.relay import Relay


class Inner:
    def __init__(self, port: int) -> None:
        self.port = port

    async def close(self) -> None:
        pass


class HostDouble:
    def __init__(self, port: int) -> None:
        self._port = port

    async def forward(self, _port: int) -> Inner:
        return Inner(self._port)


async def test_closing_it_in_the_middle_complains_to_nobody() -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
    arrived = asyncio.Event()

    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        arrived.set()
        await reader.read()
        writer.close()

    listening = await asyncio.start_server(server, "127.0.0.1", 0)

    async def host() -> Host:
        return cast(Host, HostDouble(listening.sockets[0].getsockname()[1]))

    relay = Relay(8000, host)
    await relay.open()
    reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
    writer.write(b"x")
    await arrived.wait()
    await relay.close()
    assert await reader.read() == b""
    writer.close()
    listening.close()
    assert complaints == []
