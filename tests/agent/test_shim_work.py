"""Work that is no server: what its supervisor makes of the watcher - progress, samples, notes, troubles, a judged end."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from eagletui.agent import code_dir, shim_work, turns
from eagletui.agent.job_lines import Lines
from eagletui.agent.job_log import JobLog
from eagletui.agent.loop import Loop
from eagletui.agent.shim_work import MOST_NOTES, Worked
from eagletui.agent.turns import Seen, Turns
from eagletui.jobs.watcher import Outcome, Watcher
from eagletui.records import JobState, from_doc
from eagletui.records.work import Counter, Work
from tests.agent.jobs_harness import Jobs, lines

TELLS = """
import os, sys, time
from eagletui.jobs.on_host.telling import Teller
go = sys.argv[1]
teller = Teller("rows", 10, every=0)
teller.stage("asking", total=10, done=4)
print("plain words", end="", flush=True)
teller.progress(7, counters={"failed": {"value": 1, "bad": True}, "tok/s": 312.5, "nothing": float("nan")})
teller.note("a checkpoint was written")
teller.sample(loss=0.5, bad=float("inf"))
teller.trouble("disk", "nearly full")
while not os.path.exists(go):
    time.sleep(0.02)
teller.trouble("disk", None)
teller.progress(10)
teller.result(why="10 rows", rows=10, path="/x")
"""


def telling(jobs: Jobs, tmp_path: Path, text: str = TELLS) -> tuple[dict[str, Any], Path]:
    """A spec that runs ``text`` with our package on its path, and the file that it waits for."""
    go = tmp_path / "go"
    return jobs.spec(sys.executable, "-c", text, str(go), on_host=True), go


def test_a_program_of_ours_tells_how_far_it_is_and_what_it_made(jobs: Jobs, tmp_path: Path) -> None:
    spec, go = telling(jobs, tmp_path)
    jobs.launch(spec)
    doc = jobs.wait(spec["id"], lambda s: s.get("troubles"))
    state = from_doc(JobState, doc)
    assert state.work is not None
    assert (state.work.stage, state.work.done, state.work.total, state.work.unit) == ("asking", 7, 10, "rows")
    assert state.work.counters == (Counter("failed", 1, "", True), Counter("tok/s", 312.5))
    assert state.troubles == ("disk: nearly full",)
    assert (state.ok, state.outcome) == (None, None)
    go.touch()
    over = from_doc(JobState, jobs.over(spec["id"]))
    assert (over.ok, over.outcome, over.rc, over.troubles) == (True, "10 rows", 0, ())
    directory = jobs.root / "jobs" / spec["id"]
    result = json.loads((directory / "result.json").read_text())
    assert (result["rows"], result["path"], result["ok"]) == (10, "/x", True)
    (sample,) = lines(directory / "samples.jsonl")
    assert sample["loss"] == 0.5
    assert sample["bad"] is None
    assert "a checkpoint was written" in [event.get("text") for event in lines(directory / "events.jsonl")]
    assert b"plain words" in (directory / "log").read_bytes()


def test_a_program_finds_this_very_package_and_keeps_it_while_it_runs(jobs: Jobs, tmp_path: Path) -> None:
    spec, go = telling(jobs, tmp_path, "import eagletui.jobs.told as t, os, sys, time\nprint(t.__file__, flush=True)\n" + TELLS)
    jobs.launch(spec)
    jobs.wait(spec["id"], lambda s: s.get("troubles"))
    log = jobs.root / "jobs" / spec["id"] / "log"
    place = Path(log.read_text().splitlines()[0])
    assert place.is_relative_to(jobs.root / "code")
    code = place.parents[2]
    assert code_dir._used(str(code))
    go.touch()
    jobs.over(spec["id"])
    assert not code_dir._used(str(code))


def test_a_job_that_others_ended_is_neither_right_nor_wrong(jobs: Jobs, tmp_path: Path) -> None:
    spec, _ = telling(jobs, tmp_path)
    jobs.launch(spec)
    jobs.wait(spec["id"], lambda s: s.get("troubles"))
    jobs.kill(spec["id"])
    over = jobs.over(spec["id"])
    assert "ok" not in over
    assert over["outcome"] == "ended on request after 7 of 10 rows"
    result = json.loads((jobs.root / "jobs" / spec["id"] / "result.json").read_text())
    assert "released" in result  # the kill's own
    assert result["why"] == over["outcome"]


def test_bars_of_a_program_that_knows_nothing_of_us(jobs: Jobs, tmp_path: Path) -> None:
    go = tmp_path / "go"
    spec = jobs.spec("sh", "-c", f"echo '[3/8] Building a.o'; while [ ! -e {go} ]; do sleep 0.1; done")
    jobs.launch(spec)
    work = jobs.wait(spec["id"], lambda s: s.get("work"))["work"]
    assert (work["done"], work["total"], work["unit"], work["stage"]) == (3, 8, "steps", "Building a.o")
    go.touch()
    assert jobs.over(spec["id"])["ok"] is True


def test_a_program_that_made_nothing_has_failed_whatever_its_status(jobs: Jobs, tmp_path: Path) -> None:
    spec = jobs.spec("true", expect=["made"], cwd=str(tmp_path))
    jobs.launch(spec)
    over = jobs.over(spec["id"])
    assert (over["ok"], over["outcome"], over["rc"]) == (False, "exit status 0, but made is not there", 0)


def test_a_program_that_is_not_there_has_failed(jobs: Jobs) -> None:
    state = jobs.launch(jobs.spec("/no/such/program"))
    assert (state["ok"], state["outcome"]) == (False, "no such file: /no/such/program")


# ----------------------------------------------------------------------------------------------------- a watcher's mistakes


class Broken(Watcher):
    """Every call fails, but what a test lets through."""

    def __init__(self, good: dict[str, Any]) -> None:
        super().__init__({}, "/")
        self._good = good

    def _do(self, name: str) -> Any:
        if name in self._good:
            return self._good[name]
        raise ValueError(f"cannot {name}")

    def feed(self, data: bytes, boot: float) -> None:
        self._do("feed")

    def look(self, boot: float) -> None:
        self._do("look")

    def work(self, boot: float) -> Any:
        return self._do("work")

    def samples(self) -> Any:
        return self._do("samples")

    def notes(self) -> Any:
        return self._do("notes")

    def troubles(self) -> Any:
        return self._do("troubles")

    def outcome(self, rc: int | None, killed: bool) -> Any:
        return self._do("outcome")


class Supervisor(Worked):
    """The part of a supervisor that is tried here, with what it needs of the rest."""

    def __init__(self, directory: Path, **good: Any) -> None:
        self.complaints: list[str] = []
        self._directory, self._spec = str(directory), {"kind": "command", "id": "x"}
        self._loop = Loop(lambda what, error: self.complaints.append(f"{what}: {error}"))
        self._samples = None
        self._log = JobLog(None, Lines(str(directory / "events.jsonl"), 1 << 20), lambda: None, lambda text: None)
        self._f: dict[str, Any] = {"rc": 0, "state": "exited"}
        self._failed_writes: dict[str, str] = {}
        self._turns = Turns(self._loop, Broken(good), self._took)
        self.lost: list[str] = []
        self.killed = False

    def _trouble(self, text: str) -> None:
        self.lost.append(text)

    def _finish(self) -> None:
        self._judge(self.killed)

    def _took(self, seen: Seen) -> None:
        super()._took(seen)
        if self._outcome is not None or self._judge_by is None:
            self._loop.stop()

    def step(self) -> None:
        """One turn, to its end."""
        assert self._turns is not None
        assert self._turns.begin()
        self._loop.run()

    def end(self, killed: bool = False) -> bool:
        """The end, judged."""
        self.killed = killed
        if not self._judge(killed):
            self._loop.run()
        return self._judge(killed)


def test_a_watcher_that_fails_is_told_once_and_hurts_nothing(tmp_path: Path) -> None:
    shim = Supervisor(tmp_path)
    for _ in range(3):
        shim._feed(b"x\n")
        shim.step()
    assert shim._work_troubles() == ("progress: it cannot be read (ValueError: cannot feed)",)
    assert sorted(shim.complaints) == [
        f"watcher, {name}: cannot {name}" for name in ("feed", "look", "notes", "samples", "troubles", "work")
    ]
    assert len(list(lines(tmp_path / "events.jsonl"))) == 6
    assert shim.end()
    assert (shim._f["ok"], shim._f["outcome"]) == (None, "exit status 0, and its result could not be checked")


def test_what_a_watcher_knew_stays_when_it_fails_later(tmp_path: Path) -> None:
    work = Work("asking", 3, 10, "rows", 0.5, 14.0, "the last 6 s")
    good = {"look": None, "work": work, "samples": [], "notes": ["a"] * (MOST_NOTES + 7), "troubles": ("disk: full",)}
    shim = Supervisor(tmp_path, **good)
    shim.step()
    texts = [event["text"] for event in lines(tmp_path / "events.jsonl")]
    assert texts == ["a"] * MOST_NOTES + ["and 7 more"]
    del good["work"]
    shim._turns = Turns(shim._loop, Broken(good), shim._took)
    shim.step()
    assert shim._f["work"] == work
    assert shim._work_troubles()[0] == "disk: full"
    assert shim.end()
    assert shim._f["work"] == Work("asking", 3, 10, "rows")  # it goes nowhere any more


def test_numbers_that_are_none_never_reach_a_file(tmp_path: Path) -> None:
    good = {"look": None, "work": None, "notes": [], "troubles": (), "samples": [{"loss": float("nan")}, {"loss": 1.0}]}
    shim = Supervisor(tmp_path, outcome=Outcome(True, "fine", {"loss": float("nan")}), **good)
    shim.step()
    assert [sample["loss"] for sample in lines(tmp_path / "samples.jsonl")] == [1.0]
    assert shim.end()
    result = json.loads((tmp_path / "result.json").read_text())
    assert result == {"ok": None, "why": "exit status 0, and its result could not be checked"}


@pytest.mark.parametrize("ok", [True, False, None])
def test_the_outcome_is_asked_once_and_what_a_kill_wrote_stays(tmp_path: Path, ok: bool | None) -> None:
    (tmp_path / "result.json").write_text('{"released": [], "seconds": 3}')
    good = {"outcome": Outcome(ok, "9 rows", {"rows": 9, "seconds": 77})}
    shim = Supervisor(tmp_path, **good)
    assert shim.end(killed=True)
    good.clear()
    assert shim.end(killed=True)
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["ok"], result["why"], result["rows"], result["seconds"]) == (ok, "9 rows", 9, 3)
    assert (shim._f["ok"], shim._f["outcome"]) == (ok, "9 rows")


def test_a_kill_for_memory_is_told_before_what_the_watcher_thinks(tmp_path: Path) -> None:
    shim = Supervisor(tmp_path, outcome=Outcome(False, "3 of 10 rows", {}))
    shim._f.update(state="oom", detail="killed by the kernel for memory", rc=-9)
    assert shim.end()
    assert shim._f["outcome"] == "killed by the kernel for memory; 3 of 10 rows"


# --------------------------------------------------------------------------------------------------- files that do not answer


class Hanging(Broken):
    """Its look does not come back until it is let go, as on a mount whose server has gone."""

    def __init__(self, good: dict[str, Any]) -> None:
        super().__init__(good)
        self.go, self.inside, self.fed = threading.Event(), threading.Event(), b""

    def feed(self, data: bytes, boot: float) -> None:
        self.fed += data

    def look(self, boot: float) -> None:
        self.inside.set()
        assert self.go.wait(60)


QUIET = {"work": None, "samples": [], "notes": [], "troubles": ()}


def test_files_that_do_not_answer_hold_up_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shim, watcher = Supervisor(tmp_path), Hanging(QUIET)
    shim._turns = Turns(shim._loop, watcher, shim._took)
    assert shim._turns.begin()
    assert watcher.inside.wait(60)
    assert not shim._turns.begin()  # one at a time
    piece = bytes(turns.FULL)
    shim._feed(piece)
    shim._feed(b"x")
    assert not shim._may_read()  # a flood waits for it as long as it may come back
    monkeypatch.setattr(turns, "HANGS", -1.0)
    assert shim._may_read()
    shim._feed(b"y" * 100)
    assert shim._turns.dropped == 100
    hangs, lost = shim._work_troubles()
    assert "have not answered for" in hangs
    assert "some of the output was not looked at" in lost
    monkeypatch.setattr(shim_work, "JUDGE_SECONDS", -1.0)
    assert shim._judge(killed=False)
    assert (shim._f["ok"], shim._f["outcome"]) == (None, "exit status 0, and its result could not be checked")
    watcher.go.set()


def test_what_came_meanwhile_is_looked_at_before_the_end_is_judged(tmp_path: Path) -> None:
    shim, watcher = Supervisor(tmp_path), Hanging({**QUIET, "outcome": Outcome(True, "all of it", {})})
    shim._turns = Turns(shim._loop, watcher, shim._took)
    assert shim._turns.begin()
    assert watcher.inside.wait(60)
    shim._feed(b"the last words")
    assert not shim._judge(killed=False)
    watcher.go.set()
    assert shim.end()
    assert (watcher.fed, shim._f["outcome"]) == (b"the last words", "all of it")
