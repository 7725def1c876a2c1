import os
import signal

import pytest

from eagletui.agent.loop import Loop


@pytest.fixture
def loop():
    errors: list[tuple[str, Exception]] = []
    made = Loop(lambda what, error: errors.append((what, error)))
    made.errors = errors  # type: ignore[attr-defined]
    yield made
    made.close()


def test_timers_run_in_order_and_a_cancelled_one_not_at_all(loop: Loop) -> None:
    ran: list[str] = []
    loop.call_later(0.02, lambda: (ran.append("late"), loop.stop()))
    loop.call_later(0.01, lambda: ran.append("cancelled")).cancel()
    loop.call_later(0, lambda: ran.append("first"))
    loop.call_later(0, lambda: ran.append("second"))
    loop.run()
    assert ran == ["first", "second", "late"]


def test_an_error_in_a_callback_is_reported_and_the_loop_goes_on(loop: Loop) -> None:
    loop.call_later(0, lambda: 1 / 0)
    loop.call_later(0.001, loop.stop)
    loop.run()
    assert [(what, type(error)) for what, error in loop.errors] == [("timer", ZeroDivisionError)]  # type: ignore[attr-defined]


def test_reader_and_writer_of_one_descriptor(loop: Loop) -> None:
    import socket

    left, right = socket.socketpair()
    got: list[bytes] = []

    def readable() -> None:
        got.append(left.recv(100))
        loop.remove_reader(left.fileno())
        loop.stop()

    def writable() -> None:
        left.send(b"ping")
        loop.remove_writer(left.fileno())
        right.send(right.recv(100).upper())

    loop.add_reader(left.fileno(), readable)
    loop.add_writer(left.fileno(), writable)
    loop.run()
    assert got == [b"PING"]
    left.close()
    right.close()


def test_a_child_that_ended_before_it_was_watched_is_told(loop: Loop) -> None:
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 7"], {})
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    statuses: list[int] = []
    loop.watch_child(pid, lambda status: (statuses.append(status), loop.stop()))
    loop.run()
    assert os.waitstatus_to_exitcode(statuses[0]) == 7


def test_a_closed_loop_is_not_woken_by_a_later_child() -> None:
    loop = Loop(lambda what, error: None)
    loop.watch_child(os.posix_spawn("/bin/sh", ["sh", "-c", ":"], {}), lambda status: loop.stop())
    loop.run()
    loop.close()
    assert signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL
    os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", ":"], {}), 0)


def test_workers_give_results_and_errors_to_the_loop(loop: Loop) -> None:
    from eagletui.agent.workers import Workers

    pool = Workers(loop)
    got: list[object] = []

    def done(result: object, error: BaseException | None) -> None:
        got.append(result if error is None else type(error))
        if len(got) == 21:
            loop.stop()

    for i in range(20):
        pool.run(lambda i=i: i, done)  # type: ignore[misc]
    pool.run(lambda: [][1], done)
    loop.run()
    assert sorted(map(str, got)) == sorted([*map(str, range(20)), "<class 'IndexError'>"])
