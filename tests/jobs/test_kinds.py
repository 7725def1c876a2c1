"""Kinds of jobs: specs from profiles, verdicts, and what must not be shown."""

from __future__ import annotations

import pytest

from eagletui.jobs import kinds
from eagletui.jobs.base import BadJob, Kind, check_spec, redact_argv, redact_env, secret_name


def test_every_kind_has_its_name() -> None:
    assert set(kinds.names()) >= {"command", "serve"}
    for name in kinds.names():
        found = kinds.kind(name)
        assert isinstance(found, Kind)
        assert found.name == name
    with pytest.raises(BadJob, match="no kind of job called 'x'"):
        kinds.kind("x")


def test_a_command_from_a_profile() -> None:
    command = kinds.kind("command")
    spec = command.spec({"shell": "make -j4", "cwd": "/src", "env": {"A": "1"}}, "b-1")
    assert spec["argv"] == ["bash", "-lc", "make -j4"]
    assert (spec["id"], spec["cwd"], spec["env"], spec["leases"]) == ("b-1", "/src", {"A": "1"}, {"port": None, "gpus": []})
    assert command.title(spec) == "bash -lc 'make -j4'"
    assert command.title({"argv": ["x", "--api-key", "s"]}) == "x --api-key '***'"
    with pytest.raises(BadJob, match="either argv or shell"):
        command.spec({}, "b")
    with pytest.raises(BadJob, match="either argv or shell"):
        command.spec({"argv": ["a"], "shell": "b"}, "b")


def test_the_verdict_of_a_command() -> None:
    command = kinds.kind("command")
    assert command.verdict({}, {"rc": 0}, False) == (True, "exit status 0")
    assert command.verdict({}, {"rc": -11}, False) == (False, "ended by SIGSEGV")
    assert command.verdict({}, {}, False) == (None, "exit status unknown")
    assert command.verdict({}, {"rc": -15}, True) == (None, "ended on request")


def test_the_verdict_of_a_server() -> None:
    serve = kinds.kind("serve")
    assert serve.verdict({}, {"rc": -15, "ready_seconds": 9}, True) == (True, "served, ended on request")
    assert serve.verdict({}, {"rc": -15}, True) == (None, "ended on request before it was ready")
    assert serve.verdict({}, {"rc": 0}, False) == (False, "never ready: exit status 0")
    assert serve.verdict({}, {"rc": 1, "first_error": "CUDA out of memory"}, False) == (False, "CUDA out of memory")
    assert serve.verdict({}, {"state": "oom", "rc": -9}, False) == (False, "killed by the kernel for memory")
    assert serve.verdict({}, {"rc": 1, "ready_seconds": 9}, False) == (False, "was ready, then ended by itself: exit status 1")


def test_the_progress_of_a_server_is_its_running_phase() -> None:
    phases = [
        {"id": "spawn", "start": 0, "seconds": 5},
        {"id": "weights", "start": 5, "done": 13, "total": 64, "unit": "shards"},
    ]
    assert kinds.kind("serve").progress({"phases": phases}) == (13, 64, "shards")
    assert kinds.kind("serve").progress({}) == (None, None, "")


@pytest.mark.parametrize("name", ["HF_TOKEN", "OPENAI_API_KEY", "VLLM_API_KEY", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "token"])
def test_secret_names(name: str) -> None:
    assert secret_name(name)
    assert redact_env({name: "x", "PLAIN": "y"}) == {name: "***", "PLAIN": "y"}


@pytest.mark.parametrize("name", ["HF_HOME", "VLLM_LOG_STATS_INTERVAL", "OMP_NUM_THREADS", "NCCL_P2P_LEVEL", "KEYBOARD"])
def test_plain_names(name: str) -> None:
    assert not secret_name(name)


def test_arguments_are_hidden_only_where_they_are_secret() -> None:
    argv = ["vllm", "serve", "--api-key", "sk", "--port", "8000", "--hf-token=h", "--max-num-batched-tokens", "8192"]
    assert redact_argv(argv) == ["vllm", "serve", "--api-key", "***", "--port", "8000", "--hf-token=***", *argv[-2:]]


def test_a_spec_is_checked() -> None:
    spec = check_spec({"id": "a", "kind": "command", "argv": ["x"], "port": 8000, "gpus": ["GPU-1"]})
    assert spec["leases"] == {"port": 8000, "gpus": ["GPU-1"]}
    for bad in (
        {"env": {"A=B": "x"}},
        {"argv": "x"},
        {"argv": ["a\0b"]},
        {"port": True},
        {"gpus": [0]},
        {"leases": 1},
        {"cwd": "~"},
    ):
        with pytest.raises(BadJob):
            check_spec({**spec, **bad})
    with pytest.raises(BadJob, match="an object"):
        check_spec(None)


def test_a_server_from_a_profile() -> None:
    profile = {
        "name": "k25",
        "engine": "vllm",
        "model": "/m",
        "drafter": "/d",
        "k": 3,
        "venv": "/v",
        "port": 8001,
        "tp": 2,
        "gpus": 2,
        "env": {"NCCL_P2P_LEVEL": "SYS"},
        "cwd": "/w",
        "log_cap": 5_000_000,
        "smoke": False,
    }
    spec = kinds.kind("serve").spec(profile, "k25-1", ["GPU-a", "GPU-b"])
    assert spec["argv"][:3] == ["/v/bin/vllm", "serve", "/m"]
    assert spec["leases"] == {"port": 8001, "gpus": ["GPU-a", "GPU-b"]}
    assert spec["env"]["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    assert spec["env"]["NCCL_P2P_LEVEL"] == "SYS"
    assert spec["ready"] == {
        "health": "/v1/models",
        "after_log": False,
        "smoke": False,
        "address": "127.0.0.1",
        "version": "/version",
    }
    assert spec["kind"] == "serve"
    assert spec["profile"] == "k25"
    for key in ("name", "engine", "model", "drafter", "k", "port", "cwd", "log_cap"):
        assert spec[key] == profile[key]
    assert kinds.kind("serve").title(spec) == "vLLM /m + /d k=3 :8001"


def test_a_server_without_choices_takes_the_engines_defaults() -> None:
    spec = kinds.kind("serve").spec(
        {"engine": "sglang", "model": "/m", "gpus": "all", "args": ["--host", "0.0.0.0"]}, "s", ["GPU-a"]
    )
    assert spec["port"] == 30000
    assert "CUDA_VISIBLE_DEVICES" not in spec["env"]
    assert spec["gpus"] == ["GPU-a"]
    assert (spec["ready"]["health"], spec["ready"]["after_log"]) == ("/health_generate", True)
    assert spec["ready"]["address"] == "127.0.0.1"
    with pytest.raises(BadJob, match="engine: expected one of"):
        kinds.kind("serve").spec({"engine": "x", "model": "/m"}, "s")
    with pytest.raises(BadJob, match="model: a path or a name"):
        kinds.kind("serve").spec({"engine": "vllm"}, "s")
