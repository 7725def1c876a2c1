"""What the tests of faults share: jobs with a state directory of their own, processes of strangers, and small file systems."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agent.conftest import jobs, stranger
from tests.host.conftest import proxy

__all__ = ["jobs", "proxy", "stranger"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """``small_disk("4m")`` mounts a file system of that size; also ``kind="ramfs"``, which cannot punch holes."""
    mounted: list[Path] = []

    def mount(size: str, kind: str = "tmpfs") -> Path:
        place = tmp_path / f"disk-{len(mounted)}"
        place.mkdir()
        argv = ["mount", "-t", kind, "-o", f"size={size},mode=700", kind, str(place)]
        done = subprocess.run(argv, capture_output=True, check=False)
        if done.returncode:
            pytest.skip("mounting a small file system needs root")
        mounted.append(place)
        return place

    yield mount
    for place in mounted:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def root_user() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
