"""An OpenAI-compatible server, asked through the OpenAI client that vLLM and SGLang bring along (versions 1 to 3).

What goes wrong has three kinds: `Refused` (this request will never do), `Trouble` (it may do later), `Unusable` (no request
will do: a wrong key, a model that is not served). Whether the server lives is asked apart (`Chat.alive`).
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, NamedTuple, Optional
from urllib.parse import urlsplit

import openai

from eagletui.engines.metrics import server_sample
from eagletui.engines.prometheus import MetricsError
from eagletui.records import ServerSample

PROBE_SECONDS = 30.0
CONNECT_SECONDS = 30.0
MOST_REASON = 300
_LATER = (408, 409, 425, 429)
_LOCAL = ("127.0.0.1", "localhost", "::1")


class Refused(Exception):
    """The server says no to this very request; ``status`` is its HTTP status."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Trouble(Exception):
    """It did not work this time. ``status`` is an HTTP status or None; ``after`` the seconds that the server asks to wait."""

    def __init__(self, reason: str, status: Optional[int] = None, after: Optional[float] = None) -> None:
        super().__init__(reason)
        self.status, self.after = status, after


class Unusable(Exception):
    """No request will work here; the text says why and what to do."""


class Model(NamedTuple):
    """A model that is served: its name, and the tokens that prompt and answer may have together, None where it is not said."""

    name: str
    context: Optional[int]


class Chat:
    """``endpoint`` is the server's ``/v1`` address, ``key`` its key, ``seconds`` how long one answer may take."""

    def __init__(self, endpoint: str, key: Optional[str], seconds: float) -> None:
        self.endpoint = endpoint.rstrip("/")
        self.root = self.endpoint[: -len("/v1")] if self.endpoint.endswith("/v1") else self.endpoint
        place = urlsplit(endpoint)
        # a proxy of the environment leads nowhere on this machine's own addresses; certificates take a while to load, and
        # without TLS nobody looks at them
        http = openai.DefaultAsyncHttpxClient(trust_env=place.hostname not in _LOCAL, verify=place.scheme != "http")
        timeout = openai.Timeout(seconds, connect=CONNECT_SECONDS)
        # an engine without a key takes any, but the client wants one
        self._client = openai.AsyncOpenAI(
            base_url=self.endpoint, api_key=key or "none", timeout=timeout, max_retries=0, http_client=http
        )
        self._metrics = True

    async def close(self) -> None:
        await self._client.close()

    async def complete(self, body: Mapping[str, Any]) -> Dict[str, Any]:
        """One chat completion, as the server said it. Raises `Refused`, `Trouble` or `Unusable`."""
        try:
            # the client's typed call walks through every word of the body first, which takes longer than all the rest
            data = json.loads(await self._client.post("/chat/completions", cast_to=str, body=body))
        except openai.OpenAIError as error:
            raise sorted_out(error) from None
        except ValueError as error:
            raise Trouble("the answer is no JSON: %s" % error) from None
        if not isinstance(data, dict):
            raise Trouble("the answer is no object")
        return data

    async def alive(self) -> Optional[str]:
        """None when the server answers; else why not, in words. Asks nothing of the model."""
        try:
            await self._get(self.endpoint + "/models")
        except Refused as error:
            return None if error.status in (401, 403, 404) else str(error)
        except Trouble as error:
            return str(error)
        # a vLLM whose engine is dead goes on answering: only its health tells
        try:
            await self._get(self.root + "/health")
        except Trouble as error:
            return str(error) if error.status is not None and error.status >= 500 else None
        except Refused:
            return None  # it has no such page
        return None

    async def models(self) -> List[Model]:
        """What is served. Raises `Trouble`, `Unusable`."""
        try:
            doc = json.loads(await self._get(self.endpoint + "/models"))
            rows = doc["data"]
            return [Model(str(row["id"]), _whole(row.get("max_model_len"))) for row in rows]
        except Refused as error:
            if error.status in (401, 403):
                raise Unusable("the server wants another key (%s): name its variable in api_key_env" % error) from None
            raise Unusable("%s/models: %s: is the endpoint right?" % (self.endpoint, error)) from None
        except (ValueError, KeyError, TypeError):
            raise Unusable("%s/models does not answer as an OpenAI server does: is the endpoint right?" % self.endpoint) from None

    async def sample(self, boot: float, wall: float) -> Optional[ServerSample]:
        """The server's own figures; None where it has none."""
        if not self._metrics:
            return None
        try:
            page = await self._get(self.root + "/metrics")
            return server_sample(page, boot, wall)
        except Refused:
            self._metrics = False  # SGLang without --enable-metrics
            return None
        except (Trouble, MetricsError):
            return None  # the figures only guide: without them it goes by its own

    async def _get(self, url: str) -> str:
        try:
            return await self._client.get(url, cast_to=str, options={"timeout": PROBE_SECONDS})
        except openai.OpenAIError as error:
            raise sorted_out(error) from None


def sorted_out(error: Exception) -> Exception:
    """What the client raised, as one of the three kinds."""
    if isinstance(error, openai.APITimeoutError):
        return Trouble("no answer in time")
    if isinstance(error, openai.APIConnectionError):
        cause = error.__cause__
        words = str(cause) if cause is not None else ""
        return Trouble("no connection: %s" % (words or type(cause or error).__name__))
    if isinstance(error, openai.APIStatusError):
        status = error.status_code
        reason = _reason(error)
        if status in _LATER or status >= 500:
            return Trouble("HTTP %d: %s" % (status, reason), status, _seconds(error.response.headers.get("retry-after")))
        return Refused(status, reason)
    return Trouble(str(error)[:MOST_REASON] or type(error).__name__)


def _reason(error: openai.APIStatusError) -> str:
    body = error.body
    if isinstance(body, dict):
        inner = body.get("error") if isinstance(body.get("error"), dict) else body
        for field in ("message", "detail"):
            if isinstance(inner, dict) and isinstance(inner.get(field), str):
                return " ".join(inner[field].split())[:MOST_REASON]
    return " ".join(str(body or error.response.reason_phrase or error).split())[:MOST_REASON]


def _seconds(text: Optional[str]) -> Optional[float]:
    try:
        return max(0.0, float(text)) if text else None
    except ValueError:
        return None  # a date: then our own patience counts


def _whole(value: Any) -> Optional[int]:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
