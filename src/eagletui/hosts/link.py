"""Frames over a byte stream to a starting agent: requests and answers, streams with credits, a heartbeat, and the end.

A `Link` is a `Host` (base.py) over any `Transport`. It is given up at the first frame that is wrong, at the end of the
stream, and when nothing at all came for ``silence`` heartbeats; then every waiter gets the reason, and ``ended`` holds it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from eagletui import __version__
from eagletui.agent import frames
from eagletui.agent.frames import BadFrame, Decoder, Frame
from eagletui.agent.patch import apply
from eagletui.hosts import bootstrap, modules
from eagletui.hosts.base import Chunk, Doc, FileMark, Forward, HostError, HttpAnswer, Listener, Push, Transport
from eagletui.records import BadRecord, HostInfo, from_doc

log = logging.getLogger("eagletui.link")
log.addHandler(logging.NullHandler())  # never onto the terminal that a screen is drawn on

MAX_BANNER = 1024 * 1024
_BANNER_KEPT = 4096
_PIECE = 64 * 1024
START_SECONDS = 30.0
REQUEST_SECONDS = 20.0
_DEADLINES = {"launch": 60.0, "kill": 180.0, "kill_plan": 30.0, "write": 60.0}


@runtime_checkable
class Forwarding(Protocol):
    """A transport that can open a way to a port of the host (ssh)."""

    async def forward(self, port: int) -> Forward: ...


class SamePort:
    """The forward of a host that is this machine: the port itself."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def close(self) -> None:
        """Nothing was opened."""


class _Waiter:
    """A request without an answer yet. ``parts`` gathers the pieces of a long body."""

    __slots__ = ("future", "method", "parts")

    def __init__(self, method: str, future: asyncio.Future[tuple[Any, bytes]]) -> None:
        self.method, self.future, self.parts = method, future, list[bytes]()


class _Stream:
    """A subscription: the document as the last push left it."""

    __slots__ = ("doc", "listener", "name")

    def __init__(self, name: str, listener: Listener) -> None:
        self.name, self.listener, self.doc = name, listener, Doc()


class Link:
    """One live agent. ``received``/``sent`` count bytes, ``last_frame`` is monotonic, ``rtt`` the last heartbeat's seconds."""

    info: HostInfo

    def __init__(
        self,
        transport: Transport,
        nonce: str,
        *,
        target: str = "",
        silence: float = 15.0,
        beat: float = 1.0,
        readonly: bool = False,
    ) -> None:
        self.target = target
        self.received = self.sent = 0
        self.last_frame: float | None = None
        self.rtt: float | None = None
        self.banner = ""
        self.ended: asyncio.Future[HostError] = asyncio.get_running_loop().create_future()
        self._transport, self._silence, self._interval = transport, silence, beat
        self._said: Doc = {"version": __version__, **({"readonly": True} if readonly else {})}
        self._mark = b"\0" + nonce.encode() + b"\0"
        self._decoder: Decoder | None = None  # once the nonce has come
        self._preamble = bytearray()
        self._skipped = 0
        self._last_id = 0
        self._waiters: dict[int, _Waiter] = {}
        self._streams: dict[int, _Stream] = {}
        self._beats: dict[int, float] = {}
        self._unheard = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._shutting: asyncio.Task[None] | None = None

    # -------------------------------------------------------------------------------------------------------- the start

    def _start(self, blob: bytes) -> None:
        self._write(bootstrap.opening(blob))
        self._spawn(self._read())

    async def _greet(self) -> None:
        try:
            doc, _ = await self._ask("hello", self._said, b"", START_SECONDS)
        except HostError as error:
            if error.kind == "timeout" and self._decoder is None:
                said = f"; it printed: {self.banner}" if self.banner else ""
                why = f"the login shell did not start it within {START_SECONDS:g} s{said}"
                remedy = "look at the login scripts there: one may wait for input"
                raise HostError("start the agent", why, remedy, kind="timeout") from error
            raise
        try:
            self.info = from_doc(HostInfo, doc)
        except BadRecord as error:
            raise HostError("start the agent", str(error), kind="protocol") from error
        self._spawn(self._beat())

    async def _complete(self, rest: bytes) -> None:
        """Send the modules that the first samples do not need."""
        try:
            await self._ask("modules", {}, rest, START_SECONDS)
        except HostError as error:
            self._fail(HostError("start the agent", error.why, error.remedy, kind=error.kind, retry=error.retry))

    def _spawn(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---------------------------------------------------------------------------------------------------------- reading

    async def _read(self) -> None:
        try:
            while data := await self._transport.read():
                self.received += len(data)
                if self._decoder is None:
                    data = self._skip_banner(data)
                if self._decoder is not None and data:
                    for frame in self._decoder.feed(data):
                        self.last_frame, self._unheard = time.monotonic(), 0
                        self._take(frame)
            self._fail(await self._why_ended())
        except BadFrame as error:
            if self._decoder is None:  # a login script that floods will do so the next time too
                remedy = "have that user's login scripts print nothing where there is no terminal"
                self._fail(HostError("start the agent", str(error), remedy, kind="protocol"))
            else:
                why = f"what came is not the protocol: {error}"
                self._fail(HostError("connection", why, "connect again", kind="protocol", retry=True))
        except OSError as error:
            self._fail(HostError("connection", error.strerror or str(error), kind="closed", retry=True))

    def _skip_banner(self, data: bytes) -> bytes:
        """Drop what the login shell printed before the nonce; returns what follows it."""
        self._preamble += data
        at = self._preamble.find(self._mark)
        if at < 0:
            drop = max(0, len(self._preamble) - _BANNER_KEPT)
            del self._preamble[:drop]
            self._skipped += drop
            self.banner = one_line(self._preamble)
            if self._skipped > MAX_BANNER:
                raise BadFrame(f"the login shell printed more than {MAX_BANNER >> 20} MiB before the agent")
            return b""
        rest = bytes(self._preamble[at + len(self._mark) :])
        self.banner = one_line(self._preamble[:at])
        self._preamble.clear()
        self._decoder = Decoder()
        return rest

    async def _why_ended(self) -> HostError:
        try:
            reason = one_line((await asyncio.wait_for(self._transport.reason(), 3)).encode())
        except TimeoutError:
            reason = ""
        if self._decoder is not None:
            return HostError("connection", f"the agent ended{': ' + reason if reason else ''}", kind="closed", retry=True)
        status = getattr(self._transport, "exit_status", None)
        if getattr(self._transport, "broken", False):  # cut while the agent was on its way: no fault of the login shell
            return HostError("connection", reason or "the connection was lost", kind="closed", retry=True)
        known = bootstrap.explain(reason, status)
        if known is not None:
            return HostError("start the agent", known.why, known.remedy, kind=known.kind)
        said = ", ".join(part for part in (reason, f"it printed: {self.banner}" if self.banner else "") if part)
        if status is None or status < 0:
            # it did not end by itself: the link went under it, or somebody killed it. The next attempt may well succeed.
            why = f"the connection was lost before the agent had started{': ' + said if said else ''}"
            return HostError("start the agent", why, kind="closed", retry=True)
        why = f"the login shell ended before the agent started{': ' + said if said else ''}"
        return HostError("start the agent", why, "log in by hand and look", kind="closed")

    def _take(self, frame: Frame) -> None:
        if frame.kind == frames.PUSH:
            self._pushed(frame)
        elif frame.kind == frames.BEAT:
            sent = self._beats.pop(frame.id, None)
            if sent is not None:
                self.rtt = time.monotonic() - sent
        elif frame.kind in (frames.RESPONSE, frames.ERROR):
            waiter = self._waiters.get(frame.id)
            if waiter is None:
                return  # cancelled meanwhile
            if frame.kind == frames.RESPONSE and frame.head.get("more"):
                waiter.parts.append(frame.body)
                self._send(frames.CREDIT, frame.id, {"n": 1})
                return
            del self._waiters[frame.id]
            if waiter.future.done():
                return
            if frame.kind == frames.ERROR:
                waiter.future.set_exception(_error(frame.head))
            else:
                waiter.future.set_result((frame.head.get("result"), b"".join((*waiter.parts, frame.body))))

    def _pushed(self, frame: Frame) -> None:
        head = frame.head
        try:
            name, number, boot, wall = str(head["s"]), int(head["n"]), float(head["boot"]), float(head["wall"])
            change: Doc = head["patch"]
        except (KeyError, TypeError, ValueError) as error:
            raise BadFrame(f"a push without {error}") from None
        if not frame.id:
            if name == "need":
                self._spawn(self._provide(str(change.get("module"))))
            return
        stream = self._streams.get(frame.id)
        if stream is None:
            return  # ended meanwhile
        stream.doc = apply(stream.doc, change)
        try:
            stream.listener(Push(stream.name, number, boot, wall, stream.doc, change))
        except Exception:
            log.exception("the listener of stream %s failed", stream.name)
        self._send(frames.CREDIT, frame.id, {"n": 1})

    async def _provide(self, name: str) -> None:
        """Send the source text of a module that the agent asked for."""
        packed = await asyncio.to_thread(modules.packed, name)
        if packed is None:
            log.warning("the agent asks for the module %s, which is not one to give", name)
            return
        try:
            await self._ask("provide", {"module": name}, packed, REQUEST_SECONDS)
        except HostError as error:
            log.warning("module %s was not taken: %s", name, error)  # the source goes on without, and says so in its document

    # ---------------------------------------------------------------------------------------------------------- writing

    def _write(self, data: bytes) -> None:
        self.sent += len(data)
        self._transport.write(data)

    def _send(self, kind: int, id_: int, head: Doc, body: bytes = b"") -> None:
        if not self.ended.done():
            self._write(frames.encode(Frame(kind, id_, head, body)))

    def _next_id(self) -> int:
        self._last_id = self._last_id % 0xFFFFFFFE + 1
        return self._last_id

    async def _beat(self) -> None:
        while not self.ended.done():
            # counted in heartbeats, not in seconds: a client that was stopped for a while must first read what waits for it
            if self._unheard * self._interval >= self._silence:
                why = f"nothing came from the host for {self._silence:g} s"
                self._fail(HostError("connection", why, kind="timeout", retry=True))
                return
            self._unheard += 1
            id_ = self._next_id()
            self._beats[id_] = time.monotonic()
            for old in list(self._beats)[:-64]:
                del self._beats[old]
            self._send(frames.BEAT, id_, {})
            await asyncio.sleep(self._interval)

    # --------------------------------------------------------------------------------------------------------- requests

    async def _ask(self, method: str, params: Doc, body: bytes, seconds: float, id_: int = 0) -> tuple[Any, bytes]:
        """Send a request and wait for its answer. Cancelling this, or the deadline, takes the request back."""
        if self.ended.done():
            raise _again(self.ended.result())
        id_ = id_ or self._next_id()
        waiter = self._waiters[id_] = _Waiter(method, asyncio.get_running_loop().create_future())
        pieces = [body[i : i + _PIECE] for i in range(0, len(body), _PIECE)] or [b""]
        try:
            async with asyncio.timeout(seconds):
                for piece in pieces[:-1]:
                    self._send(frames.REQUEST, id_, {"more": True}, piece)
                    await self._transport.drain()
                self._send(frames.REQUEST, id_, {"method": method, "params": params}, pieces[-1])
                return await waiter.future
        except TimeoutError:
            self._send(frames.CANCEL, id_, {})
            raise HostError(method, f"no answer within {seconds:g} s", kind="timeout", retry=True) from None
        except asyncio.CancelledError:
            self._send(frames.CANCEL, id_, {})
            raise
        except OSError as error:
            raise HostError(method, error.strerror or str(error), kind="closed", retry=True) from error
        finally:
            self._waiters.pop(id_, None)

    async def ask(self, method: str, body: bytes = b"", /, **params: Any) -> tuple[Any, bytes]:
        """Like `request`, with the body of the answer: (result, body)."""
        extra = sum(v for k in ("wait", "timeout") if isinstance(v := params.get(k), (int, float)))
        return await self._ask(method, params, body, _DEADLINES.get(method, REQUEST_SECONDS) + extra)

    async def request(self, method: str, body: bytes = b"", /, **params: Any) -> Any:
        return (await self.ask(method, body, **params))[0]

    async def batch(self, calls: Sequence[tuple[str, Doc]]) -> list[Any]:
        """As in base.py; a ``read`` gives a `Chunk`, an ``http`` an `HttpAnswer`, all others their JSON result."""
        seconds = REQUEST_SECONDS + max((_DEADLINES.get(method, 0.0) for method, _ in calls), default=0.0)
        seconds += max((float(params.get(k) or 0) for _, params in calls for k in ("wait", "timeout")), default=0.0)
        items, body = await self._ask("batch", {"calls": [list(call) for call in calls]}, b"", seconds)
        out: list[Any] = []
        at = 0
        try:
            for (method, _), item in zip(calls, items, strict=True):
                size = item.get("body", 0)
                out.append(_error(item["error"]) if "error" in item else _typed(method, item["result"], body[at : at + size]))
                at += size
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise HostError("batch", f"the agent's answer is malformed: {error}", kind="protocol") from error
        return out

    async def subscribe(self, stream: str, interval: float, listener: Listener, **params: Any) -> Callable[[], Awaitable[None]]:
        id_ = self._next_id()
        self._streams[id_] = _Stream(stream, listener)  # before the answer: the first push may overtake it
        try:
            await self._ask("subscribe", {"stream": stream, "interval": interval, **params}, b"", REQUEST_SECONDS, id_)
        except BaseException:
            self._streams.pop(id_, None)
            raise

        async def stop() -> None:
            if self._streams.pop(id_, None) is not None and not self.ended.done():
                await self._ask("unsubscribe", {"sub": id_}, b"", REQUEST_SECONDS)

        return stop

    async def read(
        self, path: str, offset: int, limit: int = 65536, wait: float = 0.0, identity: tuple[int, int] | None = None
    ) -> Chunk:
        params: Doc = {"path": path, "offset": offset, "limit": limit, "wait": wait}
        if identity is not None:
            params["identity"] = list(identity)
            if isinstance(identity, FileMark) and identity.before:
                params["before"] = identity.before.hex()
        result, body = await self._ask("read", params, b"", REQUEST_SECONDS + wait)
        return _chunk(result, body)

    async def search(self, path: str, pattern: str, start: int = 0, **params: Any) -> Doc:
        result: Doc = await self.request("search", path=path, pattern=pattern, start=start, **params)
        return result

    async def http(
        self,
        port: int,
        path: str,
        method: str = "GET",
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout: float = 5.0,
    ) -> HttpAnswer:
        params: Doc = {"port": port, "path": path, "method": method, "headers": dict(headers or {}), "timeout": timeout}
        result, answer = await self._ask("http", params, body, REQUEST_SECONDS + timeout)
        return _http(result, answer)

    async def forward(self, port: int) -> Forward:
        if self.ended.done():
            raise _again(self.ended.result())
        return await self._transport.forward(port) if isinstance(self._transport, Forwarding) else SamePort(port)

    # ---------------------------------------------------------------------------------------------------------- the end

    def _fail(self, error: HostError) -> None:
        """Give the link up: every waiter gets the reason."""
        if self.ended.done():
            return
        self.ended.set_result(error)
        for waiter in self._waiters.values():
            if not waiter.future.done():
                waiter.future.set_exception(_again(error))
        self._waiters.clear()
        self._streams.clear()
        self._shutting = asyncio.create_task(self._shut())

    async def _shut(self) -> None:
        try:
            await asyncio.wait_for(self._transport.close(), 1)
        except TimeoutError:
            log.warning("the connection to %s did not close within a second; it is left to the system", self.target)
        except OSError as error:
            log.warning("closing the connection to %s: %s", self.target, error)

    async def close(self) -> None:
        self._fail(HostError("connection", "closed by this client", kind="closed"))
        assert self._shutting is not None
        await asyncio.wait([self._shutting], timeout=1)
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1)


async def open_link(
    transport: Transport,
    nonce: str,
    *,
    target: str = "",
    early: Callable[[Link], None] | None = None,
    silence: float = 15.0,
    beat: float = 1.0,
    blob: bytes | None = None,
    readonly: bool = False,
) -> Link:
    """Start the agent over a transport whose shell runs ``bootstrap.command(nonce)``, and greet it.

    ``early(link)`` is called before anything has come back: requests and subscriptions that it starts as tasks go out
    together with the agent's modules, so they cost no round trip of their own. Raises `HostError`; the transport is closed
    then. ``silence`` and ``beat`` are seconds. ``blob`` defaults to `bootstrap.bundle`, sent in its two parts. With ``readonly``
    the agent refuses whatever would change the host.
    """
    link = Link(transport, nonce, target=target, silence=silence, beat=beat, readonly=readonly)
    try:
        first, rest = await asyncio.to_thread(bootstrap.parts) if blob is None else (blob, b"")
        link._start(first)
        greeting = asyncio.ensure_future(link._greet())
        if early is not None:
            early(link)
        if rest:
            link._spawn(link._complete(rest))  # behind the early requests: tasks start in the order they were made
        try:
            await greeting
        finally:
            greeting.cancel()
    except BaseException:
        await link.close()
        raise
    return link


def one_line(raw: bytes | bytearray) -> str:
    """Remote text for an error message: printable, on one line, its last 300 characters."""
    text = "".join(c if c.isprintable() else " " for c in bytes(raw).decode("utf-8", "replace"))
    return " ".join(text.split())[-300:]


def _error(head: Mapping[str, Any]) -> HostError:
    step, why, remedy, kind = (
        str(head.get(k, d)) for k, d in (("step", "agent"), ("why", ""), ("remedy", ""), ("kind", "agent"))
    )
    return HostError(step, why, remedy, kind=kind)


def _again(error: HostError) -> HostError:
    """A fresh copy for each waiter: an exception that is raised twice gathers the tracebacks of both."""
    return HostError(error.step, error.why, error.remedy, kind=error.kind, retry=error.retry)


def _typed(method: str, result: Any, body: bytes) -> Any:
    if method == "read":
        return _chunk(result, body)
    if method == "http":
        return _http(result, body)
    return result


def _chunk(head: Doc, body: bytes) -> Chunk:
    try:
        return Chunk(body, head["offset"], head["size"], head["dev"], head["inode"], head["floor"], head.get("mtime"))
    except (KeyError, TypeError) as error:
        raise HostError("read", f"the agent's answer lacks {error}", kind="protocol") from error


def _http(head: Doc, body: bytes) -> HttpAnswer:
    try:
        return HttpAnswer(int(head["status"]), head["headers"], body)
    except (KeyError, TypeError, ValueError) as error:
        raise HostError("http", f"the agent's answer lacks {error}", kind="protocol") from error
