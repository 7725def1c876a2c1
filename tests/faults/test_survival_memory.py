"""Memory runs out in a job's control group: the kernel's choice is told with its own words, and the supervisor lives."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eagletui.agent import oom
from tests.agent.jobs_harness import Jobs, shim, until

LIMIT = 192 << 20
EATER = "import time; held = []\nwhile True: held.append(b'x' * (8 << 20)); time.sleep(0.02)"
KEEPS = f"""
import subprocess, sys, time
worker = subprocess.Popen([sys.executable, "-c", {EATER!r}])
print("worker ended with", worker.wait(), flush=True)
"""


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Callable[[Callable[[], Any]], Any]]:
    """``limited(function)`` runs it in a process of its own within a control group of 192 MB; what that starts is in it too."""
    group = _memory_group(f"eagletui-test-{os.getpid()}")

    def run(function: Callable[[], Any]) -> Any:
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                (group / "cgroup.procs").write_text(str(os.getpid()))
                os.write(write_end, json.dumps(function()).encode())
            finally:
                os._exit(0)
        os.close(write_end)
        with os.fdopen(read_end, "rb") as file:
            told = file.read()
        os.waitpid(pid, 0)
        return json.loads(told)

    yield run

    def removed() -> bool:
        with contextlib.suppress(OSError):
            group.rmdir()
        return not group.exists()

    until(removed, 30, f"the end of {group}")


def _memory_group(name: str) -> Path:
    unified = Path("/sys/fs/cgroup")
    try:
        if (unified / "memory/memory.limit_in_bytes").exists():
            group = unified / "memory" / name
            group.mkdir()
            (group / "memory.limit_in_bytes").write_text(str(LIMIT))
        elif "memory" in (unified / "cgroup.subtree_control").read_text().split():
            group = unified / name
            group.mkdir()
            (group / "memory.max").write_text(str(LIMIT))
            (group / "memory.swap.max").write_text("0")
        else:
            pytest.skip("no control group with the memory controller can be made here")
    except OSError as error:
        pytest.skip(f"no control group with the memory controller can be made here: {error}")
    return group


@pytest.mark.machine
@pytest.mark.timeout(600)
@pytest.mark.fault(44, how="a memory control group of 192 MB; the main process takes more")
def test_a_main_process_killed_for_memory_is_told_with_the_kernels_words(
    jobs: Jobs, limited: Callable[[Callable[[], Any]], Any]
) -> None:
    spec = jobs.spec(sys.executable, "-c", EATER)
    jobs.launched.append(spec["id"])
    state = limited(lambda: jobs.launch(spec))
    over = jobs.over(spec["id"], 60)
    assert (over["state"], over["rc"]) == ("oom", -9)
    # the kernel's own line names the process
    assert over["detail"].startswith(f"the kernel killed pid {state['pid']} (")
    assert over["detail"].endswith(": its control group had no memory left")
    assert over["first_error"] == over["detail"]
    exit_doc = json.loads((jobs.root / "jobs" / spec["id"] / "exit.json").read_text())
    assert (exit_doc["rc"], exit_doc["oom"]) == (-9, True)


@pytest.mark.machine
@pytest.mark.timeout(600)
@pytest.mark.fault(44, how="a memory control group of 192 MB; a worker takes more, and its main process goes on")
def test_a_worker_killed_for_memory_is_told_while_the_job_goes_on(
    jobs: Jobs, limited: Callable[[Callable[[], Any]], Any], tmp_path: Path
) -> None:
    stop = tmp_path / "stop"
    waits = f"{KEEPS}\nimport os\nwhile not os.path.exists({str(stop)!r}): time.sleep(0.05)\nsys.exit(1)"
    spec = jobs.spec(sys.executable, "-c", waits)
    jobs.launched.append(spec["id"])
    state = limited(lambda: jobs.launch(spec))
    told = jobs.wait(spec["id"], lambda s: [text for text in s.get("troubles") or () if text.startswith("memory: ")], 60)
    assert (told["state"], told["pid"]) == ("running", state["pid"])
    assert shim(told)
    assert " had no memory left" in told["troubles"][0]
    log = jobs.root / "jobs" / spec["id"] / "log"
    assert log.read_text() == "worker ended with -9\n"
    stop.touch()
    over = jobs.over(spec["id"])
    # it fell with its worker
    assert (over["state"], over["rc"], over["detail"]) == ("oom", 1, told["troubles"][0].partition(" ")[2])


def test_the_counter_is_that_of_the_nearest_group_with_the_controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that was delegated to a unit's supervisor has none of its own."""
    groups, proc = tmp_path / "cgroup", tmp_path / "proc"
    unit = groups / "system.slice/eagletui-a.service"
    (unit / "job").mkdir(parents=True)
    (unit / "memory.events").write_text("low 0\nhigh 0\nmax 4\noom 1\noom_kill 2\n")
    (proc / "7").mkdir(parents=True)
    (proc / "7/cgroup").write_text("0::/system.slice/eagletui-a.service/job\n")
    monkeypatch.setattr(oom, "GROUPS", str(groups))
    monkeypatch.setattr(oom.procfs, "PROC", str(proc))
    assert oom.counters(7) == [str(unit / "memory.events")]
    assert oom.kills(oom.counters(7)) == 2
    (unit / "job/memory.events").write_text("oom_kill 0\n")
    assert oom.counters(7) == [str(unit / "job/memory.events")]


def test_what_befell_others_on_the_host_is_not_told_of_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = tmp_path / "vmstat"
    counter.write_text("nr_free_pages 1\noom_kill 0\n")
    said: list[bytes] = []
    line = b"6,1,9,-;Out of memory: Killed process %d (python3) total-vm:900kB, anon-rss:488281kB, file-rss:0kB"
    monkeypatch.setattr(oom, "_HOST", str(counter))
    monkeypatch.setattr(oom, "GROUPS", str(tmp_path / "none"))
    monkeypatch.setattr(oom, "evidence", lambda pids: [text for text in said if int(text.split()[5]) in pids])
    watch = oom.Watch(os.getpid())
    assert not watch.look([11], 1.0)
    said.append(line % 999)
    counter.write_text("oom_kill 1\n")
    assert not watch.look([11], 2.0)
    assert watch.text is None
    assert not watch.ended(-9, 2.0)
    said.append(line % 11)
    counter.write_text("oom_kill 2\n")
    assert watch.look([], 3.0)
    assert watch.text == "the kernel killed pid 11 (python3), which held 500 MB: the host had no memory left"
    assert watch.ended(1, 4.0)
    assert not watch.ended(0, 4.0)
    assert not watch.ended(1, 3.0 + oom.AFTER + 1)
