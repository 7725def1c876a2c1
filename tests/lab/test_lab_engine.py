"""The lab with its engine: a second build does nothing, the profiles serve and draft, the slow load is slow."""

from __future__ import annotations

import json
import os
import re
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from eagletui import lab as labs
from eagletui.labparts.paths import Lab
from eagletui.labparts.running import Child, folder_size, wait_until
from eagletui.profile_launch import command_of
from eagletui.profiles import Profile, load_profiles
from tests.test_lab import Heard


def ask(address: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(
        f"{address}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return dict(json.load(answer))


def counters(address: str) -> dict[str, float]:
    """The engine's counters of speculative decoding, without the labels."""
    with urllib.request.urlopen(f"{address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = re.findall(r"^vllm:spec_decode_num_(\w+?)_total\{[^}]*\} ([\d.e+]+)$", text, re.M)
    return {name: float(value) for name, value in found if "per_pos" not in name}


def listens(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/v1/models", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@contextmanager
def served(profile: Profile, log: Path) -> Iterator[str]:
    """A server as the profile says, on a free port, ready; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        profile = replace(profile, port=probe.getsockname()[1])
    argv, env = command_of(profile)
    address = f"http://127.0.0.1:{profile.port}"
    assert profile.cwd is not None
    child = Child(argv, log, env={**os.environ, **env}, cwd=Path(profile.cwd))
    try:
        wait_until("serve", child, Heard(), lambda: listens(address), limit=600, remedy="")
        yield address
    finally:
        child.stop()


def test_a_second_build_does_nothing(lab: Lab) -> None:
    size = folder_size(lab.venv)
    heard = Heard()
    assert labs.up(lab.root, reporter=heard) == 0
    assert heard.steps == []
    assert heard.said == [f"the lab in {lab.root} is ready"]
    assert folder_size(lab.venv) == size
    assert labs.status(lab.root, reporter=heard) == 0


def test_the_drafter_drafts_and_some_of_it_is_accepted(lab: Lab, tmp_path: Path) -> None:
    before = set(os.listdir("/tmp"))
    profile = load_profiles("local", lab=lab)[0]["lab-eagle3"]
    with served(profile, tmp_path / "log") as address:
        questions = [
            "Explain the tides in three sentences.",
            "Write a short story about a lighthouse.",
            "List five facts about tea.",
        ]
        for question in questions:
            answer = ask(
                address,
                {
                    "model": str(lab.model),
                    "messages": [{"role": "user", "content": question}],
                    "max_tokens": 120,
                    "temperature": 0,
                },
            )
            assert len(answer["choices"][0]["message"]["content"]) > 50
        counted = counters(address)
        assert labs.processes(lab)
    assert counted["draft_tokens"] == 3 * counted["drafts"]
    rate = counted["accepted_tokens"] / counted["draft_tokens"]
    assert 0.06 < rate < 0.6, f"acceptance {rate:.1%}"
    assert labs.processes(lab) == []
    left = {
        name for name in set(os.listdir("/tmp")) - before if name.startswith("vllm_dist") or re.fullmatch(r"[0-9a-f-]{36}", name)
    }
    assert left == set(), "the engine's sockets and files belong into the lab"


def test_the_slow_load_is_slow_in_the_engines_own_bar(lab: Lab, tmp_path: Path) -> None:
    profile = load_profiles("local", lab=lab)[0]["lab-slow"]
    profile = replace(profile, env={**profile.env, "LAB_SHARD_DELAY": "1"})
    log = tmp_path / "log"
    with served(profile, log):
        pass
    bar = re.compile(r"Loading safetensors checkpoint shards: +\d+% Completed \| (\d+)/16 \[(\d+):(\d+)<")
    seen = {
        int(done): 60 * int(minutes) + int(seconds) for done, minutes, seconds in bar.findall(log.read_text(errors="replace"))
    }
    assert set(range(1, 17)) <= set(seen)
    assert seen[16] >= 16
