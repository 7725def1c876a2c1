"""Real engines, killed in every way: nothing is left, and what is told of the end is true.

vLLM and SGLang: SIGKILL to the server, to each kind of child and to the supervisor; SIGTERM while it loads; ended with a request
under way; ended at once. Each case starts an engine, so they run by ``make faults``.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from eagletui.agent.procfs import read_stat
from eagletui.labparts.paths import Lab
from tests.agent.jobs_harness import Jobs
from tests.lab.matrix import Engine, note
from tests.lab.sglang_server import Sglang

LIMIT = 1500

pytestmark = [pytest.mark.engine, pytest.mark.machine, pytest.mark.slow, pytest.mark.timeout(LIMIT)]
Start = Callable[[], Engine]


@pytest.fixture
def vllm(jobs: Jobs, lab: Lab) -> Start:
    return lambda: Engine.vllm(jobs, lab)


@pytest.fixture
def vllm_of_three(jobs: Jobs, lab: Lab) -> Start:
    return lambda: Engine.vllm(jobs, lab, workers=3)


@pytest.fixture
def sgl(jobs: Jobs, sglang: Sglang, tmp_path: Path) -> Start:
    return lambda: Engine.sglang(jobs, sglang, tmp_path)


@pytest.fixture(params=["vllm", "sgl"])
def start(request: pytest.FixtureRequest) -> Start:
    found: Start = request.getfixturevalue(request.param)
    return found


def names(engine: Engine) -> list[str]:
    """Who of its processes lives."""
    return [(read_stat(p.pid) or p).comm for p in engine.processes if p.alive]  # type: ignore[union-attr]


@pytest.mark.fault(30, how="SIGKILL to the API server of the real vLLM and of the real SGLang, ready")
def test_the_server_is_killed(start: Start) -> None:
    engine = start()
    engine.ready()
    others = [process for process in engine.processes if process is not engine.process("")]
    assert len(others) >= 2
    engine.signal("", signal.SIGKILL)
    state = engine.main_gone()
    left = names(engine)
    assert (state["state"], state["rc"], state["health"]) == ("exited", -9, "failed")
    state = engine.state
    if state.get("members"):
        assert "left behind" in state["detail"]
    note("server SIGKILLed", engine, left)
    assert "failed (-9)" in engine.table()
    engine.clear()
    engine.assert_nothing_left()
    assert (engine.state["health"], engine.state["rc"]) == ("failed", -9), "what it left was ended; it had failed before"
    note("server SIGKILLed, then ended", engine)


CHILDREN = [
    pytest.param("vllm", "VLLM::EngineCore", id="vllm-engine-core"),
    pytest.param("vllm_of_three", "VLLM::Worker", id="vllm-worker"),
    pytest.param("sgl", "sglang::scheduler", id="sglang-scheduler"),
    pytest.param("sgl", "sglang::detokenizer", id="sglang-detokenizer"),
]


@pytest.mark.fault(30, how="SIGKILL to EngineCore, to a worker of three, to SGLang's scheduler and detokenizer")
@pytest.mark.parametrize(("which", "child"), CHILDREN)
def test_a_child_is_killed(which: str, child: str, request: pytest.FixtureRequest) -> None:
    start: Start = request.getfixturevalue(which)
    engine = start()
    engine.ready()
    victim = engine.signal(child, signal.SIGKILL)
    state = engine.main_gone()
    left = names(engine)
    assert (state["state"], state["health"]) == ("exited", "failed")
    assert str(victim.pid) in engine.told(), "the report does not say which process died"
    note(f"{child} SIGKILLed", engine, left)
    assert "failed" in engine.table()
    engine.clear()
    engine.assert_nothing_left()


@pytest.mark.fault(31, how="SIGKILL to the supervisor of the real vLLM and of the real SGLang")
def test_the_supervisor_is_killed(start: Start) -> None:
    engine = start()
    engine.ready()
    engine.kill_shim()
    state = engine.state
    assert (state["state"], state["health"]) == ("lost_supervisor", "ready")
    assert "rc" not in state
    assert state["members"] == len(engine.processes)
    note("supervisor SIGKILLed", engine, names(engine))
    result = engine.kill()
    assert result["remaining"] == []
    engine.assert_nothing_left()
    state = engine.state
    assert "rc" not in state, "nobody can know it"
    assert state["health"] == "gone"
    note("supervisor SIGKILLed, then ended", engine)


@pytest.mark.fault(29, how="SIGTERM from outside to the real vLLM and SGLang while they load")
def test_it_is_told_to_end_while_it_loads(start: Start) -> None:
    engine = start()
    engine.loading()
    engine.signal("", signal.SIGTERM)
    state = engine.main_gone(again=signal.SIGTERM)
    left = names(engine)
    assert (state["state"], state["health"]) == ("exited", "failed"), "nobody ended it through eagletui"
    if state.get("ready_seconds") is not None:  # vLLM loses a SIGTERM that comes in its weights, and ends at the next one
        assert "ended after it was ready, though nobody here asked for it" in state["detail"]
    note("SIGTERM from outside while loading", engine, left)
    engine.clear()
    engine.assert_nothing_left(young=True)


def test_it_is_ended_while_it_loads(start: Start) -> None:
    engine = start()
    engine.loading()
    result = engine.kill()
    assert result["remaining"] == []
    engine.assert_nothing_left()
    assert (engine.state["health"], engine.state.get("first_error")) == ("gone", None)
    note("ended while loading", engine)


def test_it_is_ended_with_a_request_under_way(start: Start) -> None:
    engine = start()
    engine.ready()
    engine.ask()
    result = engine.kill()
    assert result["remaining"] == []
    assert f"port {engine.port}" in result["released"]
    engine.assert_nothing_left()
    assert (engine.state["state"], engine.state["health"]) == ("exited", "gone")
    note(f"ended with a request under way, {result['seconds']} s, asker got {type(engine.answers[0]).__name__}", engine)


def test_it_is_ended_at_once(start: Start) -> None:
    engine = start()
    engine.ready()
    engine.ask()
    result = engine.kill(now=True)
    assert result["remaining"] == []
    assert result["seconds"] < 60
    engine.assert_nothing_left()
    assert (engine.state["rc"], engine.state["health"]) == (-9, "gone")
    note(f"ended at once, {result['seconds']} s", engine)
