"""The wheel holds everything the program reads, and an editable install finds the same."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from eagletui.paths import assets_path

ROOT = Path(__file__).resolve().parent.parent


def test_the_wheel_is_complete(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    source = {
        f"eagletui/{path.relative_to(ROOT / 'src' / 'eagletui')}"
        for kind in ("*.py", "*.tcss", "py.typed")
        for path in (ROOT / "src" / "eagletui").rglob(kind)
    }
    assets = {f"eagletui/assets/{path.relative_to(ROOT / 'assets')}" for path in (ROOT / "assets").rglob("*") if path.is_file()}
    assets = {name for name in assets if "__pycache__" not in name}
    assert source - packed == set()
    assert assets - packed == set()
    assert assets


def test_an_editable_install_finds_the_assets() -> None:
    assert assets_path() == ROOT / "assets"
    assert assets_path("README.md").is_file()
