from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagletui.engines.command import CommandError, engine_of, parse_command, serve_command
from eagletui.engines.readiness import RULES, served_models


def test_vllm_with_a_drafter() -> None:
    argv, env = serve_command(
        {
            "engine": "vllm",
            "model": "/m",
            "drafter": "/d",
            "k": 4,
            "tp": 8,
            "max_model_len": 131072,
            "args": ["--trust-remote-code"],
        },
        devices=["0", "1"],
    )
    assert argv[:3] == ("vllm", "serve", "/m")
    assert argv[argv.index("--host") + 1] == "127.0.0.1"
    assert argv[argv.index("--port") + 1] == "8000"
    config = json.loads(argv[argv.index("--speculative-config") + 1])
    assert config == {"method": "eagle3", "model": "/d", "num_speculative_tokens": 4}
    assert argv[-1] == "--trust-remote-code"
    assert env["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_sglang_gives_all_speculative_flags_and_metrics() -> None:
    argv, _ = serve_command({"engine": "sglang", "model": "/m", "drafter": "/d", "k": 3, "venv": "/v"})
    assert argv[:5] == ("/v/bin/python", "-m", "sglang.launch_server", "--model-path", "/m")
    words = " ".join(argv)
    assert "--speculative-algorithm EAGLE3 --speculative-draft-model-path /d" in words
    assert "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --enable-metrics" in words


def test_what_stands_in_args_is_not_added_again() -> None:
    argv, _ = serve_command(
        {"engine": "sglang", "model": "/m", "port": 1, "tp": 8, "args": ["--port=2", "--tp", "4", "--enable-metrics"]}
    )
    assert argv.count("--enable-metrics") == 1
    assert "--port" not in argv
    assert "--tensor-parallel-size" not in argv


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        ({"engine": "x", "model": "/m"}, "engine"),
        ({"engine": "vllm"}, "model"),
        ({"engine": "vllm", "model": "/m", "drafter": "/d", "k": 0}, "k: "),
    ],
)
def test_profiles_without_a_command(profile: dict, words: str) -> None:
    with pytest.raises(CommandError, match=words):
        serve_command(profile)


@given(
    st.sampled_from(["vllm", "sglang"]),
    st.integers(1, 65535),
    st.integers(1, 16),
    st.integers(1, 7),
    st.sampled_from([{}, {"venv": "/v"}, {"python": "/usr/bin/python3"}]),
)
def test_what_is_launched_is_read_back(engine: str, port: int, tp: int, k: int, how: dict) -> None:
    profile = {"engine": engine, "model": "/m", "drafter": "/d", "k": k, "tp": tp, "port": port, "max_model_len": 4096, **how}
    facts = parse_command(serve_command(profile).argv)
    assert facts is not None
    assert (facts.engine, facts.model, facts.port, facts.tp, facts.k, facts.drafter) == (engine, "/m", port, tp, k, "/d")
    assert (facts.max_model_len, facts.method, facts.host, facts.metrics, facts.key) == (4096, "eagle3", "127.0.0.1", True, False)


def test_commands_as_people_write_them() -> None:
    a = parse_command(
        ["/v/bin/python3", "/v/bin/vllm", "serve", "--trust-remote-code", "/m", "-tp", "8", "--max_model_len", "32k", "-sc",
         '{"method":"mtp","num_speculative_tokens":1}', "--api-key", "secret"]
    )  # fmt: skip
    assert a is not None
    assert (a.model, a.tp, a.max_model_len, a.method, a.k, a.drafter, a.port, a.key) == (
        "/m",
        8,
        32000,
        "mtp",
        1,
        None,
        8000,
        True,
    )
    assert "secret" not in repr(a)
    b = parse_command(
        ["vllm", "serve", "/m", "--speculative-config.model", "/d", "--speculative-config.num_speculative_tokens=3"]
    )
    assert b is not None
    assert (b.drafter, b.k) == ("/d", 3)
    c = parse_command(["python", "-m", "sglang.launch_server", "--model", "/m", "--speculative-num-draft-tokens", "4"])
    assert c is not None
    assert (c.model, c.port, c.k, c.metrics) == ("/m", 30000, 3, False)


@pytest.mark.parametrize(
    "argv", [[], ["vllm", "bench", "serve"], ["bash", "-c", "vllm serve /m"], ["VLLM::EngineCore"], ["grep", "vllm"], ["nginx"]]
)
def test_what_is_no_server(argv: list[str]) -> None:
    assert engine_of(argv) is None
    assert parse_command(argv) is None


@given(st.lists(st.text(max_size=8), max_size=8))
def test_strange_words_never_raise(words: list[str]) -> None:
    parse_command(["vllm", "serve", *words])
    parse_command(["python", "-m", "sglang.launch_server", *words])


def test_readiness() -> None:
    v, s = RULES["vllm"], RULES["sglang"]
    assert [v.judge(x) for x in (None, 200, 401, 503, 404)] == ["starting", "ready", "key needed", "dead", "unknown"]
    assert [s.judge(x) for x in (None, 200, 503)] == ["starting", "ready", "starting"]
    assert (v.path, v.log_needed) == ("/v1/models", False)
    assert (s.path, s.log_needed, s.generates) == ("/health_generate", True, True)


def test_model_lists(data: Path) -> None:
    (first,) = served_models((data / "kimi-k2.5/models.json").read_bytes())
    assert (first.id, first.max_model_len, first.owner) == ("/shared/kimi-k2.5-int4", 131072, "vllm")
    (sglang,) = served_models((data / "sglang-0.5.23/models.json").read_bytes())
    assert (sglang.id, sglang.max_model_len, sglang.owner) == ("/srv/lab/smollm2", 8192, "sglang")
    for bad, words in ((b"<html>", "not JSON"), (b"[]", "no list under"), (b'{"data":[{}]}', "without an id")):
        with pytest.raises(ValueError, match=words):
            served_models(bad)
