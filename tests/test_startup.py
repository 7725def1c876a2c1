"""What must not be loaded: the help answers at once, the dashboard starts without what only later screens need."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    "textual",
    "rich",
    "asyncssh",
    "cryptography",
    "openai",
    "plotext",
    "psutil",
    "pynvml",
    "asyncio",
    "ssl",
    "tomllib",
    "email",
)


def loaded_after(code: str) -> set[str]:
    """The top-level modules in sys.modules after ``code`` in a fresh interpreter."""
    script = code + "\nimport sys\nsys.stderr.write(' '.join({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["status", "--help"], ["connect", "--help"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    loaded = loaded_after(f"from eagletui.cli import main\nassert main({arguments!r}) == 0")
    assert "argparse" in loaded
    assert loaded & set(HEAVY) == set()


def test_the_dashboard_loads_no_ssh_no_charts_no_clients() -> None:
    loaded = loaded_after("import eagletui.app")
    assert "textual" in loaded
    assert loaded & {"asyncssh", "cryptography", "openai", "plotext", "psutil", "pynvml"} == set()


def test_a_command_without_screen_loads_no_screen() -> None:
    loaded = loaded_after("import eagletui.cli.status, eagletui.cli.doctor")
    assert loaded & {"textual", "rich", "asyncssh", "cryptography", "openai", "plotext", "psutil", "pynvml"} == set()
