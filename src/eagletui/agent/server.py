"""The agent's side of the protocol: frames in, requests to their handlers, answers out; when the client is gone, the end."""

from __future__ import annotations

import os
import signal
from collections import deque
from importlib import import_module
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

from eagletui.agent import bundle, frames
from eagletui.agent.calls import Call, CallError, Handler
from eagletui.agent.frames import BadFrame, Decoder, Frame
from eagletui.agent.loop import Loop
from eagletui.agent.output import Output
from eagletui.agent.streams import Streams

PIECE = 64 * 1024  # a longer body goes in pieces of this size, so that telemetry is never behind more than one of them
PIECES_AHEAD = 2  # that many before the client must give a credit
MAX_BODY = 16 * 1024 * 1024
MAX_QUEUED = 4 * 1024 * 1024
MAX_BATCH = 256

# where a method lives; a module is imported when one of its methods is first called
_HOMES: Dict[str, str] = {
    "hello": "eagletui.agent.hello",
    "read": "eagletui.agent.files",
    "stat": "eagletui.agent.files",
    "list": "eagletui.agent.files",
    "write": "eagletui.agent.files",
    "search": "eagletui.agent.search",
    "http": "eagletui.agent.http",
    "processes": "eagletui.agent.procs",
    "stacks": "eagletui.agent.stacks",
    "unit": "eagletui.agent.unit_api",
    "unit_start": "eagletui.agent.unit_api",
    "leftovers": "eagletui.agent.leftovers_api",
    "facts": "eagletui.agent.facts.gather",
    "engine": "eagletui.agent.patching",
    "discard": "eagletui.agent.patching",
}
_OTHERS = "eagletui.agent.jobs_api"  # all other methods

# what changes something on the host: refused once the client has said in `hello` that it only watches
CHANGES = frozenset(("launch", "kill", "remove", "write", "unit_start", "discard", "leftovers"))
_ONLY_WITH = {"leftovers": "remove"}  # changes something only with this parameter


class _Transfer:
    """A long body under way: the pieces left, and how many may go before the client gives a credit."""

    __slots__ = ("credits", "pieces")

    def __init__(self, pieces: Deque[Frame]) -> None:
        self.pieces, self.credits = pieces, PIECES_AHEAD


class Server:
    """One client's connection. ``run`` returns why it ended, None for the plain end of stdin."""

    def __init__(self, loop: Loop, source: int, sink: int, watchdog: float, log: Callable[[str], None], lines: Any) -> None:
        self._loop, self._source, self._watchdog, self._log, self._lines = loop, source, watchdog, log, lines
        self._output = Output(loop, sink, self._end)
        self._decoder = Decoder()
        self._streams = Streams(loop, lambda frame: self._output.send(frames.encode(frame)), log)
        self._handlers: Dict[str, Handler] = {
            "batch": self._batch,
            "debug": self._debug,
            "modules": self._modules,
            "subscribe": self._streams.subscribe,
            "unsubscribe": self._streams.unsubscribe,
            "provide": self._streams.provide,
        }
        self._calls: Dict[int, Call] = {}
        self._bodies: Dict[int, bytearray] = {}
        self._transfers: Dict[int, _Transfer] = {}
        self._deferred: List[Tuple[str, Call]] = []  # calls that need modules which are still to come
        self._heard = loop.now()
        self._why: Optional[str] = None
        self._readonly = False
        os.set_blocking(source, False)

    def run(self) -> Optional[str]:
        self._loop.add_reader(self._source, self._readable)
        self._watch()
        self._loop.run()
        for call in list(self._calls.values()):
            self._loop.guard("cancelling a request", call.cancel)
        self._streams.close()
        return self._why

    def _end(self, why: Optional[str]) -> None:
        self._why = why
        self._loop.stop()

    def _watch(self) -> None:
        silent = self._loop.now() - self._heard
        if silent >= self._watchdog:
            self._end("no word from the client for %.0f s" % silent)
            return
        # should this loop itself hang (a regular expression that never ends, say), the kernel ends the process
        signal.setitimer(signal.ITIMER_REAL, self._watchdog * 2)
        self._loop.call_later(min(5.0, self._watchdog - silent), self._watch)

    # -------------------------------------------------------------------------------------------------------- frames

    def _readable(self) -> None:
        try:
            data = os.read(self._source, 256 * 1024)
        except BlockingIOError:
            return
        except OSError as error:
            self._end("the connection is closed: %s" % (error.strerror or error))
            return
        if not data:
            self._end(None)
            return
        self._heard = self._loop.now()
        try:
            for frame in self._decoder.feed(data):
                self._take(frame)
        except BadFrame as error:
            self._end("what the client sent is not the protocol: %s" % error)

    def _take(self, frame: Frame) -> None:
        if frame.kind == frames.BEAT:
            self._output.send(frames.encode(frame))
        elif frame.kind == frames.CREDIT:
            count = frame.head.get("n", 1)
            if isinstance(count, int) and 0 < count <= 1024:
                self._credit(frame.id, count)
        elif frame.kind == frames.CANCEL:
            self._transfers.pop(frame.id, None)
            self._bodies.pop(frame.id, None)
            call = self._calls.pop(frame.id, None)
            if call is not None:
                call.cancel()
            self._streams.cancel(frame.id)
        elif frame.kind == frames.REQUEST:
            self._request(frame)

    def _request(self, frame: Frame) -> None:
        body: bytes = frame.body
        if frame.head.get("more") or frame.id in self._bodies:
            gathered = self._bodies.setdefault(frame.id, bytearray())
            gathered += frame.body
            if len(gathered) > MAX_BODY:
                raise BadFrame("a request of more than %d bytes" % MAX_BODY)
            if frame.head.get("more"):
                return
            body = bytes(self._bodies.pop(frame.id))
        id_, method, params = frame.id, frame.head.get("method"), frame.head.get("params", {})

        def send(result: Any, data: bytes) -> None:
            self._calls.pop(id_, None)
            self._answer(id_, result, data)

        def send_error(error: CallError) -> None:
            self._calls.pop(id_, None)
            self._output.send(frames.encode(Frame(frames.ERROR, id_, _error_doc(error))))

        call = Call(self._loop, params if isinstance(params, dict) else {}, body, send, send_error, id_)
        self._calls[id_] = call
        if self._output.queued > MAX_QUEUED:
            call.fail("answer", "the connection is too slow for all that was asked", "ask again in a moment")
            return
        self._do(str(method), call)

    def _do(self, method: str, call: Call) -> None:
        """Have a call answered by its handler; whatever the handler raises becomes the answer."""
        if method == "hello" and call.params.get("readonly") is True:
            self._readonly = True  # for as long as the connection lives
        if self._readonly and method in CHANGES and (method not in _ONLY_WITH or call.params.get(_ONLY_WITH[method])):
            call.fail(method, "this session is read-only", "connect without --readonly (and readonly in config.toml)", "denied")
            return
        try:
            self._handler(method)(call)
        except CallError as error:
            call.fail(error.step, error.why, error.remedy, error.kind)
        except Exception as error:  # noqa: BLE001 - the client is told, the place is in the debug log
            if isinstance(error, ModuleNotFoundError) and not bundle.COMPLETE:
                self._deferred.append((method, call))
                return
            self._log(_trace(error))
            call.fail(method, "the agent failed: %s: %s" % (type(error).__name__, error), "please report this")

    def _handler(self, method: str) -> Handler:
        handler = self._handlers.get(method)
        if handler is not None:
            return handler
        home = _HOMES.get(method, _OTHERS)
        try:
            table: Dict[str, Handler] = import_module(home).METHODS
        except ModuleNotFoundError as error:
            if error.name != home or not bundle.COMPLETE:
                raise
            raise CallError(method, "this agent cannot do that", "") from None
        for name, found in table.items():
            self._handlers.setdefault(name, found)
        if method not in self._handlers:
            raise CallError("request", "there is no method %r" % method)
        return self._handlers[method]

    # ------------------------------------------------------------------------------------------------------- answers

    def _answer(self, id_: int, result: Any, body: bytes) -> None:
        pieces: Deque[Frame] = deque()
        last = max(0, (len(body) - 1) // PIECE)
        for i in range(last):
            pieces.append(Frame(frames.RESPONSE, id_, {"more": True}, body[i * PIECE : (i + 1) * PIECE]))
        pieces.append(Frame(frames.RESPONSE, id_, {"result": result}, body[last * PIECE :]))
        if last == 0:
            try:
                data = frames.encode(pieces[0])
            except (TypeError, ValueError) as error:
                self._log("an answer that is not JSON: %s" % error)
                why = CallError("answer", "the agent's answer cannot be sent: %s" % error, "please report this")
                data = frames.encode(Frame(frames.ERROR, id_, _error_doc(why)))
            self._output.send(data, urgent=len(data) <= 4096)
            return
        self._transfers[id_] = _Transfer(pieces)
        self._credit(id_, 0)

    def _credit(self, id_: int, count: int) -> None:
        transfer = self._transfers.get(id_)
        if transfer is None:
            self._streams.credit(id_, count)
            return
        transfer.credits += count
        while transfer.credits > 0 and transfer.pieces:
            transfer.credits -= 1
            self._output.send(frames.encode(transfer.pieces.popleft()), urgent=False)
        if not transfer.pieces:
            del self._transfers[id_]

    def _batch(self, call: Call) -> None:
        calls = call.params.get("calls")
        if not isinstance(calls, list) or len(calls) > MAX_BATCH:
            raise CallError("batch", "'calls' should be a list of at most %d calls" % MAX_BATCH)
        if not calls:
            call.reply([])
            return
        results: List[Any] = [None] * len(calls)
        bodies: List[bytes] = [b""] * len(calls)
        left = [len(calls)]
        inner: List[Call] = []

        def finish(index: int, result: Dict[str, Any], body: bytes) -> None:
            results[index], bodies[index] = result, body
            if body:
                result["body"] = len(body)
            left[0] -= 1
            if not left[0]:
                call.reply(results, b"".join(bodies))

        def cancel() -> None:
            for one in inner:
                one.cancel()

        call.on_cancel = cancel
        for index, item in enumerate(calls):
            if not (isinstance(item, list) and len(item) == 2 and isinstance(item[1], dict)):
                raise CallError("batch", "call %d is not [method, parameters]" % index)
            one = Call(
                self._loop,
                item[1],
                b"",
                lambda result, body, i=index: finish(i, {"result": result}, body),  # type: ignore[misc]
                lambda error, i=index: finish(i, {"error": _error_doc(error)}, b""),  # type: ignore[misc]
            )
            inner.append(one)
        for one, item in zip(inner, calls):
            self._do(str(item[0]), one)

    def _modules(self, call: Call) -> None:
        """The modules that were left out of the first blob; calls that waited for them are done now."""
        try:
            bundle.add(call.body)
        except ValueError as error:
            raise CallError("modules", "the agent's modules came damaged: %s" % error, "connect again") from None
        call.reply({})
        deferred, self._deferred = self._deferred, []
        for method, waiting in deferred:
            if not waiting.answered:
                self._do(method, waiting)

    def _debug(self, call: Call) -> None:
        call.reply({"lines": list(self._lines)})


def _error_doc(error: CallError) -> Dict[str, Any]:
    return {"step": error.step, "why": error.why, "remedy": error.remedy, "kind": error.kind}


def _trace(error: BaseException) -> str:
    import traceback

    return "".join(traceback.format_exception(type(error), error, error.__traceback__))
