"""`http`: one request to a server on this host's loopback, without blocking. Plain HTTP/1.1, one connection per request."""

from __future__ import annotations

import errno
import os
import socket
from typing import Any, Callable, Dict, List, Optional

from eagletui.agent.calls import Call, CallError, Handler
from eagletui.agent.loop import Loop

MAX_BODY = 8 * 1024 * 1024
_MAX_HEAD = 64 * 1024
_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")

Done = Callable[[Dict[str, Any], bytes], None]
Failed = Callable[[str], None]


class AnswerError(Exception):
    """The server's answer cannot be used; the text says why."""


class Answer:
    """An HTTP answer read piece by piece. `feed` and `end` return True once it is whole. Raises `AnswerError`."""

    def __init__(self, method: str) -> None:
        self._method = method
        self._buffer = bytearray()
        self._step = self._head
        self._left: Optional[int] = None  # of the body or the chunk; None: until the end of the connection
        self.status = 0
        self.headers: Dict[str, str] = {}
        self.body = bytearray()

    def feed(self, data: bytes) -> bool:
        self._buffer += data
        while self._step():
            pass
        if len(self.body) > MAX_BODY:
            raise AnswerError("its answer is larger than %d MiB" % (MAX_BODY >> 20))
        return self._step == self._done

    def end(self) -> bool:
        if self._step == self._plain and self._left is None:
            return True
        if self._step == self._done:
            return True
        raise AnswerError("it closed the connection " + ("before its answer was whole" if self.status else "without an answer"))

    # each step returns True when it took something and another may go on
    def _head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > _MAX_HEAD:
                raise AnswerError("it answers with more than %d bytes of headers" % _MAX_HEAD)
            return False
        lines = bytes(self._buffer[:end]).decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        words = lines[0].split(None, 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
            raise AnswerError("it does not speak HTTP")
        self.status = int(words[1])
        if 100 <= self.status < 200:
            return True  # an interim answer; the real one follows
        self.headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        length = self.headers.get("content-length", "")
        if self._method == "HEAD" or self.status in (204, 304):
            self._step = self._done
        elif "chunked" in self.headers.get("transfer-encoding", "").lower():
            self._step = self._chunk_size
        elif length:
            if not length.isdigit():
                raise AnswerError("its content-length is no number")
            self._left = int(length)
            if self._left > MAX_BODY:
                raise AnswerError("its answer has %d MiB, more than %d" % (self._left >> 20, MAX_BODY >> 20))
            self._step = self._plain
        else:
            self._step = self._plain
        return True

    def _plain(self) -> bool:
        take = len(self._buffer) if self._left is None else min(self._left, len(self._buffer))
        self.body += self._buffer[:take]
        del self._buffer[:take]
        if self._left is None:
            return False
        self._left -= take
        if self._left == 0:
            self._step = self._done
        return False

    def _chunk_size(self) -> bool:
        end = self._buffer.find(b"\r\n")
        if end < 0:
            if len(self._buffer) > 1024:
                raise AnswerError("its chunked answer is malformed")
            return False
        try:
            self._left = int(bytes(self._buffer[:end]).split(b";")[0], 16)
        except ValueError:
            raise AnswerError("its chunked answer is malformed") from None
        del self._buffer[: end + 2]
        self._step = self._chunk if self._left else self._trailer
        return True

    def _chunk(self) -> bool:
        assert self._left is not None
        take = min(self._left, len(self._buffer))
        self.body += self._buffer[:take]
        del self._buffer[:take]
        self._left -= take
        if self._left or len(self._buffer) < 2:
            return False
        del self._buffer[:2]
        self._step = self._chunk_size
        return True

    def _trailer(self) -> bool:
        end = self._buffer.find(b"\r\n")
        if end < 0:
            return False
        del self._buffer[: end + 2]
        if end == 0:
            self._step = self._done
            return False
        return True

    def _done(self) -> bool:
        return False


class Fetch:
    """One request under way on the loop. Calls ``done(head, body)`` or ``failed(why)`` once; `stop` ends it silently."""

    def __init__(self, loop: Loop, port: int, request: bytes, method: str, timeout: float, done: Done, failed: Failed) -> None:
        self._loop, self._done, self._failed, self._port = loop, done, failed, port
        self._request = memoryview(request)
        self._answer = Answer(method)
        self._timeout = timeout
        self._socket: Optional[socket.socket] = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        self._fd = self._socket.fileno()
        self._connected = False
        self._timer = loop.call_later(timeout, self._late)
        code = self._socket.connect_ex(("127.0.0.1", port))
        if code in (0, errno.EINPROGRESS):
            loop.add_writer(self._fd, self._writable)
        else:
            loop.call_later(0, lambda: self._fail(self._words(code)))

    def stop(self) -> None:
        if self._socket is not None:
            self._timer.cancel()
            self._loop.remove_writer(self._fd)
            self._loop.remove_reader(self._fd)
            self._socket.close()
            self._socket = None

    def _words(self, code: int) -> str:
        if code == errno.ECONNREFUSED:
            return "nothing listens on port %d" % self._port
        return os.strerror(code).lower()

    def _fail(self, why: str) -> None:
        if self._socket is not None:
            self.stop()
            self._failed(why)

    def _late(self) -> None:
        doing = "sent no whole answer" if self._connected else "did not accept the connection"
        self._fail("the server on port %d %s within %g s" % (self._port, doing, self._timeout))

    def _writable(self) -> None:
        assert self._socket is not None
        if not self._connected:
            code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self._fail(self._words(code))
                return
            self._connected = True
            self._loop.add_reader(self._fd, self._readable)
        try:
            self._request = self._request[self._socket.send(self._request) :]
        except BlockingIOError:
            return
        except OSError:
            self._request = self._request[:0]  # it may have answered (an error) before it read everything: read on
        if not self._request:
            self._loop.remove_writer(self._fd)

    def _readable(self) -> None:
        assert self._socket is not None
        try:
            data = self._socket.recv(256 * 1024)
        except BlockingIOError:
            return
        except OSError as error:
            self._fail("the server on port %d: %s" % (self._port, self._words(error.errno or 0)))
            return
        try:
            if self._answer.feed(data) if data else self._answer.end():
                self.stop()
                self._done({"status": self._answer.status, "headers": self._answer.headers}, bytes(self._answer.body))
        except AnswerError as error:
            self._fail("the server on port %d: %s" % (self._port, error))


def request_bytes(port: int, path: str, method: str, headers: Dict[str, str], body: bytes) -> bytes:
    """The request on the wire. Raises `CallError` for what would break its lines."""
    if not method or not set(method) <= _TOKEN or not path.startswith("/") or not all("!" <= c <= "~" for c in path):
        raise CallError("http", "%r is not a request" % ("%s %s" % (method, path)))
    lines: List[str] = ["%s %s HTTP/1.1" % (method, path)]
    have = {"host": "127.0.0.1:%d" % port, "connection": "close", "accept-encoding": "identity"}
    if body or method in ("POST", "PUT", "PATCH"):
        have["content-length"] = str(len(body))
    for name, value in headers.items():
        if not name or not set(name) <= _TOKEN or any(c in value for c in "\r\n\0"):
            raise CallError("http", "the header %r is not one" % name)
        if name.lower() not in ("connection", "content-length", "transfer-encoding"):
            have[name.lower()] = value
    lines.extend("%s: %s" % item for item in have.items())
    return "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + body


def http(call: Call) -> None:
    port = int(call.number("port", None, 1, 65535))
    method = call.text("method", "GET").upper()
    headers = call.params.get("headers") or {}
    if not isinstance(headers, dict) or not all(isinstance(v, str) for v in headers.values()):
        raise CallError("request", "'headers' should be an object of texts")
    timeout = call.number("timeout", 5.0, 0.05, 3600)
    request = request_bytes(port, call.text("path"), method, headers, call.body)
    step = "http 127.0.0.1:%d" % port
    fetch = Fetch(call.loop, port, request, method, timeout, call.reply, lambda why: call.fail(step, why))
    call.on_cancel = fetch.stop


METHODS: Dict[str, Handler] = {"http": http}
