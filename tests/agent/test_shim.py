"""The supervisor: a server's phases, readiness and samples; what its log may be; how the end is told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagletui.agent import procfs, state_dir
from eagletui.agent import shim as shim_module
from eagletui.agent.job_lines import Lines, read_lines
from eagletui.agent.log_tail import LogTail
from eagletui.agent.server_probe import no_metrics
from eagletui.agent.shim_work import VALIDATION
from eagletui.agent.syscalls import signal_process
from eagletui.records.jobs import MOST_PIDS
from tests.agent.jobs_harness import Jobs, lines, until


def test_a_server_from_load_to_samples(jobs: Jobs, tmp_path: Path) -> None:
    hold = tmp_path / "go"
    spec = jobs.server("--hold", str(hold))
    jobs.launch(spec)
    loading = jobs.wait(spec["id"], lambda s: any(p["id"] == "weights" for p in s.get("phases", ())))
    assert loading["health"] == "loading"
    assert loading["listening"] is False
    weights = next(p for p in loading["phases"] if p["id"] == "weights")
    assert (weights["role"], weights["done"], weights["total"], weights["unit"]) == ("target", 4, 4, "shards")
    assert "seconds" not in weights
    whole = jobs.wait(spec["id"], lambda s: s.get("members") == 3)
    assert whole["bytes_read"] > 0
    assert {(pid, start) for pid, start in whole["member_pids"]} == set(jobs.members(spec["id"]))
    assert whole["member_pids"][0] == [whole["pid"], whole["pid_start"]]
    hold.touch()
    ready = jobs.wait(spec["id"], lambda s: s.get("smoke_tokens_per_s"))
    assert (ready["health"], ready["state"], ready["listening"]) == ("ready", "running", True)
    assert (ready["served_model"], ready["max_model_len"], ready["engine_version"]) == ("fake", 4096, "0.32.0")
    assert 0 < ready["ready_seconds"] < 60
    directory = jobs.root / "jobs" / spec["id"]
    samples = directory / "samples.jsonl"
    until(lambda: len(samples.read_bytes().splitlines()) >= 2)
    first, second = list(lines(samples))[:2]
    assert second["generated_tokens"] > first["generated_tokens"]
    assert second["boot"] > first["boot"]
    assert first["running"] == 1
    kinds = [event["kind"] for event in lines(directory / "events.jsonl")]
    for kind in ("started", "phase", "progress", "ready", "smoke"):
        assert kind in kinds
    result = json.loads((directory / "result.json").read_text())
    assert result["smoke_tokens_per_s"] == ready["smoke_tokens_per_s"]


def test_a_server_with_a_key_is_ready_without_it(jobs: Jobs) -> None:
    spec = jobs.server("--key", "k")
    jobs.launch(spec)
    jobs.wait(spec["id"], lambda s: s.get("health") == "ready")
    result = jobs.root / "jobs" / spec["id"] / "result.json"
    until(result.exists)
    assert json.loads(result.read_text()) == {"smoke_problem": "key needed"}
    state = jobs.wait(spec["id"], lambda s: s.get("smoke_problem"))
    assert state["smoke_problem"] == "key needed"
    assert "detail" not in state


PAGES = {
    "html": (b"<!DOCTYPE html>\n<title>proxy</title>\n", "HTML"),
    "json": (b'{"detail": "Not Found"}\n', "JSON"),
    "cut": (b"# TYPE vllm:generation_tokens counter\nvllm:generation_tok", "cut off after 57 characters"),
    "a stranger's": (b"# TYPE go_goroutines gauge\ngo_goroutines 12\n", "none of vLLM or SGLang"),
    "none": (b"", "has no /metrics"),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_that_is_no_metrics_page_is_told_and_never_a_number(name: str, jobs: Jobs, tmp_path: Path) -> None:
    page = tmp_path / "page"
    page.write_bytes(PAGES[name][0])
    spec = jobs.server("--page", str(page), ready={"scrape": 0.2, "smoke": False})
    jobs.launch(spec)
    told = jobs.wait(spec["id"], lambda s: s.get("metrics_problem"))
    assert PAGES[name][1] in told["metrics_problem"]
    assert told["health"] == "ready"
    assert not (jobs.root / "jobs" / spec["id"] / "samples.jsonl").read_bytes()
    if name != "none":  # one that has no metrics is asked again only after half a minute
        page.unlink()
        jobs.wait(spec["id"], lambda s: "metrics_problem" not in s)
        until(lambda: (jobs.root / "jobs" / spec["id"] / "samples.jsonl").read_bytes())


@pytest.mark.parametrize("status", [401, 403, 404, 500])
def test_why_there_are_no_numbers_is_in_words(status: int) -> None:
    text = no_metrics("/metrics", status)
    assert text.startswith("no numbers: ")
    assert ("wants a key" in text) == (status in (401, 403))


def test_the_smoke_can_be_switched_off(jobs: Jobs) -> None:
    spec = jobs.server(ready={"smoke": False})
    jobs.launch(spec)
    jobs.wait(spec["id"], lambda s: s.get("served_model"))
    directory = jobs.root / "jobs" / spec["id"]
    until(lambda: (directory / "samples.jsonl").read_bytes())
    assert not (directory / "result.json").exists()


def test_a_load_that_fails_says_why(jobs: Jobs) -> None:
    spec = jobs.server("--fail", "RuntimeError: Engine core initialization failed. See root cause above.")
    jobs.launch(spec)
    over = jobs.over(spec["id"])
    assert (over["state"], over["rc"], over["health"]) == ("exited", 1, "failed")
    result = json.loads((jobs.root / "jobs" / spec["id"] / "result.json").read_text())
    assert result["ok"] is False
    assert result["why"]


def test_a_signal_is_a_negative_status(jobs: Jobs) -> None:
    spec = jobs.spec("sleep", "60")
    state = jobs.launch(spec)
    assert signal_process(state["pid"], state["pid_start"], signal.SIGTERM)
    over = jobs.over(spec["id"])
    assert (over["state"], over["rc"]) == ("exited", -15)
    assert json.loads((jobs.root / "jobs" / spec["id"] / "result.json").read_text())["why"] == "ended by SIGTERM"


def test_the_exit_status_is_known_to_an_agent_that_comes_later(jobs: Jobs) -> None:
    spec = jobs.spec("sh", "-c", "exit 7")
    pid = os.fork()
    if pid == 0:  # the agent that launches, and dies before the job has ended
        jobs.call("launch", spec=spec)
        os.kill(os.getpid(), signal.SIGKILL)
    jobs.launched.append(spec["id"])
    os.waitpid(pid, 0)
    assert jobs.over(spec["id"])["rc"] == 7


def test_processes_left_behind_are_named_and_keep_the_supervisor(jobs: Jobs) -> None:
    code = "import os,sys,time\nif os.fork() == 0:\n    os.setsid()\n    os.write(1, b'child')\n    time.sleep(300)\nsys.exit(0)"
    spec = jobs.spec(sys.executable, "-c", code)
    jobs.launch(spec)
    left = jobs.wait(spec["id"], lambda s: s.get("state") == "exited")
    assert (left["rc"], left["members"]) == (0, 1)
    assert left["detail"].startswith("left behind: pid ")
    assert procfs.alive(left["shim_pid"], left["shim_start"])
    answer = jobs.kill(spec["id"])
    assert answer["result"]["released"][0] == "1 process"
    assert jobs.over(spec["id"])["member_pids"] == []
    assert jobs.over(spec["id"])["detail"] == "what it left behind was ended on request"
    assert "ended_by" not in jobs.state(spec["id"]), "it had ended by itself"


def test_a_zombie_is_no_member(jobs: Jobs) -> None:
    code = "import os,time\npid = os.fork()\nif pid == 0:\n    os._exit(0)\nprint(pid, flush=True)\ntime.sleep(300)"
    spec = jobs.spec(sys.executable, "-c", code)
    jobs.launch(spec)
    log = jobs.root / "jobs" / spec["id"] / "log"
    until(lambda: log.exists() and log.read_text().strip())
    child = int(log.read_text())
    until(lambda: getattr(procfs.read_stat(child), "state", "") == "Z")
    assert child not in [pid for pid, _ in jobs.members(spec["id"])]


def test_a_line_of_20_mb_and_bad_bytes(jobs: Jobs) -> None:
    code = (
        "import os\n"
        "os.write(1, b'\\xff\\xfe\\x00\\x1b]52;c;aGk=\\x07 bad bytes\\n')\n"
        "for _ in range(160): os.write(1, b'x' * 131072)\n"
        "os.write(1, b'\\nend')\n"
    )
    spec = jobs.spec(sys.executable, "-c", code, engine="vllm")
    state = jobs.launch(spec)
    status = procfs.status(state["shim_pid"])
    over = jobs.over(spec["id"])
    assert over["rc"] == 0
    assert over["log_size"] == (jobs.root / "jobs" / spec["id"] / "log").stat().st_size > 160 * 131072
    assert int(status["VmHWM"].split()[0]) < 60_000 if "VmHWM" in status else True


def test_a_log_is_bounded_and_its_offsets_stay(tmp_path: Path) -> None:
    path = tmp_path / "log"
    got = bytearray()
    path.touch()
    tail = LogTail(str(path), got.extend, cap=4 << 20)
    block = bytes(range(256)) * 256
    with path.open("ab") as out:
        for _ in range(256):
            out.write(block)
            out.flush()
            while tail.poll():
                pass
            tail.bound()
    assert bytes(got) == block * 256
    size = path.stat().st_size
    assert size == 16 << 20
    assert path.stat().st_blocks * 512 <= (4 << 20) + 65536
    assert (8 << 20) < tail.floor < size
    with path.open("rb") as file:
        file.seek(tail.floor)
        assert file.read() == (block * 256)[tail.floor :]
    tail.close()


def test_a_truncated_log_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    got = bytearray()
    path.write_bytes(b"one two three\n")
    tail = LogTail(str(path), got.extend)
    tail.poll()
    path.write_bytes(b"four\n")
    tail.poll()
    assert bytes(got) == b"one two three\nfour\n"
    tail.close()


def test_sample_lines_are_thinned_and_bounded(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    out = Lines(str(path), cap=4096)
    inode = path.stat().st_ino
    seen = {}
    for number in range(2000):
        out.append({"n": number, "pad": "x" * 20})
        seen[path.stat().st_ino] = path.stat().st_size
    assert path.stat().st_ino != inode
    assert path.stat().st_size <= 4096
    old = path.with_suffix(".jsonl.old")
    assert old.stat().st_size <= 4096 + 1024
    kept = [doc["n"] for doc in read_lines(str(path))]
    assert kept == sorted(kept)
    assert kept[0] == 0
    assert kept[-1] == 1999
    out.close()


def test_what_comes_once_an_epoch_is_never_thinned_out(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    out = Lines(str(path), cap=4096, always=VALIDATION)
    for number in range(600):
        out.append({"step": number, "split": "train"})
        if number % 50 == 49:
            out.append({"step": number, "split": "val"})
    kept = read_lines(str(path))
    assert [doc["step"] for doc in kept if doc["split"] == "val"] == list(range(49, 600, 50))
    assert len(kept) < 400
    out.close()


def test_a_half_line_of_a_predecessor_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"n":1}\n{"n":')
    out = Lines(str(path), cap=4096)
    out.append({"n": 2})
    out.close()
    assert path.read_bytes().splitlines()[-1] == b'{"n":2}'


def test_the_supervisor_is_small(jobs: Jobs) -> None:
    spec = jobs.spec("sleep", "60")
    state = jobs.launch(spec)
    jobs.wait(spec["id"], lambda s: s.get("cpu") is not None)
    status = procfs.status(state["shim_pid"])
    assert int(status["VmRSS"].split()[0]) < 20_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_log_larger_than_the_disk(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """40 MiB of log on 16 MiB: old blocks are given back in time, and neither job nor state is lost."""
    root = small_disk / "state"
    monkeypatch.setenv("EAGLETUI_STATE", str(root))
    jobs = Jobs(root)
    code = "import os,time\nfor _ in range(40):\n    os.write(1, b'y' * (1 << 20))\n    time.sleep(0.25)\n"
    spec = jobs.spec(sys.executable, "-c", code)
    try:
        jobs.launch(spec)
        over = jobs.over(spec["id"], 60)
        assert over["rc"] == 0
        log = root / "jobs" / spec["id"] / "log"
        assert log.stat().st_size == 40 << 20
        assert log.stat().st_blocks * 512 < 12 << 20
        assert over["log_floor"] > 20 << 20
    finally:
        jobs.clean()


@pytest.mark.fault(20, how="a tmpfs filled to its last block under the state files")
def test_a_full_disk_keeps_the_old_state(small_disk: Path) -> None:
    path = small_disk / "state.json"
    state_dir.write_json(str(path), {"n": 1})
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space left"):
        filler.write_bytes(b"x" * (32 << 20))
    out = Lines(str(small_disk / "events.jsonl"), cap=1 << 20)
    with pytest.raises(OSError, match="No space left"):
        state_dir.write_json(str(path), {"n": 2, "pad": "x" * 100_000})
    with pytest.raises(OSError, match=r"[Nn]o (space|room)"):
        out.append({"pad": "x" * 100_000})
    assert json.loads(path.read_text()) == {"n": 1}
    assert [entry.name for entry in small_disk.iterdir() if entry.name.endswith(".tmp")] == []
    filler.unlink()
    state_dir.write_json(str(path), {"n": 3})
    out.append({"n": 3})
    out.close()
    assert (small_disk / "events.jsonl").read_bytes() == b'{"n":3}\n'


def test_the_members_that_are_named_are_the_oldest_and_not_all() -> None:
    members = [(pid, 1000 - pid) for pid in range(200)]
    named = shim_module._pids(members)
    assert len(named) == MOST_PIDS
    assert named[0] == (199, 801)
    assert shim_module._pids(reversed(members)) == named
