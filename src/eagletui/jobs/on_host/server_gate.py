"""Whether the server is there: all requests wait while it is not, and none of them is blamed for that."""

from __future__ import annotations

import asyncio
import time
from typing import Callable, List, Optional

from eagletui.jobs.on_host.chat import Chat, Model, Trouble, Unusable

AGAIN = 2.0
"""Seconds between two looks at a server that is away."""


class Gate:
    """``patience``: the seconds that a server may be away, each time. ``tell`` is called with words for a person, or None."""

    def __init__(self, chat: Chat, patience: float, tell: Callable[[Optional[str]], None], again: float = AGAIN) -> None:
        self._chat, self._patience, self._tell, self._again = chat, patience, tell, again
        self._open = asyncio.Event()
        self._looking: Optional["asyncio.Future[None]"] = None
        self.model = ""
        self.context: Optional[int] = None
        self.outages = 0
        self.away: Optional[str] = None

    async def enter(self, model: Optional[str]) -> None:
        """Wait for the server and choose the model: the one asked for, or the only one. Raises `Unusable`."""
        found = await self._wait("the server is not there yet")
        names = [entry.name for entry in found]
        if model is None:
            if len(names) != 1:
                raise Unusable("the server has %s: say which one is meant (model)" % (", ".join(names[:5]) or "no model"))
            model = names[0]
        elif model not in names:
            raise Unusable("the server does not have %s but %s" % (model, ", ".join(names[:5]) or "no model"))
        self.model = model
        self.context = next(entry.context for entry in found if entry.name == model)
        self._open.set()

    async def passed(self) -> None:
        """Return once the server is there. Raises `Unusable` when it stays away, or is another one when it is back."""
        while not self._open.is_set():
            if self._looking is None:
                await self._open.wait()
            else:
                await asyncio.shield(self._looking)

    async def lost(self) -> bool:
        """A request went wrong in a way that a dead server would explain. True when it is: it has come back since, then."""
        if not self._open.is_set():
            await self.passed()
            return True
        why = await self._chat.alive()
        if why is None:
            return False
        if self._open.is_set():
            self._open.clear()
            self.outages += 1
            self._looking = asyncio.ensure_future(self._until_back())
        await self.passed()
        return True

    async def _until_back(self) -> None:
        found = await self._wait("the server is away")
        if self.model not in [entry.name for entry in found]:
            names: List[str] = [entry.name for entry in found]
            raise Unusable("the server came back with another model (%s)" % ", ".join(names[:5]))
        self._looking = None
        self._open.set()

    async def _wait(self, words: str) -> List[Model]:
        since = time.monotonic()
        while True:
            try:
                found = await self._chat.models()
                why = await self._chat.alive()
                if why is None:
                    break
            except Trouble as error:
                why = str(error)
            waited = time.monotonic() - since
            if waited >= self._patience:
                raise Unusable("%s, for %d s (%s)" % (words, waited, why))
            self.away = "%s (%s), %d of %d s" % (words, why, waited, self._patience)
            self._tell(self.away)
            await asyncio.sleep(min(self._again, max(0.0, self._patience - waited)))
        if self.away is not None:
            self.away = None
            self._tell(None)
        return found
