"""Who of an engine's processes ended first, and a server that goes on without one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from eagletui.agent import procfs
from eagletui.agent.fallen import USELESS_AFTER, Fallen
from eagletui.agent.members import Key
from eagletui.agent.procfs import Stat
from tests.agent.jobs_harness import until


def process(pid: int, comm: str) -> dict[Key, Stat]:
    return {(pid, 7): Stat(pid, comm, "S", 1, pid, pid, 7, 0, 0, 1, 0)}


def test_the_first_of_an_engines_processes_is_named_and_helpers_are_not() -> None:
    fallen = Fallen()
    gone = 4_190_000
    worker, engine, helper = process(gone, "VLLM::Worker_TP"), process(gone + 1, "VLLM::EngineCor"), process(gone + 2, "cc1plus")
    fallen.look({**worker, **engine, **helper}, 0.0)
    assert fallen.first(0.0) is None
    fallen.look(engine, 1.0)
    fallen.look({}, 2.0)
    assert fallen.first(3.0) == f"VLLM::Worker_TP (pid {gone}) ended before it"
    assert fallen.first(10_000.0) is None, "what ended long ago is not why"


def test_a_server_that_goes_on_without_its_engine_is_told_after_a_while() -> None:
    fallen = Fallen()
    fallen.look(process(4_190_000, "sglang::schedul"), 0.0)
    fallen.look({}, 1.0)
    assert fallen.trouble(1.0) is None, "it may be about to end"
    assert fallen.trouble(1.0 + USELESS_AFTER) == (
        "processes: sglang::schedul (pid 4190000) ended, and the server goes on without"
    )


def test_a_process_that_gets_its_title_later_is_known_by_the_whole_of_it(tmp_path: Path) -> None:
    code = "import ctypes, time; ctypes.CDLL(None).prctl(15, b'VLLM::EngineCor', 0, 0, 0); time.sleep(600)"
    child = subprocess.Popen(["VLLM::EngineCore", "-I", "-c", code], executable=sys.executable)
    try:
        stat = until(lambda: (s := procfs.read_stat(child.pid)) is not None and s.comm == "VLLM::EngineCor" and s)
        fallen = Fallen()
        fallen.look(process(child.pid, "python3"), 0.0)
        fallen.look({(child.pid, stat.start): stat}, 1.0)
    finally:
        child.kill()
        child.wait()
    fallen.look({}, 2.0)
    assert fallen.first(2.0) == f"VLLM::EngineCore (pid {child.pid}) ended before it"
