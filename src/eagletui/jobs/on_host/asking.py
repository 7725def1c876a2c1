"""One prompt's conversation: its answers are asked for one after the other, each on top of the earlier ones."""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from eagletui.jobs.on_host.answers import NoAnswer, ends, row_of
from eagletui.jobs.on_host.chat import Chat, Refused, Trouble, Unusable
from eagletui.jobs.on_host.server_gate import Gate

LONGEST_PAUSE = 60.0
_NO_REQUEST_WILL_DO = (401, 403, 404)


class Failed(Exception):
    """The prompt cannot be answered; the text says why."""

    def __init__(self, reason: str, gen: int, status: Optional[int], attempts: int) -> None:
        super().__init__(reason)
        self.gen, self.status, self.attempts = gen, status, attempts


class Wish(NamedTuple):
    """What is asked for beside the words. ``extra`` are the body's other fields; ``seed`` makes one for each request."""

    max_tokens: int
    temperature: Optional[float] = None
    seed: Optional[int] = None
    extra: Mapping[str, Any] = {}


def body_of(wish: Wish, model: str, prompt_id: str, gen: int, messages: Sequence[Mapping[str, str]]) -> Dict[str, Any]:
    """The request. The seed follows from the prompt and the answer's number: a resumed run asks for the same."""
    body: Dict[str, Any] = dict(wish.extra)
    body.update(model=model, messages=list(messages), max_tokens=wish.max_tokens, return_token_ids=True)
    if wish.temperature is not None:
        body["temperature"] = wish.temperature
    if wish.seed is not None:
        digest = hashlib.sha256(("%d %s %d" % (wish.seed, prompt_id, gen)).encode("utf-8", "surrogatepass")).digest()
        body["seed"] = int.from_bytes(digest[:4], "big") >> 1
    return body


class Asker:
    """Asks, and asks again. ``flying`` are the requests that are out: prompt -> when it left (monotonic)."""

    def __init__(self, chat: Chat, gate: Gate, wish: Wish, retries: int, slower: Callable[[str], None]) -> None:
        self._chat, self._gate, self._wish, self._retries, self._slower = chat, gate, wish, retries, slower
        self._random = random.Random(0)  # noqa: S311 - spreads retries, guards nothing
        self.flying: Dict[str, float] = {}
        self.retried = 0

    async def converse(
        self, prompt_id: str, turns: Sequence[Mapping[str, str]], said: Sequence[str], take: Callable[[Dict[str, Any]], None]
    ) -> None:
        """Ask for all answers that are left after ``said``; ``take`` gets each row. Raises `Failed`, `Unusable`."""
        messages: List[Mapping[str, str]] = []
        gen = 0
        for turn in turns:
            messages.append(turn)
            if turn["role"] != "user":
                continue
            if gen < len(said):
                answer = said[gen]
            else:
                row = await self._answer(prompt_id, gen, messages)
                take(row)
                if ends(row):
                    return
                answer = row["answer"]
            messages.append({"role": "assistant", "content": answer})
            gen += 1

    async def _answer(self, prompt_id: str, gen: int, messages: Sequence[Mapping[str, str]]) -> Dict[str, Any]:
        body = body_of(self._wish, self._gate.model, prompt_id, gen, messages)
        attempts = 0
        while True:
            await self._gate.passed()
            outages = self._gate.outages
            start = time.monotonic()
            self.flying[prompt_id] = start
            try:
                data = await self._chat.complete(body)
                return row_of(data, prompt_id, gen, messages, time.monotonic() - start)
            except Refused as error:
                if error.status in _NO_REQUEST_WILL_DO:
                    raise Unusable("the server refuses every request: HTTP %d: %s" % (error.status, error)) from None
                raise Failed("HTTP %d: %s" % (error.status, error), gen, error.status, attempts + 1) from None
            except (Trouble, NoAnswer) as error:
                trouble = error
            finally:
                self.flying.pop(prompt_id, None)
            status = trouble.status if isinstance(trouble, Trouble) else None
            if status != 429 and (await self._gate.lost() or self._gate.outages != outages):
                continue  # the server was away: no request is blamed for that
            attempts += 1
            self._slower(str(trouble))
            if attempts > self._retries:
                raise Failed(str(trouble), gen, status, attempts)
            self.retried += 1
            await asyncio.sleep(self._pause(attempts, trouble.after if isinstance(trouble, Trouble) else None))

    def _pause(self, attempts: int, asked: Optional[float]) -> float:
        if asked is not None:
            return min(asked, LONGEST_PAUSE)
        return min(LONGEST_PAUSE, 2.0 ** (attempts - 1)) * self._random.uniform(0.5, 1.0)
