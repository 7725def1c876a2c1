"""From profiles to commands and specs: what the shipped ones give, which cards they name, and that no secret is in them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eagletui.jobs.base import check_spec
from eagletui.paths import assets_path
from eagletui.profile_launch import NoSuchCards, choose_cards, command_of, launch_spec, shown
from eagletui.profiles import Profile, parse_profile

CARDS = [f"GPU-{letter * 8}" for letter in "abcdefgh"]


def shipped(name: str) -> Profile:
    path = assets_path("profiles", f"{name}.toml")
    profile, notices = parse_profile(path.read_text(), path)
    assert profile is not None, notices
    return profile


VLLM = (
    "vllm serve /shared/kimi-k2.5-int4 --host 127.0.0.1 --port 8000 --tensor-parallel-size 8 --max-model-len 131072{drafter}"
    " --trust-remote-code --attention-backend TRITON_MLA --gpu-memory-utilization 0.93 --max-num-batched-tokens 8192"
    " --max-num-seqs 64{graphs} --mm-encoder-tp-mode data --enable-auto-tool-choice --tool-call-parser kimi_k2"
    " --reasoning-parser kimi_k2"
)
SGLANG = (
    "python3 -m sglang.launch_server --model-path /shared/kimi-k2.5-int4 --host 127.0.0.1 --port 30000"
    " --tensor-parallel-size 8 --context-length 131072{drafter} --trust-remote-code --mem-fraction-static 0.90"
    " --attention-backend flashinfer --cuda-graph-max-bs 16 --max-running-requests 16 --enable-metrics"
    " --tool-call-parser kimi_k2 --reasoning-parser kimi_k2"
)
IN_JSON = '{"method":"eagle3","model":"/data/eagle3/output_10k/4","num_speculative_tokens":3}'
IN_FLAGS = (
    " --speculative-algorithm EAGLE3 --speculative-draft-model-path /data/eagle3/output_10k/4"
    " --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("kimi-k25-vllm", VLLM.format(drafter="", graphs="")),
        (
            "kimi-k25-vllm-eagle3",
            VLLM.format(drafter=f" --speculative-config {IN_JSON}", graphs=" --max-cudagraph-capture-size 256"),
        ),
        ("kimi-k25-sglang", SGLANG.format(drafter="")),
        ("kimi-k25-sglang-eagle3", SGLANG.format(drafter=IN_FLAGS)),
        (
            "one-card-vllm",
            "vllm serve Qwen/Qwen3-8B --host 127.0.0.1 --port 8000 --max-model-len 16384 --reasoning-parser qwen3",
        ),
        (
            "one-card-vllm-eagle3",
            "vllm serve Qwen/Qwen3-8B --host 127.0.0.1 --port 8000 --max-model-len 16384 --speculative-config"
            ' {"method":"eagle3","model":"RedHatAI/Qwen3-8B-speculator.eagle3","num_speculative_tokens":3}'
            " --reasoning-parser qwen3",
        ),
        (
            "one-card-sglang",
            "python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --host 127.0.0.1 --port 30000"
            " --context-length 16384 --enable-metrics --reasoning-parser qwen3",
        ),
    ],
)
def test_a_shipped_profile_gives_this_command(name: str, line: str) -> None:
    assert list(command_of(shipped(name), CARDS).argv) == line.split(" ")


def test_all_cards_are_leased_and_not_named() -> None:
    spec = launch_spec(shipped("kimi-k25-vllm"), "id1", CARDS)
    assert spec["gpus"] == CARDS
    assert spec["env"] == {"NCCL_P2P_LEVEL": "SYS", "PYTHONUNBUFFERED": "1"}


def test_some_cards_are_named_by_the_index_of_nvml() -> None:
    profile = Profile("p", "vllm", "/m", gpus=(3, CARDS[1]))
    spec = launch_spec(profile, "id1", CARDS)
    assert spec["gpus"] == [CARDS[3], CARDS[1]]
    assert spec["env"]["CUDA_VISIBLE_DEVICES"] == "3,1"
    assert spec["env"]["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert launch_spec(replace(profile, gpus=2), "id1", CARDS)["gpus"] == CARDS[:2]
    assert "CUDA_VISIBLE_DEVICES" not in launch_spec(replace(profile, gpus=None), "id1", CARDS)["env"]
    assert choose_cards(replace(profile, gpus=("MIG-1",)), CARDS) == ("MIG-1",)


@pytest.mark.parametrize(
    ("gpus", "cards", "words"),
    [
        ("all", [], "gpus = all, and the host has 0"),
        (3, CARDS[:2], "3 cards are wanted, and the host has 2"),
        (1, (), "1 card is wanted, and the host has 0"),
        ((2,), CARDS[:2], "card 2 is wanted, and the host has 2"),
        (("GPU-zz",), CARDS, "card GPU-zz is wanted, and the host does not have it"),
    ],
)
def test_cards_that_are_not_there_are_told(gpus: object, cards: list[str], words: str) -> None:
    with pytest.raises(NoSuchCards, match=words):
        launch_spec(Profile("p", "vllm", "/m", gpus=gpus), "id1", cards)  # type: ignore[arg-type]


def test_a_spec_is_one_that_a_host_takes() -> None:
    profile = replace(shipped("kimi-k25-sglang-eagle3"), smoke=False, cwd="/data", k=None)
    spec = check_spec(launch_spec(profile, "id1", CARDS))
    wanted = {
        "id": "id1",
        "kind": "serve",
        "name": "kimi-k25-sglang-eagle3",
        "server": True,
        "port": 30000,
        "cwd": "/data",
        "ready": {
            "health": "/health_generate",
            "after_log": True,
            "smoke": False,
            "address": "127.0.0.1",
            "version": "/server_info",
        },
        "engine": "sglang",
        "model": "/shared/kimi-k2.5-int4",
        "drafter": "/data/eagle3/output_10k/4",
        "k": 3,
        "profile": "kimi-k25-sglang-eagle3",
        "log_cap": 500_000_000,
        "leases": {"port": 30000, "gpus": CARDS},
    }
    assert {key: spec[key] for key in wanted} == wanted


def test_what_is_shown_is_whole_and_without_secrets() -> None:
    profile = Profile(
        "p", "vllm", "/m", venv="/v", secrets=("HF_TOKEN",), env={"A": "b c", "MY_TOKEN": "xyz"}, args=("--api-key", "xyz")
    )
    text = shown(profile)
    assert text.splitlines() == [
        "cd /",
        "A='b c'",
        "MY_TOKEN='***'",
        "PYTHONUNBUFFERED=1",
        "VLLM_API_KEY='***'",
        "HF_TOKEN=(from your environment)",
        "/v/bin/vllm serve /m --host 127.0.0.1 --port 8000",
    ]
    assert "HF_TOKEN" not in str(launch_spec(profile, "id1"))
