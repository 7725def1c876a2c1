"""The real engine with its drafter in a real container, by a profile: ready, asked, counted, ended, and nothing left."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from eagletui.agent import procfs
from eagletui.agent.ports import why_taken
from eagletui.labparts.paths import find_lab
from eagletui.profile_launch import launch_spec
from eagletui.profiles import load_profiles
from tests.agent.jobs_harness import Jobs, free_port, lines, until
from tests.machine import podman

pytestmark = [pytest.mark.machine, pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    if not find_lab().built:
        pytest.skip("the lab is not built: `eagletui lab up`")
    why = podman.missing()
    if why is not None:
        pytest.skip(f"no containers here: {why}")
    podman.image()
    lock = find_lab().root.with_name(find_lab().root.name + ".lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)  # one engine at a time is all that a small machine can serve
    monkeypatch.setenv("EAGLETUI_STATE", str(tmp_path / "state"))
    for name, value in podman.environment().items():
        monkeypatch.setenv(name, value)
    found = Jobs(tmp_path / "state")
    yield found
    for job in found.launched:
        podman.remove(job)
    found.clean()
    lock.close()


def libraries() -> list[str]:
    """Mounts of the shared libraries that the lab's Python and engine take from the system, under the names they ask for."""
    lab = find_lab().root
    objects = [
        *Path(sys.base_prefix).glob("lib/python3*/lib-dynload/*.so"),
        *lab.glob("venv/lib/python3*/site-packages/vllm/*.so"),
    ]
    text = subprocess.run(["ldd", *map(str, objects)], capture_output=True, text=True, check=False).stdout
    found = {line.split()[2] for line in text.splitlines() if "=> /lib/" in line or "=> /usr/lib/" in line}
    own = ("libc.so", "libm.so", "libdl.so", "libpthread.so", "ld-linux", "librt.so", "libresolv.so")
    return [f"{os.path.realpath(path)}:{path}:ro" for path in sorted(found) if not os.path.basename(path).startswith(own)]


def test_the_real_engine_in_a_container(jobs: Jobs) -> None:
    lab = find_lab()
    base = load_profiles("local")[0]["lab-eagle3"]
    mounts = (f"{lab.root}:{lab.root}", f"{sys.base_prefix}:{sys.base_prefix}:ro", *libraries())
    port = free_port()
    profile = replace(base, container="podman", image=podman.IMAGE, mounts=mounts, port=port, graces=(60, 15, 30))
    spec = launch_spec(profile, f"engine-{os.urandom(3).hex()}")
    job = spec["id"]
    jobs.launch(spec)
    log = jobs.root / "jobs" / job / "log"
    try:
        state = jobs.wait(
            job, lambda s: s.get("health") == "failed" or (s.get("health") == "ready" and s.get("served_model")), 900
        )
    except AssertionError:
        raise AssertionError(log.read_text(errors="replace")[-3000:]) from None
    assert state["health"] == "ready", log.read_text(errors="replace")[-3000:]
    assert (state["runner"], state["drafter"], state["k"]) == ("podman", base.drafter, 3)
    assert state["engine_version"]
    assert procfs.nspid(state["pid"])[-1] == 1
    titles = {stat.comm for stat in jobs.members(job).values()}
    assert any(title.startswith("VLLM::EngineCor") for title in titles), titles

    question = {"model": state["served_model"], "prompt": "The capital of France is", "max_tokens": 32, "ignore_eos": True}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions", json.dumps(question).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=300) as answer:
        assert json.load(answer)["usage"]["completion_tokens"] == 32
    samples = jobs.root / "jobs" / job / "samples.jsonl"
    last = until(lambda: next((s for s in reversed(list(lines(samples))) if s.get("drafted")), None), 120)
    assert 0 <= last["accepted"] <= last["drafted"]

    plan = jobs.call("kill_plan", job=job)
    assert plan["lever"] == f"podman stop -t 60 eagletui-{job}"
    report = jobs.call("kill", job=job, token=plan["token"], wait=200)
    assert report["result"]["remaining"] == []
    over = jobs.over(job, 120)
    assert (over["state"], over["health"]) == ("exited", "gone")
    assert not podman.names(job)
    assert why_taken(port) is None
    assert not any(procfs.alive(victim["pid"], victim["start"]) for victim in plan["processes"])
    assert not any(os.path.exists(entry["path"]) for entry in plan["shm"])
