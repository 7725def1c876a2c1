"""A host without a usable python3: one `nvidia-smi` every five seconds, files by `tail`, no launching.

`PlainHost` is what `ssh.connect_ssh` gives when the login works and no agent can start. Every command is a fixed text; a path
goes to it over stdin. At most one nvidia-smi runs at a time: one that hangs is told with its age, and waited for.

This module imports asyncssh: load it late, off the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import asyncssh

from eagletui.agent import host as proc
from eagletui.agent.files import MAX_READ
from eagletui.hosts import plain_shell, smi
from eagletui.hosts.base import Chunk, Doc, Forward, HostError, HttpAnswer, Listener, Push
from eagletui.hosts.ssh_connection import Connection
from eagletui.hosts.ssh_transport import WINDOW, open_forward
from eagletui.records import GpuBoard, HostInfo, to_doc

log = logging.getLogger("eagletui.plain")
log.addHandler(logging.NullHandler())  # never onto the terminal that a screen is drawn on

PACE = 5.0
"""Seconds between two samples, and between two nvidia-smi."""
PATIENCE = 15.0
"""Seconds that a command may take; nvidia-smi may take any time, but its values count as old after ``late`` seconds."""
_MOST = 1024 * 1024
_TRIES, _AGAIN = 20, 0.1


class PlainHost:
    """Implements `session.Live` without an agent. ``limited`` says why, in one line; ``pace`` is the usual silence in seconds."""

    info: HostInfo
    rtt: float | None = None  # a command's time is not the line's

    def __init__(self, connection: Connection, problem: HostError, *, pace: float = PACE) -> None:
        self.limited = f"{problem.why}: only nvidia-smi every {pace:g} s and files, and nothing can be launched"
        self.remedy = problem.remedy
        self.pace, self.late = pace, 2 * pace
        self.last_frame: float | None = None
        self.received = self.sent = 0
        self.ended: asyncio.Future[HostError] = asyncio.get_running_loop().create_future()
        self._connection, self._problem = connection, problem
        self._listeners: dict[str, list[Listener]] = {"host": [], "gpus": []}
        self._numbers = {"host": 0, "gpus": 0}
        self._tasks: list[asyncio.Task[None]] = []
        self._running: set[asyncio.Future[None]] = set()
        self._cpu: proc.Cpu | None = None
        self._net: tuple[float, Mapping[str, tuple[int, int]]] | None = None
        self._clock: tuple[float, float, float] | None = None
        self._wanted = {"host": asyncio.Event(), "gpus": asyncio.Event()}

    @classmethod
    async def start(cls, connection: Connection, problem: HostError, *, pace: float = PACE) -> PlainHost:
        """Look at the host once and begin to watch it. Raises `HostError`; the connection is the caller's then."""
        host = cls(connection, problem, pace=pace)
        try:
            told = await host._run(plain_shell.HELLO)
            host.info = plain_shell.host_info(told, problem.why)
            host._tick(told)
        except (KeyError, ValueError, HostError) as error:
            if isinstance(error, HostError) and error.kind != "protocol":
                raise
            why = f"{problem.why}, and its shell answers what cannot be used ({error})"
            raise HostError("start the agent", why, problem.remedy, kind=problem.kind) from None
        host._tasks = [asyncio.create_task(work) for work in (host._watch_link(), host._watch_host(), host._watch_cards())]
        return host

    # -------------------------------------------------------------------------------------------------------- commands

    async def _run(self, script: str, data: bytes = b"", limit: float | None = PATIENCE) -> plain_shell.Told:
        """Run one of the fixed scripts; its sections. Raises `HostError`."""
        command, nonce = plain_shell.command(script)
        try:
            async with asyncio.timeout(limit):
                process = await self._open(command)
                over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._running.add(over)
                try:
                    process.stdin.write(data)
                    process.stdin.write_eof()
                    raw = bytearray()
                    while len(raw) < _MOST and (piece := await process.stdout.read(65536)):
                        raw += piece
                    if len(raw) < _MOST:
                        await process.wait_closed()  # only then the host counts the channel as free
                finally:
                    process.close()
                    self._running.discard(over)
                    over.set_result(None)
            self.sent += len(command) + len(data)
            self.received += len(raw)
        except TimeoutError:
            raise HostError("command", f"no answer within {limit:g} s", kind="timeout", retry=True) from None
        except (asyncssh.Error, OSError) as error:
            why = getattr(error, "reason", "") or getattr(error, "strerror", "") or str(error)
            raise HostError("connection", why, kind="closed", retry=True) from None
        told = plain_shell.sections(bytes(raw), nonce)
        self.last_frame = time.monotonic()
        return told

    async def _open(self, command: str) -> asyncssh.SSHClientProcess[bytes]:
        """A channel for a command. A host that allows few at a time gives one when another command is over."""
        raw, left = self._connection.raw, _TRIES
        while True:
            others = tuple(self._running)
            try:
                return await raw.create_process(command, encoding=None, request_pty=False, window=WINDOW)
            except asyncssh.ChannelOpenError:
                if raw.is_closed() or not left:
                    raise
            if others:
                await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
            else:  # the host counts a channel a little longer than it lives
                left -= 1
                await asyncio.sleep(_AGAIN)

    # --------------------------------------------------------------------------------------------------------- watching

    async def _watch_link(self) -> None:
        await self._connection.raw.wait_closed()
        self._end(HostError("connection", "the connection was lost", kind="closed", retry=True))

    async def _watch_host(self) -> None:
        """A sample of the machine at every pace: also the sign that the link is alive."""
        while not self.ended.done():
            try:
                told = await self._run(plain_shell.SAMPLE)
                self._tick(told)
                self._push("host", self._sample(told))
            except HostError as error:
                if error.kind == "timeout":
                    self._end(error)
                    return
                # one command failed; a link that is down ends by `_watch_link`
            except (KeyError, ValueError):
                pass  # half an answer: the next one comes, and until then the values grow old visibly
            await self._pause("host")

    async def _watch_cards(self) -> None:
        board: GpuBoard | None = None
        await self._wanted["gpus"].wait()  # nobody may ever look at the cards
        while not self.ended.done():
            begun = self._boot()
            asking = asyncio.ensure_future(self._run(plain_shell.CARDS, limit=None))
            try:
                while not (await asyncio.wait({asking}, timeout=self.late))[0]:
                    late = f"nvidia-smi has not answered for {self._boot() - begun:.0f} s"
                    old = board or GpuBoard(begun, True)
                    self._push("gpus", _board_doc(old._replace(problem=late, stale_since=old.boot)))
                told = asking.result()
                board = smi.board(self._boot(), told.text("cards"), told.text("apps"), int(told.text("status")))
                self._push("gpus", _board_doc(board))
            except HostError:
                pass  # one command failed; a link that is down ends by `_watch_link`
            except (KeyError, ValueError):
                pass  # half an answer: asked again after the pause
            finally:
                asking.cancel()
            await self._pause("gpus")

    async def _pause(self, stream: str) -> None:
        self._wanted[stream].clear()
        try:
            async with asyncio.timeout(self.pace):
                await self._wanted[stream].wait()
        except TimeoutError:
            pass  # the pace itself

    def _push(self, stream: str, doc: Doc) -> None:
        boot, wall = self._boot(), self._wall()
        self._numbers[stream] += 1
        for listener in tuple(self._listeners[stream]):
            try:
                listener(Push(stream, self._numbers[stream], boot, wall, doc, doc))
            except Exception:
                log.exception("the listener of stream %s failed", stream)

    def _tick(self, told: plain_shell.Told) -> None:
        self._clock = (time.monotonic(), float(told.text("uptime").split()[0]), float(told.text("date")))

    def _boot(self) -> float:
        """The host's seconds since boot, by its last answer."""
        here, boot, _ = self._clock or (time.monotonic(), 0.0, 0.0)
        return boot + time.monotonic() - here

    def _wall(self) -> float:
        here, _, wall = self._clock or (time.monotonic(), 0.0, time.time())
        return wall + time.monotonic() - here

    def _sample(self, told: plain_shell.Told) -> Doc:
        boot = self._boot()
        cpu, net = proc.parse_cpu(told.text("stat")), proc.parse_net(told.text("net"))
        before, self._cpu = self._cpu, cpu
        busy, waiting = proc.cpu_percent(before, cpu) if before and cpu else (None, None)
        last, self._net = self._net, (boot, net)
        names = proc.choose_interfaces(list(net), [])
        rates: list[float | None] = [None, None]
        if last is not None and boot > last[0]:
            both = [(last[1][name], net[name]) for name in names if name in last[1]]
            rates = [sum(max(0, new[i] - old[i]) for old, new in both) / (boot - last[0]) for i in (0, 1)]
        sample = plain_shell.host_sample(told, boot)
        doc: Doc = to_doc(sample._replace(cpu=busy, cpu_iowait=waiting, net_rx=rates[0], net_tx=rates[1]))
        return doc

    # ------------------------------------------------------------------------------------------------------- as a host

    def _cannot(self, what: str) -> HostError:
        return HostError(what, f"not possible here: {self._problem.why}", self._problem.remedy, kind=self._problem.kind)

    async def request(self, method: str, body: bytes = b"", /, **params: Any) -> Any:
        raise self._cannot(method)

    async def batch(self, calls: Sequence[tuple[str, Doc]]) -> list[Any]:
        return [self._cannot(method) for method, _ in calls]

    async def subscribe(self, stream: str, interval: float, listener: Listener, **params: Any) -> Callable[[], Awaitable[None]]:
        listeners = self._listeners.get(stream)
        if listeners is None:
            raise self._cannot(stream)
        listeners.append(listener)
        self._wanted[stream].set()

        async def stop() -> None:
            if listener in listeners:
                listeners.remove(listener)

        return stop

    async def read(
        self, path: str, offset: int, limit: int = 65536, wait: float = 0.0, identity: tuple[int, int] | None = None
    ) -> Chunk:
        """As in base.py; what grows is looked for at every pace. The floor is not known: a hole reads as zeros."""
        if not path.startswith("/") or "\n" in path or "\0" in path:
            raise HostError(f"read {path}", "not an absolute path of one line", kind="absent")
        until = time.monotonic() + wait
        while True:
            told = await self._run(plain_shell.READ, plain_shell.read_input(path, offset, min(limit, MAX_READ)))
            chunk = plain_shell.chunk(told, path, identity)
            if chunk.data or chunk.offset > chunk.size or time.monotonic() >= until:
                return chunk
            offset = chunk.offset if offset < 0 else offset
            await asyncio.sleep(max(0.0, min(self.pace, until - time.monotonic())))

    async def search(self, path: str, pattern: str, start: int = 0, **params: Any) -> Doc:
        raise self._cannot("search")

    async def http(
        self,
        port: int,
        path: str,
        method: str = "GET",
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout: float = 5.0,
    ) -> HttpAnswer:
        raise self._cannot("http")

    async def forward(self, port: int) -> Forward:
        if self.ended.done():
            raise self.ended.result()
        return await open_forward(self._connection, port)

    def _end(self, error: HostError) -> None:
        if not self.ended.done():
            self.ended.set_result(error)

    async def close(self) -> None:
        self._end(HostError("connection", "closed by this client", kind="closed"))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._connection.close()


def _board_doc(board: GpuBoard) -> Doc:
    """As the agent's stream ``gpus`` has it: cards keyed by uuid, their processes by pid."""
    doc: Doc = to_doc(board)
    doc["cards"] = {
        card.uuid: {
            **to_doc(card),
            **({} if card.processes is None else {"processes": {str(p.pid): to_doc(p) for p in card.processes}}),
        }
        for card in board.cards
    }
    return doc
