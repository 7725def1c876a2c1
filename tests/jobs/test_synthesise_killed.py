"""A synthesis killed at any moment and started again: the same rows as without, none lost, none twice."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from eagletui.jobs.on_host import synthesise
from tests.jobs.openai_server import OpenAIServer
from tests.jobs.synthesis import Forker, by_id, rows_of, run, settings_for

PROMPTS: list[Any] = [
    {
        "id": f"p{n}",
        "messages": [{"role": "user", "content": f"question {n}.{turn}"} for turn in range(1 + n % 3)],
    }
    for n in range(24)
]


def faults(body: dict[str, Any], number: int) -> dict[str, Any] | None:
    """What follows from the words alone, so that each run meets the same."""
    words = body["messages"][-1]["content"]
    if words == "question 5.1":
        return {"finish": "length"}
    if words == "question 11.0":
        return {"content": None, "reasoning": "on and on", "finish": "length"}
    return {"status": 400, "reason": "too long"} if words == "question 8.2" else None


async def undisturbed(tmp_path: Path) -> dict[str, dict[str, Any]]:
    """The rows of a run that nothing happens to."""
    tmp_path.mkdir()
    async with OpenAIServer(fault=faults) as server:
        settings = settings_for(tmp_path, server, PROMPTS, seed=3)
        made = await run(settings)
    assert (made["failed"], made["complete"]) == (1, 23)
    return {**by_id(rows_of(settings)), **by_id(rows_of(settings, "set_aside.jsonl"))}


async def test_killed_again_and_again_it_makes_the_same_rows(tmp_path: Path) -> None:
    """Each run is killed while it asks: some when a request comes in, some a little later, when rows are being written."""
    wanted = await undisturbed(tmp_path / "calm")
    chance = random.Random(1)
    reached = asyncio.Event()
    kill_at = 0

    async def fault(body: dict[str, Any], number: int) -> dict[str, Any] | None:
        if number >= kill_at:
            reached.set()
        return faults(body, number)

    kills = 0
    async with OpenAIServer(fault=fault) as server, Forker(synthesise.__name__, tmp_path / "log") as forker:
        settings = settings_for(tmp_path, server, PROMPTS, seed=3)
        while kills < 100:
            reached.clear()
            kill_at = len(server.bodies) + chance.choice((2, 5, 9))
            pid = await forker.start(settings)
            ended = asyncio.ensure_future(forker.status())
            waiting = asyncio.ensure_future(reached.wait())
            await asyncio.wait((ended, waiting), return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if not ended.done():
                await asyncio.sleep(chance.choice((0.0, 0.002, 0.01)))
                await forker.kill(pid)
            if await ended == 0:
                break
            kills += 1
    assert kills >= 4
    told = forker.told()[-1]
    assert (told["eagletui"], told["complete"], told["failed"], told["missing"], told["double"]) == ("result", 23, 1, 0, 0)
    there = {**by_id(rows_of(settings)), **by_id(rows_of(settings, "set_aside.jsonl"))}
    assert there == wanted
    assert [row["id"] for row in rows_of(settings, "errors.jsonl")] == ["p8"]


@pytest.mark.parametrize("name", ["answers.jsonl", "set_aside.jsonl"])
async def test_a_row_torn_at_any_byte_is_asked_for_again_and_nothing_else_is(tmp_path: Path, name: str) -> None:
    async with OpenAIServer(fault=faults) as server:
        settings = settings_for(tmp_path, server, PROMPTS[4:7], seed=3, keep_truncated=False)
        await run(settings)
        path = Path(settings["output"]) / name
        whole = path.read_bytes()
        wanted = by_id(rows_of(settings, name))
        start = whole.rstrip(b"\n").rfind(b"\n") + 1
        cuts = random.Random(2).sample(range(start, len(whole)), 3)
        for cut in [start, start + 1, len(whole) - 1, *cuts]:
            path.write_bytes(whole[:cut])
            server.bodies.clear()
            made = await run(settings)
            assert made["double"] == 0
            assert by_id(rows_of(settings, name)) == wanted
            assert len(server.bodies) == 1


async def test_what_others_did_to_the_file_is_told_and_mended(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with OpenAIServer() as server:
        settings = settings_for(tmp_path, server, PROMPTS[:6])
        await run(settings)
        path = Path(settings["output"]) / "answers.jsonl"
        rows = path.read_text().splitlines()
        wanted = by_id(rows_of(settings))
        lost = next(number for number, row in enumerate(rows) if '"id":"p2_gen0"' in row)
        path.write_text("\n".join([*rows[:lost], "garbage", *rows[lost + 1 :], rows[0]]) + "\n")
        made = await run(settings)
    assert "lines that are no rows, or rows twice, were left out" in capfd.readouterr().out
    assert made["double"] == 0
    assert by_id(rows_of(settings)) == wanted
