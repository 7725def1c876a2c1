"""The whole life of a real server: launch, phases, ready, first answer, samples, kill, nothing left."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagletui.agent import procfs
from eagletui.agent.ports import why_taken
from tests.agent.jobs_harness import Jobs, free_port, lines, until

LAB = Path(os.environ.get("EAGLETUI_LAB") or Path.home() / ".cache/eagletui/lab")

pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not (LAB / "venv/bin/vllm").exists(), reason=f"no engine under {LAB}"),
]


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    root = tmp_path / "state"
    monkeypatch.setenv("EAGLETUI_STATE", str(root))
    found = Jobs(root)
    yield found
    found.clean()


def test_a_real_server_from_launch_to_nothing_left(jobs: Jobs) -> None:
    port = free_port()
    argv = [str(LAB / "venv/bin/vllm"), "serve", str(LAB / "smollm2"), "--host", "127.0.0.1", "--port", str(port)]
    argv += ["--max-model-len", "512", "--enforce-eager", "--max-num-seqs", "4"]
    env = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    spec = jobs.spec(*argv, kind="serve", server=True, engine="vllm", port=port, env=env, model=str(LAB / "smollm2"))
    jobs.launch(spec)
    job = spec["id"]
    loading = jobs.wait(job, lambda s: len(s.get("phases", ())) >= 2, 120)
    assert loading["health"] == "loading"
    ready = jobs.wait(job, lambda s: s.get("smoke_tokens_per_s") or s.get("state") != "running", 240)
    assert (ready["state"], ready["health"], ready["listening"]) == ("running", "ready", True)
    assert ready["engine_version"]
    assert ready["max_model_len"] == 512
    assert ready["served_model"] == str(LAB / "smollm2")
    assert "weights" in [phase["id"] for phase in ready["phases"]]
    assert all(phase["seconds"] >= 0 for phase in ready["phases"] if phase["id"] != "ready")
    assert ready["bytes_read"] > 100e6
    assert ready["rss"] > 100e6
    assert ready["members"] >= 2
    assert "first_error" not in ready
    samples = jobs.root / "jobs" / job / "samples.jsonl"
    until(lambda: len(samples.read_bytes().splitlines()) >= 2)
    assert [sample["generated_tokens"] for sample in lines(samples)][-1] >= 16
    shim = procfs.status(ready["shim_pid"])
    assert int(shim["VmRSS"].split()[0]) < 24_000
    plan = jobs.call("kill_plan", job=job)
    assert len(plan["processes"]) >= 2
    assert plan["listening"]
    answer = jobs.kill(job, wait=120)
    assert answer["result"]["remaining"] == []
    over = jobs.over(job, 60)
    assert over["health"] == "gone"
    for process in plan["processes"]:
        assert not procfs.alive(process["pid"], process["start"])
    assert why_taken(port) is None
    # those that its processes had in use: what is merely young stays while another engine runs on this machine
    used = [entry["path"] for entry in plan["shm"] + plan["tmp"] if entry["why"] == "used"]
    assert [path for path in used if os.path.exists(path)] == []
    result = json.loads((jobs.root / "jobs" / job / "result.json").read_text())
    assert (result["ok"], result["why"]) == (True, "served, ended on request")
