"""The whole story with a real OpenSSH server and a real engine: launch, load, questions, acceptance, kill, and nothing left.

Each test starts the engine once. What is shown must equal what the server's own counters give, exactly.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest

from eagletui.commands import Desk, kill, kill_plan, launch, plan_launch, profiles, remove_job, wait_ready
from eagletui.labparts.paths import Lab
from eagletui.profiles import with_changes
from eagletui.records import JobState, Percentiles, ServerView, ServerWindow
from tests.lab.story import LOAD_SECONDS, QUESTIONS, STEP_SECONDS, Story, Traces, phases_in_order, sha, states_of, story_in
from tests.lab.story_numbers import (
    WINDOWS,
    Expected,
    Waits,
    acceptance_texts,
    bounds,
    expected,
    last_worked,
    of_line,
    throughput_texts,
)
from tests.lab.story_screen import Dashboard, dashboard


@pytest.fixture
async def story(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Story]:
    async with story_in(tmp_path / "story", lab, tmp_path, monkeypatch) as one:
        yield one


def as_waits(found: Percentiles | None) -> Waits | None:
    if found is None:
        return None
    return Waits(found.observations, *(getattr(found, name) for name in ("p50", "p90", "p99", "mean")))


def as_expected(window: ServerWindow) -> Expected:
    """A shown window in the shape of the independent calculation."""
    gain = window.acceptance
    assert gain is not None
    assert gain.seconds == window.seconds
    assert not gain.restarted
    assert not window.restarted
    return Expected(
        window.seconds, window.prompt_per_s, window.generated_per_s, window.finished_per_s, window.prefix_hit_rate,
        gain.verify_steps, gain.drafted, gain.accepted, gain.rate, gain.length, gain.per_position,
        as_waits(window.ttft), as_waits(window.itl),
    )  # fmt: skip  # type: ignore[arg-type]


def assert_view(story: Story, view: ServerView) -> list[str]:
    """Every window of a view equals what its two scrapes give; the labels of those whose raw pages were kept."""
    lines = story.lines(view.job, view.boot)
    assert lines[-1]["boot"] == view.boot
    by_pages = []
    for label, seconds in WINDOWS:
        window, pair = view.window(label), bounds(lines, seconds)
        if pair is None:
            assert window is None
            continue
        older, newer = (of_line(line) for line in pair)
        length = pair[1]["boot"] - pair[0]["boot"]
        assert window is not None
        assert as_expected(window) == expected(older, newer, length), label
        raw_older, raw_newer = story.raw(older), story.raw(newer)
        if raw_older is not None and raw_newer is not None:
            assert as_expected(window) == expected(raw_older, raw_newer, length), label
            by_pages.append(label)
    return by_pages


def assert_charts(story: Story, desk: Desk, job: str, until: float) -> None:
    """The charts hold one point for every two scrapes that the host has recorded up to ``until``: none lost, none doubled."""
    lines = story.lines(job, until)
    want = {
        line["boot"]: expected(of_line(before), of_line(line), line["boot"] - before["boot"]) for before, line in pairwise(lines)
    }
    charts = {
        "generated": {boot: one.generated for boot, one in want.items()},
        "prompt": {boot: one.prompt for boot, one in want.items()},
        "length": {boot: one.length for boot, one in want.items()},
        "rate": {boot: one.rate for boot, one in want.items()},
        "running": {line["boot"]: line["running"] for line in lines[1:]},
        "kv": {line["boot"]: line["kv"] for line in lines[1:]},
    }
    for name, points in charts.items():
        times, values = desk.store.series["server", job, name].window()
        shown = [(at, None if value != value else value) for at, value in zip(times, values, strict=True) if at <= until]
        # a lost link leaves a gap of its own between two points; it stands at a time that is no scrape's
        shown = [(at, value) for at, value in shown if value is not None or at in points]
        assert [at for at, _ in shown] == list(points), name
        assert dict(shown) == points, name


async def ask_all(story: Story, desk: Desk, job: str) -> None:
    """One question after the other, then several at once; what the askers were told is what the counters say."""
    before = await story.quiet(desk, job, 1)  # the supervisor's own first question
    assert before.generated == 16
    done = 1
    answers = []
    for question in QUESTIONS[:2]:
        answers.append(await story.ask(question))
        done += 1
        after = await story.quiet(desk, job, done)
    answers += await asyncio.gather(*(story.ask(question) for question in QUESTIONS))
    after = await story.quiet(desk, job, done + len(QUESTIONS))
    assert after.generated - before.generated == sum(answer.generated for answer in answers)
    assert after.prompt - before.prompt == sum(answer.prompt for answer in answers)
    assert after.drafted == 3 * after.steps
    assert 0.03 < after.accepted / after.drafted < 0.7


async def test_the_whole_story_by_commands(story: Story) -> None:
    traces = Traces(story)
    desk = await story.desk()
    found, notices = await asyncio.to_thread(profiles, desk)
    assert notices == []
    profile = with_changes(found["lab-eagle3"], [f"port={story.port}"])
    with states_of(desk, profile.name) as states:
        plan = await plan_launch(desk, profile)
        assert (plan.warnings, plan.missing) == ((), ())
        assert str(story.port) in plan.command
        job = (await launch(desk, plan, {})).id
        assert job == plan.job
        async with asyncio.timeout(LOAD_SECONDS):
            state = await wait_ready(desk, job, lambda _state: None)
        assert (state.state, state.health) == ("running", "ready"), story.told(desk, job)
        await story.until(desk, job, lambda: bool(desk.store.jobs[job].smoke_tokens_per_s), "the first answer", STEP_SECONDS)
    order = phases_in_order(states)
    assert [key for key in order if key[0] in ("weights", "kv", "api", "ready")] == [
        ("weights", "target"), ("weights", "drafter"), ("kv", None), ("api", None), ("ready", None),
    ], story.told(desk, job)  # fmt: skip
    assert len({state.phase for state in states}) > 4, "phases are seen as they happen, not all at the end"
    state = desk.store.jobs[job]
    assert (state.engine, state.k, state.port, state.listening) == ("vllm", 3, story.port, True)

    await ask_all(story, desk, job)
    assert "all" in assert_view(story, desk.store.servers[job])
    assert_view(story, desk.store.last_busy[job])
    assert_charts(story, desk, job, desk.store.servers[job].boot)

    doomed = await kill_plan(desk, job)
    assert len(doomed.processes) > 1
    assert doomed.listening
    traces.living(doomed)
    report = await kill(desk, doomed)
    assert report.done, report
    assert report.remaining == ()
    assert any(str(story.port) in line for line in report.released), report
    traces.assert_gone()
    await story.until(desk, job, lambda: desk.store.jobs[job].state == "exited", "the end is shown", STEP_SECONDS)
    await remove_job(desk, job)
    assert not (story.jobs / job).exists()


async def test_a_connection_that_is_cut_in_the_middle_of_the_load(story: Story) -> None:
    """Dashboard and command line over a network that fails while the shards load; the job neither notices nor is lost."""
    traces = Traces(story)
    near, far = await story.desk(), await story.desk(far=True)
    there = str(story.target(far=True))
    launching = await story.start(
        "launch", there, "lab-slow", "--wait", f"--set=port={story.port}", "--set=env.LAB_SHARD_DELAY=2"
    )
    with states_of(near, "lab-slow") as near_states, states_of(far, "lab-slow") as far_states:
        async with dashboard(story, far) as shown:
            await shown.press("3")
            text = await shown.until(lambda text: " 4/16 shards" in text, "4 of 16 shards are drawn", LOAD_SECONDS)
            assert "weights target" in text
            job = near_states[-1].id
            following = await story.start("logs", there, job, "--follow", "--raw", "--lines=1000000")
            await story.proxy.traffic()
            await shown.until(lambda text: " 5/16 shards" in text, "5 of 16 shards are drawn")

            await story.proxy.refuse()
            await shown.until(lambda text: "reconnecting" in text, "the lost connection is drawn")
            await story.until(near, job, lambda: shards(near.store.jobs[job]) >= 8, "the load goes on", STEP_SECONDS)
            assert shards(far.store.jobs[job]) < 8
            await story.proxy.start()
            back = await shown.until(lambda text: bool(re.search(r" (8|9|1\d)/16 shards", text)), "the shards go on")
            assert "reconnecting" not in back
            await shown.until(lambda text: "● ready" in text, "ready is drawn", LOAD_SECONDS)
            done = await story.finish(launching)
            assert done.code == 0, done
            assert re.fullmatch(rf"lab-slow \({job}\): ready in .+ on port {story.port}\n", done.out.decode()), done
            await story.until(near, job, lambda: bool(near.store.jobs[job].smoke_tokens_per_s), "the first answer", STEP_SECONDS)
            await story.until(far, job, lambda: bool(far.store.jobs[job].smoke_tokens_per_s), "the first answer", STEP_SECONDS)

            assert phases_in_order(far_states) == phases_in_order(near_states)
            assert far.store.jobs[job].phases == near.store.jobs[job].phases
            weights = next(phase for phase in far.store.jobs[job].phases if (phase.id, phase.role) == ("weights", "target"))
            assert (weights.done, weights.total, weights.unit) == (16, 16, "shards")
            shards_drawn = {int(n) for text in shown.seen for n in re.findall(r" (\d+)/16 shards", text)}
            assert len(shards_drawn) >= 8, shards_drawn

            await story.quiet(far, job, 1)
            await story.ask(QUESTIONS[0])
            await story.quiet(far, job, 2)
            # cut once more, in the middle of serving: what was measured meanwhile comes afterwards
            await story.proxy.refuse()
            await shown.until(lambda text: "reconnecting" in text, "the lost connection is drawn")
            await story.ask(QUESTIONS[1])
            await story.quiet(near, job, 3)
            await story.proxy.start()
            await story.quiet(far, job, 3)
            assert_view(story, far.store.servers[job])
            assert_charts(story, far, job, far.store.servers[job].boot)

    # everything of the client goes; the server works on; a new client sees it as if it had been there
    await story.close(far)
    await story.close(near)
    assert story.desks == []
    assert following.returncode is None, await following.communicate()
    await story.ask(QUESTIONS[2])
    again = await story.desk()
    await story.quiet(again, job, 4)
    assert again.store.jobs[job].state == "running"
    assert "all" in assert_view(story, again.store.servers[job])
    assert_charts(story, again, job, again.store.servers[job].boot)
    async with dashboard(story, again) as shown:
        await shown.press("5")
        await shown.until(lambda text: "acceptance" in text and "tokens per verify step" in text, "the chart is drawn")

    await assert_command_line(story, again, job, traces)
    followed = await story.finish(following)
    assert (followed.code, followed.err) == (0, "")
    log = (story.jobs / job / "log").read_bytes()
    assert sha(followed.out) == sha(log), f"{len(followed.out)} of {len(log)} bytes came"
    traces.assert_gone()


def shards(job: JobState) -> float:
    """How many of the target's shards are loaded."""
    return next((phase.done or 0.0 for phase in job.phases if (phase.id, phase.role) == ("weights", "target")), 0.0)


async def assert_command_line(story: Story, desk: Desk, job: str, traces: Traces) -> None:
    """What the verbs about jobs answer while the server serves; then they end it."""
    here = str(story.target())
    listed = await story.cli("jobs", here, "--json")
    assert (listed.code, listed.err) == (0, "")
    assert [(one["id"], one["state"], one["health"]) for one in json.loads(listed.out)["jobs"]] == [(job, "running", "ready")]
    last = await story.cli("logs", here, "lab-slow", "--raw", "--lines=5")
    assert last.code == 0
    assert last.out.count(b"\n") == 5
    assert last.out in (story.jobs / job / "log").read_bytes()
    assert (await story.cli("logs", here, "no-such-job")).code == 2
    assert (await story.cli("launch", here, "lab-eagle3", f"--set=port={story.port}")).code == 2, "its port is taken"
    asked = await story.cli("kill", here, job)
    assert asked.code == 2, "nobody can be asked here, so nothing is ended"
    assert "--yes" in asked.err
    traces.living(await kill_plan(desk, job))
    ended = await story.cli("kill", here, job, "--yes", "--json")
    # an engine that takes its time to end is told on stderr, a line each time something changes; nothing else may be there
    told = [line for line in ended.err.splitlines() if not re.fullmatch(r"SIG(TERM|KILL) to [^;]+; \d+ process(es)? left", line)]
    assert (ended.code, told) == (0, [])
    report = json.loads(ended.out)
    assert (report["done"], report["remaining"]) == (True, []), report
    await story.until(desk, job, lambda: desk.store.jobs[job].state == "exited", "the end is shown", STEP_SECONDS)
    assert (await story.cli("kill", here, job, "--yes")).code == 0


async def test_the_whole_story_by_keys(story: Story) -> None:
    """The dashboard over a real connection, used as a person does, and read from what it draws."""
    traces = Traces(story)
    desk = await story.desk()
    async with dashboard(story, desk) as shown:
        await launch_by_keys(shown, story.port)
        await shown.until(lambda text: "weights target" in text, "the weights are drawn", LOAD_SECONDS)
        await shown.until(lambda text: "● ready" in text and "first answer" in text, "ready is drawn", LOAD_SECONDS)
        await shown.until(lambda text: bool(re.search(r"first answer [\d.]+ tok/s", text)), "the first answer is drawn")
        drawn = "\n".join(shown.seen)
        for phase in ("weights target", "weights drafter", "KV cache"):
            assert phase in drawn, f"{phase} was never drawn:\n{shown.raw()}"
        job = desk.store.selected
        assert job is not None
        before = await story.quiet(desk, job, 1)

        await shown.press("p")
        await shown.press("end", *["backspace"] * 60)
        await shown.type("Name the capital of France.")
        await shown.press("enter")
        text = await shown.until(lambda text: "of this request alone" in text, "the answer and its acceptance")
        after = await story.quiet(desk, job, 2)
        one = expected(before, after, 1.0)
        assert one.rate is not None
        assert one.length is not None
        assert f"acceptance {100 * one.rate:.1f} % length {one.length:.2f}" in text, shown.raw()
        assert f" {after.generated - before.generated:.0f} tokens" in text, shown.raw()
        await shown.press("escape")

        await asyncio.gather(*(story.ask(question) for question in QUESTIONS))
        await story.quiet(desk, job, 2 + len(QUESTIONS))
        for key, texts in (("5", acceptance_texts), ("4", throughput_texts)):
            await shown.press(key)
            await shown.until(lambda text: "idle for" in text, "the server is told as idle")
            for label, seconds in windows_from(desk.store.window):
                assert desk.store.window == label
                lines = story.lines(job)
                pair = bounds(lines[: last_worked(lines) + 1], seconds)
                assert pair is not None
                want = expected(of_line(pair[0]), of_line(pair[1]), pair[1]["boot"] - pair[0]["boot"])
                shown.holds(*texts(want))
                await shown.press("w")

        await shown.press("k")
        await shown.until(lambda text: "processes end" in text, "what would end is drawn")
        plan = await kill_plan(desk, job)
        shown.holds(f"port {story.port}", *(f"{victim.pid} root" for victim in plan.processes))
        traces.living(plan)
        await shown.press("K")
        await shown.until(lambda text: "✓ gone after" in text, "the proof is drawn")
        traces.assert_gone()
        await shown.press("escape")
        await shown.press("3")
        await shown.until(lambda text: "- ended" in text, "the end is drawn")


async def launch_by_keys(shown: Dashboard, port: int) -> None:
    """Choose lab-eagle3 from the list, give it k 3 and a port in the form, launch."""
    text = await shown.press("l")
    rows = text.split("\n")
    first = next(number for number, row in enumerate(rows) if "profile from engine" in row) + 1
    wanted = next(number for number, row in enumerate(rows) if "lab-eagle3" in row)
    await shown.press(*["down"] * (wanted - first), "enter")
    await shown.until(lambda text: "launch lab-eagle3" in text and "--speculative-config" in text, "the command is drawn")
    await shown.press("down", "down")
    await shown.press("end", *["backspace"] * 3, "3")
    await shown.press("down", "down")
    await shown.press("end", *["backspace"] * 6)
    await shown.type(str(port))
    await shown.until(lambda text: f"--port {port}" in text, "the command has the port that was typed")
    # a small model left to itself does not stop: the longest answer is made short
    await shown.press("down", "down", "down")
    await shown.press("end", *["backspace"] * 6)
    await shown.type("192")
    await shown.until(lambda text: "--max-model-len 192" in text, "the command has the length that was typed")
    shown.holds("draft tokens k 3", f"port {port}")
    await shown.press("ctrl+l")
    await shown.until(lambda text: "lab-eagle3" in text and f":{port}" in text and "phase" in text, "the screen Load")


def windows_from(label: str) -> list[tuple[str, float | None]]:
    """All windows, in the order in which the key shows them from ``label`` on."""
    at = [name for name, _ in WINDOWS].index(label)
    return [*WINDOWS[at:], *WINDOWS[:at]]


def test_a_taken_port_is_seen(story: Story) -> None:
    """The check of the port can fail."""
    traces = Traces(story)
    traces._living = {1 << 30: 0}
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", story.port))
        taken.listen()
        with pytest.raises(OSError, match="in use"):
            traces.assert_gone()
    traces.assert_gone()
