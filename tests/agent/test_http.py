"""Requests to servers on the host's loopback, through a real agent; the servers answer byte for byte what a test says."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from eagletui.agent import frames

from .process import Agent

Serve = Callable[..., int]


@pytest.fixture(scope="module")
def agent() -> Iterator[Agent]:
    made = Agent()
    yield made.start()
    made.close()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start a server for one connection: it reads a request, then sends the given pieces; its port."""
    threads: list[threading.Thread] = []
    listeners: list[socket.socket] = []
    done = threading.Event()

    def start(*pieces: bytes, hold: bool = False, requests: list[bytes] | None = None) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def run() -> None:
            connection, _ = listener.accept()
            with connection:
                got = b""
                while b"\r\n\r\n" not in got or len(got.partition(b"\r\n\r\n")[2]) < wanted(got):
                    data = connection.recv(65536)
                    if not data:
                        return
                    got += data
                if requests is not None:
                    requests.append(got)
                try:
                    for piece in pieces:
                        connection.sendall(piece)
                except OSError:
                    return  # the agent has seen enough
                if hold:
                    done.wait(60)

        thread = threading.Thread(target=run)
        threads.append(thread)
        thread.start()
        return int(listener.getsockname()[1])

    yield start
    done.set()
    for thread in threads:
        thread.join()
    for listener in listeners:
        listener.close()


def wanted(request: bytes) -> int:
    for line in request.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


def test_an_answer_with_a_length(agent: Agent, serve: Serve) -> None:
    requests: list[bytes] = []
    port = serve(b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\nX-Y:  z \r\n\r\nhel", b"lo", hold=True, requests=requests)
    answer = agent.ask("http", b'{"a": 1}', port=port, path="/v1/x?y=1", method="post", headers={"Authorization": "Bearer k"})
    assert answer.head["result"] == {"status": 404, "headers": {"content-length": "5", "x-y": "z"}}
    assert answer.body == b"hello"
    head, _, body = requests[0].partition(b"\r\n\r\n")
    assert body == b'{"a": 1}'
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /v1/x?y=1 HTTP/1.1"
    low = {line.lower() for line in lines[1:]}
    assert {f"host: 127.0.0.1:{port}", "connection: close", "content-length: 8", "authorization: bearer k"} <= low


@pytest.mark.parametrize(
    ("pieces", "body"),
    [
        ((b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nwiki\r\n5;x=y\r\npedia\r\n0\r\n\r\n",), b"wikipedia"),
        (
            tuple(bytes([b]) for b in b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\nA\r\n0123456789\r\n0\r\n\r\n"),
            b"0123456789",
        ),
        ((b"HTTP/1.0 200 OK\r\n\r\nuntil", b" the end"), b"until the end"),
        ((b"HTTP/1.1 204 No Content\r\n\r\n",), b""),
        ((b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), b"ok"),
    ],
)
def test_the_ways_an_answer_is_bounded(agent: Agent, serve: Serve, pieces: tuple[bytes, ...], body: bytes) -> None:
    answer = agent.ask("http", port=serve(*pieces), path="/")
    assert answer.kind == frames.RESPONSE, answer.head
    assert answer.body == body


def test_an_answer_larger_than_a_frame(agent: Agent, serve: Serve) -> None:
    data = os.urandom(3_000_000)
    id_ = agent.request("http", port=serve(b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n", data), path="/metrics")
    got = b""
    while True:
        frame = agent.next()
        got += frame.body
        if "more" not in frame.head:
            break
        agent.send(frames.CREDIT, id_, {"n": 1})
    assert frame.head["result"]["status"] == 200
    assert got == data


def test_a_refused_port(agent: Agent) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    answer = agent.ask("http", port=port, path="/")
    assert answer.head["step"] == f"http 127.0.0.1:{port}"
    assert answer.head["why"] == f"nothing listens on port {port}"


def test_a_server_that_does_not_answer_in_time(agent: Agent, serve: Serve) -> None:
    slow = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe", hold=True)
    waiting = agent.request("http", port=slow, path="/", timeout=0.3)
    assert agent.result("stat", paths=[]) == []  # nobody waits for it
    answer = agent.next()
    assert (answer.id, answer.kind) == (waiting, frames.ERROR)
    assert "within 0.3 s" in answer.head["why"]


@pytest.mark.parametrize(
    "pieces",
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n",),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort",),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",),
        (b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",),
        (b"",),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,),
    ],
)
def test_what_is_no_answer_is_an_error_in_words(agent: Agent, serve: Serve, pieces: tuple[bytes, ...]) -> None:
    answer = agent.ask("http", port=serve(*pieces), path="/", timeout=30)
    assert answer.kind == frames.ERROR
    assert answer.head["why"]
    assert "agent failed" not in answer.head["why"]


def test_an_answer_that_is_too_large(agent: Agent, serve: Serve) -> None:
    big = 9 * 1024 * 1024
    answer = agent.ask("http", port=serve(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % big, bytes(big)), path="/")
    assert "9 MiB, more than 8" in answer.head["why"]


@pytest.mark.parametrize(
    "params",
    [
        {"path": "/a b"},
        {"path": "no-slash"},
        {"path": "/\r\nX: y"},
        {"path": "/", "method": "GET /"},
        {"path": "/", "headers": {"X": "a\r\nY: b"}},
        {"path": "/", "headers": {"X y": "a"}},
        {"path": "/", "port": 0},
        {"path": "/", "headers": {"a": 1}},
    ],
)
def test_a_request_that_would_break_the_lines_is_refused(agent: Agent, params: dict[str, object]) -> None:
    assert agent.ask("http", **{"port": 1, **params}).kind == frames.ERROR
