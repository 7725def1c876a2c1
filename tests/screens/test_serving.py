"""The screens of a ready server: what they say, what they never say, and that the numbers are the pages'."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eagletui.engines.metrics import server_sample
from eagletui.records import Eta, LogLine
from eagletui.screens.acceptance import Numbers as AcceptanceNumbers
from eagletui.screens.load_words import eta_line, exit_word
from eagletui.screens.serving_words import duration_short, latency, span_short
from eagletui.store import Store
from eagletui.widgets.history import LONGEST_STEP, MOST_RUNS, SeriesChart, nice_top, runs
from tests.screens.conftest import Opener, app_of, screen_text
from tests.screens.demo import DeskDouble
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
from tests.screens.serving_said import SIZES, hides, says, shown
from tests.test_text import is_safe

DATA = Path(__file__).resolve().parent.parent / "data" / "engines"


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
