"""A small OpenAI-compatible server for tests: answers follow from the words alone, and each request may go wrong as wished."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

Fault = Callable[[dict[str, Any], int], Awaitable[Any] | Any]


def tokens_of(text: str) -> list[int]:
    """Stand-in token ids: a byte each."""
    return list(text.encode())


def answer_of(messages: list[dict[str, str]], seed: Any = None) -> str:
    """What the stand-in answers: it follows from all that was said before."""
    said = json.dumps([messages, seed], sort_keys=True).encode()
    return f"answer {hashlib.sha256(said).hexdigest()[:12]}"


class OpenAIServer:
    """``fault(body, number)`` may return None (all is well) or a dict: ``status`` with ``reason`` and ``headers``, ``cut`` (the
    connection breaks), ``cut_body`` (in the middle of the answer), ``finish``, ``content``, ``reasoning`` (with
    ``reasoning_name``), ``no_ids``. ``ids``: vllm, sglang or None. It may await first, to be slow.
    """

    def __init__(
        self, model: str = "tiny", ids: str | None = "vllm", fault: Fault | None = None, context: int | None = 4096
    ) -> None:
        self.model, self.ids, self.fault, self.context = model, ids, fault, context
        self.bodies: list[dict[str, Any]] = []
        self.flying = self.most_flying = 0
        self.waiting: float | None = None
        self.generated = 0
        self.dead: str | None = None
        self.headers: list[dict[str, str]] = []
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """As a server that was killed: what was open breaks."""
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        self._server = None
        await asyncio.sleep(0)

    async def __aenter__(self) -> OpenAIServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            await self.stop()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                first, *rest = head.decode("latin-1").split("\r\n")
                method, path, _ = first.split(" ", 2)
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest if line)}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                self.headers.append(headers)
                if not await self._answer(writer, method, path, body):
                    break
        self._writers.discard(writer)
        writer.transport.abort()

    async def _answer(self, writer: asyncio.StreamWriter, method: str, path: str, body: bytes) -> bool:
        if path == "/v1/models":
            row = {"id": self.model, "object": "model", "max_model_len": self.context}
            return await self._send(writer, 200, {"object": "list", "data": [row]})
        if path == "/health":
            return await self._send(writer, 503 if self.dead else 200, {})
        if path == "/metrics":
            if self.waiting is None:
                return await self._send(writer, 404, {"detail": "Not Found"})
            return await self._send(writer, 200, self.metrics_page())
        request = json.loads(body)
        self.bodies.append(request)
        number = len(self.bodies)
        self.flying += 1
        self.most_flying = max(self.flying, self.most_flying)
        try:
            wish = self.fault(request, number) if self.fault is not None else None
            wish = (await wish if asyncio.iscoroutine(wish) else wish) or {}
        finally:
            self.flying -= 1
        if wish.get("cut"):
            return False
        if "status" in wish:
            reason = {"error": {"message": wish.get("reason", "as wished"), "code": wish["status"]}}
            return await self._send(writer, wish["status"], reason, wish.get("headers"))
        return await self._send(writer, 200, self._completion(request, wish), cut=bool(wish.get("cut_body")))

    def metrics_page(self) -> str:
        return (
            "# TYPE vllm:num_requests_waiting gauge\n"
            f'vllm:num_requests_waiting{{engine="0"}} {self.waiting}\n'
            "# TYPE vllm:generation_tokens_total counter\n"
            f'vllm:generation_tokens_total{{engine="0"}} {self.generated}\n'
        )

    def _completion(self, request: dict[str, Any], wish: dict[str, Any]) -> dict[str, Any]:
        answer = wish.get("content", answer_of(request["messages"], request.get("seed")))
        message: dict[str, Any] = {"role": "assistant", "content": answer}
        if wish.get("reasoning"):
            message[wish.get("reasoning_name", "reasoning_content")] = wish["reasoning"]
        prompt = tokens_of("".join(turn["content"] for turn in request["messages"]))
        made = tokens_of((wish.get("reasoning") or "") + (answer or "")) or [0]
        self.generated += len(made)
        choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": wish.get("finish", "stop")}
        out: dict[str, Any] = {"id": "x", "object": "chat.completion", "created": 1, "model": self.model, "choices": [choice]}
        out["usage"] = {
            "prompt_tokens": len(prompt),
            "completion_tokens": len(made),
            "total_tokens": len(prompt) + len(made),
            "prompt_tokens_details": None,
        }
        if self.ids == "vllm" and not wish.get("no_ids"):
            out["prompt_token_ids"], choice["token_ids"] = prompt, made
        elif self.ids == "sglang" and not wish.get("no_ids"):
            choice["prompt_token_ids"], choice["response_token_ids"] = prompt, made
        return out

    async def _send(
        self, writer: asyncio.StreamWriter, status: int, doc: Any, headers: dict[str, str] | None = None, cut: bool = False
    ) -> bool:
        text = doc if isinstance(doc, str) else json.dumps(doc)
        kind = "text/plain" if isinstance(doc, str) else "application/json"
        body = text.encode()
        more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode()
        writer.write(head + (body[: len(body) // 2] if cut else body))
        await writer.drain()
        return not cut
