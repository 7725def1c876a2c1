"""What the screens say of a store, as text."""

from __future__ import annotations

import asyncio
import contextvars
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eagletui.records import Alert, GpuBoard, GpuProcess, JobState, Process
from eagletui.screens.card import card_lines
from eagletui.screens.details import alert_lines, job_lines
from eagletui.screens.words import alert_line, card_state, job_progress, job_state
from eagletui.store import Store
from eagletui.widgets.bars import columns, gauge, spark, thin_pairs
from eagletui.widgets.paint import plain
from eagletui.widgets.table import Column, Table, fit_columns
from tests.screens.conftest import Opener, app_of, screen_text
from tests.screens.demo import GIB, STORES, board_store, card, down_store, idle_store, none_store, online, set_board
from tests.test_text import is_safe

WELL_AND_WRONG = (
    *("8 of 8", "hottest 84 C", "outlier: 3", "k25-eagle3", "● ready", "3 running 0 waiting", "synth-25k", "✗ failed (1)"),
    *("acceptance 15.1 %", "GPU 3 is 4 C from slowing down", "! 2 alerts", "root@gpu-host", "ssh 12 ms"),
)


async def shown(dashboard: Opener, store: Store, keys: str = "", size: tuple[int, int] = (160, 50)) -> str:
    async with dashboard(store, size) as pilot:
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
        return screen_text(app_of(pilot))


@pytest.mark.parametrize("size", [(80, 24), (160, 50), (200, 50)], ids=str)
async def test_overview_tells_well_doing_wrong_and_next(size: tuple[int, int], dashboard: Opener) -> None:
    text = await shown(dashboard, board_store(seconds=3), size=size)
    for wanted in WELL_AND_WRONG:
        assert wanted in text, wanted


@pytest.mark.parametrize("size", [(80, 24), (160, 50), (200, 50)], ids=str)
async def test_every_card_has_its_row(size: tuple[int, int], dashboard: Opener) -> None:
    lines = (await shown(dashboard, board_store(seconds=3), "2", size)).split("\n")
    rows = [line for line in lines if re.match(r"^[▸ ]  \d [█▏▎▍▌▋▊▉─]+", line)]
    assert len(rows) == 8
    for row in rows:
        assert re.search(r"91/96 .*\d{3}/600 +\d\d C", row), row
    assert "HW thermal" in rows[3]
    assert "1740" in rows[3]
    assert any("VLLM::Worker_TP0" in line and "k25-eagle3" in line for line in lines)


async def test_wide_shows_history_and_the_host(dashboard: Opener) -> None:
    text = await shown(dashboard, board_store(seconds=30), "2", (160, 50))
    assert "power, 0-600 W" in text
    assert "command on the host" in text
    assert "from host" in text


async def test_idle_cards_are_not_judged(dashboard: Opener) -> None:
    text = await shown(dashboard, idle_store(), "2")
    assert text.count("idle") >= 8
    assert "x16 g1" in text
    assert "!" not in text.split("no alerts")[1]
    assert "outlier" not in text


async def test_no_driver_is_said_and_the_rest_is_shown(dashboard: Opener) -> None:
    first = await shown(dashboard, none_store())
    assert "no NVIDIA driver on this host" in first
    assert "ram free" in first
    second = await shown(dashboard, none_store(), "2")
    assert "no NVIDIA driver on this host" in second
    assert "VLLM::Worker_TP0" in second


async def test_a_driver_that_fails_from_the_start_gives_no_age_of_data(dashboard: Opener) -> None:
    store = board_store(seconds=1)
    set_board(store, GpuBoard(1000.0, True, problem="the NVIDIA driver is not loaded", stale_since=1000.0, expected=8))
    for keys in ("", "2"):
        text = await shown(dashboard, store, keys)
        assert "no cards answer   the NVIDIA driver is not loaded" in text
        assert "0 s old" not in text
        assert "0 models" not in text
    set_board(store, GpuBoard(1000.0, True, problem="nvmlInit has not answered for 7 s", stale_since=1000.0))
    assert "0 of 0" not in await shown(dashboard, store, "2")


async def test_a_driver_that_has_gone_is_not_one_that_was_never_there(dashboard: Opener) -> None:
    store = board_store(seconds=1)
    store.cards_known = 8
    set_board(store, GpuBoard(1000.0, False, problem="libnvidia-ml.so.1 not found"))
    text = await shown(dashboard, store, "2")
    assert "✗ the NVIDIA driver has gone   libnvidia-ml.so.1 not found" in text


async def test_a_lost_card_and_old_data_are_told(dashboard: Opener) -> None:
    text = await shown(dashboard, down_store(), "2")
    assert "LOST: GPU is lost" in text
    assert "7 of 8" in text
    assert "data is 12 s old" in text
    assert "outlier: none" not in text
    assert "~ reconnecting" in text
    assert "no route to host" in text
    assert "check the VPN" in text


async def test_an_empty_store_shows_nothing_as_zero(dashboard: Opener) -> None:
    for keys in ("", "2", "7"):
        text = await shown(dashboard, Store(), keys)
        assert "connecting" in text
        assert not re.search(r"\b0 (%|C|W|GiB)", text)


async def test_no_jobs_says_how_to_start_one(dashboard: Opener) -> None:
    store = idle_store()
    assert "eagletui launch HOST PROFILE" in await shown(dashboard, store, "7")


async def test_jobs_running_first(dashboard: Opener) -> None:
    lines = (await shown(dashboard, board_store(seconds=3), "7")).split("\n")
    at = {
        name: next(i for i, line in enumerate(lines) if name in line)
        for name in ("k25-eagle3", "synth-25k", "k25-plain", "drafter-10k")
    }
    assert max(at["k25-eagle3"], at["synth-25k"]) < at["k25-plain"] < at["drafter-10k"]
    assert "image_token_index is missing" in lines[at["k25-plain"]]


async def test_sixty_four_cards_scroll(dashboard: Opener) -> None:
    async with dashboard(board_store(64, 1), (100, 30)) as pilot:
        app = app_of(pilot)
        await pilot.press("2")
        await pilot.pause()
        assert "of 64" in screen_text(app)
        await pilot.press("end")
        await pilot.pause()
        assert re.search(r"▸ 63 ", screen_text(app))


async def test_only_what_changed_is_drawn_again(dashboard: Opener) -> None:
    store = board_store(seconds=3)
    async with dashboard(store) as pilot:
        app = app_of(pilot)
        await pilot.press("2")
        await pilot.pause()
        cards = app.query_one("#cards", Table)
        regions: list[object] = []
        plain_refresh = cards.refresh
        cards.refresh = lambda *args, **more: (regions.extend(args), plain_refresh(*args, **more))[1]  # type: ignore[method-assign]
        cards.redraw()
        assert regions == []
        assert store.gpus is not None
        changed = (store.gpus.cards[0]._replace(util=3.0), *store.gpus.cards[1:])
        store.gpus = store.gpus._replace(cards=changed)
        cards.redraw()
        assert [region.y for region in regions] == [1]  # type: ignore[attr-defined]


async def test_a_hidden_screen_costs_nothing(dashboard: Opener) -> None:
    store = board_store(seconds=1)
    async with dashboard(store) as pilot:
        app = app_of(pilot)
        await pilot.press("2", "1")
        await pilot.pause()
        cards = app.query_one("#cards", Table)
        drawn: list[int] = []
        cards.redraw = lambda: drawn.append(1)  # type: ignore[method-assign]
        store.changed("gpus")
        app._redraw_dirty()
        assert drawn == []
        assert ("processes", True) in app.desk.watch.looked  # type: ignore[attr-defined]
        assert app.desk.watch.looked[-2:] == [("processes", False), ("traffic", False)]  # type: ignore[attr-defined]


async def test_changes_are_drawn_together_and_soon(dashboard: Opener) -> None:
    store = board_store(seconds=1)
    async with dashboard(store) as pilot:
        app = app_of(pilot)
        for _ in range(100):
            store.changed("gpus")
        assert app._redraw_due
        assert app._dirty == {"gpus"}
        app._redraw_dirty()
        assert not app._dirty


async def test_a_change_from_outside_of_the_app_is_drawn(dashboard: Opener) -> None:
    store = board_store(seconds=1)
    outside = contextvars.Context()  # as a task has that was there before the app
    async with dashboard(store) as pilot:
        app = app_of(pilot)
        assert store.host is not None
        store.host = store.host._replace(cpu=77.0)
        loop = asyncio.get_running_loop()
        loop.call_soon(store.changed, "host", context=outside)
        for _ in range(300):
            await pilot.pause(0.01)
            if "cpu  77 %" in screen_text(app):
                break
        assert "cpu  77 %" in screen_text(app)


@pytest.mark.fault(49, how="a widget that raises")
async def test_a_panel_that_fails_is_one_line(dashboard: Opener, state_home: object) -> None:
    store = board_store(seconds=1)
    async with dashboard(store) as pilot:
        app = app_of(pilot)
        store.host = store.host._replace(cpu="\x1b[31mnot a number")  # type: ignore[union-attr, arg-type]
        store.changed("host")
        app._redraw_dirty()
        await pilot.pause()
        text = screen_text(app)
        assert "this part could not be drawn" in text
        assert "8 of 8" in text


async def test_back_online_is_no_longer_dim(dashboard: Opener) -> None:
    store = down_store()
    async with dashboard(store) as pilot:
        app = app_of(pilot)
        host = next(panel for panel in app.page.query("HostPanel").results())  # type: ignore[union-attr]
        assert host.faded()  # type: ignore[attr-defined]
        online(store)
        store.changed("connection")
        app._redraw_dirty()
        assert not host._faded  # type: ignore[attr-defined]
        await pilot.pause()
        assert "no route" not in screen_text(app)


@pytest.mark.fault(48, how="every screen at sizes from 20x5 to 500x200")
@pytest.mark.parametrize("name", sorted(STORES))
@pytest.mark.parametrize("size", [(80, 24), (20, 5), (240, 70)], ids=str)
async def test_every_store_at_odd_sizes(name: str, size: tuple[int, int], dashboard: Opener) -> None:
    async with dashboard(STORES[name](), size) as pilot:
        for key in "1", "2", "7":
            await pilot.press(key)
            await pilot.pause()
            text = screen_text(app_of(pilot))
            assert "could not be drawn" not in text
            assert is_safe(text.replace("\n", ""))


# ---------------------------------------------------------------------------------------------- pure parts

dirty = st.text(st.characters(), max_size=60)


@pytest.mark.fault(24, how="any text in every field of a host")
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(dirty, min_size=12, max_size=12))
def test_no_text_of_the_host_gets_into_a_line(texts: list[str]) -> None:
    a, b, c, d, e, f, g, h, i, j, k, m = texts
    store = Store()
    odd = card(0, name=a, bus_id=b, throttle=(c,), recovery=d, processes=(GpuProcess(1, "C", GIB, 1, e, f, g),))
    set_board(store, GpuBoard(1.0, True, driver=h, cuda=i, problem=j, cards=(odd, odd._replace(lost=k))))
    store.outliers = {odd.uuid: m}
    job = JobState(a, b, c, d, 0.0, health=e, engine=f, model=g, drafter=h, first_error=i, detail=j, command=(k, m), log=a, cwd=b)
    store.jobs = {a: job}
    store.processes = (Process(1, 1, 0, a, b, c, d),)
    alert = Alert(a, b, c, 0.0, d, e)
    store.alerts = {a: alert}
    lines = [card_state(one, store) for one in store.gpus.cards] if store.gpus else []
    lines += card_lines(store, odd.uuid, 100)
    lines += [alert_line(alert), [job_state(job)], job_progress(job, store), *job_lines(store, a, 80), *alert_lines(store, a, 60)]
    assert is_safe(plain(lines).replace("\n", ""))


@given(st.one_of(st.none(), st.floats()), st.integers(0, 40))
def test_a_gauge_is_exact(value: float | None, width: int) -> None:
    assert len(plain([gauge(value, width)])) == width


def test_a_gauge_tells_little_from_nothing() -> None:
    assert plain([gauge(0.0, 10)]) == "─" * 10
    assert plain([gauge(0.01, 10)])[0] == "▏"
    assert plain([gauge(100.0, 10)]) == "█" * 10
    assert plain([gauge(None, 10)]) == "·" * 10


@given(st.lists(st.floats(), max_size=80), st.integers(0, 40))
def test_a_spark_is_exact(values: list[float], width: int) -> None:
    assert len(spark(values, width, 0.0, 100.0)) == width


def test_columns_stay_where_they_are_as_time_goes() -> None:
    times = [float(t) for t in range(100)]
    values = [float(t % 17) for t in range(100)]
    one = columns(times[:90], values[:90], 20, 3.0, 89.0)
    two = columns(times[:93], values[:93], 20, 3.0, 92.0)
    assert one[1:] == two[:-1]
    assert two[-1] == max(values[90:93])


def test_columns_keep_peaks_and_gaps() -> None:
    nan = float("nan")
    out = columns([0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 9.0, nan, nan, 2.0, nan], 3, 2.0, 5.0)
    assert out[0] == 9.0
    assert out[1] != out[1]
    assert out[2] == 2.0
    assert columns([4.0], [1.0], 5, 2.0, 5.0) == [1.0]


@given(st.lists(st.floats(0, 100), max_size=300), st.integers(1, 40))
def test_thin_keeps_the_extremes_in_order(values: list[float], width: int) -> None:
    times = [float(t) for t in range(len(values))]
    some_times, some = thin_pairs(times, values, width)
    assert some_times == sorted(some_times)
    assert len(some) <= max(2 * width, 0) + 2
    if values:
        assert max(some) == max(values)
        assert min(some) == min(values)


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 9), st.booleans()), min_size=1, max_size=12), st.integers(1, 200))
def test_columns_never_overflow(specs: list[tuple[int, int, bool]], width: int) -> None:
    fitted = fit_columns([Column("x", size, priority=priority, grow=grow) for size, priority, grow in specs], width)
    assert fitted
    assert sum(size + 1 for _, _, size in fitted) - 1 <= width


def test_the_important_columns_stay() -> None:
    fitted = fit_columns([Column("a", 10), Column("b", 10, priority=5), Column("c", 10, priority=1)], 22)
    assert [column.title for _, column, _ in fitted] == ["a", "c"]


def test_an_end_that_nobody_asked_for_is_bad() -> None:
    job = JobState("a", "serve", "k25", "exited", 0.0, rc=-9, health="failed", ready_seconds=9.0)
    assert job_state(job) == ("✗ ended by signal 9", "bad")
    assert job_state(job._replace(rc=0)) == ("✗ failed", "bad")
    assert job_state(job._replace(health="gone", ended_by="ann")) == ("- ended by signal 9", "dim")


def test_a_job_that_has_ended_is_in_no_phase() -> None:
    job = JobState("a", "serve", "k25", "exited", 0.0, rc=0, health="gone", phase="ready", ready_seconds=62.0, ended_by="ann")
    assert "".join(span[0] for span in job_progress(job, Store())) == "ready after 1 m 02 s"
