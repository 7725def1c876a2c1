"""A small client that puts a load on an OpenAI server: to warm it up, for the details that benchmark tools leave out, and to
measure where there is no such tool. Standard library; one thread a request under way.

The result has the keys of ``vllm bench serve``'s (times in seconds), and ``spec_details``: what SGLang tells of each request
when it is asked to (``return_spec_tokens_details``).
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

TIMEOUT = 6 * 3600.0


class Ask(NamedTuple):
    """What every request has in common. ``details`` asks SGLang for its counts of drafts; ``key`` is the server's, if any."""

    host: str
    port: int
    model: str
    max_tokens: int
    temperature: float = 0.0
    seed: Optional[int] = None
    ignore_eos: bool = False
    details: bool = False
    key: Optional[str] = None


class Answer:
    """One request, as it went."""

    def __init__(self) -> None:
        self.start = self.latency = self.ttft = self.held = 0.0
        self.itl: List[float] = []
        self.text = self.reasoning = self.error = ""
        self.tokens: Optional[int] = None
        self.prompt: Optional[int] = None
        self.details: Optional[Mapping[str, Any]] = None


def run(
    ask: Ask,
    rows: Sequence[Sequence[Mapping[str, str]]],
    concurrency: int,
    told: Optional[Callable[[int], None]] = None,
) -> Dict[str, Any]:
    """Ask every row, ``concurrency`` at a time, in order. ``told`` is called with how many are done, from any thread."""
    answers = [Answer() for _ in rows]
    lock = threading.Lock()
    state = {"next": 0, "done": 0}

    def work() -> None:
        while True:
            with lock:
                at = state["next"]
                if at >= len(rows):
                    return
                state["next"] = at + 1
            _one(ask, rows[at], answers[at])
            with lock:
                state["done"] += 1
                done = state["done"]
            if told is not None:
                told(done)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(concurrency, len(rows)))]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return _result(answers, time.perf_counter() - begun)


def body(ask: Ask, messages: Sequence[Mapping[str, str]]) -> Dict[str, Any]:
    """The request."""
    out: Dict[str, Any] = {
        "model": ask.model,
        "messages": list(messages),
        "max_tokens": ask.max_tokens,
        "temperature": ask.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if ask.seed is not None:
        out["seed"] = ask.seed
    if ask.ignore_eos:
        out["ignore_eos"] = True
    if ask.details:
        out["return_spec_tokens_details"] = True
    return out


def _one(ask: Ask, messages: Sequence[Mapping[str, str]], answer: Answer) -> None:
    connection = http.client.HTTPConnection(ask.host, ask.port, timeout=TIMEOUT)
    headers = {"Content-Type": "application/json"}
    if ask.key:
        headers["Authorization"] = "Bearer " + ask.key
    text = json.dumps(body(ask, messages)).encode()
    answer.start = time.perf_counter()
    try:
        connection.request("POST", "/v1/chat/completions", text, headers)
        response = connection.getresponse()
        if response.status != 200:
            words = response.read(2000).decode("utf-8", "replace").strip()
            answer.error = "HTTP %d: %s" % (response.status, words or response.reason)
            return
        _stream(response, answer)
        if not answer.ttft:
            answer.error = "no token came"
    except (OSError, http.client.HTTPException, ValueError) as error:
        answer.error = "%s: %s" % (type(error).__name__, error)
    finally:
        connection.close()
        answer.held = time.perf_counter() - answer.start


def _stream(response: http.client.HTTPResponse, answer: Answer) -> None:
    """Read an answer to its end. Raises ValueError when it breaks off: http.client takes that for an end."""
    last = answer.start
    for raw in response:
        line = raw.strip()
        if not line.startswith(b"data:"):
            continue
        chunk = line[5:].strip()
        if chunk == b"[DONE]":
            return
        now = time.perf_counter()
        data = json.loads(chunk)
        if data.get("error"):
            raise ValueError("the server says: %s" % str(data["error"])[:300])
        usage = data.get("usage")
        if usage:
            answer.tokens, answer.prompt = usage.get("completion_tokens"), usage.get("prompt_tokens")
        extra = data.get("sglext")
        if isinstance(extra, dict) and isinstance(extra.get("spec_tokens_details"), dict):
            answer.details = extra["spec_tokens_details"]
        for choice in data.get("choices") or ():
            delta = choice.get("delta") or {}
            thought = delta.get("reasoning") or delta.get("reasoning_content") or ""
            said = delta.get("content") or ""
            if not (thought or said):
                continue
            answer.text += said
            answer.reasoning += thought
            if answer.ttft:
                answer.itl.append(now - last)
            else:
                answer.ttft = now - answer.start
            last = now
            answer.latency = now - answer.start
    raise ValueError("the answer broke off")


def _result(answers: Sequence[Answer], seconds: float) -> Dict[str, Any]:
    good = [one for one in answers if not one.error]
    return {
        "duration": seconds,
        "in_flight": sum(one.held for one in answers) / seconds if seconds > 0 else None,
        "completed": len(good),
        "failed": len(answers) - len(good),
        "total_input_tokens": sum(one.prompt or 0 for one in good),
        "total_output_tokens": sum(one.tokens or 0 for one in good),
        "input_lens": [one.prompt or 0 for one in answers],
        "output_lens": [one.tokens or 0 for one in answers],
        "latencies": [one.latency for one in answers],
        "ttfts": [one.ttft for one in answers],
        "itls": [one.itl for one in answers],
        "generated_texts": [one.reasoning + one.text for one in answers],
        "errors": [one.error for one in answers],
        "spec_details": [dict(one.details) if one.details else None for one in answers],
    }
