"""Jobs of a test's own, and a process that must outlive them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.jobs_harness import Jobs


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    """Requests about jobs under a state directory of this test; what it launched is ended by pid afterwards."""
    root = tmp_path / "state"
    monkeypatch.setenv("EAGLETUI_STATE", str(root))
    found = Jobs(root)
    yield found
    found.clean()


@pytest.fixture
def stranger() -> Iterator[int]:
    """A process that is no job's and must live."""
    process = subprocess.Popen(["sleep", "600"])
    yield process.pid
    assert process.poll() is None, "a foreign process was ended"
    process.kill()
    process.wait()
