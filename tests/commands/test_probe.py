"""A question to a server through the real client: both fields of reasoning, speed, acceptance, keys, stopping, failures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from eagletui.commands.desk import Desk
from eagletui.commands.probe import Answered, Piece, Probe, Sent
from eagletui.hosts.base import HostError
from eagletui.hosts.local import connect_local
from eagletui.profiles import Profile
from eagletui.records import JobState
from eagletui.store import Store
from tests.commands.chat_server import ChatServer

DELTAS = [
    {"role": "assistant", "content": ""},
    {"reasoning": "Let me "},
    {"reasoning": "think."},
    {"content": "Yes"},
    {"content": "."},
]


class Hosted:
    """What the probe needs of a desk, over this machine's own agent."""

    def __init__(self, link: Any, port: int | None) -> None:
        self.session, self.store = link, Store()
        self.launched: dict[str, Profile] = {}
        self.store.jobs["k25"] = JobState("k25", "serve", "k25", "running", 1.0, health="ready", port=port)


@pytest.fixture
async def hosted() -> Any:
    link = await connect_local()
    yield link
    await link.close()


@pytest.fixture
def servers() -> Iterator[Callable[..., ChatServer]]:
    made: list[ChatServer] = []

    def make(*args: Any, **options: Any) -> ChatServer:
        made.append(ChatServer(*args, **options))
        return made[-1]

    yield make
    for server in made:
        server.close()


def probe_of(link: Any, port: int | None) -> Probe:
    return Probe(cast(Desk, Hosted(link, port)), "k25")


async def asked(probe: Probe, key: str | None = None) -> list[Any]:
    try:
        return [event async for event in probe.ask("Is it?", key)]
    finally:
        await probe.close()


async def test_reasoning_and_answer_come_apart_with_speed_and_acceptance(hosted: Any, servers: Callable[..., ChatServer]) -> None:
    server = servers(DELTAS)
    events = await asked(probe_of(hosted, server.port))
    assert events[0] == Sent("kimi")
    pieces = [event for event in events if isinstance(event, Piece)]
    assert [(p.text, p.reasoning) for p in pieces] == [("Let me ", True), ("think.", True), ("Yes", False), (".", False)]
    assert pieces[-1].tokens == 10
    done = events[-1]
    assert isinstance(done, Answered)
    assert (done.tokens, done.prompt_tokens, done.why, done.stopped) == (10, 5, "stop", False)
    assert done.per_second is not None
    assert done.acceptance is not None
    assert (done.acceptance.drafted, done.acceptance.accepted, done.acceptance.length) == (15, 5, 2.0)
    assert done.alone is True
    assert server.requests[0]["messages"] == [{"role": "user", "content": "Is it?"}]


async def test_the_older_field_of_reasoning_is_read_too(hosted: Any, servers: Callable[..., ChatServer]) -> None:
    events = await asked(probe_of(hosted, servers([{"reasoning_content": "Hm."}, {"content": "No."}]).port))
    assert [(e.text, e.reasoning) for e in events if isinstance(e, Piece)] == [("Hm.", True), ("No.", False)]


async def test_other_traffic_is_told(hosted: Any, servers: Callable[..., ChatServer]) -> None:
    server = servers(DELTAS)
    server.others = 40
    done = (await asked(probe_of(hosted, server.port)))[-1]
    assert done.alone is False


async def test_a_silent_server_can_be_stopped(hosted: Any, servers: Callable[..., ChatServer]) -> None:
    server = servers([{"content": "One"}, None, {"content": "Two"}])
    probe = probe_of(hosted, server.port)
    events = []
    async for event in probe.ask("Is it?"):
        events.append(event)
        if isinstance(event, Piece):
            await asyncio.to_thread(server.waiting.wait, 30)
            probe.stop()
    await probe.close()
    assert [e.text for e in events if isinstance(e, Piece)] == ["One"]
    assert events[-1].stopped
    assert events[-1].tokens == 2


async def test_a_key_is_asked_for_taken_and_found_in_the_environment(
    hosted: Any, servers: Callable[..., ChatServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    server = servers(DELTAS, key="sesame")
    with pytest.raises(HostError, match="wants an API key") as caught:
        await asked(probe_of(hosted, server.port))
    assert caught.value.kind == "auth"
    with pytest.raises(HostError, match="refuses the key"):
        await asked(probe_of(hosted, server.port), "wrong")
    assert isinstance((await asked(probe_of(hosted, server.port), "sesame"))[-1], Answered)
    monkeypatch.setenv("K25_API_KEY", "sesame")
    probe = probe_of(hosted, server.port)
    probe._desk.launched["k25"] = Profile("k25", "vllm", "/m", secrets=("K25_API_KEY", "HF_TOKEN"))
    assert isinstance((await asked(probe))[-1], Answered)


async def test_a_model_without_a_chat_template_is_given_plain_text(hosted: Any, servers: Callable[..., ChatServer]) -> None:
    server = servers([{"content": "and on"}], template=False)
    events = await asked(probe_of(hosted, server.port))
    assert "no chat template" in events[0].note
    assert [e.text for e in events if isinstance(e, Piece)] == ["and on"]
    assert server.requests[-1]["prompt"] == "Is it?"


async def test_failures_are_one_line(hosted: Any, servers: Callable[..., ChatServer]) -> None:
    server = servers(DELTAS)
    server.error_chunk = "EngineCore encountered\nan issue"
    with pytest.raises(HostError, match="EngineCore encountered an issue"):
        await asked(probe_of(hosted, server.port))
    with pytest.raises(HostError, match="serves on no port"):
        await asked(probe_of(hosted, None))
    with pytest.raises(HostError, match="connection to the server broke"):
        await asked(probe_of(hosted, 1))


@pytest.mark.parametrize("models", [b"<html>it works</html>", b"[1, 2]", b'{"data": [', b"\xff"])
async def test_a_port_that_speaks_something_else_is_told_in_one_line(
    models: bytes, hosted: Any, servers: Callable[..., ChatServer]
) -> None:
    server = servers(DELTAS)
    server.models = models
    with pytest.raises(HostError) as caught:
        [event async for event in probe_of(hosted, server.port).ask("?")]
    assert caught.value.step == "probe"
    assert str(server.port) in caught.value.remedy


@pytest.mark.parametrize(
    "raw",
    [b'data: {"choices": [\n\n', b'data: {"choices": null}\n\n', b'data: {"choices": [{"delta": {"content": "\xff"}}]}\n\n'],
)
async def test_a_stream_that_is_none_is_told_in_one_line(raw: bytes, hosted: Any, servers: Callable[..., ChatServer]) -> None:
    server = servers(DELTAS)
    server.raw = raw
    with pytest.raises(HostError, match="no answer of the OpenAI API"):
        [event async for event in probe_of(hosted, server.port).ask("?")]


async def test_counts_that_are_no_numbers_and_words_that_are_no_text_are_no_end(
    hosted: Any, servers: Callable[..., ChatServer]
) -> None:
    server = servers(DELTAS)
    server.raw = b'data: {"choices": [{"delta": {"content": ["a"]}}], "usage": {"completion_tokens": "many"}}\n\ndata: [DONE]\n\n'
    events = [event async for event in probe_of(hosted, server.port).ask("?")]
    assert isinstance(events[1], Piece)
    assert events[1].text == "['a']"
    assert isinstance(events[-1], Answered)
    assert events[-1].tokens is None
