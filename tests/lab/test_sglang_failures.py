"""The real SGLang when its launch cannot work: what is told, and that nothing is left. Each starts it, so by ``make faults``."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agent.jobs_harness import Jobs, free_port
from tests.lab.matrix import Engine, note
from tests.lab.sglang_server import Sglang

pytestmark = [pytest.mark.engine, pytest.mark.machine, pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture
def silent() -> Iterator[Callable[[int], None]]:
    """Listens on a port, accepts, and never answers: another program altogether."""
    made: list[socket.socket] = []

    def listen(port: int) -> None:
        listener = socket.create_server(("127.0.0.1", port))
        made.append(listener)
        threading.Thread(target=_accept, args=(listener, made), daemon=True).start()

    yield listen
    for one in made:
        one.close()


def _accept(listener: socket.socket, kept: list[socket.socket]) -> None:
    while True:
        try:
            kept.append(listener.accept()[0])
        except OSError:
            return  # closed at the end of the test


@pytest.fixture
def chatty() -> Iterator[Callable[[int], None]]:
    """Answers HTTP on a port, with 404 to whatever is asked."""
    made: list[http.server.ThreadingHTTPServer] = []

    def listen(port: int) -> None:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), http.server.BaseHTTPRequestHandler)
        made.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()

    yield listen
    for one in made:
        one.shutdown()
        one.server_close()


def never_ready(engine: Engine, seconds: float = 600) -> dict[str, object]:
    """The state after it has ended by itself; it must not have been told as ready in between."""

    def over(state: dict[str, object]) -> bool:
        assert state.get("health") != "ready", state
        return state.get("state") not in ("running", "launching") and not state.get("members")

    return engine.jobs.wait(engine.id, over, seconds)


def test_a_drafter_that_is_not_there(jobs: Jobs, sglang: Sglang, tmp_path: Path) -> None:
    engine = Engine(jobs, sglang.profile(tmp_path, free_port(), drafter=str(tmp_path / "no-drafter")))
    engine.launch()
    jobs.wait(engine.id, lambda s: (s.get("members") or 0) > 0)
    engine.look()
    state = never_ready(engine)
    assert (state["state"], state["health"]) == ("exited", "failed")
    assert "no-drafter" in str(state["first_error"]) + str(state.get("causes")), state
    engine.assert_nothing_left()
    note("a drafter that is not there", engine)


@pytest.mark.fault(35, how="the port of a loading SGLang is taken by a program that answers with 404")
def test_its_port_is_taken_while_it_loads_by_one_that_answers(
    jobs: Jobs, sglang: Sglang, tmp_path: Path, chatty: Callable[[int], None]
) -> None:
    _taken(Engine.sglang(jobs, sglang, tmp_path), chatty)


@pytest.mark.fault(35, how="the port of a loading SGLang is taken by a program that never answers")
def test_its_port_is_taken_while_it_loads_by_one_that_is_silent(
    jobs: Jobs, sglang: Sglang, tmp_path: Path, silent: Callable[[int], None]
) -> None:
    _taken(Engine.sglang(jobs, sglang, tmp_path), silent)


def _taken(engine: Engine, listen: Callable[[int], None]) -> None:
    engine.launch()
    listen(engine.port)
    state = engine.jobs.wait(engine.id, lambda s: s.get("troubles") or s.get("state") != "running", 600)
    assert "port" in " ".join(state.get("troubles") or ()), "the stranger on its port is not told"
    engine.look()
    state = never_ready(engine)
    assert (state["state"], state["health"]) == ("exited", "failed")
    told = " ".join(str(state.get(name)) for name in ("first_error", "detail", "causes", "troubles"))
    assert str(engine.port) in told, told
    note(f"port taken while it loads ({listen.__qualname__.split('.')[0]})", engine)
    assert [process for process in engine.processes if process.alive] == []
