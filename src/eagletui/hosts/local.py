"""The machine that eagletui runs on, as a host: the same shell text and the same agent as over ssh, without ssh."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import cast

from eagletui.hosts import bootstrap
from eagletui.hosts.base import HostError
from eagletui.hosts.link import Link, open_link

_STDERR_KEPT = 4096
_AHEAD = 1024 * 1024  # read ahead of the link, at most about that much
_GRACE = 0.6


class LocalTransport(asyncio.SubprocessProtocol):
    """A started shell on this machine, in a session of its own: a ctrl+c in this terminal does not reach it.

    Not asyncio's stream classes: they leave the pipes of a killed process open until the garbage collector comes.
    """

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._size = 0
        self._end = self._paused = False
        self._ready, self._writable = asyncio.Event(), asyncio.Event()
        self._exited, self._gone = asyncio.Event(), asyncio.Event()
        self._complaints = bytearray()
        self._writable.set()

    # ------------------------------------------------------------------------------------------ what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._process = cast(asyncio.SubprocessTransport, transport)
        self._stdin = cast(asyncio.WriteTransport, self._process.get_pipe_transport(0))
        self._stdout = cast(asyncio.ReadTransport, self._process.get_pipe_transport(1))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self._chunks.append(data)
            self._size += len(data)
            if self._size > _AHEAD and not self._paused:
                self._paused = True
                self._stdout.pause_reading()
            self._ready.set()
        else:
            self._complaints += data
            del self._complaints[:-_STDERR_KEPT]

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            self._end = True
            self._ready.set()
        elif fd == 0:
            self._writable.set()

    def process_exited(self) -> None:
        self._exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone.set()  # exited, and all pipes closed

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # ---------------------------------------------------------------------------------------------- what a link calls

    async def read(self) -> bytes:
        await self._ready.wait()
        data = b"".join(self._chunks)
        self._chunks.clear()
        self._size = 0
        if not self._end:
            self._ready.clear()
            if self._paused:
                self._paused = False
                self._stdout.resume_reading()
        return data

    def write(self, data: bytes) -> None:
        if not self._stdin.is_closing():
            self._stdin.write(data)

    async def drain(self) -> None:
        await self._writable.wait()

    async def close(self) -> None:
        """End of stdin ends the agent; a shell that is still there after a moment is killed with its session."""
        self._stdin.close()
        try:
            await asyncio.wait_for(self._exited.wait(), _GRACE)
        except TimeoutError:
            try:
                os.killpg(self._process.get_pid(), signal.SIGKILL)  # its own group: it leads the session we made
            except ProcessLookupError:
                pass  # it ended just now
            await self._exited.wait()
        self._process.close()
        await self._gone.wait()

    async def reason(self) -> str:
        try:
            await asyncio.wait_for(self._gone.wait(), _GRACE)
        except TimeoutError:
            pass  # something still holds stderr; what it said so far is enough
        text = " ".join(self._complaints.decode("utf-8", "replace").split())
        status = self.exit_status
        ended = "" if not status else f"killed by signal {-status}" if status < 0 else f"exit status {status}"
        return ", ".join(part for part in (text, ended) if part)

    @property
    def exit_status(self) -> int | None:
        return self._process.get_returncode()


async def connect_local(
    early: Callable[[Link], None] | None = None,
    *,
    shell: str = "/bin/sh",
    watchdog: float = 60.0,
    silence: float = 15.0,
    blob: bytes | None = None,
    readonly: bool = False,
) -> Link:
    """Start an agent on this machine. ``early`` and ``readonly`` as for `open_link`. Raises `HostError`."""
    nonce = bootstrap.new_nonce()
    command = bootstrap.command(nonce, watchdog)
    loop = asyncio.get_running_loop()
    try:
        _, transport = await loop.subprocess_exec(LocalTransport, shell, "-c", command, start_new_session=True, cwd="/")
    except OSError as error:
        raise HostError("start the agent", f"{shell}: {error.strerror}", kind="other") from error
    return await open_link(transport, nonce, target="local", early=early, silence=silence, blob=blob, readonly=readonly)
