"""Ask a server one question and see how it answers: reasoning and answer as they come, speed, acceptance of this request.

The request goes through one forwarded loopback port, open only as long as the `Probe`. Nothing times out quietly: an answer may
take as long as it takes, until a person stops it.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import time
from collections.abc import AsyncGenerator
from typing import Any, NamedTuple

from eagletui.commands.desk import Desk
from eagletui.engines.metrics import acceptance, server_sample
from eagletui.engines.prometheus import MetricsError
from eagletui.hosts.base import Forward, HostError
from eagletui.records import Acceptance, ServerSample

__all__ = ["Answered", "HostError", "Piece", "Probe", "Sent"]

SETTLE = 0.3
"""Seconds between two looks at the counters after the answer: an engine brings them up to date a little later."""
SETTLES = 5


class Sent(NamedTuple):
    """The request is on its way. ``note`` says what is special about it."""

    model: str
    note: str = ""


class Piece(NamedTuple):
    """Some more of the answer; ``reasoning`` when it is what the model thinks, not what it says. ``tokens`` so far, if told."""

    text: str
    reasoning: bool
    tokens: int | None = None


class Answered(NamedTuple):
    """The end. ``first`` and ``seconds`` from sending to the first piece and to the last; ``tokens`` are the answer's.

    ``per_second`` counts the tokens after the first piece over the time they took. ``acceptance`` is from the difference of
    the server's counters around the request; ``alone`` is False when they count other requests too, None when that is unknown.
    ``why`` is the engine's reason for the end (stop, length ...); ``stopped`` when a person ended it.
    """

    seconds: float
    first: float | None = None
    prompt_tokens: int | None = None
    tokens: int | None = None
    per_second: float | None = None
    acceptance: Acceptance | None = None
    alone: bool | None = None
    why: str | None = None
    stopped: bool = False


class Probe:
    """Questions to the server of one job. `ask` yields what comes; `stop` ends the answer; `close` when done."""

    def __init__(self, desk: Desk, job: str) -> None:
        self._desk, self._job = desk, job
        self._forward: Forward | None = None
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """End the answer that is coming; the server gives it up."""
        self._stop.set()

    async def close(self) -> None:
        """Close the forwarded port."""
        self.stop()
        forward, self._forward = self._forward, None
        if forward is not None:
            await forward.close()

    async def ask(self, prompt: str, key: str | None = None) -> AsyncGenerator[Sent | Piece | Answered, None]:
        """Send ``prompt`` as one user message. ``key`` is the server's API key; without it the environment's own is tried.

        Raises `HostError`; its kind is auth when the server wants a (another) key.
        """
        self._stop.clear()
        port = self._port()
        if self._forward is None:
            self._forward = await self._desk.session.forward(port)
        openai = await asyncio.to_thread(importlib.import_module, "openai")
        keys = [key] if key else ["-", *self._known_keys()]
        for at, secret in enumerate(keys):
            client = await asyncio.to_thread(_client, openai, self._forward.port, secret)
            try:
                async with contextlib.aclosing(self._answer(openai, client, prompt, port)) as events:
                    async for event in events:
                        yield event
                return
            except openai.AuthenticationError as error:
                if at == len(keys) - 1:
                    why = "the server refuses the key" if key else "the server wants an API key"
                    raise HostError("probe", why, "type the key it was launched with", kind="auth") from error
            except openai.APIStatusError as error:
                raise HostError("probe", f"the server answers {error.status_code}: {_words(error)}") from error
            except (openai.APIConnectionError, _transport_error(openai)) as error:
                why = f"the connection to the server broke: {_words(error)}"
                raise HostError("probe", why, "look at the job's log; ask again") from error
            except openai.APIError as error:  # an error told within the stream
                raise HostError("probe", f"the server ended the answer: {_words(error)}") from error
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                # the client takes a page, a list or half a line for an answer, and fails on what is in it
                why = "what came from the server is no answer of the OpenAI API"
                why += f" ({_words(error)[:80]})" if isinstance(error, ValueError) else ""
                raise HostError("probe", why, f"look at what listens on port {port}, and at the job's log") from error
            finally:
                await client.close()

    def _port(self) -> int:
        state = self._desk.store.jobs.get(self._job)
        if state is None or state.port is None:
            raise HostError("probe", "this job serves on no port that is known of", kind="absent")
        return state.port

    def _known_keys(self) -> list[str]:
        """API keys in this machine's environment, by the names of the profile's secrets and the engine's own variable."""
        profile = self._desk.launched.get(self._job)
        names = [name for name in (profile.secrets if profile is not None else ()) if name.endswith("API_KEY")]
        return list(dict.fromkeys(value for name in [*names, "VLLM_API_KEY"] if (value := os.environ.get(name))))

    # --------------------------------------------------------------------------------------------------------- one answer

    async def _answer(self, openai: Any, client: Any, prompt: str, port: int) -> AsyncGenerator[Sent | Piece | Answered, None]:
        state = self._desk.store.jobs.get(self._job)
        models = await client.models.list()
        model = str(models.data[0].id) if models.data else (state.served_model or state.model or "" if state is not None else "")
        before = await self._scrape(port)
        began = time.monotonic()
        options = {"include_usage": True, "continuous_usage_stats": True}
        note = ""
        try:
            stream = await client.chat.completions.create(
                model=model, messages=[{"role": "user", "content": prompt}], stream=True, stream_options=options
            )
        except openai.BadRequestError as error:
            if "chat template" not in str(error).lower() and "chat_template" not in str(error).lower():
                raise
            note = "the model has no chat template: sent as plain text to go on with"
            stream = await client.completions.create(
                model=model, prompt=prompt, max_tokens=256, stream=True, stream_options=options
            )
        yield Sent(model, note)
        first = last = None
        usage: Any = None
        early = 0
        why = None
        try:
            async with contextlib.aclosing(self._until_stopped(stream)) as chunks:
                async for chunk in chunks:
                    usage = getattr(chunk, "usage", None) or usage
                    tokens = _count(usage, "completion_tokens")
                    for choice in chunk.choices[:1]:
                        why = choice.finish_reason or why
                        for text, reasoning in _texts(choice):
                            last = time.monotonic()
                            if first is None:
                                first, early = last, tokens or 1
                            yield Piece(text, reasoning, tokens)
        finally:
            await stream.close()
        ended = time.monotonic()
        tokens = _count(usage, "completion_tokens")
        rate = None
        if tokens is not None and first is not None and last is not None and last > first and tokens > early:
            rate = (tokens - early) / (last - first)
        spoken, alone = await self._accepted(before, port, tokens)
        yield Answered(
            (last or ended) - began,
            None if first is None else first - began,
            _count(usage, "prompt_tokens"),
            tokens,
            rate,
            spoken,
            alone,
            why,
            self._stop.is_set(),
        )

    async def _until_stopped(self, stream: Any) -> AsyncGenerator[Any, None]:
        """The stream's chunks, until `stop`: also when the server says nothing any more."""
        stopped = asyncio.ensure_future(self._stop.wait())
        chunks = aiter(stream)
        coming: asyncio.Future[Any] | None = None
        try:
            while not self._stop.is_set():
                coming = asyncio.ensure_future(_next(chunks))
                await asyncio.wait({coming, stopped}, return_when=asyncio.FIRST_COMPLETED)
                if not coming.done():
                    return
                chunk = coming.result()
                if chunk is None:
                    return
                yield chunk
        finally:
            stopped.cancel()
            if coming is not None and not coming.done():
                coming.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):  # it is given up: how it ends tells nobody anything
                    await coming

    # ------------------------------------------------------------------------------------------------------- the counters

    async def _scrape(self, port: int) -> ServerSample | None:
        """The server's counters now, None when it has none."""
        state = self._desk.store.jobs.get(self._job)
        if state is None:
            return None  # removed meanwhile
        try:
            page = await self._desk.session.http(port, "/metrics")
            if page.status != 200:
                return None
            return server_sample(page.body, time.monotonic(), time.time(), state.k, state.engine)
        except (HostError, MetricsError):
            return None  # then there is no acceptance to show, and the answer is shown all the same

    async def _accepted(
        self, before: ServerSample | None, port: int, tokens: int | None
    ) -> tuple[Acceptance | None, bool | None]:
        """Acceptance of the request from the counters around it, and whether they counted nothing else."""
        if before is None:
            return None, None
        after: ServerSample | None = None
        for _ in range(SETTLES):
            after = await self._scrape(port)
            grown = _growth(before.generated_tokens, after.generated_tokens if after is not None else None)
            if tokens is None or grown is None or grown >= tokens:
                break
            await asyncio.sleep(SETTLE)
        if after is None or (after.drafted is None and after.acceptance_from is None):
            return None, None
        finished = _growth(before.finished, after.finished)
        grown = _growth(before.generated_tokens, after.generated_tokens)
        alone: bool | None = None
        if before.running or after.running or (finished is not None and finished > 1):
            alone = False
        elif grown is not None and tokens is not None:
            alone = grown <= tokens
        return acceptance(before, after), alone


def _growth(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


async def _next(chunks: Any) -> Any:
    """The next chunk, None at the end."""
    try:
        return await anext(chunks)
    except StopAsyncIteration:
        return None


def _texts(choice: Any) -> list[tuple[str, bool]]:
    """What a chunk adds: (text, is reasoning). vLLM says ``reasoning``; older ones and SGLang ``reasoning_content``."""
    delta = getattr(choice, "delta", None)
    if delta is None:
        return [(choice.text, False)] if getattr(choice, "text", None) else []
    thought = getattr(delta, "reasoning", None) or getattr(delta, "reasoning_content", None)
    found = [(str(thought), True)] if thought else []
    return [*found, (str(delta.content), False)] if delta.content else found


def _count(usage: Any, name: str) -> int | None:
    """A number of tokens as the server tells it; None for whatever is no number."""
    value = getattr(usage, name, None)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _client(openai: Any, port: int, key: str) -> Any:
    """A client that waits as long as it takes, asks once, and goes through no proxy. It loads certificates: in a thread."""
    return openai.AsyncOpenAI(
        base_url=f"http://127.0.0.1:{port}/v1",
        api_key=key,
        max_retries=0,
        timeout=None,
        http_client=openai.DefaultAsyncHttpxClient(trust_env=False, timeout=None),
    )


def _transport_error(openai: Any) -> type[Exception]:
    """The class of what breaks within a stream that has begun: of the HTTP library that this openai is built on."""
    library = openai.DefaultAsyncHttpxClient.__mro__[1].__module__.partition(".")[0]
    return importlib.import_module(library).HTTPError  # type: ignore[no-any-return]


def _words(error: Exception) -> str:
    """An error's own words in one line."""
    body = getattr(error, "body", None)
    text = body.get("message") if isinstance(body, dict) else None
    return " ".join(str(text or error).split())[:300]
