"""Answers to prompts against a small stand-in for an engine's server: what is asked, what is kept, what goes wrong."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from eagletui.jobs.on_host import asking, figures, server_gate, synthesise
from eagletui.jobs.on_host.chat import Unusable
from eagletui.jobs.on_host.journal import Journal
from eagletui.jobs.on_host.stopping import Stop
from eagletui.jobs.on_host.telling import Teller
from tests.jobs.openai_server import OpenAIServer, answer_of, tokens_of
from tests.jobs.synthesis import by_id, rows_of, run, settings_for

TALK = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "an answer of another model"},
    {"role": "user", "content": "two"},
    {"role": "user", "content": "three"},
]


class Troubles:
    """What is told of the server, as it is told."""

    def __init__(self) -> None:
        self._told: asyncio.Queue[str] = asyncio.Queue()

    def tell(self, text: str | None) -> None:
        self._told.put_nowait(text or "")

    async def until(self, words: str) -> None:
        """Wait until these words are told."""
        while words not in await self._told.get():
            pass


@pytest.fixture
def troubles(monkeypatch: pytest.MonkeyPatch) -> Troubles:
    told = Troubles()
    monkeypatch.setattr(synthesise.Run, "_server_words", lambda self, text: told.tell(text))
    return told


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "LONGEST_PAUSE", 0.01)
    monkeypatch.setattr(server_gate, "AGAIN", 0.01)
    monkeypatch.setattr(server_gate.Gate.__init__, "__defaults__", (0.01,))


async def test_each_prompt_becomes_a_row_with_its_tokens(tmp_path: Path) -> None:
    async with OpenAIServer() as server:
        settings = settings_for(tmp_path, server, 3, temperature=0.0, sampling={"top_p": 0.9, "top_k": 5}, enable_thinking=False)
        made = await run(settings)
    assert (made["rows"], made["answers"], made["failed"], made["missing"]) == (3, 3, 0, 0)
    rows = by_id(rows_of(settings))
    assert sorted(rows) == ["p0_gen0", "p1_gen0", "p2_gen0"]
    row = rows["p1_gen0"]
    answer = answer_of([{"role": "user", "content": "question 1"}])
    assert row["answer"] == answer
    assert row["input_ids"] == tokens_of("question 1" + answer)
    assert row["loss_mask"] == [0] * len("question 1") + [1] * len(answer)
    assert made["tokens"] == 3 * len(answer)
    body = server.bodies[0]
    assert body["return_token_ids"] is True
    assert (body["temperature"], body["top_p"], body["top_k"], body["max_tokens"]) == (0.0, 0.9, 5, 64)
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert "seed" not in body


async def test_every_answer_stands_on_the_models_own_earlier_ones(tmp_path: Path) -> None:
    """One row a generation, with the tokens of that very request: no template has to be asked again for its context."""

    def reason(body: dict[str, Any], number: int) -> dict[str, Any]:
        return {"reasoning": "thought", "reasoning_name": "reasoning"}

    async with OpenAIServer(fault=reason) as server:
        settings = settings_for(tmp_path, server, [{"id": "t", "messages": TALK}])
        made = await run(settings)
    assert made["rows"] == 3
    rows = rows_of(settings)
    first, second, third = (row["answer"] for row in rows)
    assert [row["id"] for row in rows] == ["t_gen0", "t_gen1", "t_gen2"]
    assert server.bodies[2]["messages"] == [
        TALK[0],
        TALK[1],
        {"role": "assistant", "content": first},
        TALK[3],
        {"role": "assistant", "content": second},
        TALK[4],
    ]
    assert "an answer of another model" not in json.dumps(server.bodies)
    assert rows[2]["prompt"] == server.bodies[2]["messages"]
    assert rows[2]["reasoning_content"] == "thought"
    assert sum(rows[2]["loss_mask"]) == len("thought" + third)
    assert rows[2]["input_ids"] == tokens_of("".join(turn["content"] for turn in rows[2]["prompt"]) + "thought" + third)


async def test_seeds_follow_from_the_prompt_and_differ(tmp_path: Path) -> None:
    async with OpenAIServer() as server:
        await run(settings_for(tmp_path, server, 3, seed=1))
        first = {body["messages"][0]["content"]: body["seed"] for body in server.bodies}
        server.bodies.clear()
        await run(settings_for(tmp_path, server, 3, seed=1, output=str(tmp_path / "again")))
        again = {body["messages"][0]["content"]: body["seed"] for body in server.bodies}
    assert first == again
    assert len(set(first.values())) == 3


@pytest.mark.parametrize("keep", [True, False])
async def test_truncated_and_empty_answers_are_counted_apart_and_filtered(tmp_path: Path, keep: bool) -> None:
    wishes = {
        "question 1": {"finish": "length"},
        "question 2": {"content": None, "reasoning": "on and on", "finish": "length"},
        "question 3": {"content": " \n"},
    }

    def fault(body: dict[str, Any], number: int) -> dict[str, Any] | None:
        return wishes.get(body["messages"][-1]["content"])

    async with OpenAIServer(fault=fault) as server:
        settings = settings_for(tmp_path, server, 5, keep_truncated=keep, keep_empty=keep)
        made = await run(settings)
        asked = len(server.bodies)
        again = await run(settings)
        assert len(server.bodies) == asked, "what was set aside is not asked again"
    assert (made["answers"], made["truncated"], made["empty"], made["failed"]) == (5, 2, 2, 0)
    assert made["truncated_share"] == 0.4
    assert len(rows_of(settings)) == made["rows"] == (5 if keep else 2)
    assert len(rows_of(settings, "set_aside.jsonl")) == made["set_aside"] == (0 if keep else 3)
    assert again == made


async def test_nobody_answers_on_top_of_a_cut_answer(tmp_path: Path) -> None:
    def fault(body: dict[str, Any], number: int) -> dict[str, Any] | None:
        return {"finish": "length"} if len(body["messages"]) == 4 else None

    async with OpenAIServer(fault=fault) as server:
        settings = settings_for(tmp_path, server, [{"id": "t", "messages": TALK}])
        made = await run(settings)
        assert (made["complete"], made["rows"], made["truncated"], made["ended_early"]) == (1, 2, 1, 1)
        await run(settings)
        assert len(server.bodies) == 2


@pytest.mark.parametrize(
    "fault", [{"status": 500}, {"status": 503}, {"status": 429}, {"cut": True}, {"cut_body": True}, {"finish": "abort"}]
)
async def test_what_goes_wrong_once_is_asked_again(tmp_path: Path, fault: dict[str, Any]) -> None:
    seen: set[str] = set()

    def first_time(body: dict[str, Any], number: int) -> dict[str, Any] | None:
        words = body["messages"][-1]["content"]
        new, _ = words not in seen, seen.add(words)
        return fault if new else None

    async with OpenAIServer(fault=first_time) as server:
        settings = settings_for(tmp_path, server, 4)
        made = await run(settings)
    assert (made["rows"], made["failed"]) == (4, 0)
    assert len(server.bodies) == 8


async def test_a_refused_prompt_fails_at_once_with_its_reason_and_is_tried_again_by_the_next_run(tmp_path: Path) -> None:
    refuse = True

    def fault(body: dict[str, Any], number: int) -> dict[str, Any] | None:
        words = body["messages"][-1]["content"]
        return {"status": 400, "reason": "This model's maximum context length is 9"} if refuse and words == "question 1" else None

    async with OpenAIServer(fault=fault) as server:
        settings = settings_for(tmp_path, server, 3)
        made = await run(settings)
        assert (made["rows"], made["failed"], made["missing"]) == (2, 1, 0)
        assert made["reasons"] == {"HTTP 400: This model's maximum context length is 9": 1}
        [error] = rows_of(settings, "errors.jsonl")
        assert (error["id"], error["status"], error["attempts"]) == ("p1", 400, 1)
        refuse = False
        again = await run(settings)
        assert (again["rows"], again["failed"]) == (3, 0)
        assert rows_of(settings, "errors.jsonl") == []
        assert len(server.bodies) == 4


async def test_what_fails_for_good_is_counted_after_its_retries(tmp_path: Path) -> None:
    def fault(body: dict[str, Any], number: int) -> dict[str, Any] | None:
        return {"status": 500, "reason": "boom"} if body["messages"][-1]["content"] == "question 1" else None

    async with OpenAIServer(fault=fault) as server:
        settings = settings_for(tmp_path, server, 3)
        made = await run(settings)
    assert (made["rows"], made["failed"], made["reasons"]) == (2, 1, {"HTTP 500: boom": 1})
    assert rows_of(settings, "errors.jsonl")[0]["attempts"] == 3


async def test_many_failures_in_a_row_stop_it(tmp_path: Path) -> None:
    async with OpenAIServer(fault=lambda body, number: {"status": 400, "reason": "no template"}) as server:
        with pytest.raises(Stop, match=r"5 prompts in a row failed, the last one with: HTTP 400: no template"):
            await run(settings_for(tmp_path, server, 30, stop_after_failures=5))
        assert len(server.bodies) < 30


async def test_a_server_that_dies_and_comes_back_costs_no_row(tmp_path: Path, troubles: Troubles) -> None:
    """Requests that are out when it dies, and all that come after, are not blamed, however few retries there are."""
    died = asyncio.Event()

    async def die(body: dict[str, Any], number: int) -> dict[str, Any] | None:
        if number == 6 and not died.is_set():
            died.set()
            await server.stop()
        return None

    async with OpenAIServer(fault=die) as server:
        settings = settings_for(tmp_path, server, 20, retries=0)
        task = asyncio.ensure_future(run(settings))
        await died.wait()
        await troubles.until("away")
        await server.start()
        made = await task
    assert (made["rows"], made["failed"], made["missing"]) == (20, 0, 0)
    assert len(by_id(rows_of(settings))) == 20


async def test_a_dead_engine_behind_a_living_server_is_waited_for(tmp_path: Path, troubles: Troubles) -> None:
    async def dead(body: dict[str, Any], number: int) -> dict[str, Any] | None:
        return {"status": 500, "reason": "EngineDeadError"} if server.dead else None

    async with OpenAIServer(fault=dead) as server:
        settings = settings_for(tmp_path, server, 5, retries=0)
        await run({**settings, "limit": 1})
        server.dead = "yes"
        task = asyncio.ensure_future(run(settings))
        await troubles.until("not there yet")
        server.dead = None
        made = await task
    assert (made["rows"], made["failed"]) == (5, 0)


async def test_a_server_that_stays_away_ends_it_with_all_rows_kept(tmp_path: Path) -> None:
    async def die(body: dict[str, Any], number: int) -> None:
        if number == 3:
            await server.stop()

    async with OpenAIServer(fault=die) as server:
        settings = settings_for(tmp_path, server, 10, concurrency=1, server_wait=0.05)
        with pytest.raises(Unusable, match=r"the server is away, for 0 s"):
            await run(settings)
        assert len(rows_of(settings)) == 2
        assert rows_of(settings, "errors.jsonl") == []
        await server.start()
        assert (await run(settings))["rows"] == 10


async def test_a_server_that_comes_back_with_another_model_is_not_asked(tmp_path: Path, troubles: Troubles) -> None:
    async def change(body: dict[str, Any], number: int) -> None:
        if number == 3:
            await server.stop()
            server.model = "other"
            await server.start()
            server.dead = "yes"

    async with OpenAIServer(fault=change) as server:
        settings = settings_for(tmp_path, server, 10, concurrency=1)
        task = asyncio.ensure_future(run(settings))
        await troubles.until("away")
        server.dead = None
        with pytest.raises(Unusable, match="came back with another model"):
            await task


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"model": "big"}, "the server does not have big but tiny"),
        ({"max_tokens": 4096}, "max_tokens 4096 leaves no room for a prompt: the server's context is 4096"),
        ({"api_key_env": "NO_SUCH_KEY"}, "NO_SUCH_KEY, which should hold the server's key, is not set"),
    ],
)
async def test_what_cannot_work_is_told_before_anything_is_asked(tmp_path: Path, more: dict[str, Any], words: str) -> None:
    async with OpenAIServer() as server:
        with pytest.raises((Stop, Unusable), match=words):
            await run(settings_for(tmp_path, server, 3, **more))
    assert server.bodies == []
    assert not (tmp_path / "out").exists()


async def test_bad_prompts_are_refused_before_the_server_is_asked(tmp_path: Path) -> None:
    good = {"id": "a", "messages": [{"role": "user", "content": "x"}]}
    settings = settings_for(tmp_path, "http://127.0.0.1:9/v1", [good, {"id": "b", "messages": []}])
    with pytest.raises(Stop, match=r"1 rows cannot be used \(line 2: messages is no list of turns, or empty\): mend them"):
        await run(settings)
    async with OpenAIServer() as server:
        made = await run({**settings, "endpoint": server.endpoint, "skip_invalid": True})
    assert (made["rows"], made["invalid"], made["prompts"]) == (1, 1, 1)


@pytest.mark.parametrize("rows", [0, [{"id": "a", "conversations": []}]])
async def test_no_prompts_at_all_are_told(tmp_path: Path, rows: Any) -> None:
    with pytest.raises(Stop, match=r"has no prompts|cannot be used"):
        await run(settings_for(tmp_path, "http://127.0.0.1:9/v1", rows))


async def test_other_inputs_never_go_into_the_same_output(tmp_path: Path) -> None:
    async with OpenAIServer() as server:
        settings = settings_for(tmp_path, server, 3)
        await run(settings)
        for change in ({"temperature": 1.0}, {"max_tokens": 32}, {"keep_empty": True}, {"seed": 3}):
            with pytest.raises(Stop, match="was made of other inputs"):
                await run({**settings, **change})
        with pytest.raises(Stop, match="was made of other inputs"):
            await run(settings_for(tmp_path, server, 4))


async def test_a_larger_limit_goes_on_with_what_is_there(tmp_path: Path) -> None:
    async with OpenAIServer() as server:
        settings = settings_for(tmp_path, server, 30)
        assert (await run({**settings, "limit": 2}))["rows"] == 2
        assert (await run({**settings, "limit": 10}))["rows"] == 10
        assert (await run(settings))["rows"] == 30
        assert len(server.bodies) == 30
    assert len(by_id(rows_of(settings))) == 30


async def test_two_runs_never_write_to_one_output(tmp_path: Path) -> None:
    asked, gate = asyncio.Event(), asyncio.Event()

    async def wait(body: dict[str, Any], number: int) -> None:
        asked.set()
        await gate.wait()

    async with OpenAIServer(fault=wait) as server:
        settings = settings_for(tmp_path, server, 3)
        first = asyncio.ensure_future(run(settings))
        await asked.wait()
        with pytest.raises(Stop, match="another job writes to"):
            await run(settings)
        gate.set()
        assert (await first)["rows"] == 3


async def test_the_key_goes_to_the_server_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ENGINE_KEY", "hunter2-secret")
    async with OpenAIServer() as server:
        await run(settings_for(tmp_path, server, 2, api_key_env="ENGINE_KEY"))
    assert {headers.get("authorization") for headers in server.headers} == {"Bearer hunter2-secret"}
    written = capfd.readouterr().out + "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    assert "hunter2" not in written


async def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with OpenAIServer() as server:
        assert (await run(settings_for(tmp_path, server, 2)))["rows"] == 2


async def test_no_answer_is_waited_for_longer_than_is_asked(tmp_path: Path) -> None:
    async def hang(body: dict[str, Any], number: int) -> None:
        if number == 1:
            await asyncio.Event().wait()

    async with OpenAIServer(fault=hang) as server:
        made = await run(settings_for(tmp_path, server, 1, request_timeout=0.2))
    assert (made["rows"], len(server.bodies)) == (1, 2)


@pytest.mark.parametrize("ids", ["vllm", "sglang", None])
async def test_either_engines_token_ids_or_none(tmp_path: Path, ids: str | None) -> None:
    async with OpenAIServer(ids=ids) as server:
        settings = settings_for(tmp_path, server, 2)
        made = await run(settings)
    assert made["without_ids"] == (2 if ids is None else 0)
    assert made["tokens"] == 2 * len("answer 123456789012")
    assert all(("input_ids" in row) == (ids is not None) for row in rows_of(settings))


async def test_what_is_allowed_more_is_used_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of half an hour must not have to end before more may begin."""
    monkeypatch.setattr(synthesise, "WINDOW", 0.05)
    monkeypatch.setattr(synthesise, "TICK", 0.02)
    many = asyncio.Event()

    async def long(body: dict[str, Any], number: int) -> None:
        if number == 30:
            many.set()
        await many.wait()

    async with OpenAIServer(fault=long) as server:
        server.waiting = 0.0
        made = await run(settings_for(tmp_path, server, 40, concurrency=40))
    assert made["rows"] == 40
    assert server.most_flying >= 30


async def test_a_queue_in_the_server_slows_it_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(synthesise, "WINDOW", 0.02)
    monkeypatch.setattr(synthesise, "TICK", 0.01)
    looked = asyncio.Event()
    page = OpenAIServer.metrics_page

    def seen(server: OpenAIServer) -> str:
        if server.flying:
            looked.set()
        return page(server)

    async def fault(body: dict[str, Any], number: int) -> None:
        await looked.wait()

    monkeypatch.setattr(OpenAIServer, "metrics_page", seen)
    async with OpenAIServer(fault=fault) as server:
        server.waiting = 3.0
        await run(settings_for(tmp_path, server, 40, concurrency=64))
    assert "concurrency 8 -> 5: 3 wait in the server's queue" in capfd.readouterr().out


@pytest.mark.parametrize("method", ["append", "sync"])
async def test_a_disk_that_fails_ends_it_and_what_was_written_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(synthesise, "TICK", 0.01)
    monkeypatch.setattr(synthesise, "SYNC_EVERY", 0.0)
    whole = getattr(Journal, method)
    calls = 0

    def full(journal: Journal, *row: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        whole(journal, *row)

    monkeypatch.setattr(Journal, method, full)
    gate = asyncio.Event()

    async def slow(body: dict[str, Any], number: int) -> None:
        if number == 8 and calls < 4:
            await gate.wait()

    async with OpenAIServer(fault=slow) as server:
        settings = settings_for(tmp_path, server, 12, concurrency=1)
        with pytest.raises(OSError, match="No space left"):
            await run(settings)
        gate.set()
        assert (await run(settings))["rows"] == 12
    assert len(by_id(rows_of(settings))) == 12


async def test_a_request_that_hangs_is_told_while_it_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "STALL_LEAST", 0.1)
    monkeypatch.setattr(synthesise, "TICK", 0.02)
    told: list[tuple[str, str | None]] = []
    stalled = asyncio.Event()

    class Told(Teller):
        def trouble(self, subject: str, text: str | None) -> None:
            told.append((subject, text))
            stalled.set()

    async def hang(body: dict[str, Any], number: int) -> None:
        await stalled.wait()

    monkeypatch.setattr("tests.jobs.synthesis.Teller", Told)
    async with OpenAIServer(fault=hang) as server:
        assert (await run(settings_for(tmp_path, server, 1)))["rows"] == 1
    subject, text = told[0]
    assert subject == "requests"
    assert text is not None
    assert text.startswith("1 wait for more than 0 s, the longest (p0) for 0 s")


async def test_concurrency_is_bounded(tmp_path: Path) -> None:
    async def slow(body: dict[str, Any], number: int) -> None:
        await asyncio.sleep(0)

    async with OpenAIServer(fault=slow) as server:
        await run(settings_for(tmp_path, server, 40, concurrency=3))
    assert server.most_flying <= 3


def test_the_program_tells_why_it_stopped_and_ends_accordingly(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    settings = settings_for(tmp_path, "http://127.0.0.1:9/v1", 2, server_wait=0)
    assert synthesise.main([json.dumps(settings)]) == 1
    told = [json.loads(line) for line in capfd.readouterr().out.splitlines() if line.startswith('{"eagletui"')]
    assert told[-1]["eagletui"] == "result"
    assert told[-1]["why"].startswith("the server is not there yet")
    assert synthesise.main([json.dumps({**settings, "prompts": str(tmp_path / "none")})]) == 2
    assert os.listdir(tmp_path) == ["prompts.jsonl"]
