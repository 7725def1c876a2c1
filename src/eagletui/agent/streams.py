"""Subscriptions: a source publishes whole documents, each subscriber gets the merge patch to the last one it was sent.

A subscriber has a few credits; each push costs one, each `CREDIT` frame gives some back. Without a credit only the newest
document is kept: a slow link gets fewer samples, never a queue of old ones. A sample that changed nothing is pushed too, with
an empty patch (about 90 bytes), because it tells the client that the values are fresh.
"""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any, Callable, Dict, List, Optional, Tuple

from eagletui.agent.calls import Call, CallError
from eagletui.agent.frames import PUSH, Frame
from eagletui.agent.loop import Loop, boot_now
from eagletui.agent.patch import diff
from eagletui.agent.source import Context, Source

SOURCES: Dict[str, Tuple[str, str]] = {
    "host": ("eagletui.agent.host", "HostSource"),
    "gpus": ("eagletui.agent.gpus", "GpuSource"),
    "processes": ("eagletui.agent.procs", "ProcessSource"),
    "jobs": ("eagletui.agent.jobs_source", "JobsSource"),
}
CREDITS = 2
_MAX_MODULE = 4 * 1024 * 1024


class _Subscription:
    __slots__ = ("credits", "id", "interval", "number", "params", "pushed", "sent", "stream", "waiting")

    def __init__(self, id_: int, stream: str, interval: float, credit: int, params: Dict[str, Any]) -> None:
        self.id, self.stream, self.interval, self.credits, self.params = id_, stream, interval, credit, params
        self.sent: Dict[str, Any] = {}
        self.number = 0
        self.pushed = float("-inf")
        self.waiting: Optional[Tuple[Dict[str, Any], float, float]] = None


class Streams:
    """All subscriptions of one client. ``send`` takes a `PUSH` frame; ``log`` a line for the debug log."""

    def __init__(
        self,
        loop: Loop,
        send: Callable[[Frame], None],
        log: Callable[[str], None],
        sources: Optional[Dict[str, Tuple[str, str]]] = None,
    ) -> None:
        self._loop, self._send, self._log = loop, send, log
        self._known = SOURCES if sources is None else sources
        self._sources: Dict[str, Source] = {}
        self._subscriptions: Dict[int, _Subscription] = {}
        self._modules: Dict[str, bytes] = {}
        self._asked: Dict[str, float] = {}
        self._needs = 0

    # ------------------------------------------------------------------------------------------------------ requests

    def subscribe(self, call: Call) -> None:
        stream = call.text("stream")
        interval = call.number("interval", 1.0, 0.02, 3600)
        credit = int(call.number("credits", CREDITS, 1, 64))
        if not call.id:
            raise CallError("subscribe", "a subscription cannot be made in a batch")
        params = {k: v for k, v in call.params.items() if k not in ("stream", "interval", "credits")}
        source = self._sources.get(stream) or self._load(stream)
        self._sources[stream] = source
        self._subscriptions[call.id] = _Subscription(call.id, stream, interval, credit, params)
        try:
            self._restart(stream)
        except Exception:
            del self._subscriptions[call.id]
            raise
        call.reply({"sub": call.id})

    def unsubscribe(self, call: Call) -> None:
        self._drop(int(call.number("sub", None, 1)))
        call.reply({})

    def provide(self, call: Call) -> None:
        import zlib

        name = call.text("module")
        engine = zlib.decompressobj()
        try:
            source = engine.decompress(call.body, _MAX_MODULE)
        except zlib.error as error:
            raise CallError("provide", "the module %s came damaged: %s" % (name, error)) from None
        if not engine.eof:
            raise CallError("provide", "the module %s is cut, or larger than %d bytes" % (name, _MAX_MODULE))
        self._modules[name] = source
        call.reply({})
        for running in list(self._sources.values()):
            self._loop.guard("module %s" % name, lambda s=running: s.provided(name, source))  # type: ignore[misc]

    # ------------------------------------------------------------------------------------------------------- sources

    def _load(self, stream: str) -> Source:
        if stream not in self._known:
            raise CallError("subscribe", "there is no stream %r" % stream)
        module, name = self._known[stream]
        try:
            make = getattr(import_module(module), name)
        except ModuleNotFoundError:
            raise  # it may be among the modules that are still to come
        except (ImportError, AttributeError, SyntaxError) as error:
            raise CallError("stream %s" % stream, "this host cannot run its source: %s" % error) from error

        def publish(doc: Dict[str, Any]) -> None:
            self._publish(stream, doc)

        source: Source = make(Context(self._loop, publish, self._need, self._log))
        return source

    def _restart(self, stream: str) -> None:
        """(Re)start a source with the smallest interval asked for; later subscribers' parameters win. Stop an unwatched one."""
        watchers = [s for s in self._subscriptions.values() if s.stream == stream]
        source = self._sources.get(stream)
        if source is None:
            return
        if not watchers:
            del self._sources[stream]
            source.stop()
            return
        params: Dict[str, Any] = {}
        for watcher in watchers:
            params.update(watcher.params)
        source.start(min(w.interval for w in watchers), params)

    def _need(self, module: str) -> None:
        if module in self._modules:
            source = self._modules[module]

            def provide() -> None:
                for running in list(self._sources.values()):
                    running.provided(module, source)

            self._loop.call_later(0, provide)
            return
        now = self._loop.now()
        if now - self._asked.get(module, float("-inf")) < 10:
            return  # asked for, on its way
        self._asked[module] = now
        self._needs += 1
        head = {"s": "need", "n": self._needs, "boot": boot_now(), "wall": time.time(), "patch": {"module": module}}
        self._send(Frame(PUSH, 0, head))

    # ---------------------------------------------------------------------------------------------------- publishing

    def _publish(self, stream: str, doc: Dict[str, Any]) -> None:
        boot, wall = boot_now(), time.time()
        for subscription in list(self._subscriptions.values()):
            if subscription.stream != stream or boot - subscription.pushed < 0.75 * subscription.interval:
                continue  # another subscriber wants it more often
            subscription.waiting = (doc, boot, wall)
            self._push(subscription)

    def _push(self, subscription: _Subscription) -> None:
        if subscription.waiting is None or subscription.credits < 1:
            return
        doc, boot, wall = subscription.waiting
        subscription.waiting = None
        head = {
            "s": subscription.stream,
            "n": subscription.number + 1,
            "boot": round(boot, 3),
            "wall": round(wall, 3),
            "patch": diff(subscription.sent, doc),
        }
        self._send(Frame(PUSH, subscription.id, head))
        subscription.number += 1
        subscription.credits -= 1
        subscription.pushed = boot
        subscription.sent = doc

    def credit(self, id_: int, count: int) -> None:
        subscription = self._subscriptions.get(id_)
        if subscription is not None:
            subscription.credits = min(subscription.credits + count, 64)
            self._push(subscription)

    def cancel(self, id_: int) -> None:
        """The client gave the subscription up before it knew of it."""
        self._drop(id_)

    def _drop(self, id_: int) -> None:
        subscription = self._subscriptions.pop(id_, None)
        if subscription is not None:
            self._restart(subscription.stream)

    def close(self) -> None:
        """Stop every source; the client has gone."""
        names: List[str] = list(self._sources)
        self._subscriptions.clear()
        for name in names:
            self._loop.guard("stopping %s" % name, lambda n=name: self._restart(n))  # type: ignore[misc]
