"""The Load screen in each state of a job: what it says, and what it never says."""

from __future__ import annotations

import re

import pytest

from eagletui.actions import keymap
from eagletui.engines.events import PHASE_LABELS
from eagletui.records import Phase
from eagletui.screens.load_words import failed_lines, phase_lines, ready_lines
from eagletui.views.loading import Step, Work, timeline
from eagletui.widgets.paint import plain as as_text
from tests.screens.conftest import Opener, app_of, screen_text
from tests.screens.demo import BOOT
from tests.screens.serving_demo import (
    SERVING_STORES,
    failed_store,
    loading_store,
    ready_store,
    serve,
    stopped_store,
)
from tests.screens.serving_said import SIZES, hides, says, shown

# ----------------------------------------------------------------------------------------------------------------- load


@SIZES
async def test_a_load_shows_phases_eta_silence_and_signs(size: tuple[int, int], dashboard: Opener) -> None:
    text = await shown(dashboard, loading_store(), "3", size)
    says(text, "~ loading 4 m", "vLLM 0.32.0", "k 3", "TP 8", "weights target", "19:40", "13/64 shards", "usual here")
    says(text, "min to ready", "17-23 min", "basis: 5 earlier loads here", "last line 3 s ago")
    says(text, "port 8000 not listening", "10 processes alive", "cpu 870 % of one core", "458 MB/s")
    says(text, "14/96", "all ranks level", "13/64 [04:02<")
    hides(text, "silent for", "nccl==2.28.9", "12/64 [")


async def test_every_phase_ahead_has_its_usual_time_where_there_is_room(dashboard: Opener) -> None:
    text = await shown(dashboard, loading_store(), "3")
    says(
        text,
        "repacking target 0:21",
        "weights drafter 0:38",
        "compile drafter 0:06",
        "CUDA graphs target 0:41",
        "API server 0:07",
    )


def test_every_phase_has_one_name_and_the_table_has_room_for_it() -> None:
    steps = [Step(id_, "drafter", "done", 1.0) for id_ in PHASE_LABELS]
    rows = phase_lines(steps, serve(), Work(), 80)[1:]
    for row, label in zip(rows, PHASE_LABELS.values(), strict=True):
        text = "".join(part for part, _ in row)
        assert text.split("  ")[0] == f" {label} drafter" or text.startswith(f" {label} drafter ")
        assert "0:01" in text


@SIZES
@pytest.mark.parametrize("phase", ["spawn", "config"])
async def test_before_the_weights_nothing_is_alarming(phase: str, size: tuple[int, int], dashboard: Opener) -> None:
    store = loading_store(moving=False, silent=30.0, odd=True)
    job = store.jobs["k25"]._replace(phases=(Phase(phase, None, 0.0),), phase=phase, log_size=0 if phase == "spawn" else 900)
    store.jobs, store.tails = {"k25": job._replace(started_boot=BOOT - 15)}, {}
    text = await shown(dashboard, store, "3", size)
    says(text, "~ loading")
    if phase == "spawn":
        says(text, "no line yet for 30 s: an engine imports first")
        hides(text, "last line")
    else:
        says(text, "last line 30 s ago")
    hides(text, "! ", "not growing", "than the others", "silent for", "hung")


@SIZES
async def test_a_load_that_stands_still_is_loud(size: tuple[int, int], dashboard: Opener) -> None:
    text = await shown(dashboard, loading_store(moving=False, silent=190.0, odd=True), "3", size)
    says(text, "! silent for 3 m 10 s, and nothing else moves: hung?", "if it goes on", "cpu 0 %", "not growing")
    says(text, "! GPU 5 holds 9.33 GiB less than the others")


async def test_busy_processors_alone_prove_no_work(dashboard: Opener) -> None:
    store = loading_store(moving=False, silent=190.0)
    store.jobs["k25"] = store.jobs["k25"]._replace(cpu=800.0)
    text = await shown(dashboard, store, "3")
    says(text, "! silent for 3 m 10 s, only processors are busy: compiling, or spinning")
    hides(text, "it works", "hung?")


async def test_a_server_that_is_being_ended_is_not_told_as_loading(dashboard: Opener) -> None:
    store = loading_store()
    store.jobs["k25"] = store.jobs["k25"]._replace(state="stopping", health="stopping", detail="ended by root", members=3)
    text = await shown(dashboard, store, "3")
    says(text, "~ stopping 3 processes left ended by root")
    hides(text, "to ready", "last line", "ready after")


async def test_silence_grows_each_second_and_stands_still_without_a_link(dashboard: Opener) -> None:
    store = loading_store()
    async with dashboard(store) as pilot:
        app = app_of(pilot)
        await pilot.press("3")
        assert store.jobs_seen is not None
        store.jobs_seen -= 118.5
        app._tick()
        await pilot.pause()
        assert re.search(r"! silent for 2 m [0-5]\d s, but it works: see below", screen_text(app))  # from 2 m 01 s on
        store.connection = store.connection._replace(state="reconnecting", last_frame=store.jobs_seen + 2.0)
        app._tick()
        await pilot.pause()
        says(screen_text(app), "last line 5 s ago")


async def test_the_first_load_of_a_profile_claims_no_usual_time(dashboard: Opener) -> None:
    text = await shown(dashboard, loading_store(known=False), "3")
    says(text, "first load of this profile here", "to ready", "weights drafter", "KV cache")
    hides(text, "usual here")


async def test_a_machine_without_cards_says_nothing_of_them(dashboard: Opener) -> None:
    text = await shown(dashboard, SERVING_STORES["lab"](), "3")
    says(text, "compile target", "no estimate yet", "3 processes alive", "memory 3.10 GiB")
    hides(text, "card memory", "GPU 0")


@SIZES
async def test_a_ready_server_tells_model_length_first_answer_and_room(size: tuple[int, int], dashboard: Opener) -> None:
    text = await shown(dashboard, ready_store(), "3", size)
    says(text, "● ready after 24 m 27 s", "model id kimi-k2.5", "max length 262,144 tokens", "free on its cards 4.19 GiB each")
    says(text, "first answer 58.3 tok/s in 0.55 s", "listening")


def test_the_words_of_a_ready_server_fold_rather_than_go() -> None:
    store = ready_store(served_model="/models/" + "a-model-with-a-long-name" * 2)
    text = as_text(ready_lines(store, store.jobs["k25"], (), 79))
    assert "max length 262,144 tokens" in text
    assert "first answer 58.3 tok/s in 0.55 s" in text
    assert max(len(line) for line in text.splitlines()) <= 79


async def test_an_empty_log_has_no_last_line_on_any_screen(dashboard: Opener) -> None:
    store = loading_store(moving=False, silent=190.0)
    store.jobs["k25"] = store.jobs["k25"]._replace(log_size=0)
    store.tails.clear()
    for key in ("3", "3,o"):
        text = await shown(dashboard, store, key)
        says(text, "no line yet for 3 m ")
        hides(text, "last line", "silent for")


def test_a_failed_launch_says_once_why() -> None:
    why = "exec: no such program in PATH: vllm"
    failed = serve(state="failed_to_exec", health="failed", rc=127, ready_seconds=None, first_error=why, detail=why)
    keys = keymap({})
    assert as_text(failed_lines(failed, (), keys, 100)).count("no such program") == 1
    assert "of the shim" in as_text(failed_lines(failed._replace(detail="a word of the shim"), (), keys, 100))


def test_a_ready_server_has_no_phase_that_runs_though_its_log_lacks_the_end() -> None:
    phases = (Phase("weights", "target", 9.0, None, 99, 100, "shards"), Phase("kv", None, 60.0, 2.0))
    steps = timeline(serve(phases=phases), 5000.0, {})
    assert [(step.state, step.spent) for step in steps] == [("done", None), ("done", 2.0)]
    text = as_text(phase_lines(steps, serve(phases=phases), Work(), 100))
    assert text.count("✓") == 2
    assert "99/100" not in text


@SIZES
async def test_a_server_that_wants_a_key_says_so(size: tuple[int, int], dashboard: Opener) -> None:
    store = ready_store(smoke_tokens_per_s=None, smoke_seconds=None, smoke_problem="key needed")
    text = await shown(dashboard, store, "3", size)
    says(text, "● ready", "! no first answer: the server wants an API key, and none is known here")
    hides(text, "not tried, or not yet")
    store = ready_store(smoke_tokens_per_s=None, smoke_seconds=None, smoke_problem="the first answer has no tokens")
    says(await shown(dashboard, store, "3", size), "! no first answer: the first answer has no tokens")


@SIZES
@pytest.mark.parametrize("key", ["3", "4", "5", "1"])
async def test_why_there_are_no_metrics_is_on_every_screen_of_the_server(
    key: str, size: tuple[int, int], dashboard: Opener
) -> None:
    why = "no numbers: the metrics page is HTML, not metrics: <!DOCTYPE html>"
    text = await shown(dashboard, ready_store(metrics_problem=why), key, size)
    says(text, f"! {why}")
    never = ready_store([], metrics_problem=why)
    assert not never.servers
    says(await shown(dashboard, never, key, size), f"! {why}")


@SIZES
async def test_a_failed_load_shows_its_first_error_where_and_what_to_press(size: tuple[int, int], dashboard: Opener) -> None:
    text = await shown(dashboard, failed_store(), "3", size)
    says(
        text,
        "✗ failed in weights drafter",
        "exit status 1",
        "Worker_TP3: ValueError: image_token_index is missing",
        "✗ ended here",
    )
    says(text, "o log", "r relaunch")
    hides(text, "to ready", "KV cache")


async def test_a_stopped_server_is_no_failure(dashboard: Opener) -> None:
    text = await shown(dashboard, stopped_store(), "3")
    says(text, "- ended, exit status 0", "ended by root", "it was ready after")
    hides(text, "✗", "alive")


@SIZES
async def test_a_server_that_outlives_its_supervisor_has_not_ended(size: tuple[int, int], dashboard: Opener) -> None:
    store = ready_store()
    why = "running, its exit status will be unknown: the supervisor died"
    store.jobs = {"k25": serve(state="lost_supervisor", members=3, listening=None, cpu=None, rss=None, detail=why)}
    text = await shown(dashboard, store, "3", size)
    says(text, "! supervisor lost", "3 processes still there", "its exit status will be unknown")
    hides(text, "- ended", "● ready")
    store.jobs = {"k25": store.jobs["k25"]._replace(members=None, health="gone", detail="gone, exit status unknown")}
    says(await shown(dashboard, store, "3", size), "- ended, exit status unknown")
