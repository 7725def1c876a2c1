"""Expected values were read off the recorded logs by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from eagletui.engines.events import Summary
from eagletui.engines.reader import LogReader, read_log


def summary(path: Path) -> Summary:
    return read_log([path.read_bytes()])


def phases(s: Summary) -> list[tuple[str, str | None, float, float | None]]:
    return [(p.id, p.role, p.start, p.seconds) for p in s.phases]


def test_vllm_032_with_a_drafter(data: Path) -> None:
    s = summary(data / "vllm-0.32/serve_eagle3.log")
    assert (s.engine, s.engine_version, s.outcome, s.failure) == ("vllm", "0.32.0", "stopped", None)
    assert (s.model, s.drafter) == ("./smollm2", "/srv/lab/drafter/2")
    # banner 15:40:49, engine 15:41:01, load 15:41:06, drafter 15:41:08, KV 15:42:06, ready 15:42:14, shutdown 15:46:14
    assert phases(s) == [
        ("spawn", None, 0, 0),
        ("config", None, 0, 12),
        ("workers", None, 12, 5),
        ("weights", "target", 17, 1),
        ("process", "target", 18, 1),
        ("weights", "drafter", 19, 0),
        ("process", "drafter", 19, 1),
        ("compile", "target", 20, 49),
        ("profile", "target", 69, 4),
        ("compile", "drafter", 73, 0),
        ("profile", "drafter", 73, 4),
        ("kv", None, 77, 5),
        ("api", None, 82, 3),
        ("ready", None, 85, 240),
    ]
    assert s.ready_seconds == 85
    f = s.facts
    assert (f["k"], f["method"], f["tp"], f["max_model_len"], f["port"], f["host"]) == (3, "eagle3", 1, 1024, 8000, "127.0.0.1")
    assert (f["target_class"], f["drafter_class"]) == ("LlamaForCausalLM", "Eagle3LlamaForCausalLM")
    assert (f["aux_layers"], f["kv_tokens"], f["max_concurrency"], f["kv_gib"]) == ([2, 15, 27], 89836, 87.73, 2.0)
    assert (f["weights_seconds"], f["drafter_weights_seconds"], f["init_seconds"]) == (0.17, 0.03, 62.74)
    assert (f["checkpoint_gib"], f["drafter_checkpoint_gib"], f["filesystem"]) == (0.25, 0.07, "EXT4")


def test_the_drafter_and_target_bars_are_told_apart(data: Path) -> None:
    s = summary(data / "vllm-0.32/serve_eagle3.log")
    assert [(p.role, p.done, p.total, p.unit) for p in s.phases if p.id == "weights"] == [
        ("target", 1, 1, "shards"),
        ("drafter", 1, 1, "shards"),
    ]


def test_vllm_032_sixteen_shards_three_workers(data: Path) -> None:
    s = summary(data / "vllm-0.32/serve_tp3_16shards.log")
    assert (s.outcome, s.model, s.drafter, s.ready_seconds) == ("stopped", "./smollm2-sharded", None, 33)
    weights = next(p for p in s.phases if p.id == "weights")
    assert (weights.role, weights.done, weights.total) == ("target", 16, 16)
    assert (s.facts["tp"], s.facts["ranks"], s.facts["world_size"], s.facts["enforce_eager"]) == (3, 3, 3, True)
    assert not any(p.id == "compile" for p in s.phases)


def test_a_hidden_state_server_has_no_drafter_to_load(data: Path) -> None:
    s = summary(data / "vllm-0.32/serve_hidden_states.log")
    assert (s.drafter, s.facts["method"], s.facts["k"], s.facts["aux_layers"]) == (
        None,
        "extract_hidden_states",
        1,
        [2, 15, 27, 30],
    )
    assert not any(p.role == "drafter" for p in s.phases)
    assert "drafter_weights_seconds" not in s.facts  # the log says 1002 seconds, of a load that took none
    assert (s.outcome, s.failure) == ("stopped", None)


@pytest.mark.parametrize(
    ("name", "outcome", "ready"),
    [
        ("vllm-0.32/serve_plain.log", "stopped", 82),
        ("vllm-0.32/sigterm_load.log", "ready", 20),
        ("vllm-0.26/eagle.log", "stopped", 61),
        ("vllm-0.26/eagle_first_start.log", "ready", 118),
        ("vllm-0.26/plain.log", "stopped", 73),
        ("vllm-0.26/plain_eager_sigterm.log", "stopped", 77),
    ],
)
def test_healthy_logs_have_no_failure(data: Path, name: str, outcome: str, ready: float) -> None:
    s = summary(data / name)
    assert (s.engine, s.outcome, s.ready_seconds, s.failure) == ("vllm", outcome, ready, None)


def test_vllm_026_on_a_gpu_first_start(data: Path) -> None:
    s = summary(data / "vllm-0.26/eagle_first_start.log")
    assert (s.engine_version, s.model, s.drafter) == ("0.26.0", "smollm2", "/srv/g/drafter/7")
    # 16:58:00 banner, :41 engine, :45 load, :47 loaded, 16:59:07 compiled, :08 drafter, :19 compiled, :23 KV, :30 captured
    assert phases(s) == [
        ("spawn", None, 0, 0),
        ("config", None, 0, 41),
        ("workers", None, 41, 4),
        ("weights", "target", 45, 1),
        ("process", "target", 46, 0),
        ("weights", "drafter", 46, 0),
        ("process", "drafter", 46, 1),
        ("compile", "target", 47, 20),
        ("profile", "target", 67, 1),
        ("compile", "drafter", 68, 11),
        ("profile", "drafter", 79, 4),
        ("kv", None, 83, 0),
        ("capture", "target", 83, 6),
        ("capture", "drafter", 89, 1),
        ("finish", None, 90, 21),
        ("api", None, 111, 7),
        ("ready", None, 118, None),
    ]
    capture = [(p.role, p.done, p.total, p.unit) for p in s.phases if p.id == "capture"]
    # PIECEWISE 51 + FULL 49, then the drafter's 51 + 49 + 51
    assert capture == [("target", 100, 100, "graphs"), ("drafter", 151, 151, "graphs")]
    f = s.facts
    assert (f["load_gib"], f["load_seconds"], f["compile_seconds"], f["capture_seconds"], f["capture_gib"]) == (
        0.28,
        2.356964,
        30.88,
        7,
        0.56,
    )
    assert (f["kv_gib"], f["kv_tokens"], f["max_concurrency"], f["init_seconds"]) == (41.18, 1856817, 906.65, 63.94)
    assert (f["weights_gib"], f["activation_gib"], f["non_torch_gib"], f["graphs_gib"]) == (0.28, 0.25, 0.22, 0.56)
    assert f["aux_layers"] == [2, 15, 27]


def test_without_graphs_there_is_no_capture(data: Path) -> None:
    s = summary(data / "vllm-0.26/plain_eager_sigterm.log")
    ids = [p.id for p in s.phases]
    assert "capture" not in ids
    assert "compile" not in ids
    assert ids[-4:] == ["kv", "finish", "api", "ready"]


def test_statistics_lines(data: Path) -> None:
    reader = LogReader()
    events = reader.feed((data / "vllm-0.32/serve_eagle3.log").read_bytes())
    stats = [e for e in events if e.kind == "stats"]
    assert stats[0].value == {
        "prompt_per_s": 6.1,
        "generated_per_s": 10.5,
        "running": 1,
        "waiting": 0,
        "kv": 0.001,
        "prefix_hit_rate": 0.0,
    }
    assert stats[1].value == {
        "length": 1.42,
        "accepted": 35,
        "drafted": 252,
        "rate": 0.138889,
        "per_position": [0.321, 0.095, 0.0],
    }


def test_statistics_of_several_engines_together() -> None:
    s = read_log(
        [
            b"INFO 11-29 10:00:00 [loggers.py:1] 2 Engines Aggregated: Avg prompt throughput: 1.0 tokens/s, "
            b"Avg generation throughput: 20.5 tokens/s, Running: 5 reqs, Waiting: 1 reqs,"
            b" Preemptions: 2, GPU KV cache usage: 12.0%\n"
        ]
    )
    assert s.stats is not None
    assert (s.stats["generated_per_s"], s.stats["running"], s.stats["kv"]) == (20.5, 5, 0.12)


def test_085_prints_the_length_without_the_bonus_token() -> None:
    log = (
        b"INFO 04-01 10:00:00 [api_server.py:1] vLLM API server version 0.8.5\n"
        b"INFO 04-01 10:00:10 [metrics.py:1] SpecDecoding metrics: Draft acceptance rate: 51.8%, Mean acceptance length: 2.07, "
        b"Accepted: 207 tokens, Drafted: 400 tokens, Per-position acceptance rate: 0.7, 0.4\n"
    )
    s = read_log([log])
    assert s.stats is not None
    assert (s.stats["length"], s.stats["per_position"]) == (pytest.approx(3.07), [0.7, 0.4])
    newer = read_log([log.replace(b"0.8.5", b"0.9.2")])
    assert newer.stats is not None
    assert newer.stats["length"] == 2.07


def test_bars_of_a_terabyte_load(data: Path) -> None:
    s = summary(data / "kimi-k2.5/vllm-0.16-load.txt")
    assert (s.engine, s.outcome, s.phase) == ("vllm", "loading", "weights")
    assert [(p.role, p.done, p.total, p.seconds) for p in s.phases] == [("target", 1, 64, None)]
    t = summary(data / "kimi-k2.5/sglang-load.txt")
    assert (t.engine, t.phases[-1].done, t.phases[-1].total) == (None, 61, 64)


BAD = {
    "bad_flag": (5, "vllm: error: unrecognized arguments: --speculative-cfg x", None, None),
    "bad_path": (52, "huggingface_hub.errors.HFValidationError: Repo id must be in the form", "config", None),
    "bad_vocab_drafter": (
        132,
        "RuntimeError: The size of tensor a (640) must match the size of tensor b (576) at non-singleton dimension 1",
        "weights",
        "drafter",
    ),
    "corrupt_shard": (
        151,
        "safetensors._safetensors_rust.SafetensorError: Error while deserializing header: incomplete",
        "weights",
        "target",
    ),
    "port_taken": (38, "OSError: [Errno 98] Address already in use", "config", None),
}


@pytest.mark.parametrize("name", sorted(BAD))
def test_first_root_error(data: Path, name: str) -> None:
    line, text, phase, role = BAD[name]
    raw = (data / "vllm-0.32" / (name + ".log")).read_bytes()
    s = read_log([raw])
    assert (s.engine, s.outcome, s.ready_seconds) == ("vllm", "failed", None)
    assert s.failure is not None
    assert s.failure.text.startswith(text)
    assert (s.failure.line, s.failure.phase, s.failure.role) == (line, phase, role)
    # the place is that of the line in the file
    for place in s.failure.evidence:
        there = raw[place.offset :].split(b"\n", 1)[0].decode()
        assert place.text in there
        assert raw.count(b"\n", 0, place.offset) + 1 == place.line
    assert all(p.seconds is not None for p in s.phases)


def test_the_failure_is_told_once_and_by_its_root(data: Path) -> None:
    for name in ("bad_vocab_drafter", "corrupt_shard", "bad_path"):
        reader = LogReader()
        raw = (data / "vllm-0.32" / (name + ".log")).read_bytes()
        events = [e for at in range(0, len(raw), 1000) for e in reader.feed(raw[at : at + 1000])] + reader.finish()
        told = [e for e in events if e.kind == "failure"]
        assert len(told) == 1
        assert told[0].text.startswith(BAD[name][1])


def test_a_second_launch_in_the_same_log_starts_afresh(data: Path) -> None:
    first = (data / "vllm-0.32/corrupt_shard.log").read_bytes()
    second = (data / "vllm-0.32/serve_tp3_16shards.log").read_bytes()
    alone, both = read_log([second]), read_log([first + second])
    assert (both.outcome, both.failure, both.restarts) == (alone.outcome, None, 1)
    assert both.facts == alone.facts
    assert [(p.id, p.role, p.seconds) for p in both.phases[2:]] == [(p.id, p.role, p.seconds) for p in alone.phases[2:]]
    again = read_log([second + first])
    assert again.outcome == "failed"
    assert again.failure is not None
    assert "incomplete metadata" in again.failure.text
