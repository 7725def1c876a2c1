"""The shell text and the blob: which Python is taken, what is said when none will do, and under which login shells."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zlib
from pathlib import Path

import pytest

from eagletui.agent.bundle import MORE
from eagletui.hosts import bootstrap

from ..agent.process import Agent
from ..conftest import find_python

PYTHONS = pytest.mark.fault(16, how="PATH without python3, with a broken, an old and a partial one")

NONCE = "0123456789abcdef" * 2


def run(tmp_path: Path, pythons: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the text where only these interpreters exist: name -> shell script text."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in pythons.items():
        (folder / name).write_text("#!/bin/sh\n" + text)
        (folder / name).chmod(0o755)
    text = bootstrap.command(NONCE)
    for path in bootstrap.PYTHONS[1:]:
        text = text.replace(f" {path}", f" {folder}/{path.replace('/', '_')}")
    return subprocess.run(
        ["/bin/sh", "-c", text], env={"PATH": str(folder)}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


@PYTHONS
def test_no_python(tmp_path: Path) -> None:
    done = run(tmp_path, {})
    assert (done.returncode, done.stdout, done.stderr) == (91, "", "eagletui[91]: no python3 was found\n")
    known = bootstrap.explain(done.stderr)
    assert known is not None
    assert (known.kind, known.remedy) == ("no-python", "install it there: apt-get install python3")


@PYTHONS
def test_a_broken_shim_counts_as_none(tmp_path: Path) -> None:
    done = run(tmp_path, {"python3": "echo 'pyenv: python3: command not found' >&2; exit 127"})
    assert done.returncode == 91


@PYTHONS
@pytest.mark.parametrize("version", ["3.6", "3.7"])
def test_an_old_python_is_named_with_its_version(tmp_path: Path, version: str) -> None:
    python = find_python(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    done = run(tmp_path, {"_usr_libexec_platform-python": f'exec "{python}" "$@"'})
    assert done.returncode == 92
    assert done.stdout == ""
    known = bootstrap.explain(done.stderr, done.returncode)
    assert known is not None
    assert known.kind == "old-python"
    assert f"Python {version}." in known.why
    assert known.why.endswith("is too old")
    assert "\n" not in done.stderr.strip()


@PYTHONS
def test_a_minimal_python_is_told_what_it_lacks(tmp_path: Path) -> None:
    python = find_python("3.12") or shutil.which("python3")
    lib = tmp_path / "lib"
    lib.mkdir()
    # an interpreter whose path finder sees neither json nor ctypes, as Debian's python3-minimal
    hide = (
        "import sys,importlib.machinery as m;f=m.PathFinder.find_spec;"
        "m.PathFinder.find_spec=lambda n,*a:None if n in('json','ctypes') else f(n,*a);"
        "a=sys.argv[1:];sys.argv=a[a.index('-c')+1:];c=sys.argv.pop(0);sys.argv.insert(0,'-c');exec(c)"
    )
    (lib / "hide.py").write_text(hide)
    done = run(tmp_path, {"python3": f'exec "{python}" "{lib}/hide.py" "$@"'})
    assert (done.returncode, done.stdout) == (93, ""), done.stderr
    known = bootstrap.explain(done.stderr)
    assert known is not None
    assert known.kind == "minimal-python"
    assert "it lacks json ctypes" in known.why
    assert "apt-get install python3" in known.remedy


def test_an_old_python_is_passed_over_for_a_newer_one(tmp_path: Path) -> None:
    good = find_python("3.10") or shutil.which("python3")
    refuse = 'echo "eagletui[92]: old: Python 3.6.8" >&2; exit 92'
    done = run(tmp_path, {"python3": refuse, "_opt_conda_bin_python3": f'exec "{good}" "$@"'})
    assert done.returncode == 94  # it ran, and got no modules from /dev/null


def test_the_text_means_the_same_to_every_login_shell() -> None:
    text = bootstrap.command(NONCE)
    inner = text[len("exec /bin/sh -c '") : -1]
    assert text == f"exec /bin/sh -c '{inner}'"
    assert not set("'\n!`") & set(inner)
    python = inner[inner.index('-c "') + 4 : inner.index(f'" {NONCE}')]
    assert "$" not in python
    assert python.count("\\") == python.count('\\"')
    assert len(text) < 2048


@pytest.mark.fault(17, how="the bootstrap under sh, bash, zsh, fish, tcsh, csh, dash, ksh")
@pytest.mark.parametrize("shell", ["sh", "bash", "zsh", "fish", "tcsh", "csh", "dash", "ksh"])
def test_under_the_login_shell(shell: str) -> None:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"no {shell} on this machine")
    agent = Agent(shell=path)
    try:
        assert agent.start().result("hello")["uid"] == os.getuid()
    finally:
        agent.close()


@pytest.mark.parametrize("nonce", ["", "short", "0123456789abcdeg", "0" * 65, "$(reboot)0123456789"])
def test_a_nonce_that_could_mean_something_is_refused(nonce: str) -> None:
    with pytest.raises(ValueError, match="nonce"):
        bootstrap.command(nonce)


def test_the_blob_holds_what_runs_on_the_host_and_nothing_else() -> None:
    parts = bootstrap.parts({"one.more": "x = 1"})
    first, rest = (json.loads(zlib.decompress(part)) for part in parts)
    assert not set(first) & set(rest)
    assert first.pop("one.more") == "x = 1"
    assert first.pop(MORE)
    assert {"eagletui.agent.server", "eagletui.agent.gpus", "eagletui.agent.loop"} <= set(first)
    assert not [name for name in first if name.startswith(("eagletui.engines", "eagletui.jobs"))]
    modules = first | rest
    assert {"eagletui", "eagletui.records", "eagletui.agent", "eagletui.agent.main", "eagletui.engines", "eagletui.jobs"} <= set(
        modules
    )
    rooms = {name.split(".")[1] for name in modules if "." in name}
    assert rooms <= {"agent", "engines", "jobs", "records", "speculation"}
    assert {"eagletui.jobs.on_host", "eagletui.jobs.on_host.telling"} <= set(rest)
    assert bootstrap.parts() is bootstrap.parts()
    assert bootstrap.bundle() == b"".join(bootstrap.parts())


@pytest.mark.parametrize("text", ["", "bash: foo: command not found", "eagletui: the agent ended: x", "exit status 1"])
def test_other_failures_are_not_blamed_on_python(text: str) -> None:
    assert bootstrap.explain(text, 1) is None


def test_the_exit_status_alone_tells_too() -> None:
    kinds = [known.kind for status in (91, 92, 93) if (known := bootstrap.explain("", status))]
    assert kinds == ["no-python", "old-python", "minimal-python"]
