"""A stand-in for an engine's server: it streams answers that follow from the prompt, and counts as the engines do."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


class StandIn:
    """``k`` drafts a step (0: no drafter), of which ``accepts`` are accepted in each. ``engine``: vllm or sglang.

    ``metrics``: whether it has any. ``flushes``: whether its prefix cache can be emptied. ``fails``: every request fails.
    ``breaks_off``: answers end after their first piece. ``asked`` are all bodies in order, the warm-ups among them.
    """

    def __init__(self, engine: str = "vllm", k: int = 0, accepts: int = 1, **wishes: Any) -> None:
        self.engine, self.k, self.accepts = engine, k, accepts
        self.metrics, self.flushes, self.fails = (
            wishes.get("metrics", True),
            wishes.get("flushes", True),
            wishes.get("fails", False),
        )
        self.version, self.context = wishes.get("version", "0.32.0"), wishes.get("context", 4096)
        self.pace = wishes.get("pace", 0.02)
        self.breaks_off = wishes.get("breaks_off", False)
        self.asked: list[dict[str, Any]] = []
        self.flushed = 0
        self.finished = self.tokens = self.prompt = self.steps = self.chunks = 0
        self.flying = self.most = 0
        self.lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def handle(self) -> None:
                with suppress(ConnectionError):  # clients go when they have what they want
                    super().handle()

            def do_GET(self) -> None:
                outer.get(self)

            def do_POST(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                outer.post(self, json.loads(self.rfile.read(size) or b"{}"))

        self.server = ThreadingHTTPServer(("127.0.0.1", wishes.get("port", 0)), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> StandIn:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    # ------------------------------------------------------------------------------------------------------------- pages

    def get(self, handler: BaseHTTPRequestHandler) -> None:
        if handler.path == "/v1/models":
            _send(handler, 200, {"data": [{"id": "tiny", "max_model_len": self.context}]})
        elif handler.path == {"vllm": "/version", "sglang": "/server_info"}[self.engine]:
            _send(handler, 200, {"version": self.version})
        elif handler.path == "/metrics" and self.metrics:
            _send(handler, 200, self.page())
        else:
            _send(handler, 404, {"detail": "Not Found"})

    def page(self) -> str:
        with self.lock:
            lines = {
                "num_requests_running": 0,
                "request_success_total": self.finished,
                "generation_tokens_total": self.tokens,
                "prompt_tokens_total": self.prompt,
                "inter_token_latency_seconds_sum": 0.01 * self.chunks,
            }
            if self.k:
                lines["spec_decode_num_drafts_total"] = self.steps
                lines["spec_decode_num_draft_tokens_total"] = self.k * self.steps
                lines["spec_decode_num_accepted_tokens_total"] = self.accepts * self.steps
            text = "".join(f'vllm:{name}{{engine="0"}} {value}\n' for name, value in lines.items())
            for bound in ("0.05", "+Inf"):
                text += f'vllm:inter_token_latency_seconds_bucket{{engine="0",le="{bound}"}} {self.chunks}\n'
            for at in range(self.k):
                count = self.steps if at < self.accepts else 0
                text += f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="{at}"}} {count}\n'
        return text

    def post(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        if handler.path in ("/reset_prefix_cache", "/flush_cache"):
            self.flushed += 1
            _send(handler, 200 if self.flushes else 404, {})
        elif handler.path == "/tokenize":
            text = body.get("prompt") or "".join(turn["content"] for turn in body.get("messages", ()))
            _send(handler, 200, {"count": len(text.split())})
        elif handler.path == "/v1/chat/completions":
            self.chat(handler, body)
        else:
            _send(handler, 404, {})

    # ------------------------------------------------------------------------------------------------------------ answers

    def chat(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        with self.lock:
            self.asked.append(body)
            self.flying += 1
            self.most = max(self.most, self.flying)
        try:
            if self.fails:
                _send(handler, 500, {"error": {"message": "as wished"}})
                return
            self._stream(handler, body)
        finally:
            with self.lock:
                self.flying -= 1

    def _stream(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        prompt = "".join(turn["content"] for turn in body["messages"])
        time.sleep(self.pace)  # an engine takes its time: without it nothing would ever be under way at once
        number = int(hashlib.sha256(prompt.encode()).hexdigest(), 16)
        count = min(int(body.get("max_tokens") or body["max_completion_tokens"]), 12 + number % 7)
        words = [WORDS[(number >> i) % len(WORDS)] + " " for i in range(count)]
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        each = 1 + self.accepts if self.k else 1
        chunks = ["".join(words[at : at + each]) for at in range(0, count, each)]
        for chunk in chunks:
            _event(handler, {"choices": [{"index": 0, "delta": {"content": chunk}}]})
            if self.breaks_off:
                handler.close_connection = True
                return
        steps = len(chunks)
        with self.lock:
            self.finished += 1
            self.tokens += count
            self.prompt += len(prompt.split())
            self.chunks += steps
            self.steps += steps if self.k else 0
        if body.get("return_spec_tokens_details") and self.k:
            details = {
                "spec_verify_ct": steps, "spec_num_correct_drafts": self.accepts * steps,
                "spec_num_proposed_drafts": self.k * steps,
                "spec_correct_drafts_histogram": [0] * self.accepts + [steps],
            }  # fmt: skip
            _event(handler, {"choices": [], "sglext": {"spec_tokens_details": details}})
        if (body.get("stream_options") or {}).get("include_usage"):
            _event(handler, {"choices": [], "usage": {"completion_tokens": count, "prompt_tokens": len(prompt.split())}})
        _chunk(handler, b"data: [DONE]\n\n")
        _chunk(handler, b"")


def _event(handler: BaseHTTPRequestHandler, doc: dict[str, Any]) -> None:
    _chunk(handler, b"data: " + json.dumps(doc).encode() + b"\n\n")


def _chunk(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))


def _send(handler: BaseHTTPRequestHandler, status: int, doc: Any) -> None:
    data = doc.encode() if isinstance(doc, str) else json.dumps(doc).encode()
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


def main() -> None:
    """As a server of its own: ``stand_in.py serve MODEL --port N [--speculative-config JSON]``, until it is ended."""
    words = sys.argv[1:]
    config = json.loads(words[words.index("--speculative-config") + 1]) if "--speculative-config" in words else {}
    server = StandIn(k=int(config.get("num_speculative_tokens", 0)), port=int(words[words.index("--port") + 1]))
    print("INFO 11-30 00:00:00 [stand_in.py:1] version 0.32.0", flush=True)
    server.server.serve_forever(0.05)


if __name__ == "__main__":
    main()
