"""Which job is meant; and a log that is followed over the death of the agent."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from eagletui.commands import Desk, kill, kill_plan, launch, plan_launch
from eagletui.commands.find import find_job
from eagletui.commands.follow import from_there_on, last_lines
from eagletui.hosts.base import HostError
from eagletui.records import JobState
from tests.commands.conftest import fake

JOBS = [
    JobState("20261129-100000-k25-aaaa", "serve", "k25", "exited", 1.0),
    JobState("20261129-110000-k25-bbbb", "serve", "k25", "running", 2.0),
    JobState("20261129-120000-k25-cccc", "serve", "k25", "exited", 3.0),
    JobState("20261130-100000-synth-dddd", "command", "synth", "exited", 4.0),
    JobState("20261130-110000-past-eeee", "command", "past", "exited", 5.0),
    JobState("20261130-120000-past-ffff", "command", "past", "exited", 6.0),
    JobState("two-1", "serve", "two", "running", 7.0),
    JobState("two-2", "serve", "two", "lost_supervisor", 8.0, members=2),
]


@pytest.mark.parametrize(
    ("word", "tail"),
    [("k25", "bbbb"), ("20261129-12", "cccc"), ("synth", "dddd"), ("past", "ffff"), ("20261130-110000-past-eeee", "eeee")],
)
def test_the_job_that_is_meant(word: str, tail: str) -> None:
    assert find_job(JOBS, word).id.endswith(tail)


@pytest.mark.parametrize(
    ("word", "strict", "words"),
    [
        ("20261129", False, "may mean 3 jobs"),
        ("two", False, "may mean 2 jobs: two-1, two-2"),
        ("past", True, "may mean 2 jobs"),
        ("k52", False, "did you mean 'k25'?"),
        ("", False, "may mean"),
        ("zzzzzz", False, "`eagletui jobs HOST` lists them"),
    ],
)
def test_a_word_that_names_no_single_job(word: str, strict: bool, words: str) -> None:
    with pytest.raises(HostError) as refused:
        find_job(JOBS, word, strict=strict)
    assert words in str(refused.value)
    assert refused.value.kind == "config"


def test_the_remedy_names_the_host_as_the_person_did() -> None:
    with pytest.raises(HostError, match="`eagletui jobs user@box` lists them"):
        find_job(JOBS, "zzzzzz", host="user@box")


async def test_a_log_over_the_death_of_the_agent(desk: Desk, places: Path) -> None:
    go_on = places / "go-on"
    plan = await plan_launch(desk, fake("--hold", str(go_on)))
    await launch(desk, plan, {})
    log = places / "jobs" / "jobs" / plan.job / "log"
    async with asyncio.timeout(60):
        while not log.exists() or b"shards" not in log.read_bytes() or plan.job not in desk.store.jobs:
            await desk.watch.sample("jobs", desk.watch.count("jobs") + 1)
        job = desk.store.jobs[plan.job]
        data, last = await last_lines(desk, job, 10_000)
        link = desk.session._host
        os.killpg(link._transport._process.get_pid(), signal.SIGKILL)  # type: ignore[union-attr]
        go_on.touch()
        pieces = [data]
        async for piece in from_there_on(desk, job, last):
            pieces.append(piece)
            if b"startup complete" in piece:
                break
        assert desk.session._host is not link
        assert b"".join(pieces) == log.read_bytes()
        following = from_there_on(desk, job, last)
        await kill(desk, await kill_plan(desk, plan.job))
        pieces = [data] + [piece async for piece in following]  # ends by itself
    assert b"".join(pieces) == log.read_bytes()


async def test_the_last_lines(desk: Desk, places: Path) -> None:
    path = places / "a log"
    path.write_bytes(b"".join(b"%06d %s\n" % (n, b"x" * 90) for n in range(3000)) + b"no end")
    job = JobState("a", "command", "a", "exited", 1.0, log=str(path))
    for lines in (0, 1, 2, 1500, 5000):
        data, last = await last_lines(desk, job, lines)
        assert data == b"".join(path.read_bytes().splitlines(True)[-lines:] if lines else [])
        assert last.offset + len(last.data) == path.stat().st_size
    with pytest.raises(HostError) as absent:
        await last_lines(desk, job._replace(log=None), 1)
    assert absent.value.kind == "absent"
