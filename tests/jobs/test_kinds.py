"""Kinds of jobs: specs from profiles, verdicts, and what must not be shown."""

from __future__ import annotations

import pytest

from eagletui.jobs import container, kinds
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


@pytest.mark.parametrize("name", ["HF_TOKEN", "OPENAI_API_KEY", "VLLM_API_KEY", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "token"])
def test_secret_names(name: str) -> None:
    assert secret_name(name)
    assert redact_env({name: "x", "PLAIN": "y"}) == {name: "***", "PLAIN": "y"}


@pytest.mark.parametrize(
    "name",
    ["HF_HOME", "VLLM_LOG_STATS_INTERVAL", "OMP_NUM_THREADS", "NCCL_P2P_LEVEL", "KEYBOARD", "TOKENIZERS_PARALLELISM"],
)
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


BOX = {
    "name": "k25", "engine": "vllm", "model": "/m", "container": "docker", "image": "vllm/vllm-openai:v0.18.0", "tp": 2,
    "env": {"NCCL_P2P_LEVEL": "SYS", "MY_TOKEN": "in-the-file"}, "secrets": ["HF_TOKEN"], "gpus": 2,
    "mounts": ["/shared:/shared:ro"], "container_args": ["--shm-size", "32g"], "cwd": "/work",
}  # fmt: skip


def test_a_server_in_a_container_of_docker() -> None:
    spec = kinds.kind("serve").spec(BOX, "j-1", ["GPU-a", "GPU-b"])
    argv = spec["argv"]
    assert argv[:6] == ["docker", "run", "--name", "eagletui-j-1", "--label", "eagletui.job=j-1"]
    assert argv[argv.index("--network") + 1] == "host"
    assert "--ipc" not in argv  # its own options ask for a size of shared memory
    assert argv[argv.index("--gpus") + 1] == '"device=GPU-a,GPU-b"'
    assert [argv[at + 1] for at, word in enumerate(argv) if word == "--volume"] == [
        "{log}:/run/eagletui.log",
        "/shared:/shared:ro",
    ]
    env = [argv[at + 1] for at, word in enumerate(argv) if word == "--env"]
    assert sorted(env) == ["HF_TOKEN", "MY_TOKEN", "NCCL_P2P_LEVEL=SYS", "PYTHONUNBUFFERED=1"]
    assert "in-the-file" not in argv
    assert spec["env"] == {"MY_TOKEN": "in-the-file"}  # the client's alone, and taken out of the spec by the agent
    at = argv.index("vllm/vllm-openai:v0.18.0")
    assert argv[at - 4 : at] == ["--shm-size", "32g", "--entrypoint", "/bin/sh"]
    assert argv[at + 1 : at + 4] == ["-c", 'exec "$@" >>/run/eagletui.log 2>&1', "sh"]
    assert argv[at + 4 : at + 7] == ["vllm", "serve", "/m"]
    assert "CUDA_VISIBLE_DEVICES" not in " ".join(argv)  # it sees no others
    assert (spec["runner"], spec["port"], spec["gpus"]) == ("docker", 8000, ["GPU-a", "GPU-b"])
    assert spec["container"] == {
        "engine": "docker", "name": "eagletui-j-1", "image": "vllm/vllm-openai:v0.18.0", "program": argv[at + 4 :],
    }  # fmt: skip
    assert spec["cwd"] == "/"
    assert argv[argv.index("--workdir") + 1] == "/work"


def test_a_server_in_a_container_of_podman() -> None:
    base = {**BOX, "container": "podman", "gpus": "all", "entrypoint": "image", "container_args": []}
    argv = kinds.kind("serve").spec(base, "j-1", ["GPU-a"])["argv"]
    assert argv[argv.index("--device") + 1] == "nvidia.com/gpu=all"
    assert argv[argv.index("--ipc") + 1] == "host"
    assert "--entrypoint" not in argv
    assert argv[argv.index(BOX["image"]) + 1 : argv.index(BOX["image"]) + 3] == ["/bin/sh", "-c"]
    two = kinds.kind("serve").spec({**base, "gpus": [0, 3], "devices": ["0", "3"]}, "j-1", ["GPU-a", "GPU-d"])["argv"]
    assert [two[at + 1] for at, word in enumerate(two) if word == "--device"] == ["nvidia.com/gpu=0", "nvidia.com/gpu=3"]
    none = kinds.kind("serve").spec({**base, "gpus": None}, "j-1")["argv"]
    assert "--device" not in none
    with pytest.raises(BadJob, match="image"):
        kinds.kind("serve").spec({**base, "image": None}, "j-1")


def test_the_log_of_a_container() -> None:
    argv = ["podman", "run", "--volume", "{log}:/run/eagletui.log", "x"]
    assert container.with_log(argv, "/s/log")[3] == "/s/log:/run/eagletui.log"
    assert container.with_log(argv, "/s/log", selinux=True)[3] == "/s/log:/run/eagletui.log:z"


@pytest.mark.parametrize(
    ("words", "own"),
    [([], False), (["--network", "host"], False), (["--net=host"], False), (["--network=bridge"], True), (["--net", "x"], True)],
)
def test_a_network_of_its_own(words: list[str], own: bool) -> None:
    assert container.own_network(words) is own


def test_a_spec_of_a_container_is_checked() -> None:
    good = {"id": "a", "kind": "serve", "argv": ["podman"], "container": {"engine": "podman", "name": "eagletui-a"}}
    assert check_spec(good)["container"]["name"] == "eagletui-a"
    for wrong in ({"engine": "rm", "name": "a"}, {"engine": "podman", "name": "-rf"}, {"engine": "podman"}, "podman"):
        with pytest.raises(BadJob, match="container"):
            check_spec({**good, "container": wrong})
