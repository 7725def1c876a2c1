import sys
import types
import zlib
from typing import Any

import pytest

from eagletui.agent.calls import Call, CallError
from eagletui.agent.frames import Frame
from eagletui.agent.loop import Loop
from eagletui.agent.patch import apply
from eagletui.agent.source import Context, Source
from eagletui.agent.streams import Streams


class Fake(Source):
    made: "list[Fake]" = []

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.started: list[tuple[float, dict[str, Any]]] = []
        self.stopped = 0
        self.modules: list[tuple[str, bytes]] = []
        Fake.made.append(self)

    def start(self, interval: float, params: dict[str, Any]) -> None:
        if params.get("break"):
            raise CallError("fake", "it does not start")
        self.started.append((interval, params))

    def stop(self) -> None:
        self.stopped += 1

    def provided(self, module: str, source: bytes) -> None:
        self.modules.append((module, source))


class Rig:
    """Streams over a fake source, with what was sent; no process, no time."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.sent: list[Frame] = []
        self.streams = Streams(loop, self.sent.append, lambda line: None, {"fake": ("fake_source_module", "Fake")})
        self.answers: list[Any] = []

    def call(self, method: str, id_: int = 0, body: bytes = b"", **params: Any) -> None:
        call = Call(self.loop, params, body, lambda r, b: self.answers.append(r), lambda e: self.answers.append(e), id_)
        getattr(self.streams, method)(call)

    def docs(self, id_: int) -> list[dict[str, Any]]:
        doc: dict[str, Any] = {}
        out = []
        for frame in self.sent:
            if frame.id == id_:
                doc = apply(doc, frame.head["patch"])
                out.append(doc)
        return out


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch):
    module = types.ModuleType("fake_source_module")
    module.Fake = Fake  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fake_source_module", module)
    monkeypatch.setattr(Fake, "made", [])
    errors: list[Exception] = []
    loop = Loop(lambda what, error: errors.append(error))
    yield Rig(loop)
    loop.close()
    assert errors == []


def test_first_the_whole_document_then_what_changed(rig: Rig) -> None:
    rig.call("subscribe", 5, stream="fake", interval=0.02, credits=3)
    rig.streams._subscriptions[5].interval = 0
    publish = Fake.made[0].context.publish
    publish({"a": 1, "cards": {"x": {"u": 1, "v": 2}}})
    publish({"a": 1, "cards": {"x": {"u": 3, "v": 2}}})
    publish({"a": 1, "cards": {"x": {"u": 3, "v": 2}}})
    assert [f.head["patch"] for f in rig.sent] == [
        {"a": 1, "cards": {"x": {"u": 1, "v": 2}}},
        {"cards": {"x": {"u": 3}}},
        {},  # nothing changed: it still tells that the values are fresh
    ]
    assert [(f.head["s"], f.head["n"]) for f in rig.sent] == [("fake", 1), ("fake", 2), ("fake", 3)]
    assert rig.answers == [{"sub": 5}]


def test_without_credit_only_the_newest_document_is_kept(rig: Rig) -> None:
    rig.call("subscribe", 5, stream="fake", interval=0.02)
    rig.streams._subscriptions[5].interval = 0
    publish = Fake.made[0].context.publish
    for i in range(50):
        publish({"i": i, "gone": 1} if i < 40 else {"i": i})
    assert rig.docs(5) == [{"i": 0, "gone": 1}, {"i": 1, "gone": 1}]
    rig.streams.credit(5, 1)
    assert rig.docs(5)[-1] == {"i": 49}
    rig.streams.credit(5, 3)
    assert len(rig.sent) == 3  # the newest was sent already
    publish({"i": 50})
    assert rig.docs(5)[-1] == {"i": 50}


def test_one_source_for_all_with_the_smallest_interval(rig: Rig) -> None:
    rig.call("subscribe", 1, stream="fake", interval=5, sort="cpu")
    rig.call("subscribe", 2, stream="fake", interval=1, limit=3)
    (source,) = Fake.made
    assert source.started == [(5, {"sort": "cpu"}), (1, {"sort": "cpu", "limit": 3})]
    source.context.publish({"a": 1})
    source.context.publish({"a": 2})  # at once: too soon for either
    assert [f.id for f in rig.sent] == [1, 2]
    rig.call("unsubscribe", sub=2)
    assert source.started[-1] == (5, {"sort": "cpu"})
    assert source.stopped == 0
    rig.streams.cancel(1)
    assert source.stopped == 1
    rig.call("subscribe", 3, stream="fake", interval=1)
    assert len(Fake.made) == 2


def test_a_needed_module_is_asked_for_once_and_given_to_every_source(rig: Rig) -> None:
    rig.call("subscribe", 1, stream="fake", interval=1)
    source = Fake.made[0]
    source.context.need("pynvml")
    source.context.need("pynvml")
    assert [(f.id, f.head["s"], f.head["patch"]) for f in rig.sent] == [(0, "need", {"module": "pynvml"})]
    rig.call("provide", body=zlib.compress(b"x = 1"), module="pynvml")
    assert source.modules == [("pynvml", b"x = 1")]
    source.context.need("pynvml")  # a later source: it is here already
    rig.loop.call_later(0, rig.loop.stop)
    rig.loop.run()
    assert source.modules == [("pynvml", b"x = 1")] * 2
    assert len(rig.sent) == 1


@pytest.mark.parametrize("body", [b"not zlib", zlib.compress(b"x = 1")[:-3], zlib.compress(bytes(5 * 1024 * 1024))])
def test_a_damaged_module_is_refused(rig: Rig, body: bytes) -> None:
    with pytest.raises(CallError, match="pynvml"):
        rig.call("provide", body=body, module="pynvml")


def test_what_cannot_be_subscribed(rig: Rig) -> None:
    with pytest.raises(CallError, match="no stream 'nope'"):
        rig.call("subscribe", 1, stream="nope", interval=1)
    with pytest.raises(CallError, match="in a batch"):
        rig.call("subscribe", 0, stream="fake", interval=1)
    with pytest.raises(CallError, match="does not start"):
        rig.call("subscribe", 1, stream="fake", interval=1, **{"break": True})
    assert rig.streams._subscriptions == {}


def test_the_end_stops_every_source(rig: Rig) -> None:
    rig.call("subscribe", 1, stream="fake", interval=1)
    rig.streams.close()
    assert Fake.made[0].stopped == 1
