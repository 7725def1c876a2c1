"""More requests while that pays and nothing queues; fewer when the server queues, fails, or gains nothing."""

from __future__ import annotations

from eagletui.jobs.on_host.concurrency import HOLD, PAUSE, WINDOW, Concurrency
from eagletui.jobs.on_host.figures import STALL_LEAST, stalled


def run(pace: Concurrency, capacity: float, windows: int, queue_above: int | None = None, start: float = 0.0) -> float:
    """A server that makes 10 tok/s for each request, up to ``capacity``. Returns the time after it."""
    now = start
    for _ in range(windows):
        now += WINDOW
        waiting = None if queue_above is None else float(max(0, pace.limit - queue_above))
        pace.look(now, min(capacity, 10.0 * pace.limit), waiting, True)
    return now


def test_it_grows_to_the_most_that_is_allowed_where_all_of_it_pays() -> None:
    pace = Concurrency(64)
    run(pace, 1e9, 10, queue_above=1000)
    assert pace.limit == 64


def test_it_goes_back_to_what_paid_and_tries_again_later() -> None:
    pace = Concurrency(512)
    now = run(pace, 160.0, 10)
    assert 16 <= pace.limit <= 32
    held = pace.limit
    assert pace.look(now + 1, 160.0, None, True) is None
    said = pace.look(now + HOLD + WINDOW * 10, 160.0, None, True)
    assert said is not None
    assert pace.limit > held


def test_a_queue_in_the_server_takes_back_what_queues() -> None:
    pace = Concurrency(512)
    run(pace, 1e9, 30, queue_above=40)
    assert pace.limit == 40


def test_a_failure_halves_it_once_for_failures_of_the_same_time() -> None:
    pace = Concurrency(64, start=64)
    assert pace.trouble(10.0, "HTTP 500") == "concurrency 64 -> 32: HTTP 500"
    assert pace.trouble(10.5, "HTTP 500") is None
    assert pace.limit == 32
    pace.trouble(10.0 + PAUSE, "HTTP 500")
    assert pace.limit == 16
    for step in range(20):
        pace.trouble(100.0 + PAUSE * step, "HTTP 500")
    assert pace.limit == 1
    pace.look(1000.0, 10.0, 0.0, True)
    assert pace.limit == 2


def test_without_figures_it_grows_as_nothing_speaks_against_it() -> None:
    pace = Concurrency(64)
    for step in range(6):
        pace.look(WINDOW * step, None, None, True)
    assert pace.limit == 64


def test_it_does_not_grow_while_it_is_not_used() -> None:
    pace = Concurrency(64)
    assert pace.look(WINDOW, 100.0, 0.0, False) is None
    assert pace.limit == 8


def test_a_request_that_waits_strangely_long_is_told() -> None:
    flying = {"a": 0.0, "b": 90.0}
    assert stalled(flying, STALL_LEAST - 1, 1.0) is None
    said = stalled(flying, 100.0, 2.0)
    assert said == "1 wait for more than 60 s, the longest (a) for 100 s; answers usually take 2 s"
    assert stalled(flying, 100.0, 50.0) is None
    assert stalled(flying, 1000.0, None) == "2 wait for more than 60 s, the longest (a) for 1000 s"
