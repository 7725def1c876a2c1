"""Which serving job is shown, which window of it, and when it counts as idle."""

from __future__ import annotations

import pytest

from eagletui.records import Acceptance, JobState, ServerSample, ServerView, ServerWindow
from eagletui.store import Connection, Store
from eagletui.views.serving import (
    HINT_STEPS,
    LABELS,
    choose,
    conditional,
    elapsed,
    first_position,
    is_busy,
    neighbour,
    next_window,
    ready_for,
    select_anew,
    selected,
    servers,
    shown_window,
    tensor_parallel,
    worth_showing,
)
from eagletui.watch.windows import WINDOWS


def job(id_: str, started: float, state: str = "running", health: str = "ready", **more: object) -> JobState:
    ready = 60.0 if health == "ready" else None
    return JobState(id_, "serve", id_, state, started, health=health, ready_seconds=ready)._replace(**more)  # type: ignore[arg-type]


OLD, NEW = job("old", 1.0), job("new", 2.0)
LOADING = job("loading", 1.5, health="loading")
DEAD = job("dead", 9.0, "exited", "failed", ended=10.0)
TRAIN = JobState("train", "train", "train", "running", 99.0)


def test_the_newest_that_loads_then_that_serves_then_that_has_been() -> None:
    assert [one.id for one in servers([TRAIN, DEAD, OLD, NEW, LOADING])] == ["loading", "new", "old", "dead"]
    assert selected([TRAIN, DEAD, OLD, NEW, LOADING], None) == "loading"
    assert selected([DEAD, OLD, NEW], None) == "new"
    assert selected([DEAD, TRAIN], None) == "dead"
    assert selected([TRAIN], None) is None


def test_a_choice_holds_while_its_job_is_there() -> None:
    assert selected([OLD, NEW, LOADING], "old") == "old"
    assert selected([NEW, LOADING], "old") == "loading"
    store = Store(jobs={one.id: one for one in (OLD, NEW)})
    heard: list[str] = []
    store.listen(heard.append)
    choose(store, "old")
    assert (store.selected, heard) == ("old", ["selected"])
    choose(store, None)
    assert store.selected == "new"


def test_the_server_that_is_looked_at_stays_when_its_supervisor_is_lost() -> None:
    store = Store()
    select_anew(store, [NEW, DEAD])
    orphan = NEW._replace(state="lost_supervisor", members=3)
    for choice in (None, "new"):
        store.chosen = choice
        select_anew(store, [orphan, DEAD])
        assert store.selected == "new"
    assert selected([orphan, DEAD], None) == "new"  # also for who comes anew: it serves, the other has failed
    select_anew(store, [orphan, DEAD, LOADING])
    assert store.selected == "new"
    assert [one.id for one in worth_showing([orphan, DEAD])] == ["new", "dead"]


def test_a_later_server_is_followed_once_the_shown_one_has_ended() -> None:
    store = Store(jobs={"old": OLD})
    choose(store, "old")
    select_anew(store, [OLD])
    ended = OLD._replace(state="exited", health="gone", ended=5.0)
    select_anew(store, [ended])
    assert store.selected == "old"
    later = job("later", 6.0, health="loading")
    select_anew(store, [ended, later])
    assert store.selected == "later"
    choose(store, "old")  # it has ended, and the person looks back at it
    select_anew(store, [ended, later])
    assert store.selected == "old"
    select_anew(store, [later])
    assert store.selected == "later"


def test_a_job_chosen_before_it_is_in_the_table_is_shown_when_it_comes() -> None:
    store = Store(jobs={"old": OLD})
    choose(store, "coming")
    select_anew(store, [OLD])
    assert store.selected == "old"
    coming = job("coming", 6.0, health="loading")
    select_anew(store, [OLD, coming])
    assert store.selected == "coming"
    select_anew(store, [OLD, coming, LOADING])
    assert store.selected == "coming"


def test_the_neighbours_go_round() -> None:
    jobs = [OLD, NEW, LOADING]
    assert [neighbour(jobs, one, 1) for one in ("loading", "new", "old", None, "gone")] == [
        "new", "old", "loading", "loading", "loading",
    ]  # fmt: skip
    assert neighbour(jobs, "loading", -1) == "old"
    assert neighbour([TRAIN], None, 1) is None


def test_an_overview_shows_live_ones_and_failures_nobody_has_replaced() -> None:
    replaced = DEAD._replace(id="dead0", name="new", started=0.5)
    ended = job("ended", 3.0, "exited", "gone", ended=8.0)
    assert [one.id for one in worth_showing([ended, replaced, DEAD, NEW, OLD])] == ["old", "new", "dead"]


def view(boot: float, tokens: float = 0.0, running: float = 0.0) -> ServerView:
    return ServerView(
        "j",
        boot,
        ServerSample(boot, 1e9 + boot, running, generated_tokens=tokens),
        (ServerWindow("1 m", 60.0, generated_per_s=tokens),),
    )


def test_an_idle_server_shows_its_last_window_with_work() -> None:
    busy, now = view(100.0, 5.0, 1.0), view(109.0)
    shown = shown_window({"j": now}, {"j": busy}, "j", "1 m")
    assert (shown.window, shown.idle) == (now.windows[0], None)  # between two requests: not idle yet
    later = view(130.0)
    shown = shown_window({"j": later}, {"j": busy}, "j", "1 m")
    assert (shown.window, shown.idle, shown.since) == (busy.windows[0], 30.0, 1e9 + 100)
    assert shown_window({"j": later}, {}, "j", "1 m").unused
    assert shown_window({}, {}, "j", "1 m").window is None


def test_work_is_requests_at_the_scrape_or_tokens_since_the_one_before() -> None:
    def scrape(tokens: float, running: float = 0.0) -> ServerSample:
        return ServerSample(1.0, 1.0, running, 0.0, generated_tokens=tokens)

    assert is_busy(None, scrape(0, 1.0))
    assert is_busy(scrape(5), scrape(6))
    assert not is_busy(scrape(6), scrape(6))
    assert not is_busy(None, scrape(6))


def test_the_windows_are_those_of_the_watch() -> None:
    assert tuple(label for label, _ in WINDOWS) == LABELS
    assert [next_window(label) for label in LABELS] == ["1 m", "10 m", "all", "10 s"]
    assert next_window("?") == "10 s"


def test_times_are_by_the_hosts_clock_and_stand_still_without_a_link() -> None:
    store = Store(connection=Connection("online"), jobs_boot=1000.0, jobs_seen=50.0)
    one = job("j", 0.0, started_boot=900.0)
    assert elapsed(store, one, 53.0) == 103.0
    assert ready_for(store, one, 53.0) == 43.0
    store.connection = Connection("reconnecting", last_frame=51.0)
    assert elapsed(store, one, 500.0) == 101.0
    assert elapsed(store, one._replace(ended=700.0), 500.0) == 700.0
    assert elapsed(Store(), one, 5.0) is None


def test_tensor_parallel_from_the_command() -> None:
    assert tensor_parallel(job("j", 0.0, command=("vllm", "serve", "m", "-tp", "8"))) == 8
    assert tensor_parallel(job("j", 0.0, command=("sleep", "9"))) is None


@pytest.mark.parametrize(
    ("share", "steps", "word"),
    [(0.036, 500, "wiring"), (0.31, 500, "mismatch"), (0.65, 500, "healthy"), (0.03, HINT_STEPS - 1, None)],
)
def test_the_first_position_is_judged_only_with_enough_behind_it(share: float, steps: float, word: str | None) -> None:
    assert first_position(Acceptance(60.0, steps, per_position=(share, 0.0))) == word


def test_conditional_shares() -> None:
    assert conditional(Acceptance(1.0, per_position=(0.5, 0.25, 0.0))) == (0.5, 0.5, 0.0)
    assert conditional(Acceptance(1.0, per_position=(0.0, 0.0))) == (0.0, None)
