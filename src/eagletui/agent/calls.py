"""One request in the agent: its parameters, and the ways to answer it. Handlers are listed in tables, a module each."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

from eagletui.agent.loop import Loop


class CallError(Exception):
    """A request that cannot be done, in words for a user: which step, why, what to do.

    ``kind`` tells failures apart that a program must: "absent" (no such file), "denied" (permission), "replaced" (the path
    names another file than it did), "agent" for the rest.
    """

    def __init__(self, step: str, why: str, remedy: str = "", kind: str = "agent") -> None:
        super().__init__("%s: %s" % (step, why))
        self.step, self.why, self.remedy, self.kind = step, why, remedy, kind


class Call:
    """A request being answered. A handler answers exactly once, now or later; it may raise `CallError` instead of `fail`.

    ``on_cancel`` is called when the client no longer wants the answer, or has gone. ``id`` is the request's number, 0 for
    one that came in a batch.
    """

    def __init__(
        self,
        loop: Loop,
        params: Dict[str, Any],
        body: bytes,
        send: Callable[[Any, bytes], None],
        send_error: Callable[[CallError], None],
        id: int = 0,  # noqa: A002 - the frame's own name for it
    ) -> None:
        self.loop, self.params, self.body, self.id = loop, params, body, id
        self._send, self._send_error = send, send_error
        self.answered = False
        self.on_cancel: Optional[Callable[[], None]] = None

    def reply(self, result: Any, body: bytes = b"") -> None:
        if not self.answered:
            self.answered = True
            self._send(result, body)

    def fail(self, step: str, why: str, remedy: str = "", kind: str = "agent") -> None:
        if not self.answered:
            self.answered = True
            self._send_error(CallError(step, why, remedy, kind))

    def cancel(self) -> None:
        """The client no longer wants the answer: nothing is sent any more, and the handler is told."""
        if not self.answered:
            self.answered = True
            if self.on_cancel is not None:
                self.on_cancel()

    def text(self, name: str, default: Optional[str] = None) -> str:
        """A parameter that must be text."""
        value = self.params.get(name, default)
        if not isinstance(value, str):
            raise CallError("request", "parameter %r should be text" % name)
        return value

    def number(self, name: str, default: Optional[float] = None, low: float = 0, high: float = float("inf")) -> float:
        """A parameter that must be a number between ``low`` and ``high``."""
        value = self.params.get(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise CallError("request", "parameter %r should be a number from %s to %s" % (name, low, high))
        return value


Handler = Callable[[Call], None]
