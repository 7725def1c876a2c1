"""The link over a transport in memory, with a scripted agent behind it: no process, no network."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from eagletui.agent import frames
from eagletui.agent.frames import Decoder, Frame, encode
from eagletui.hosts import bootstrap
from eagletui.hosts import link as links
from eagletui.hosts.base import Chunk, Forward, HostError, HttpAnswer, Push
from eagletui.hosts.link import Link, open_link

NONCE = "ab" * 16
MARK = b"\0" + NONCE.encode() + b"\0"
HELLO = {
    "hostname": "h",
    "boot_id": "b",
    "user": "u",
    "uid": 0,
    "python": "3.8.1",
    "agent_pid": 5,
    "boot": 1.0,
    "wall": 2.0,
    "unknown": 1,
}


class Scripted:
    """A transport whose other end is the test. Frames that the link wrote wait in ``got``."""

    def __init__(self, blob: bytes = b"blob") -> None:
        self.incoming: asyncio.Queue[bytes] = asyncio.Queue()
        self.got: asyncio.Queue[Frame] = asyncio.Queue()
        self.skip = 4 + len(blob)
        self.decoder = Decoder()
        self.why = ""
        self.exit_status: int | None = None
        self.closed = 0
        self.auto = True  # answer heartbeats

    async def read(self) -> bytes:
        return await self.incoming.get()

    def write(self, data: bytes) -> None:
        data, self.skip = data[self.skip :], max(0, self.skip - len(data))
        for frame in self.decoder.feed(data):
            if frame.kind == frames.BEAT and self.auto:
                self.say(frame)
            else:
                self.got.put_nowait(frame)

    async def drain(self) -> None:
        return None

    async def close(self) -> None:
        self.closed += 1

    async def reason(self) -> str:
        return self.why

    def say(self, *sent: Frame) -> None:
        self.incoming.put_nowait(b"".join(map(encode, sent)))

    async def frame(self, kind: int = frames.REQUEST) -> Frame:
        frame = await self.got.get()
        assert frame.kind == kind, frame
        return frame

    async def answer(self, result: Any, body: bytes = b"") -> Frame:
        """Take the next request and answer it."""
        frame = await self.frame()
        self.say(Frame(frames.RESPONSE, frame.id, {"result": result}, body))
        return frame


class ForwardingScripted(Scripted):
    async def forward(self, port: int) -> Forward:
        return links.SamePort(port + 1)


async def opened(transport: Scripted, **params: Any) -> Link:
    transport.incoming.put_nowait(MARK)
    opening = asyncio.create_task(open_link(transport, NONCE, target="test", blob=b"blob", **params))
    hello = await transport.answer(HELLO)
    assert hello.head["method"] == "hello"
    return await opening


@pytest.fixture
async def pair():
    made: list[Link] = []

    async def start(transport: Scripted | None = None, **params: Any) -> tuple[Link, Scripted]:
        transport = transport or Scripted()
        made.append(await opened(transport, **params))
        return made[-1], transport

    yield start
    for link in made:
        await link.close()


Start = Callable[..., Awaitable[tuple[Link, Scripted]]]


async def test_what_the_login_shell_prints_is_skipped_in_any_pieces() -> None:
    transport = Scripted()
    noise = b"\x1b[1mWelcome\xff\n" + NONCE.encode() + b" exec /bin/sh\r\n" + MARK[:-3]
    for byte in noise + MARK:
        transport.incoming.put_nowait(bytes([byte]))
    opening = asyncio.create_task(open_link(transport, NONCE, blob=b"blob"))
    await transport.answer(HELLO)
    link = await opening
    assert link.info.hostname == "h"
    assert link.banner.startswith("[1mWelcome")
    assert link.received > len(noise)
    await link.close()


async def test_frames_in_the_same_piece_as_the_nonce_are_kept() -> None:
    transport = Scripted()
    opening = asyncio.create_task(open_link(transport, NONCE, blob=b"blob"))
    hello = await transport.frame()
    transport.incoming.put_nowait(b"x" + MARK + encode(Frame(frames.RESPONSE, hello.id, {"result": HELLO})))
    link = await opening
    assert link.info.agent_pid == 5
    await link.close()


@pytest.mark.parametrize(
    ("why", "status", "kind"),
    [
        ("eagletui[91]: no python3 was found, exit status 91", 91, "no-python"),
        ("eagletui[92]: /usr/bin/python3: Python 3.6.8", None, "old-python"),
        ("", 93, "minimal-python"),
        ("exit status 1", 1, "closed"),
    ],
)
async def test_a_shell_that_ends_before_the_agent(why: str, status: int | None, kind: str) -> None:
    transport = Scripted()
    transport.why, transport.exit_status = why, status
    transport.incoming.put_nowait(b"This account is currently not available.\n")
    transport.incoming.put_nowait(b"")
    with pytest.raises(HostError) as caught:
        await open_link(transport, NONCE, blob=b"blob")
    assert caught.value.kind == kind
    assert caught.value.step == "start the agent"
    assert caught.value.retry is False
    assert transport.closed == 1
    if kind == "closed":
        assert "This account is currently not available." in caught.value.why
    else:
        assert caught.value.remedy


@pytest.mark.parametrize(("status", "again"), [(None, True), (-9, True), (-1, True), (1, False), (0, False)])
async def test_a_start_that_was_cut_is_tried_again_and_a_shell_that_ended_is_not(status: int | None, again: bool) -> None:
    """Reset between the login and the agent's first word, a session waited for a person; nothing was wrong with the host."""
    transport = Scripted()
    transport.exit_status = status
    transport.incoming.put_nowait(b"")
    with pytest.raises(HostError) as caught:
        await open_link(transport, NONCE, blob=b"blob")
    assert (caught.value.kind, caught.value.retry) == ("closed", again)
    assert ("was lost before" in caught.value.why) == again


@pytest.mark.fault(17, how="a shell that prints for ever, one that says nothing")
async def test_a_shell_that_prints_for_ever_is_given_up() -> None:
    transport = Scripted()
    for _ in range(20):
        transport.incoming.put_nowait(b"y\n" * 32768)
    with pytest.raises(HostError, match="printed more than 1 MiB") as caught:
        await open_link(transport, NONCE, blob=b"blob")
    assert caught.value.kind == "protocol"
    assert "login scripts" in caught.value.remedy
    assert caught.value.retry is False


@pytest.mark.fault(17, how="a shell that prints for ever, one that says nothing")
async def test_a_shell_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "START_SECONDS", 0.05)
    transport = Scripted()
    transport.incoming.put_nowait(b"Enter your token: ")
    with pytest.raises(HostError, match="it printed: Enter your token:") as caught:
        await open_link(transport, NONCE, blob=b"blob")
    assert caught.value.kind == "timeout"


async def test_early_requests_do_not_wait_for_the_greeting() -> None:
    transport = Scripted()
    results: list[asyncio.Task[Any]] = []
    opening = asyncio.create_task(
        open_link(
            transport, NONCE, blob=b"blob", early=lambda link: results.append(asyncio.create_task(link.request("stat", paths=[])))
        )
    )
    sent = [await transport.frame(), await transport.frame()]
    assert sorted(f.head["method"] for f in sent) == ["hello", "stat"]
    transport.incoming.put_nowait(MARK)
    for frame in sent:
        transport.say(Frame(frames.RESPONSE, frame.id, {"result": HELLO}))
    link = await opening
    assert await results[0] == HELLO
    await link.close()


async def test_the_rest_of_the_modules_goes_behind_the_early_requests() -> None:
    first, rest = bootstrap.parts()
    transport = Scripted(first)
    asked: list[asyncio.Task[Any]] = []
    early = lambda link: asked.append(asyncio.create_task(link.request("stat", paths=[])))  # noqa: E731
    opening = asyncio.create_task(open_link(transport, NONCE, early=early))
    sent = [await transport.frame(), await transport.frame()]
    assert [f.head["method"] for f in sent] == ["hello", "stat"]
    got = b""
    while True:
        frame = await transport.frame()
        got += frame.body
        if "more" not in frame.head:
            break
    assert (frame.head["method"], got) == ("modules", rest)
    transport.incoming.put_nowait(MARK)
    for answered in (*sent, frame):
        transport.say(Frame(frames.RESPONSE, answered.id, {"result": HELLO}))
    await (await opening).close()


async def test_answers_find_their_requests_in_any_order(pair: Start) -> None:
    link, transport = await pair()
    asked = [asyncio.create_task(link.request("stat", paths=[str(i)])) for i in range(5)]
    requests = [await transport.frame() for _ in asked]
    for request in reversed(requests):
        transport.say(Frame(frames.RESPONSE, request.id, {"result": request.head["params"]["paths"]}))
    assert await asyncio.gather(*asked) == [[str(i)] for i in range(5)]


async def test_an_error_of_the_agent_keeps_its_words(pair: Start) -> None:
    link, transport = await pair()
    asked = asyncio.create_task(link.read("/x", 0))
    request = await transport.frame()
    transport.say(Frame(frames.ERROR, request.id, {"step": "read /x", "why": "no such file", "remedy": "r", "kind": "absent"}))
    with pytest.raises(HostError) as caught:
        await asked
    error = caught.value
    assert (error.step, error.why, error.remedy, error.kind) == ("read /x", "no such file", "r", "absent")


async def test_a_cancelled_request_is_taken_back(pair: Start) -> None:
    link, transport = await pair()
    asked = asyncio.create_task(link.read("/x", 0, wait=60))
    request = await transport.frame()
    asked.cancel()
    assert (await transport.frame(frames.CANCEL)).id == request.id
    with pytest.raises(asyncio.CancelledError):
        await asked
    transport.say(Frame(frames.RESPONSE, request.id, {"result": {}}))  # it was under way: nobody minds
    again = asyncio.create_task(link.request("stat", paths=[]))
    await transport.answer([])
    assert await again == []


async def test_a_request_that_is_never_answered_ends_by_itself(pair: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    link, transport = await pair()
    monkeypatch.setattr(links, "REQUEST_SECONDS", 0.05)
    asked = asyncio.create_task(link.request("stat", paths=[]))
    request = await transport.frame()
    with pytest.raises(HostError, match="no answer within") as caught:
        await asked
    assert caught.value.kind == "timeout"
    assert (await transport.frame(frames.CANCEL)).id == request.id


async def test_a_long_answer_is_joined_and_paid_for(pair: Start) -> None:
    link, transport = await pair()
    asked = asyncio.create_task(link.http(8000, "/metrics"))
    request = await transport.frame()
    for piece in (b"one ", b"two "):
        transport.say(Frame(frames.RESPONSE, request.id, {"more": True}, piece))
        assert await transport.frame(frames.CREDIT) == Frame(frames.CREDIT, request.id, {"n": 1})
    transport.say(Frame(frames.RESPONSE, request.id, {"result": {"status": 200, "headers": {}}}, b"three"))
    assert await asked == HttpAnswer(200, {}, b"one two three")


async def test_a_long_request_goes_in_pieces(pair: Start) -> None:
    link, transport = await pair()
    data = bytes(range(256)) * 1000
    asked = asyncio.create_task(link.request("write", data, path="/x"))
    got = b""
    while True:
        frame = await transport.frame()
        got += frame.body
        if "more" not in frame.head:
            break
    assert frame.head == {"method": "write", "params": {"path": "/x"}}
    assert got == data
    transport.say(Frame(frames.RESPONSE, frame.id, {"result": {"sha": "1"}}))
    assert await asked == {"sha": "1"}


async def test_a_batch_gives_chunks_answers_and_errors(pair: Start) -> None:
    link, transport = await pair()
    asked = asyncio.create_task(link.batch([("read", {"path": "/a"}), ("nope", {}), ("stat", {}), ("http", {"timeout": 1})]))
    head = {"offset": 0, "size": 3, "dev": 1, "inode": 2, "floor": 0}
    results = [
        {"result": head, "body": 3},
        {"error": {"step": "s", "why": "w", "remedy": "", "kind": "agent"}},
        {"result": [None]},
        {"result": {"status": 200, "headers": {}}, "body": 2},
    ]
    await transport.answer(results, b"abcok")
    chunk, error, stat, http = await asked
    assert chunk == Chunk(b"abc", 0, 3, 1, 2)
    assert isinstance(error, HostError)
    assert (stat, http) == ([None], HttpAnswer(200, {}, b"ok"))


def push(id_: int, number: int, patch: dict[str, Any], stream: str = "gpus") -> Frame:
    return Frame(frames.PUSH, id_, {"s": stream, "n": number, "boot": 10.0 + number, "wall": 20.0, "patch": patch})


async def test_a_stream_is_patched_and_paid_for(pair: Start) -> None:
    link, transport = await pair()
    got: list[Push] = []
    asked = asyncio.create_task(link.subscribe("gpus", 1.0, got.append, credits=4))
    request = await transport.frame()
    assert request.head["params"] == {"stream": "gpus", "interval": 1.0, "credits": 4}
    transport.say(push(request.id, 1, {"a": 1, "c": {"x": 1}}))  # before the answer
    transport.say(Frame(frames.RESPONSE, request.id, {"result": {"sub": request.id}}))
    transport.say(push(request.id, 2, {"a": None, "c": {"y": 2}}), push(request.id, 3, {}))
    for _ in range(3):
        assert await transport.frame(frames.CREDIT) == Frame(frames.CREDIT, request.id, {"n": 1})
    stop = await asked
    assert [(p.stream, p.number, p.boot, p.doc) for p in got] == [
        ("gpus", 1, 11.0, {"a": 1, "c": {"x": 1}}),
        ("gpus", 2, 12.0, {"c": {"x": 1, "y": 2}}),
        ("gpus", 3, 13.0, {"c": {"x": 1, "y": 2}}),
    ]
    assert got[1].changed == {"a": None, "c": {"y": 2}}
    stopping = asyncio.create_task(stop())
    assert (await transport.answer({})).head == {"method": "unsubscribe", "params": {"sub": request.id}}
    await stopping
    transport.say(push(request.id, 4, {}))
    asyncio.create_task(link.request("stat")).add_done_callback(lambda task: task.exception())
    await transport.answer([])  # the push after the end was dropped, without a credit
    assert len(got) == 3


async def test_a_listener_that_fails_harms_nobody(pair: Start, caplog: pytest.LogCaptureFixture) -> None:
    link, transport = await pair()
    asked = asyncio.create_task(link.subscribe("gpus", 1.0, lambda p: p.doc["missing"]))
    request = await transport.answer({"sub": 2})
    await asked
    transport.say(push(request.id, 1, {"a": 1}))
    await transport.frame(frames.CREDIT)
    assert "the listener of stream gpus failed" in caplog.text
    assert not link.ended.done()


async def test_the_module_that_the_agent_needs_is_sent(pair: Start) -> None:
    _link, transport = await pair()
    transport.say(push(0, 1, {"module": "os"}, "need"), push(0, 2, {"module": "pynvml"}, "need"))
    frame = await transport.answer({})
    assert frame.head == {"method": "provide", "params": {"module": "pynvml"}}
    assert b"def nvmlInit" in zlib.decompress(frame.body)
    assert transport.got.empty()  # os is not one to give


async def test_heartbeats_measure_the_round_trip(pair: Start) -> None:
    transport = Scripted()
    transport.auto = False
    link, _ = await pair(transport, beat=0.01)
    assert link.rtt is None
    beat = await transport.frame(frames.BEAT)
    transport.say(beat)
    await transport.frame(frames.BEAT)  # the next one, after that answer
    assert link.rtt is not None
    assert link.rtt > 0
    assert link.last_frame is not None
    assert link.sent > 0


@pytest.mark.fault(14, how="an agent that answers no heartbeat")
async def test_silence_is_the_end(pair: Start) -> None:
    transport = Scripted()
    transport.auto = False
    link, _ = await pair(transport, beat=0.01, silence=0.05)
    asked = asyncio.create_task(link.request("stat", paths=[]))
    error = await link.ended
    assert (error.kind, error.retry) == ("timeout", True)
    with pytest.raises(HostError, match="nothing came from the host"):
        await asked


async def test_the_end_of_the_agent_is_told_to_every_waiter(pair: Start) -> None:
    link, transport = await pair()
    asked = [asyncio.create_task(link.read("/x", 0, wait=100)) for _ in range(3)]
    for _ in asked:
        await transport.frame()
    transport.why = "killed by signal 9"
    transport.incoming.put_nowait(b"")
    errors = await asyncio.gather(*asked, return_exceptions=True)
    assert [(type(e), str(e)) for e in errors] == [(HostError, "connection: the agent ended: killed by signal 9")] * 3
    assert len({id(e) for e in errors}) == 3
    error = link.ended.result()
    assert (error.kind, error.retry) == ("closed", True)
    for later in (link.request("stat"), link.forward(1), link.subscribe("gpus", 1, lambda p: None)):
        with pytest.raises(HostError, match="killed by signal 9"):
            await later
    await link.close()
    assert transport.closed == 1


@pytest.mark.fault(15, how="bytes that are no frames, pushes and answers that lack fields")
@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", encode(Frame(frames.PUSH, 5, {"s": "gpus"})), encode(push(0, 1, {}))[:-1] + b"\0" * 40]
)
async def test_what_is_not_the_protocol_ends_the_link(pair: Start, data: bytes) -> None:
    link, transport = await pair()
    asked = asyncio.create_task(link.request("stat"))
    await transport.frame()
    transport.incoming.put_nowait(data)
    error = await link.ended
    assert (error.kind, error.retry) == ("protocol", True)
    with pytest.raises(HostError, match="not the protocol"):
        await asked
    await link.close()
    assert transport.closed == 1


async def test_close_is_quick_even_when_the_transport_hangs() -> None:
    class Hanging(Scripted):
        async def close(self) -> None:
            await asyncio.Event().wait()

    transport = Hanging()
    link = await opened(transport)
    asked = asyncio.create_task(link.request("stat"))
    await transport.frame()
    async with asyncio.timeout(10):
        await link.close()
    with pytest.raises(HostError, match="closed by this client"):
        await asked
    assert link.ended.result().retry is False


async def test_forward_goes_through_the_transport_where_it_can(pair: Start) -> None:
    link, _ = await pair()
    assert (await link.forward(8000)).port == 8000
    link, _ = await pair(ForwardingScripted())
    assert (await link.forward(8000)).port == 8001


@pytest.mark.fault(15, how="bytes that are no frames, pushes and answers that lack fields")
async def test_a_hello_that_is_no_host_info() -> None:
    transport = Scripted()
    transport.incoming.put_nowait(MARK)
    opening = asyncio.create_task(open_link(transport, NONCE, blob=b"blob"))
    await transport.answer({"hostname": "h"})
    with pytest.raises(HostError, match="'boot_id' is missing"):
        await opening
    assert transport.closed == 1
