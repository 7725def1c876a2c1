"""A server that answers chat requests in a stream, as the engines do, and counts tokens on ``/metrics``."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class ChatServer:
    """``deltas`` are what each chunk adds; one that is None waits until `go`. ``others`` tokens are counted besides."""

    def __init__(self, deltas: Sequence[dict[str, Any] | None], *, key: str | None = None, template: bool = True) -> None:
        self.deltas, self.key, self.template = deltas, key, template
        self.others = 0
        self.go = threading.Event()
        self.waiting = threading.Event()
        self.broken = threading.Event()
        self.generated = self.steps = self.finished = 0
        self.requests: list[dict[str, Any]] = []
        self.error_chunk: str | None = None
        self.models = json.dumps({"object": "list", "data": [{"id": "kimi", "object": "model"}]}).encode()
        self.raw: bytes | None = None
        """What is sent instead of the chunks, as it is."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_args: object) -> None:
                """Nothing on stderr."""

            def do_GET(self) -> None:
                if self.path == "/metrics":
                    self._send(200, outer.page().encode(), "text/plain")
                elif self._allowed():
                    self._send(200, outer.models, "text/html" if outer.models.startswith(b"<") else "application/json")

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append({"path": self.path, **body})
                if not self._allowed():
                    return
                if "/chat/" in self.path and not outer.template:
                    why = {"error": {"message": "default chat template is no longer allowed: set a chat template", "code": 400}}
                    self._send(400, json.dumps(why).encode())
                    return
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                try:
                    for chunk in outer.chunks("/chat/" in self.path) if outer.raw is None else [""]:
                        data = f"data: {chunk}\n\n".encode() if outer.raw is None else outer.raw
                        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                        self.wfile.flush()
                    self.wfile.write(b"0\r\n\r\n")
                except OSError:
                    outer.broken.set()

            def _allowed(self) -> bool:
                if outer.key is None or self.headers.get("Authorization") == f"Bearer {outer.key}":
                    return True
                self._send(401, b'{"error": {"message": "Unauthorized", "code": 401}}')
                return False

            def _send(self, status: int, body: bytes, kind: str = "application/json") -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def chunks(self, chat: bool) -> Iterator[str]:
        tokens = 0
        for delta in self.deltas:
            if delta is None:
                self.waiting.set()
                self.go.wait(30)
                continue
            tokens += 2
            self.generated += 2
            self.steps += 1
            choice: dict[str, Any] = {"index": 0, "finish_reason": None}
            choice.update({"delta": delta} if chat else {"text": delta.get("content", "")})
            yield self._chunk([choice], tokens, chat)
        if self.error_chunk is not None:
            yield json.dumps({"error": {"message": self.error_chunk, "code": 500}})
        end = {"index": 0, "finish_reason": "stop", **({"delta": {}} if chat else {"text": ""})}
        yield self._chunk([end], tokens, chat)
        self.finished += 1
        self.generated += self.others
        yield self._chunk([], tokens, chat)
        yield "[DONE]"

    def _chunk(self, choices: list[dict[str, Any]], tokens: int, chat: bool) -> str:
        kind = "chat.completion.chunk" if chat else "text_completion"
        usage = {"prompt_tokens": 5, "completion_tokens": tokens, "total_tokens": tokens + 5}
        return json.dumps({"id": "1", "object": kind, "created": 1, "model": "kimi", "choices": choices, "usage": usage})

    def page(self) -> str:
        """vLLM's counters: three draft tokens a verify step, one of them accepted."""
        lines = []
        for name, kind, value in (
            ("num_requests_running", "gauge", 0),
            ("generation_tokens_total", "counter", self.generated),
            ("spec_decode_num_drafts_total", "counter", self.steps),
            ("spec_decode_num_draft_tokens_total", "counter", 3 * self.steps),
            ("spec_decode_num_accepted_tokens_total", "counter", self.steps),
        ):
            lines += [f"# TYPE vllm:{name.removesuffix('_total')} {kind}", f'vllm:{name}{{engine="0",model_name="kimi"}} {value}']
        lines.append("# TYPE vllm:request_success counter")
        lines.append(f'vllm:request_success_total{{engine="0",finished_reason="stop",model_name="kimi"}} {self.finished}')
        return "\n".join(lines) + "\n"

    def close(self) -> None:
        self.go.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
