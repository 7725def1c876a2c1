"""The screens of a serving job in each of its states: what they say, what they never say, and that the numbers are the pages'."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eagletui.actions import keymap
from eagletui.engines.events import PHASE_LABELS
from eagletui.engines.metrics import server_sample
from eagletui.records import Eta, LogLine, Phase
from eagletui.screens.acceptance import Numbers as AcceptanceNumbers
from eagletui.screens.load_words import eta_line, exit_word, failed_lines, phase_lines, ready_lines
from eagletui.screens.serving_words import duration_short, latency, span_short
from eagletui.store import Store
from eagletui.views.loading import Step, Work, timeline
from eagletui.widgets.history import LONGEST_STEP, MOST_RUNS, SeriesChart, nice_top, runs
from eagletui.widgets.paint import plain as as_text
from tests.screens.conftest import Opener, app_of, screen_text
from tests.screens.demo import BOOT, DeskDouble
from tests.screens.serving_demo import (
    SERVING_STORES,
    failed_store,
    feed,
    gauge_store,
    idle_server_store,
    loading_store,
    plain_store,
    ready_store,
    serve,
    stopped_store,
    unused_store,
    update,
    wired_wrong_store,
)
from tests.test_text import is_safe

DATA = Path(__file__).resolve().parent.parent / "data" / "engines"
SIZES = pytest.mark.parametrize("size", [(80, 24), (160, 50)], ids=str)


async def shown(dashboard: Opener, store: Store, key: str, size: tuple[int, int] = (160, 50)) -> str:
    async with dashboard(store, size) as pilot:
        for one in key.split(","):
            await pilot.press(one)
            await pilot.pause()
        await pilot.pause()
        text = screen_text(app_of(pilot))
        assert "could not be drawn" not in text
        return text


def says(text: str, *wanted: str) -> None:
    flat = re.sub(r"\s+", " ", text)
    for one in wanted:
        assert one in flat, f"{one!r} is not in\n{text}"


def hides(text: str, *unwanted: str) -> None:
    for one in unwanted:
        assert one not in text, f"{one!r} is in\n{text}"


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
        says(text, "no line yet for 3 m 10 s")
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


@pytest.mark.parametrize("key", ["3", "4", "5"])
async def test_without_any_job_the_way_to_start_one_is_told(key: str, dashboard: Opener) -> None:
    says(await shown(dashboard, SERVING_STORES["no-job"](), key), "No serving job has run", "eagletui launch HOST PROFILE")
    says(await shown(dashboard, Store(), key), "no word of the jobs on this host yet")


async def test_the_log_of_the_shown_job_is_followed_and_let_go(dashboard: Opener) -> None:
    desk = DeskDouble()
    async with dashboard(loading_store(), desk=desk) as pilot:
        await pilot.press("3")
        await pilot.pause()
        assert desk.watch.looked == [("log:k25", True)]
        await pilot.press("right_square_bracket")
        await pilot.pause()
        assert desk.watch.looked[1:] == [("log:k25", False), ("log:e0", True)]
        await pilot.press("4")
        await pilot.pause()
        assert desk.watch.looked[3:] == [("log:e0", False)]


# ----------------------------------------------------------------------------------------------- throughput, acceptance


def plain(text: str, name: str, *also: str) -> float:
    """The sum of the values on the lines of a page that begin with the name and hold the other texts."""
    lines = [x for x in text.splitlines() if re.match(re.escape(name) + r"[ {]", x) and all(a in x for a in also)]
    assert lines, name
    return sum(float(x.rsplit(" ", 1)[1]) for x in lines)


@SIZES
async def test_the_numbers_are_those_of_two_metrics_pages(size: tuple[int, int], dashboard: Opener) -> None:
    old, new = ((DATA / f"vllm-0.32/eagle_{n}.metrics.txt").read_text() for n in ("009", "027"))
    pages = [server_sample(page, at, 1e9 + at) for page, at in ((old, 100.0), (new, 112.5))]
    store = Store()
    store.connection = store.connection._replace(state="online")
    store.jobs = {"k25": serve()}
    store.window = "10 s"
    update(store, 112.5)
    feed(store, "k25", [page for page in pages if page is not None])

    def grown(name: str, *also: str) -> float:
        return plain(new, name, *also) - plain(old, name, *also)

    spec = "vllm:spec_decode_num_"
    steps, drafted, accepted = (grown(spec + n) for n in ("drafts_total", "draft_tokens_total", "accepted_tokens_total"))
    joint = [grown(spec + "accepted_tokens_per_pos_total", f'position="{i}"') / steps for i in range(3)]
    emitted = grown("vllm:generation_tokens_total") / 12.5
    text = await shown(dashboard, store, "5", size)
    says(text, f"acceptance {100 * accepted / drafted:.1f} %", f"length {1 + accepted / steps:.2f}", "over 12.5 s")
    says(text, f"drafted {drafted / 12.5:,.1f} tok/s", f"accepted {accepted / 12.5:,.1f} tok/s", f"emitted {emitted:,.1f} tok/s")
    for place, (share, given) in enumerate(zip(joint, [joint[0], joint[1] / joint[0], joint[2] / joint[1]], strict=True), 1):
        assert re.search(rf"position {place} +[^ ]+ +{100 * share:.1f} % +p{place} +{100 * given:.1f} %", text), text
    text = await shown(dashboard, store, "4", size)
    says(text, f"generation {emitted:,.1f} tok/s", f"prompt {grown('vllm:prompt_tokens_total') / 12.5:,.1f} tok/s")
    says(
        text,
        f"running {plain(new, 'vllm:num_requests_running'):.0f}",
        f"KV cache {100 * plain(new, 'vllm:kv_cache_usage_perc'):.1f} %",
    )
    count = grown("vllm:inter_token_latency_seconds_count")
    says(text, f"mean {latency(grown('vllm:inter_token_latency_seconds_sum') / count)} of {count:,.0f}")


@SIZES
async def test_throughput_of_a_busy_server(size: tuple[int, int], dashboard: Opener) -> None:
    text = await shown(dashboard, ready_store(), "4", size)
    says(text, "generation", "tok/s", "running 3", "waiting 0", "KV cache 4.0 %", "over 60.0 s", "TTFT p50", "ITL p50", "p99")
    says(text, "with a drafter ITL mixes gaps near zero with full steps")
    hides(text, "idle", "partial")


@SIZES
async def test_acceptance_of_a_busy_server(size: tuple[int, int], dashboard: Opener) -> None:
    text = await shown(dashboard, ready_store(), "5", size)
    says(text, "acceptance 15.1 %", "length 1.45", "position 1", "31.0 %", "p2 37.", "at 3 running")
    says(text, "definition: accepted / proposed draft tokens; length counts the bonus token", "from the engine's counters")
    says(text, "no baseline here", "run it (~24 min to load, then the measurement)", "hint: position 1 is under 40 %")
    hides(text, "break-even", "0.66x")


async def test_the_window_key_goes_round_on_both_screens(dashboard: Opener) -> None:
    store = ready_store()
    async with dashboard(store) as pilot:
        app = app_of(pilot)
        await pilot.press("4")
        for seconds in ("10 m 00 s", "20 m 00 s", "10.0 s", "60.0 s"):
            await pilot.press("w")
            await pilot.pause()
            says(screen_text(app), f"over {seconds}")
        await pilot.press("w", "5")
        await pilot.pause()
        says(screen_text(app), "over 10 m 00 s")


async def test_a_window_that_is_too_short_says_partial_and_its_true_length(dashboard: Opener) -> None:
    store = ready_store()
    newest = store.servers["k25"].sample
    feed(store, "k25", [newest._replace(boot=newest.boot - 8, generated_tokens=0), newest])
    says(await shown(dashboard, store, "4"), "over 8.0 s, partial")


@SIZES
@pytest.mark.parametrize("key", ["4", "5"])
async def test_an_idle_server_shows_its_last_work_and_no_zeros(key: str, size: tuple[int, int], dashboard: Opener) -> None:
    text = await shown(dashboard, idle_server_store(), key, size)
    says(text, "idle for 7 m 00 s, since ", "over 60.0 s")
    hides(text, " 0.0 tok/s", "acceptance 0", "0.0 %   length")
    assert re.search(r"(generation|emitted) 6\d\.\d tok/s", re.sub(r"\s+", " ", text))


@pytest.mark.parametrize("key", ["4", "5"])
async def test_a_server_nobody_has_used_has_no_numbers(key: str, dashboard: Opener) -> None:
    text = await shown(dashboard, unused_store(), key)
    says(text, "no request yet since the first scrape")
    hides(text, "0.0 tok/s", "acceptance 0", "Verdict")


async def test_without_a_drafter_there_is_nothing_to_accept(dashboard: Opener) -> None:
    text = await shown(dashboard, plain_store(), "5")
    says(text, "no drafter: nothing is proposed")
    hides(text, "acceptance 0", "Verdict", "per position", "ITL mixes")
    hides(await shown(dashboard, plain_store(), "4"), "ITL mixes")


async def test_nothing_drafted_is_said(dashboard: Opener) -> None:
    store = ready_store()
    last = store.servers["k25"].sample
    still = [last._replace(boot=last.boot + 2 * n, prompt_tokens=(last.prompt_tokens or 0) + n) for n in range(1, 41)]
    feed(store, "k25", [last, *still])
    text = await shown(dashboard, store, "5")
    says(text, "nothing drafted in this window")
    hides(text, "acceptance 0", "acceptance -", "Verdict")


async def test_a_restart_inside_the_window_is_said(dashboard: Opener) -> None:
    store = ready_store()
    last = store.servers["k25"].sample
    feed(store, "k25", [last, last._replace(boot=last.boot + 60, start_time=1.8e9)])
    text = await shown(dashboard, store, "5")
    says(text, "the server restarted in it", "its counters cannot be compared")
    hides(text, "acceptance 0")


async def test_a_gauge_is_called_one(dashboard: Opener) -> None:
    text = await shown(dashboard, gauge_store(), "5")
    says(text, "acceptance 15.7 %", "length 1.47", "! a gauge, not a window", "per position: this engine does not count it")
    hides(text, "drafted ", "hint")


async def test_a_first_position_that_is_hardly_ever_right_points_at_the_wiring(dashboard: Opener) -> None:
    text = await shown(dashboard, wired_wrong_store(), "5")
    says(text, "! position 1 is under 10 %", "check the auxiliary layers", "3.6 %")


@pytest.mark.parametrize("key", ["4", "5"])
async def test_before_a_server_is_ready_there_are_no_numbers(key: str, dashboard: Opener) -> None:
    says(await shown(dashboard, loading_store(), key), "not ready yet: the screen Load shows how far it is")
    says(await shown(dashboard, failed_store(), key), "it was never ready")


# ------------------------------------------------------------------------------------------------------------- overview


@SIZES
async def test_the_overview_tells_each_servers_state(size: tuple[int, int], dashboard: Opener) -> None:
    says(await shown(dashboard, loading_store(), "1", size), "~ loading 4 m", "weights target 13/64 shards", "~20 min to ready")
    says(await shown(dashboard, ready_store(), "1", size), "● ready 1 h 49 m", "3 running 0 waiting", "tok/s")
    says(await shown(dashboard, ready_store(), "1", size), "acceptance 15.1 % over 60 s, length 1.45")
    idle = await shown(dashboard, idle_server_store(), "1", size)
    says(idle, "idle for 7 m 00 s", "the last minute with work")
    hides(idle, "0.0 tok/s")
    says(await shown(dashboard, failed_store(), "1", size), "✗ failed (1)", "ValueError: image_token_index is missing")
    says(await shown(dashboard, stopped_store(), "1", size), "none runs")


# -------------------------------------------------------------------------------------------------------- all and odd


async def test_a_server_opened_in_the_list_of_jobs_is_the_one_that_is_shown(dashboard: Opener) -> None:
    store = ready_store()
    async with dashboard(store) as pilot:
        app = app_of(pilot)
        await pilot.press("7")
        await pilot.pause()
        await pilot.press("down", "enter")
        await pilot.pause()
        assert store.selected == "e0"
        await app.show_page("load")
        await pilot.pause()
        says(screen_text(app), "2 of 6 servers", "- ended")


@pytest.mark.parametrize("name", sorted(SERVING_STORES))
@pytest.mark.parametrize("size", [(80, 24), (20, 5), (240, 70)], ids=str)
async def test_every_state_at_odd_sizes(name: str, size: tuple[int, int], dashboard: Opener) -> None:
    async with dashboard(SERVING_STORES[name](), size) as pilot:
        for key in "1", "3", "4", "5":
            await pilot.press(key)
            await pilot.pause()
            text = screen_text(app_of(pilot))
            assert "could not be drawn" not in text
            assert is_safe(text.replace("\n", ""))


# --------------------------------------------------------------------------------------------------------------- charts


async def test_charts_are_drawn_only_when_they_are_seen_and_changed(dashboard: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    plain_draw = SeriesChart._draw

    async def counted(self: SeriesChart, *args: object) -> None:
        drawn.append(self.id or "")
        await plain_draw(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(SeriesChart, "_draw", counted)
    store = ready_store()
    async with dashboard(store) as pilot:
        app = app_of(pilot)
        assert drawn == []
        await pilot.press("5")
        for _ in range(300):
            await pilot.pause(0.01)
            if "2.00┤" in screen_text(app) and not any(c._drawing for c in app.query(SeriesChart)):
                break
        assert "2.00┤" in screen_text(app)
        assert set(drawn) == {"length", "drafted"}
        drawn.clear()
        for topic in ("servers", "jobs", "gpus"):
            store.changed(topic)
        app._redraw_dirty()
        app._tick()
        await pilot.pause()
        assert drawn == []  # nothing new has come
        newest = store.servers["k25"].sample
        feed(store, "k25", [newest, newest._replace(boot=newest.boot + 2, generated_tokens=(newest.generated_tokens or 0) + 100)])
        app._redraw_dirty()
        assert set(drawn) <= {"length", "drafted"}
        await pilot.pause(0.05)
        assert set(drawn) == {"length", "drafted"}


def test_gaps_stay_gaps() -> None:
    nan = float("nan")
    assert runs([0.0, 2.0, 4.0, 6.0], [1.0, nan, 2.0, 3.0], 80) == [([0.0], [1.0]), ([4.0, 6.0], [2.0, 3.0])]
    late = 2.0 + LONGEST_STEP + 1
    assert runs([0.0, 2.0, late], [1.0, 1.0, 1.0], 80) == [([0.0, 2.0], [1.0, 1.0]), ([late], [1.0])]
    assert runs([], [], 80) == []


def test_a_line_with_very_many_gaps_has_no_more_pieces_than_columns() -> None:
    nan = float("nan")
    times = [2.0 * n for n in range(600)]
    values = [nan if n % 3 == 0 else float(n) for n in range(600)]
    found = runs(times, values, 60)
    assert len(found) <= max(MOST_RUNS, 60)
    assert max(max(v) for _, v in found) == 599.0


def test_an_axis_has_even_steps() -> None:
    assert [nice_top(value, 1.0) for value in (0.0, 3.0, 5.0, 61.2, 1450.0, 100.0)] == [1.0, 4.0, 6.0, 80.0, 2000.0, 100.0]


# ---------------------------------------------------------------------------------------------------------------- words


def test_short_words() -> None:
    assert [latency(s) for s in (None, 0.0042, 0.061, 0.9996, 1.239)] == ["-", "4.2 ms", "61 ms", "1.00 s", "1.24 s"]
    assert latency(2.5, True) == ">2.50 s"
    assert (duration_short(40), duration_short(1322)) == ("40 s", "22 min")
    assert (span_short(1000, 1400), span_short(40, 600), span_short(60, 60)) == ("17-23 min", "40 s to 10 min", "60 s")
    assert (exit_word(None), exit_word(-9), exit_word(1)) == ("exit status unknown", "ended by signal 9", "exit status 1")


async def test_the_numbers_panel_never_shows_a_text_of_the_host_raw(dashboard: Opener) -> None:
    store = ready_store()
    store.tails["k25"] = (LogLine(0, 1, "\x1b[2Jgone", "error", "\x1b]0;x\x07", "\x1b[31m"),)
    text = await shown(dashboard, store, "3")
    assert is_safe(text.replace("\n", ""))
    says(text, "gone")
    assert AcceptanceNumbers.topics >= {"servers", "selected"}


@pytest.mark.parametrize("key", ["2", "3", "4", "5"])
async def test_a_page_whose_parts_are_not_there_does_not_end_the_app(key: str, dashboard: Opener) -> None:
    async with dashboard(ready_store()) as pilot:
        app = app_of(pilot)
        await pilot.press(key)
        await pilot.pause()
        assert app.page is not None
        await app.page.remove_children()  # as when the app leaves: a tick may come in between
        app._tick()
        await pilot.pause()
        assert app.failure is None


@pytest.mark.parametrize(
    ("eta", "words"),
    [
        (Eta(1200.0, 1020.0, 1380.0, "b"), "~20 min to ready   17-23 min   basis: b"),
        (Eta(60.0, 0.0, 120.0, "b"), "~60 s to ready   up to 2 min   basis: b"),
        (Eta(0.0, 0.0, 0.0, "b"), "longer than expected   basis: b"),
    ],
)
def test_what_is_left_of_a_load(eta: Eta, words: str) -> None:
    assert "".join(text for text, _ in eta_line(eta, 100)).strip() == words
