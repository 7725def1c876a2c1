"""The shim's own look at a server it runs: does it answer, which model, how fast is the first answer, and its metrics.

All requests go to the loopback, one at a time, and none blocks. What is learned goes to the ``owner``'s methods.
"""

from __future__ import annotations

import json
import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional

from eagletui.agent.fetch import Answer, Fetch
from eagletui.agent.loop import Loop, boot_now

SMOKE_TIMEOUT = 180.0
SMOKE_TOKENS = 16
SMOKE_PROMPT = "The capital of France is"
_KEY_NEEDED = (401, 403)
_OLD_NAMES = {"/server_info": "/get_server_info"}  # SGLang up to 0.5.7 has only the old one, newer ones complain of it


class Rules(NamedTuple):
    """How a server is watched. ``health`` is the path whose 200 proves it ready (None: only the log tells), ``after_log`` that
    the log must have said so as well, ``metrics`` the path of its metrics, ``smoke`` whether to send one prompt, ``version``
    where it says its own version (None: not asked)."""

    port: int
    health: Optional[str] = "/health"
    after_log: bool = False
    metrics: str = "/metrics"
    smoke: bool = True
    poll: float = 2.0
    scrape: float = 2.0
    address: str = "127.0.0.1"
    version: Optional[str] = None


class Owner:
    """What the probe tells. The shim implements it."""

    def server_ready(self) -> None:
        raise NotImplementedError

    def server_model(self, name: str, max_model_len: Optional[int]) -> None:
        raise NotImplementedError

    def server_version(self, version: str) -> None:
        """The engine's version, as the server says it. Whoever knows it otherwise need not care."""

    def server_smoke(self, result: Dict[str, Any]) -> None:
        """``{"tokens", "seconds", "tokens_per_s"}`` or ``{"problem"}``."""
        raise NotImplementedError

    def server_metrics(self, text: bytes, boot: float, wall: float) -> None:
        raise NotImplementedError

    def server_no_metrics(self, why: str) -> None:
        """It answers, but not with its metrics; ``why`` in words."""
        raise NotImplementedError

    def server_silent(self, why: Optional[str]) -> None:
        """It has been ready, and does not answer any more (None: it does again)."""
        raise NotImplementedError


class ServerProbe:
    """``start`` once the process runs; `log_says_ready` when the log does; ``stop`` when it ends."""

    def __init__(self, loop: Loop, rules: Rules, owner: Owner, listening: Callable[[], bool]) -> None:
        self._loop, self._rules, self._owner, self._listening = loop, rules, owner, listening
        self._fetch: Optional[Fetch] = None
        self._stopped = False
        self._log_ready = False
        self.ready = False
        self._failures = 0
        self._model: Optional[str] = None
        self._paths: List[str] = []

    def start(self, delay: Optional[float] = None) -> None:
        """Look for the first time after ``delay`` seconds, or after the pause that it makes between two looks."""
        self._later(self._rules.poll if delay is None else delay, self._look)

    def stop(self) -> None:
        self._stopped = True
        if self._fetch is not None:
            self._fetch.cancel()
            self._fetch = None

    def log_says_ready(self) -> None:
        """The engine printed that it is ready; asked again at once rather than at the next turn."""
        self._log_ready = True

    def _later(self, seconds: float, what: Callable[[], None]) -> None:
        self._loop.call_later(seconds, lambda: None if self._stopped else what())

    def _ask(
        self, path: str, got: Callable[[Answer], None], body: Optional[Mapping[str, Any]] = None, timeout: float = 5.0
    ) -> None:
        def done(answer: Answer) -> None:
            self._fetch = None
            if not self._stopped:
                got(answer)

        data = b"" if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"Content-Type": "application/json"}
        method = "GET" if body is None else "POST"
        self._fetch = Fetch(self._loop, self._rules.port, path, done, method, data, headers, timeout, self._rules.address)

    # ------------------------------------------------------------------------------------------------------- loading

    def _look(self) -> None:
        rules = self._rules
        if rules.after_log and not self._log_ready:
            self._later(rules.poll, self._look)
        elif not self._listening():
            self._later(min(1.0, rules.poll), self._look)  # nobody listens, or a stranger does: that is not our server
        elif rules.health is None:
            if self._log_ready:
                self._now_ready()
            else:
                self._later(rules.poll, self._look)
        else:
            self._ask(rules.health, self._looked, timeout=25.0)

    def _looked(self, answer: Answer) -> None:
        if answer.status == 200 or answer.status in _KEY_NEEDED:
            self._now_ready()
        elif answer.status == 404 and self._rules.health != "/v1/models":
            self._rules = self._rules._replace(health="/v1/models")
            self._look()
        else:
            self._later(self._rules.poll, self._look)

    def _now_ready(self) -> None:
        self.ready = True
        self._owner.server_ready()
        self._ask("/v1/models", self._models)

    # --------------------------------------------------------------------------------------------------------- ready

    def _models(self, answer: Answer) -> None:
        doc = _json(answer.body) if answer.status == 200 else {}
        cards = doc.get("data")
        card = cards[0] if isinstance(cards, list) and cards and isinstance(cards[0], dict) else {}
        name, length = card.get("id"), card.get("max_model_len")
        if isinstance(name, str):
            self._model = name
            self._owner.server_model(name, length if isinstance(length, int) else None)
        if self._rules.version is not None and answer.status == 200:
            self._ask_version(self._rules.version, answer)
        else:
            self._first_prompt(answer)

    def _ask_version(self, path: str, models: Answer) -> None:
        def got(said: Answer) -> None:
            if said.status == 404 and path in _OLD_NAMES:
                self._ask_version(_OLD_NAMES[path], models)
                return
            version = _json(said.body).get("version") if said.status == 200 else None
            if isinstance(version, str) and version:
                self._owner.server_version(version[:40])
            self._first_prompt(models)

        self._ask(path, got)

    def _first_prompt(self, answer: Answer) -> None:
        """``answer`` is that about the models."""
        if not self._rules.smoke:
            self._scrape()
        elif answer.status in _KEY_NEEDED:
            self._smoked({"problem": "key needed"})
        elif self._model is None:
            self._smoked({"problem": answer.error or "/v1/models answered %d" % answer.status})
        else:
            self._smoke("/v1/completions", {"prompt": SMOKE_PROMPT})

    def _smoke(self, path: str, prompt: Mapping[str, Any]) -> None:
        body = dict(prompt, model=self._model, max_tokens=SMOKE_TOKENS, temperature=0)
        began = time.monotonic()

        def got(answer: Answer) -> None:
            seconds = time.monotonic() - began
            if answer.status in (400, 404, 405) and path == "/v1/completions":
                self._smoke("/v1/chat/completions", {"messages": [{"role": "user", "content": SMOKE_PROMPT}]})
            else:
                self._smoked(smoke_result(answer, seconds))

        self._ask(path, got, body, SMOKE_TIMEOUT)

    def _smoked(self, result: Dict[str, Any]) -> None:
        self._owner.server_smoke(result)
        self._scrape()

    def _scrape(self) -> None:
        self._began = self._loop.now()
        self._ask(self._rules.metrics, self._scraped)

    def _scraped(self, answer: Answer) -> None:
        pause = self._rules.scrape
        if answer.status and answer.status != 200:
            pause = max(pause, 30.0)  # this server has none (SGLang without --enable-metrics), or wants a key
        self._later(max(0.0, pause - (self._loop.now() - self._began)), self._scrape)
        if answer.status:
            if self._failures >= 3:
                self._owner.server_silent(None)
            self._failures = 0
        if answer.status == 200:
            self._owner.server_metrics(answer.body, boot_now(), time.time())
        elif answer.status:
            self._owner.server_no_metrics(no_metrics(self._rules.metrics, answer.status))
        else:
            self._failures += 1
            if self._failures == 3:
                self._owner.server_silent(answer.error)


def no_metrics(path: str, status: int) -> str:
    """Why a server that answers has no numbers, from the status of its metrics page."""
    if status in _KEY_NEEDED:
        return "no numbers: %s wants a key, and none is known here (status %d)" % (path, status)
    if status == 404:
        return "no numbers: the server has no %s (SGLang has it with --enable-metrics)" % path
    return "no numbers: %s is answered with status %d" % (path, status)


def smoke_result(answer: Answer, seconds: float) -> Dict[str, Any]:
    """What one short answer says: tokens, seconds and their quotient; or what the problem is."""
    if answer.status in _KEY_NEEDED:
        return {"problem": "key needed"}
    if answer.status != 200:
        return {
            "problem": answer.error or "the first prompt was answered with status %d" % answer.status,
            "seconds": round(seconds, 3),
        }
    usage = _json(answer.body).get("usage")
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    if not isinstance(tokens, int) or tokens <= 0:
        return {"problem": "the first answer has no tokens", "seconds": round(seconds, 3)}
    return {"tokens": tokens, "seconds": round(seconds, 3), "tokens_per_s": round(tokens / max(seconds, 1e-6), 2)}


def _json(body: bytes) -> Dict[str, Any]:
    try:
        doc = json.loads(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return {}  # not JSON: the callers treat it like an answer without the field
    return doc if isinstance(doc, dict) else {}
