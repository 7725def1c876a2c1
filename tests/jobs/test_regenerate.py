"""speculators' regenerate-responses: always resumed, torn lines mended, outages waited out, and counted by its files alone."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from eagletui.jobs.on_host import regenerate, server_gate, synthesise
from eagletui.jobs.on_host.chat import Unusable
from eagletui.jobs.on_host.telling import Teller
from tests.jobs.openai_server import OpenAIServer
from tests.jobs.synthesis import SRC, by_id, rows_of, settings_for

TOOLS = Path(__file__).with_name("tools")


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TOOLS), str(SRC)]))
    monkeypatch.setattr(regenerate, "TICK", 0.02)
    monkeypatch.setattr(server_gate.Gate.__init__, "__defaults__", (0.01,))


async def run(settings: dict[str, Any]) -> dict[str, Any]:
    """A whole run, in a thread as the tool is waited for there."""
    teller = Teller("prompts")
    prompts = synthesise.read_prompts(settings, teller)
    return await asyncio.to_thread(synthesise.by_speculators, settings, prompts, teller)


def wishes(tmp_path: Path, server: OpenAIServer, rows: Any = 5, **more: Any) -> dict[str, Any]:
    return settings_for(tmp_path, server, rows, tool="speculators", **more)


async def test_its_rows_are_counted_and_asked_once(tmp_path: Path) -> None:
    async with OpenAIServer() as server:
        settings = wishes(tmp_path, server, 6, temperature=0.5, seed=3, sampling={"top_p": 0.9}, enable_thinking=True)
        first = await run({**settings, "limit": 2})
        made = await run(settings)
        again = await run(settings)
    assert (first["rows"], made["rows"], made["failed"], made["missing"]) == (2, 6, 0, 0)
    assert again == made
    assert len(server.bodies) == 6
    assert len(by_id(rows_of(settings))) == 6
    body = server.bodies[0]
    assert (body["temperature"], body["seed"], body["top_p"]) == (0.5, 3, 0.9)
    assert body["chat_template_kwargs"] == {"enable_thinking": True}


async def test_a_limit_is_one_of_the_whole_not_of_each_run(tmp_path: Path) -> None:
    """Its own --limit does not count what is there already: each run would ask for as many again."""
    async with OpenAIServer() as server:
        settings = wishes(tmp_path, server, 10, limit=3)
        assert (await run(settings))["rows"] == 3
        assert (await run(settings))["rows"] == 3
        assert len(server.bodies) == 3


async def test_a_torn_line_does_not_swallow_the_next_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tool appends to a torn line of its own, and both rows are lost."""
    async with OpenAIServer() as server:
        settings = wishes(tmp_path, server, 5)
        monkeypatch.setenv("TOOL_TEARS", "p2_gen0")
        with pytest.raises(Unusable, match="regenerate-responses ended with status 137"):
            await run(settings)
        monkeypatch.delenv("TOOL_TEARS")
        made = await run(settings)
    assert (made["rows"], made["missing"], made["double"]) == (5, 0, 0)
    assert sorted(by_id(rows_of(settings))) == [f"p{n}_gen0" for n in range(5)]


async def test_rows_that_are_there_twice_count_once(tmp_path: Path) -> None:
    async with OpenAIServer() as server:
        settings = wishes(tmp_path, server, 3)
        await run(settings)
        raw = Path(settings["output"]) / regenerate.RAW
        raw.write_text(raw.read_text() * 2)
        made = await run(settings)
    assert (made["rows"], made["repaired"]) == (3, 3)
    assert len(by_id(rows_of(settings))) == 3


async def test_all_failed_is_no_success_though_it_ends_well(tmp_path: Path) -> None:
    async with OpenAIServer(fault=lambda body, number: {"status": 400, "reason": "no template"}) as server:
        made = await run(wishes(tmp_path, server, 4))
    assert (made["rows"], made["failed"], made["missing"], made["failed_share"]) == (0, 4, 0, 1.0)
    assert "no template" in next(iter(made["reasons"]))


async def test_empty_and_truncated_answers_are_counted_apart(tmp_path: Path) -> None:
    def fault(body: dict[str, Any], number: int) -> dict[str, Any] | None:
        kinds = {"question 1": {"content": None, "reasoning": "on and on"}, "question 2": {"finish": "length"}}
        return kinds.get(body["messages"][-1]["content"])

    async with OpenAIServer(fault=fault) as server:
        settings = wishes(tmp_path, server, 4, keep_truncated=False)
        made = await run(settings)
        assert (made["rows"], made["truncated"], made["empty"], made["failed"], made["set_aside"]) == (2, 1, 1, 0, 1)
        await run(settings)
        assert [body["messages"][0]["content"] for body in server.bodies[4:]] == ["question 1"]


async def test_without_a_server_nothing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tool marks all that is left as failed within seconds, and ends well."""
    waiting = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def die(body: dict[str, Any], number: int) -> None:
        if number == 4:
            await server.stop()

    class Told(Teller):
        def trouble(self, subject: str, text: str | None) -> None:
            if subject == "server" and text:
                loop.call_soon_threadsafe(waiting.set)

    monkeypatch.setattr(f"{__name__}.Teller", Told)
    async with OpenAIServer(fault=die) as server:
        settings = wishes(tmp_path, server, 12)
        task = asyncio.ensure_future(run(settings))
        await waiting.wait()
        await server.start()
        made = await task
    assert (made["rows"], made["failed"], made["missing"]) == (12, 0, 0)
    assert len(by_id(rows_of(settings))) == 12


async def test_a_server_whose_token_ids_it_does_not_find_is_not_asked_for_nothing(tmp_path: Path) -> None:
    """SGLang puts them where the tool does not look: every answer would be made, and thrown away."""

    async def slow(body: dict[str, Any], number: int) -> None:
        await asyncio.sleep(0.05)

    async with OpenAIServer(ids="sglang", fault=slow) as server:
        with pytest.raises(Unusable, match="no token ids where regenerate-responses looks for them: leave out tool"):
            await run(wishes(tmp_path, server, 200))
        assert len(server.bodies) < 200


async def test_conversations_that_it_ends_are_counted(tmp_path: Path) -> None:
    """It ends one whose prompt and answer are longer than max_tokens, and tells nobody."""
    turns = [{"role": "user", "content": text} for text in ("a short one", "another one " * 10, "the last one")]
    async with OpenAIServer() as server:
        made = await run(wishes(tmp_path, server, [{"id": "t", "messages": turns}]))
    assert (made["complete"], made["rows"], made["ended_early"]) == (1, 2, 1)


async def test_no_answer_for_long_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tool waits for ever, and says nothing."""
    monkeypatch.setattr(regenerate, "STALL_LEAST", 0.1)
    told: list[str | None] = []
    stalled = asyncio.Event()
    loop = asyncio.get_running_loop()

    class Told(Teller):
        def trouble(self, subject: str, text: str | None) -> None:
            told.append(text)
            loop.call_soon_threadsafe(stalled.set)

    async def hang(body: dict[str, Any], number: int) -> None:
        await stalled.wait()

    monkeypatch.setattr(f"{__name__}.Teller", Told)
    async with OpenAIServer(fault=hang) as server:
        await run(wishes(tmp_path, server, 1))
    assert told[0] is not None
    assert told[0].startswith("no new answer for ")
    assert told[-1] is None, "and taken back"


async def test_it_gets_a_file_of_one_schema_with_an_id_in_every_row(tmp_path: Path) -> None:
    rows = [{"conversations": [{"from": "human", "value": f"q{n}"}, {"from": "gpt", "value": "-"}], "more": n} for n in range(3)]
    async with OpenAIServer() as server:
        settings = wishes(tmp_path, server, rows)
        made = await run(settings)
    asked = [json.loads(line) for line in (tmp_path / "out" / regenerate.ASKED).read_text().splitlines()]
    assert made["rows"] == 3
    assert all(set(row) == {"id", "messages"} and row["id"].startswith("hash_") for row in asked)
