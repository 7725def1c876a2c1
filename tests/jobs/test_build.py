"""Builds: what is missing is told at once, jobs are bounded by memory, a killed compiler is told, the result is tried."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from eagletui.jobs import kinds
from eagletui.jobs.build import BuildWatcher
from eagletui.jobs.on_host import build


def run(capfd: pytest.CaptureFixture[str], source: Path, *command: str, **wanted: Any) -> dict[str, Any]:
    """Run it in this process; what it told as its result, with its status and all its output."""
    code = build.main([json.dumps({"gib": 1, "jobs": None, "source": str(source), **wanted}), "--", *command])
    out = capfd.readouterr().out
    said = [json.loads(line) for line in out.splitlines() if line.startswith('{"eagletui"')]
    return {**next(doc for doc in said if doc["eagletui"] == "result"), "rc": code, "out": out}


def test_all_that_is_missing_is_told_before_it_begins(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    done = run(
        capfd, tmp_path, "touch", str(tmp_path / "begun"),
        programs=["sh", "no-such-nvcc"], modules=["json", "no_such_core", "no_such.part"], headers=["stdio.h", "no_such/numa.h"],
    )  # fmt: skip
    assert done["rc"] == 1
    assert done["why"].startswith("not begun: there is no no-such-nvcc")
    assert "has no module no_such_core (pip install no-such-core)" in done["why"]
    assert "has no module no_such.part" in done["why"]
    assert "the header no_such/numa.h is not found" in done["why"]
    assert "stdio.h" not in done["why"]
    assert not (tmp_path / "begun").exists()
    assert "is no directory" in run(capfd, tmp_path / "no", "true")["why"]


def test_jobs_are_bounded_by_memory_cores_and_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "available", lambda: 40 << 30)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    assert build.jobs_at_a_time(8, None) == 5
    assert build.jobs_at_a_time(0.5, None) == 64
    assert build.jobs_at_a_time(0.5, 3) == 3
    assert build.jobs_at_a_time(100, None) == 1


def test_memory_is_known_here() -> None:
    assert 1 << 20 < build.available() < 1 << 50


def test_every_build_system_hears_of_the_jobs_unless_the_file_says_otherwise() -> None:
    ours = str(Path(build.__file__).parents[3])
    env = build.environment({"PATH": "/bin", "PYTHONPATH": f"{ours}:/mine", "CMAKE_BUILD_PARALLEL_LEVEL": "9"}, 3)
    assert (env["MAX_JOBS"], env["MAKEFLAGS"], env["NVCC_THREADS"], env["CMAKE_BUILD_PARALLEL_LEVEL"]) == ("3", "-j3", "1", "9")
    assert env["PYTHONPATH"] == "/mine"  # our own package is no part of what is built
    assert env["PATH"].split(":")[0] == os.path.dirname(sys.executable)


def test_a_build_is_right_when_what_it_made_works(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    done = run(capfd, tmp_path, "sh", "-c", "echo $MAX_JOBS > made", expect=["made"], imports=["json"], jobs=1)
    assert (done["rc"], done["jobs"]) == (0, 1)
    assert done["why"].startswith("1 expected file there; json 2.")
    assert (tmp_path / "made").read_text() == "1\n"
    done = run(capfd, tmp_path, "true", expect=["made", "not-made"])
    assert (done["rc"], done["why"]) == (1, "the build ended well, but not-made is not there")
    done = run(capfd, tmp_path, "true", imports=["no_such_kernels"])
    assert done["why"] == (
        "the build ended well, but no_such_kernels cannot be imported: ModuleNotFoundError: No module named 'no_such_kernels'"
    )
    assert run(capfd, tmp_path, "sh", "-c", "exit 3")["why"] == "the build ended with status 3"


def watched(output: str, rc: int = 1, result: dict[str, Any] | None = None) -> BuildWatcher:
    watcher = BuildWatcher({}, "/")
    told = {"eagletui": "result", **(result or {"why": "the build ended with status 1", "jobs": 8})}
    watcher.feed((output + "\n" + json.dumps(told) + "\n").encode(), 1.0)
    return watcher


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("c++: fatal error: Killed signal terminated program cc1plus", "cc1plus"),
        ("nvcc error   : 'cudafe++' died due to signal 9 (Kill signal)", "cudafe++"),
        ("nvcc error   : 'cicc' died due to signal 9", "cicc"),
        ("Killed", "a compiler"),
        ("cc1plus: out of memory: virtual memory exhausted: Cannot allocate memory", "a compiler"),
    ],
)
def test_a_compiler_killed_for_memory_is_told_with_what_to_do(line: str, what: str) -> None:
    watcher = watched(f"[17/345] Building CUDA object a.o\nFAILED: a.o\n{line}\nninja: build stopped: subcommand failed.")
    assert watcher.troubles() == (f"memory: {what} was killed by the kernel; the rest of the build goes on",)
    found = watcher.outcome(1, False)
    assert found.ok is False
    assert found.why == (
        f"out of memory: the kernel killed {what} after 17 of 345 steps - jobs = 4 (or a larger gib_per_job), and run it again: "
        "what is built stays"
    )


def test_the_first_error_is_the_one_that_is_told() -> None:
    output = "x.cu(3): error: no such thing\ny.cu(4): error: another\nninja: build stopped: x.\nERROR: Failed building wheel"
    assert watched(output).outcome(1, False).why == "the build ended with status 1: x.cu(3): error: no such thing"
    done = watched("-- Found no error: fine", result={"why": "a.so is not there", "checked": True}).outcome(1, False)
    assert done.why == "a.so is not there"
    assert watched("an error: of no matter", result={"why": "x imports"}).outcome(0, False) == (
        True,
        "x imports",
        {"why": "x imports"},
    )


def test_the_keys_of_a_build_together() -> None:
    kind = kinds.kind("build")
    assert [item.key for item in kind.check({"shell": "x", "argv": ["y"]})] == ["shell", "imports"]
    assert list(kind.check({"imports": ["x"]})) == []
    spec = kind.spec({"source": "/s", "python": "/v/bin/python", "imports": ["k"], "programs": ("cmake",)}, "j")
    assert spec["argv"][:3] == ["/v/bin/python", "-m", "eagletui.jobs.on_host.build"]
    assert spec["argv"][spec["argv"].index("--") + 1 :] == [
        "/v/bin/python",
        "-m",
        "pip",
        "install",
        "--no-build-isolation",
        "-v",
        ".",
    ]
    assert kind.title(spec) == "/v/bin/python -m pip install --no-build-isolation -v . in /s"
    line = kind.spec({"source": "/s", "python": "/p", "shell": "make -C x", "expect": ["x"]}, "j")
    assert line["argv"][-3:] == ["bash", "-lc", "make -C x"]
