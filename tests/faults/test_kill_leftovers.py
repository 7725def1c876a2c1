"""What a job leaves in shared memory and temporary places: the job's own goes, what anybody uses or may use stays."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eagletui.agent import leftovers, leftovers_api, syscalls
from eagletui.agent.calls import Call, CallError
from eagletui.agent.loop import Loop
from tests.agent.jobs_harness import Jobs, shim, until

# makes what engines make: in the places that its environment names, then waits. SHM maps, binds, writes; argv: names
ENGINE = """
import mmap, os, socket, sys, tempfile, time, uuid
kept, made = [], []
def segment(path):
    with open(path, "w+b") as file:
        file.truncate(65536)
        kept.append(mmap.mmap(file.fileno(), 65536))
    made.append(path)
def bound(path):
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(path)
    kept.append(sock)
    made.append(path)
def written(path):
    kept.append(open(path, "w"))
    made.append(path)
tag = sys.argv[2]
rpc = os.environ.get("VLLM_RPC_BASE_PATH") or tempfile.gettempdir()
segment("/dev/shm/psm_" + tag)
segment("/dev/shm/sglang_loads_" + tag + ".shm")
bound(os.path.join(rpc, str(uuid.uuid4())))
written(os.path.join(tempfile.gettempdir(), "vllm_dist_" + tag))
fd, path = tempfile.mkstemp()
os.close(fd)
os.unlink(path)
bound(path)
fd, path = tempfile.mkstemp()
kept.append(fd)
made.append(path)
with open(sys.argv[1] + ".new", "w") as file:
    file.write("\\n".join(made))
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(600)
"""


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory with a name short enough for sockets, and away from /tmp itself."""
    path = Path("/var/tmp", f"et{uuid.uuid4().hex[:6]}")
    path.mkdir()
    yield path
    for entry in path.iterdir():
        entry.unlink()
    path.rmdir()


class Engine:
    def __init__(self, jobs: Jobs, tmp_path: Path, **env: str) -> None:
        names = tmp_path / f"made-{uuid.uuid4().hex[:6]}"
        self.spec = jobs.spec(sys.executable, "-I", "-S", "-c", ENGINE, str(names), uuid.uuid4().hex[:10], env=env)
        self.state = jobs.launch(self.spec)
        self.id = str(self.spec["id"])
        until(lambda: names.exists() and len(names.read_text().split("\n")) == 6)
        self.made = names.read_text().split("\n")
        assert len(self.made) == 6
        assert all(os.path.lexists(path) for path in self.made)

    def noted(self, jobs: Jobs) -> None:
        """Until the supervisor has seen what its members use."""
        until(lambda: set(self.made) <= set((jobs.job(self.id).origin() or _none()).known_files), 30, "files are noted")

    def remove(self) -> None:
        for path in self.made:
            if os.path.lexists(path):
                os.unlink(path)


def _none() -> Any:
    raise AssertionError("shim.json is missing")


def ask(jobs: Jobs, **params: Any) -> dict[str, Any]:
    answers: list[Any] = []

    def fail(error: CallError) -> None:
        raise error

    loop = Loop(lambda what, error: None)
    try:
        leftovers_api.request(Call(loop, params, b"", lambda result, body: answers.append(result), fail))
    finally:
        loop.close()
    found: dict[str, Any] = json.loads(json.dumps(answers[0]))
    return found


@pytest.mark.fault(29, how="TMPDIR and VLLM_RPC_BASE_PATH elsewhere than /tmp; vLLM's and SGLang's names")
def test_what_an_engine_made_in_its_own_places_goes_with_it(jobs: Jobs, tmp_path: Path, short: Path) -> None:
    rpc = short
    tmp = Path("/var/tmp", rpc.name + "t")
    tmp.mkdir()
    others = [tmp / "results.json", tmp / "tmpnotes", tmp / f"vllm_dist_{os.getpid()}x"]
    for path in others[:2]:
        path.write_text("an operator's own")
    engine = Engine(jobs, tmp_path, TMPDIR=str(tmp), VLLM_RPC_BASE_PATH=str(rpc))
    others[2].write_text("being used")
    try:
        with others[2].open():
            assert {os.path.dirname(path) for path in engine.made} == {"/dev/shm", str(rpc), str(tmp)}
            plan = jobs.call("kill_plan", job=engine.id)
            shown = {entry["path"]: entry["why"] for entry in plan["shm"] + plan["tmp"]}
            assert {path: shown.get(path) for path in engine.made} == dict.fromkeys(engine.made, "used")
            assert not {str(path) for path in others} & set(shown)
            answer = jobs.kill(engine.id)
            assert set(engine.made) <= set(answer["result"]["released"]), answer
            assert answer["result"]["remaining"] == []
        assert not [path for path in engine.made if os.path.lexists(path)]
        assert all(path.exists() for path in others)
    finally:
        engine.remove()
        for path in others:
            path.unlink(missing_ok=True)
        tmp.rmdir()


@pytest.mark.fault(31, how="supervisor and engine SIGKILLed: what they left, found long after")
def test_leftovers_of_jobs_that_died_are_listed_and_removed(jobs: Jobs, tmp_path: Path, short: Path) -> None:
    engine = Engine(jobs, tmp_path, TMPDIR=str(short))
    try:
        engine.noted(jobs)
        assert ask(jobs)["entries"] == []  # it runs: nothing is left over
        assert syscalls.signal_process(engine.state["shim_pid"], engine.state["shim_start"], signal.SIGKILL)
        assert syscalls.signal_process(engine.state["pid"], engine.state["pid_start"], signal.SIGKILL)
        until(lambda: not shim(engine.state) and not jobs.members(engine.id))
        # two of the names are other files by now: one that a stranger uses, one that is another file
        used, other = engine.made[0], engine.made[3]
        os.unlink(other)
        Path(other).write_text("another one")
        keep = Path(other).stat().st_ino
        with open(used, "rb"):
            listed = {entry["path"] for entry in ask(jobs)["entries"]}
            assert listed == set(engine.made) - {used, other}
            answer = ask(jobs, remove=[*engine.made, "/etc/passwd"])
        assert set(answer["removed"]) == listed
        assert set(answer["kept"]) == {used, other, "/etc/passwd"}
        assert os.path.exists("/etc/passwd")
        assert Path(other).stat().st_ino == keep
        assert [entry["path"] for entry in ask(jobs)["entries"]] == [used]
        assert ask(jobs, remove=[used])["removed"] == [used]
        assert jobs.state(engine.id)["state"] == "lost_supervisor"
    finally:
        engine.remove()


@pytest.mark.fault(26, how="the record of a job of another boot, whose sockets a disk has kept")
def test_leftovers_over_a_reboot(jobs: Jobs, tmp_path: Path, short: Path) -> None:
    engine = Engine(jobs, tmp_path, TMPDIR=str(short))
    try:
        engine.noted(jobs)
        for pid, start in (
            (engine.state["shim_pid"], engine.state["shim_start"]),
            (engine.state["pid"], engine.state["pid_start"]),
        ):
            assert syscalls.signal_process(pid, start, signal.SIGKILL)
        until(lambda: not shim(engine.state) and not jobs.members(engine.id))
        for name in ("shim.json", "state.json"):
            path = jobs.root / "jobs" / engine.id / name
            doc = json.loads(path.read_text())
            doc["boot_id"] = "another boot"
            path.write_text(json.dumps(doc))
        assert jobs.state(engine.id)["state"] == "lost_reboot"
        assert {entry["path"] for entry in ask(jobs)["entries"]} == set(engine.made)
        assert set(ask(jobs, remove=engine.made)["removed"]) == set(engine.made)
    finally:
        engine.remove()


def test_what_is_an_operators_own_is_never_judged_by_its_name_alone(tmp_path: Path) -> None:
    """A data file that is called as a socket of vLLM is none; a temporary file that nobody was seen to use is not the job's."""
    data = Path("/tmp", str(uuid.uuid4()))
    temporary = Path("/tmp", "tmp" + uuid.uuid4().hex[:8])
    for path in (data, temporary):
        path.write_text("results")
    try:
        found = {entry.path for entry in leftovers.find([], os.geteuid(), 0)}
        assert not {str(data), str(temporary)} & found
        with data.open("a"), temporary.open("r"):
            assert not {str(data), str(temporary)} & set(leftovers.note([os.getpid()]))
        with socket.socket(socket.AF_UNIX) as server:
            path = f"/tmp/et{uuid.uuid4().hex[:8]}"
            server.bind(path)
            assert path in leftovers.note([os.getpid()])
        os.unlink(path)
    finally:
        data.unlink()
        temporary.unlink()
