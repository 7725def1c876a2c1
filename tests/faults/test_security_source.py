"""What the source may not do: make shell strings out of data, leave host keys unchecked, forward agents or terminals."""

from __future__ import annotations

import ast
import itertools
import re
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "eagletui"
MODULES = sorted(SOURCE.rglob("*.py"))
SHELLS = {
    "hosts/bootstrap.py": "the one fixed text that finds a python3",
    "hosts/plain_shell.py": "the fixed texts for a host without python3; paths come over stdin",
    "hosts/dial.py": "a ProxyCommand of the user's own ssh_config, as OpenSSH runs it",
    "hosts/local.py": "the fixed text of bootstrap.py, on this machine",
    "jobs/command.py": "a line that the user wrote for a shell, and sees as such",
    "jobs/build.py": "likewise: how somebody's source is built",
}
"""Modules that name a shell, and why that is no string made of data."""
ALSO = ("sh", "/bin/sh", "bash", "/bin/bash")


def calls(tree: ast.AST) -> list[tuple[str, ast.Call]]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            found.append((ast.unparse(node.func), node))
    return found


def test_nothing_is_run_through_a_shell() -> None:
    for path in MODULES:
        name = str(path.relative_to(SOURCE))
        tree = ast.parse(path.read_text())
        for function, call in calls(tree):
            where = f"{name}:{call.lineno}: {function}"
            last = function.rpartition(".")[2]
            assert last not in ("create_subprocess_shell", "subprocess_shell", "getoutput", "getstatusoutput"), where
            assert function not in ("os.system", "os.popen", "popen", "system"), where
            for word in call.keywords:
                if word.arg == "shell":
                    assert ast.unparse(word.value) == "False" or last == "connect_local", where
        if name not in SHELLS:
            shell_texts(name, tree)


def shell_texts(name: str, tree: ast.AST) -> None:
    """Fails where an argument list holds a shell and ``-c``."""
    for node in ast.walk(tree):
        items = node.elts if isinstance(node, ast.List | ast.Tuple) else node.args if isinstance(node, ast.Call) else []
        words = [item.value for item in items if isinstance(item, ast.Constant)]
        for first, second in itertools.pairwise(words):
            given = isinstance(second, str) and re.fullmatch(r"-\w*c", second)
            assert not (first in ALSO and given), f"{name}:{node.lineno}: a shell is given a text"  # type: ignore[attr-defined]


def test_host_keys_agents_and_terminals_are_decided_here_and_not_by_a_file() -> None:
    text = (SOURCE / "hosts" / "ssh_connection.py").read_text()
    for line in (
        '"agent_forwarding": False',
        '"x11_forwarding": False',
        '"request_pty": False',
        '"config": None',
        '"env": None',
        '"send_env": None',
        '"known_hosts": lists',
    ):
        assert line in text, line
    connects = [
        path
        for path in MODULES
        if re.search(r"asyncssh\.(connect|create_connection|connect_reverse|get_server_host_key)\(", path.read_text())
    ]
    assert [path.name for path in connects] == ["ssh_connection.py"]  # nobody else makes a connection
    for path in MODULES:
        for function, call in calls(ast.parse(path.read_text())):
            if function.endswith(("create_process", "create_session")):
                words = {word.arg: ast.unparse(word.value) for word in call.keywords}
                assert words.get("request_pty") == "False", path
                assert words.get("encoding") == "None", path
