"""Our package as files for an engine's python: whole or not there, the same from memory and from a checkout, gone later."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eagletui.agent import bundle, code_dir
from eagletui.hosts import bootstrap

OLD = sorted(Path("/root/.pyenv/versions").glob("3.8.*/bin/python3"))


def test_it_is_the_same_from_memory_and_from_an_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = code_dir.sources()
    assert {"eagletui/__init__.py", "eagletui/speculation.py", "eagletui/jobs/on_host/telling.py"} <= set(files)
    assert not [name for name in files if name.startswith(("eagletui/agent", "eagletui/hosts", "eagletui/cli"))]
    sources = {name: path.read_text() for name, path in bootstrap._files().items()}
    monkeypatch.setattr(bundle, "IMPORTER", bundle.Importer(sources))
    assert code_dir.sources() == files


def test_a_plain_python_imports_from_it(tmp_path: Path) -> None:
    code = code_dir.unpack(str(tmp_path))
    for python in (sys.executable, *map(str, OLD[:1])):
        done = subprocess.run(
            [python, "-S", "-c", "import eagletui.jobs.told, eagletui.jobs.on_host.telling as t; print(t.__file__)"],
            env={"PYTHONPATH": code.path, "PYTHONDONTWRITEBYTECODE": "1"},
            cwd="/",
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == f"{code.path}/eagletui/jobs/on_host/telling.py"
    os.close(code.fd)


def test_it_is_written_once_and_mended_when_a_crash_has_emptied_it(tmp_path: Path) -> None:
    first = code_dir.unpack(str(tmp_path))
    marker = Path(first.path) / "eagletui" / "__init__.py"
    inode = marker.stat().st_ino
    second = code_dir.unpack(str(tmp_path))
    assert (second.path, marker.stat().st_ino) == (first.path, inode)
    marker.write_bytes(b"")
    third = code_dir.unpack(str(tmp_path))
    assert third.path == first.path
    assert b"__version__" in marker.read_bytes()
    assert [name for name in os.listdir(tmp_path / "code") if name.endswith(".tmp")] == []
    for code in (first, second, third):
        os.close(code.fd)


def test_other_versions_go_after_a_day_unless_a_job_holds_them(tmp_path: Path) -> None:
    base = tmp_path / "code"
    long_ago = time.time() - 2 * code_dir.KEPT
    held = code_dir.unpack(str(tmp_path))
    kept = base / "held"
    os.rename(held.path, kept)
    for name in ("unused", "fresh"):
        (base / name).mkdir()
    (base / "x.blob").write_bytes(b"a supervisor's own")
    for path in (kept, base / "unused", base / "x.blob"):
        os.utime(path, (long_ago, long_ago))
    current = code_dir.unpack(str(tmp_path))
    assert sorted(os.listdir(base)) == sorted(["held", "fresh", "x.blob", Path(current.path).name])
    os.close(held.fd)
    os.close(current.fd)
    again = code_dir.unpack(str(tmp_path))
    assert "held" not in os.listdir(base)
    os.close(again.fd)
