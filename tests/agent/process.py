"""A real agent, started by the real shell text, and spoken to in plain blocking frames: no client code in between."""

from __future__ import annotations

import os
import subprocess
from typing import Any

from eagletui.agent import frames
from eagletui.agent.frames import Decoder, Frame
from eagletui.hosts import bootstrap

PIECE = 64 * 1024


class Agent:
    def __init__(self, watchdog: float = 60.0, blob: bytes | None = None, shell: str = "/bin/sh") -> None:
        self.nonce = bootstrap.new_nonce()
        self.process = subprocess.Popen(
            [shell, "-c", bootstrap.command(self.nonce, watchdog)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        self.blob = bootstrap.bundle() if blob is None else blob
        self.decoder = Decoder()
        self.queue: list[Frame] = []
        self.ids = 0

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        view = memoryview(data)
        while view:
            view = view[self.process.stdin.write(view) :]

    def start(self) -> Agent:
        self.write(bootstrap.opening(self.blob))
        self.skip()
        return self

    def skip(self) -> bytes:
        """Read up to the nonce; what came before it."""
        mark = b"\0" + self.nonce.encode() + b"\0"
        got = b""
        while mark not in got:
            data = self.read()
            assert data, "the agent ended: " + self.stderr()
            got += data
        before, _, rest = got.partition(mark)
        self.queue.extend(self.decoder.feed(rest))
        return before

    def read(self) -> bytes:
        assert self.process.stdout is not None
        return os.read(self.process.stdout.fileno(), 65536)

    def next(self) -> Frame:
        while not self.queue:
            data = self.read()
            if not data:
                raise EOFError(self.stderr())
            self.queue.extend(self.decoder.feed(data))
        return self.queue.pop(0)

    def send(self, kind: int, id_: int, head: dict[str, Any] | None = None, body: bytes = b"") -> None:
        self.write(frames.encode(Frame(kind, id_, head or {}, body)))

    def request(self, method: str, body: bytes = b"", /, **params: Any) -> int:
        self.ids += 1
        while len(body) > PIECE:  # as the client sends it
            self.send(frames.REQUEST, self.ids, {"more": True}, body[:PIECE])
            body = body[PIECE:]
        self.send(frames.REQUEST, self.ids, {"method": method, "params": params}, body)
        return self.ids

    def ask(self, method: str, body: bytes = b"", /, **params: Any) -> Frame:
        """The answer; frames of other ids are dropped."""
        id_ = self.request(method, body, **params)
        while True:
            frame = self.next()
            if frame.id == id_ and frame.kind in (frames.RESPONSE, frames.ERROR):
                return frame

    def result(self, method: str, body: bytes = b"", /, **params: Any) -> Any:
        frame = self.ask(method, body, **params)
        assert frame.kind == frames.RESPONSE, frame.head
        return frame.head["result"]

    def stderr(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def end(self) -> tuple[int, str]:
        """The exit status and stderr, once it has ended by itself."""
        while self.read():
            pass
        said = self.stderr()
        return self.process.wait(), said

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()
        if self.process.poll() is None:
            os.killpg(self.process.pid, 9)  # the session that this helper made
        self.process.wait()
