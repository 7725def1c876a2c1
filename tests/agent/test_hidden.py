"""Keys among the arguments of a job: in no file, and of vLLM not in the process list either."""

from __future__ import annotations

import sys

import pytest

from eagletui.agent import procfs
from eagletui.jobs.hidden import filled, hide, key_by_environment
from eagletui.jobs.serve import Serve
from eagletui.profile_launch import launch_spec
from eagletui.profiles import Profile
from tests.agent.jobs_harness import Jobs, until


@pytest.mark.parametrize(
    ("argv", "left", "key"),
    [
        (["vllm", "serve", "m", "--api-key", "K", "-tp", "2"], ["vllm", "serve", "m", "-tp", "2"], "K"),
        (["vllm", "serve", "m", "--api-key=K"], ["vllm", "serve", "m"], "K"),
        (["vllm", "serve", "m", "--api-key", "K", "L", "-tp", "2"], None, None),  # two keys: the variable holds one
        (["vllm", "serve", "m", "--api-key"], None, None),
        (["vllm", "serve", "m"], None, None),
    ],
)
def test_vllm_takes_its_key_from_the_environment(argv: list[str], left: list[str] | None, key: str | None) -> None:
    env: dict[str, str] = {}
    assert key_by_environment("vllm", argv, env) == (argv if left is None else left)
    assert env.get("VLLM_API_KEY") == key
    given = {"VLLM_API_KEY": "its own"}
    assert key_by_environment("vllm", argv, given) == argv
    assert key_by_environment("sglang", argv, {}) == argv


@pytest.mark.parametrize(
    "flags", [["--api-key", "K"], ["--api-key=K"], ["--hf-token", "K", "--api-key=L", "--admin-api-key", "K"]]
)
def test_what_is_hidden_comes_back_when_it_is_run(flags: list[str]) -> None:
    argv = ["sglang", *flags, "--port", "1"]
    spec = {"argv": argv, "container": {"program": argv[1:]}}
    secrets = hide(spec)
    assert not any(word in repr(spec) for word in ("'K'", "=K", "'L'", "=L"))
    assert filled(spec["argv"], {"PATH": "/bin", **secrets}) == (argv, {"PATH": "/bin"})  # type: ignore[arg-type]
    assert hide(spec) == {}, "hidden once, it stays as it is"


def test_a_profile_of_vllm_with_a_key_makes_no_command_that_shows_it() -> None:
    profile = {"engine": "vllm", "model": "/m", "name": "x", "args": ["--api-key", "sk-1"]}
    spec = Serve().spec(profile, "job-1")
    assert "sk-1" not in repr(spec["argv"])
    assert spec["env"]["VLLM_API_KEY"] == "sk-1"
    assert launch_spec(Profile("x", "vllm", "/m", args=("--api-key", "sk-1")), "job-1")["env"]["VLLM_API_KEY"] == "sk-1"
    boxed = Serve().spec({**profile, "container": "podman", "image": "i"}, "job-1")
    assert "sk-1" not in repr((boxed["argv"], boxed["container"]))
    assert boxed["env"] == {"VLLM_API_KEY": "sk-1"}


def test_a_key_among_the_arguments_reaches_the_program_and_no_file(jobs: Jobs) -> None:
    code = (
        "import sys, os, time; print(sys.argv[1:], [n for n in os.environ if 'EAGLETUI_ARG' in n], flush=True); time.sleep(300)"
    )
    spec = jobs.spec(sys.executable, "-I", "-S", "-c", code, "--api-key", "sk-in-args")
    state = jobs.launch(spec)
    log = jobs.root / "jobs" / spec["id"] / "log"
    until(lambda: log.exists() and b"\n" in log.read_bytes())
    assert log.read_text() == "['--api-key', 'sk-in-args'] []\n"
    assert procfs.argv(state["pid"])[-1] == "sk-in-args"
    log.unlink()
    for path in jobs.root.rglob("*"):
        assert not path.is_file() or b"sk-in-args" not in path.read_bytes(), path
    assert "sk-in-args" not in repr(jobs.call("kill_plan", job=spec["id"]))


def test_a_key_on_the_command_line_of_any_process_is_hidden_where_it_is_shown(jobs: Jobs) -> None:
    spec = jobs.spec(sys.executable, "-I", "-S", "-c", "import time; time.sleep(300)", "--api-key", "sk-shown", "--port", "1")
    state = jobs.launch(spec)
    line = until(lambda: procfs.cmdline(state["pid"]) or "")
    assert line.endswith("--api-key *** --port 1")
