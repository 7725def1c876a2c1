"""A desk on this machine with places of its own, and profiles that start the fake server. What a test starts is ended."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from eagletui.commands import Desk, open_desk
from eagletui.hosts.target import parse_target
from eagletui.profiles import Profile
from tests.agent.jobs_harness import FAKE, Jobs, free_port


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Configuration, state and jobs under ``tmp_path``; every job is ended afterwards."""
    for name in ("config", "state", "cache"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path / name))
    root = tmp_path / "jobs"
    monkeypatch.setenv("EAGLETUI_STATE", str(root))
    yield tmp_path
    left = Jobs(root)
    left.launched = [path.name for path in (root / "jobs").iterdir()] if (root / "jobs").is_dir() else []
    left.clean()


@pytest.fixture
async def desk(places: Path) -> AsyncIterator[Desk]:
    opened = await open_desk(parse_target("local"), None, {}, ("jobs",))
    yield opened
    await opened.close()


def fake(*flags: str, **more: Any) -> Profile:
    """A profile of the fake server on a free port."""
    more.setdefault("port", free_port())
    return Profile("fake", "vllm", "/models/fake", command=(sys.executable, "-I", "-S", FAKE), args=flags, **more)
