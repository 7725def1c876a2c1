"""One HTTP/1.1 request to a server on this host's loopback, on the event loop: never blocks, bounded in time and size.

``http.client`` blocks, and costs 20 ms and 3 MB to import. Only what engines answer is understood: a content length, chunks, or
a body until the connection closes.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional

from eagletui.agent.loop import Loop, Timer

MAX_BODY = 16 * 1024 * 1024


class Answer(NamedTuple):
    """What came back. Without an answer ``status`` is 0 and ``error`` says why, in the kernel's words or ours."""

    status: int
    headers: Dict[str, str]
    body: bytes
    error: str = ""


Done = Callable[[Answer], None]


class Fetch:
    """The request is sent at once; ``done`` is called exactly once, later, unless `cancel` came first."""

    def __init__(
        self,
        loop: Loop,
        port: int,
        path: str,
        done: Done,
        method: str = "GET",
        body: bytes = b"",
        headers: Optional[Mapping[str, str]] = None,
        timeout: float = 5.0,
        address: str = "127.0.0.1",
    ) -> None:
        self._loop, self._done = loop, done
        self._out = _request(method, address, port, path, body, headers or {})
        self._in = bytearray()
        self._head: Optional[int] = None  # length of the head with its blank line, once it is complete
        self._timer: Optional[Timer] = loop.call_later(timeout, lambda: self._finish(error="no answer within %g s" % timeout))
        self._socket: Optional[socket.socket] = None
        self._method = method
        try:
            self._socket = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
            self._socket.setblocking(False)
            code = self._socket.connect_ex((address, port))
        except (OSError, OverflowError) as error:
            reason = str(error)
            loop.call_later(0, lambda: self._finish(error=reason))
            return
        if code not in (0, errno.EINPROGRESS):
            loop.call_later(0, lambda: self._finish(error=os.strerror(code)))
            return
        loop.add_writer(self._socket.fileno(), self._writable)

    def cancel(self) -> None:
        """Forget the request; ``done`` will not be called."""
        self._close()

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_writer(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _finish(self, answer: Optional[Answer] = None, error: str = "") -> None:
        if self._timer is None:
            return  # finished or cancelled before
        self._close()
        self._done(answer or Answer(0, {}, b"", error))

    def _writable(self) -> None:
        assert self._socket is not None
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._finish(error=os.strerror(code))
            return
        try:
            self._out = self._out[self._socket.send(self._out) :]
        except BlockingIOError:
            return
        except OSError as error:
            self._finish(error=error.strerror or str(error))
            return
        if not self._out:
            self._loop.remove_writer(self._socket.fileno())
            self._loop.add_reader(self._socket.fileno(), self._readable)

    def _readable(self) -> None:
        assert self._socket is not None
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return
        except OSError as error:
            self._finish(error=error.strerror or str(error))
            return
        self._in += data
        if len(self._in) > MAX_BODY:
            self._finish(error="an answer of more than %d MiB" % (MAX_BODY >> 20))
            return
        try:
            answer = self._parse(ended=not data)
        except ValueError as error:
            self._finish(error="not HTTP: %s" % error)
            return
        if answer is not None:
            self._finish(answer)
        elif not data:
            self._finish(error="the connection was closed before the whole answer had come")

    def _parse(self, ended: bool) -> Optional[Answer]:
        if self._head is None:
            end = self._in.find(b"\r\n\r\n")
            if end < 0:
                if len(self._in) > 65536:
                    raise ValueError("a head of more than 64 KiB")
                return None
            self._head = end + 4
        lines = bytes(self._in[: self._head]).decode("latin-1").split("\r\n")
        status_line = lines[0].split(None, 2)
        if len(status_line) < 2 or not status_line[0].startswith("HTTP/1.") or not status_line[1].isdigit():
            raise ValueError("it begins with %r" % lines[0][:40])
        headers = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if colon:
                headers[name.strip().lower()] = value.strip()
        status = int(status_line[1])
        if 100 <= status < 200:
            del self._in[: self._head]
            self._head = None
            return self._parse(ended)
        rest = memoryview(self._in)[self._head :]
        try:
            body = self._body(status, headers, rest, ended)
        finally:
            rest.release()
        return None if body is None else Answer(status, headers, body)

    def _body(self, status: int, headers: Mapping[str, str], rest: memoryview, ended: bool) -> Optional[bytes]:
        if self._method == "HEAD" or status in (204, 304):
            return b""
        if "chunked" in headers.get("transfer-encoding", "").lower():
            return _dechunk(bytes(rest))
        if "content-length" in headers:
            length = int(headers["content-length"])
            return bytes(rest[:length]) if len(rest) >= length else None
        return bytes(rest) if ended else None


def _request(method: str, address: str, port: int, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    lines = ["%s %s HTTP/1.1" % (method, path), "Host: %s:%d" % (address, port), "Connection: close", "Accept-Encoding: identity"]
    if body or method in ("POST", "PUT"):
        lines.append("Content-Length: %d" % len(body))
    lines.extend("%s: %s" % item for item in headers.items())
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a line break in the request's path or headers")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace") + body


def _dechunk(data: bytes) -> Optional[bytes]:
    """The joined chunks, or None while the last one has not come. Raises `ValueError`."""
    out: List[bytes] = []
    at = 0
    while True:
        end = data.find(b"\r\n", at)
        if end < 0:
            return None
        size = int(data[at:end].split(b";")[0], 16)
        if size == 0:
            return b"".join(out)
        at = end + 2
        if len(data) < at + size + 2:
            return None
        out.append(data[at : at + size])
        at += size + 2
