"""What a telemetry source is to the agent: it publishes whole documents; `streams.py` turns them into patches with credits."""

from __future__ import annotations

from typing import Any, Callable, Dict

from eagletui.agent.loop import Loop

Publish = Callable[[Dict[str, Any]], None]
Need = Callable[[str], None]


class Context:
    """What a source is given: the loop, a way to publish, and a way to ask the client for a module (pynvml)."""

    def __init__(self, loop: Loop, publish: Publish, need: Need, log: Callable[[str], None]) -> None:
        self.loop, self.publish, self.need, self.log = loop, publish, need, log


class Source:
    """A stream's source. `start` may be called again with another interval; `provided` when a needed module has come.

    A source publishes a fresh document (never one it changes later) about every ``interval`` seconds and must not block;
    what can block runs in a child process with a deadline. What is not available is left out of the document.
    """

    name = ""

    def __init__(self, context: Context) -> None:
        self.context = context

    def start(self, interval: float, params: Dict[str, Any]) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def provided(self, module: str, source: bytes) -> None:
        """The client has sent the source text of ``module``."""
