"""A host that exists only in the test: streams are pushed by hand, requests answered from a table."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from eagletui.hosts.base import Chunk, Doc, HostError, Listener, Push
from eagletui.records import HostInfo

INFO = HostInfo("gpu-host", "boot-1", "root", 0, "3.11.2", 100, boot=1000.0, wall=1_700_000_000.0, kernel="6.8.0", cpus=64)


class FakeHost:
    """Implements what watch and doctor need of a session."""

    def __init__(self, info: HostInfo = INFO) -> None:
        self.info = info
        self.listeners: dict[str, Listener] = {}
        self.subscriptions: list[tuple[str, float]] = []
        self.params: list[tuple[str, dict[str, Any]]] = []
        self.ended: list[str] = []
        self.events: list[str] = []
        self.refuse: dict[str, HostError] = {}
        self.files: dict[str, bytes] = {}
        self.answers: dict[str, Any] = {}
        self.documents: dict[str, Doc] = {}
        self.later: dict[str, Doc] = {}
        self.closed = False

    async def subscribe(self, stream: str, interval: float, listener: Listener, **params: Any) -> Callable[[], Awaitable[None]]:
        if stream in self.refuse:
            raise self.refuse[stream]
        self.subscriptions.append((stream, interval))
        self.params.append((stream, params))
        self.events.append(f"+{stream}")
        self.listeners[stream] = listener
        if stream in self.documents:
            self.push(stream, self.documents[stream])
        if stream in self.later:
            asyncio.get_running_loop().call_soon(self.push, stream, self.later[stream])

        async def end() -> None:
            self.ended.append(stream)
            self.events.append(f"-{stream}")
            if self.listeners.get(stream) is listener:
                del self.listeners[stream]

        return end

    def push(self, stream: str, doc: Doc, boot: float = 1001.0, wall: float = 1_700_000_001.0) -> None:
        self.listeners[stream](Push(stream, 1, boot, wall, doc, doc))

    async def request(self, method: str, _body: bytes = b"", /, **params: Any) -> Any:
        answer = self.answers.get(method)
        if answer is None:
            raise HostError(method, "not in this test", kind="agent")
        return answer(**params) if callable(answer) else answer

    async def read(
        self, path: str, offset: int, limit: int = 65536, wait: float = 0.0, identity: tuple[int, int] | None = None
    ) -> Chunk:
        if path not in self.files:
            raise HostError("read", f"{path}: no such file", kind="absent")
        if wait and offset >= len(self.files[path]):
            await asyncio.Event().wait()  # nothing new ever comes
        size = len(self.files[path])
        start = max(0, size + offset) if offset < 0 else offset
        return Chunk(self.files[path][start : start + limit], start, size, 1, 1)

    async def close(self) -> None:
        self.closed = True
