"""The machine that eagletui runs on, as a host: the same shell text and the same agent as over ssh, without ssh."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable

from eagletui.hosts import bootstrap
from eagletui.hosts.base import HostError
from eagletui.hosts.link import Link, open_link

_STDERR_KEPT = 4096
_GRACE = 0.6


class LocalTransport:
    """A started shell on this machine, in a session of its own: a ctrl+c in this terminal does not reach it."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._stdin, self._stdout = process, process.stdin, process.stdout
        self._complaints = bytearray()
        self._listener = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(4096):
            self._complaints += data
            del self._complaints[:-_STDERR_KEPT]

    async def read(self) -> bytes:
        try:
            return await self._stdout.read(256 * 1024)
        except ConnectionError:
            return b""  # the end all the same; `reason` tells why

    def write(self, data: bytes) -> None:
        if not self._stdin.is_closing():
            self._stdin.write(data)

    async def drain(self) -> None:
        try:
            await self._stdin.drain()
        except ConnectionError:
            pass  # the reader sees the end too, and tells

    async def close(self) -> None:
        """End of stdin ends the agent; a shell that is still there after a moment is killed with its session."""
        self._stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _GRACE)
        except TimeoutError:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)  # its own group: it is the leader of the session we made
            except ProcessLookupError:
                pass  # it ended just now
            await self._process.wait()
        self._listener.cancel()

    async def reason(self) -> str:
        try:
            await asyncio.wait_for(asyncio.gather(self._process.wait(), asyncio.shield(self._listener)), _GRACE)
        except TimeoutError:
            pass  # something still holds stderr; what it said so far is enough
        text = " ".join(self._complaints.decode("utf-8", "replace").split())
        status = self.exit_status
        ended = "" if not status else f"killed by signal {-status}" if status < 0 else f"exit status {status}"
        return ", ".join(part for part in (text, ended) if part)

    @property
    def exit_status(self) -> int | None:
        return self._process.returncode


async def connect_local(
    early: Callable[[Link], None] | None = None,
    *,
    shell: str = "/bin/sh",
    watchdog: float = 60.0,
    silence: float = 15.0,
    blob: bytes | None = None,
) -> Link:
    """Start an agent on this machine. ``early`` as for `open_link`. Raises `HostError`."""
    nonce = bootstrap.new_nonce()
    try:
        process = await asyncio.create_subprocess_exec(
            shell,
            "-c",
            bootstrap.command(nonce, watchdog),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,
            cwd="/",
        )
    except OSError as error:
        raise HostError("start the agent", f"{shell}: {error.strerror}", kind="other") from error
    return await open_link(LocalTransport(process), nonce, target="local", early=early, silence=silence, blob=blob)
