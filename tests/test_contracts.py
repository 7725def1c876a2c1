"""The rules of the house that can be checked by reading: layers, licences of the host's code, no hidden settings."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "eagletui"
MODULES = sorted(SOURCE.rglob("*.py"))
ON_HOST = [
    path
    for path in MODULES
    if path.relative_to(SOURCE).parts[0] in ("agent", "engines", "jobs", "records", "speculation.py")
    and "on_host" not in path.parts
]


def test_the_layers_hold() -> None:
    done = subprocess.run([Path(sys.executable).parent / "lint-imports"], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", ON_HOST, ids=lambda path: str(path.relative_to(SOURCE)))
def test_what_runs_on_the_host_is_python_3_8(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 8))


def test_what_runs_on_the_host_needs_the_standard_library_only() -> None:
    allowed = set(sys.stdlib_module_names) | {"eagletui", "pynvml"}
    for path in ON_HOST:
        for node in ast.walk(ast.parse(path.read_text())):
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom) and node.level == 0
                else []
            )
            assert all(name.partition(".")[0] in allowed for name in names), (path, names)


def test_no_file_is_a_giant() -> None:
    long = {str(path): count for path in MODULES if (count := len(path.read_text().splitlines())) > 500}
    assert long == {}


def test_every_module_says_what_it_is() -> None:
    silent = [
        str(path) for path in MODULES if path.read_text().strip() and ast.get_docstring(ast.parse(path.read_text())) is None
    ]
    assert silent == []


def test_host_keys_are_always_checked() -> None:
    loose = re.compile(r"known_hosts\s*=\s*(None|\(\))")
    assert [str(path) for path in MODULES if loose.search(path.read_text())] == []


def test_every_dependency_is_pinned_and_the_versions_agree_with_what_is_asked_for() -> None:
    from packaging.requirements import Requirement

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins: dict[str, str] = {}
    for name in ("requirements.lock", "requirements-dev.lock"):
        for line in (ROOT / name).read_text().splitlines():
            if line and not line.startswith("#"):
                package, _, version = line.partition("==")
                assert version, line
                pins[package] = version
    for wanted in map(Requirement, project["dependencies"] + project["optional-dependencies"]["dev"]):
        assert wanted.specifier.contains(pins[wanted.name.lower().replace("_", "-")]), wanted
