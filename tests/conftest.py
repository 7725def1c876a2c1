"""What several rooms' tests share: the Python interpreters that the agent must run under."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

# chooses and tells the tests marked `fault` and `machine`; machines of their own for those
pytest_plugins = ["tests.faults.report", "tests.machine.fixtures"]

VERSIONS = ("3.8", "3.10", "3.12", "3.13")


def find_python(version: str) -> str | None:
    """An interpreter of that version: on PATH, or among pyenv's."""
    found = sorted((Path.home() / ".pyenv/versions").glob(f"{version}.*/bin/python3"))
    for candidate in (*map(str, reversed(found)), shutil.which(f"python{version}")):
        if candidate and subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
            return candidate
    return None


@pytest.fixture(params=[*VERSIONS, "host"])
def host_python(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Makes ``python3`` on PATH each interpreter in turn ("host": whatever it is already); the version, or "host"."""
    version: str = request.param
    if version != "host":
        python = find_python(version)
        if python is None:
            pytest.skip(f"no Python {version} on this machine")
        put_python(python, tmp_path, monkeypatch)
    return version


def put_python(python: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ``python3`` on PATH that interpreter. A script, not a link: pyenv's interpreters look for their home by argv[0]."""
    script = folder / "path" / "python3"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec "{python}" "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:/usr/bin:/bin")
