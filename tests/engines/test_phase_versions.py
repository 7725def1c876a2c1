"""What each version prints, written down from its source where no log of it is at hand: the same phases and facts come out."""

# ruff: noqa: E501 - lines of logs stand as they are

from __future__ import annotations

import pytest

from eagletui.engines.events import Summary
from eagletui.engines.reader import LogReader, read_log


def read(text: str) -> Summary:
    raw = text.encode()
    whole = read_log([raw])
    assert read_log([raw[i : i + 37] for i in range(0, len(raw), 37)]) == whole
    return whole


def seen(s: Summary) -> list[tuple[str, str | None]]:
    return [(p.id, p.role) for p in s.phases]


def lines(day: str, *timed: tuple[str, str], head: str = "INFO {} [x.py:1] ") -> str:
    return "".join((head.format(f"{day} {clock}") if clock else "") + text + "\n" for clock, text in timed)


V085 = lines(
    "04-30",
    ("10:00:00", "Automatically detected platform cuda."),
    ("10:00:05", "vLLM API server version 0.8.5"),
    ("10:00:05", "args: Namespace(model='/m/llama', port=8000)"),
    ("10:00:15", "Initializing a V1 LLM engine (v0.8.5) with config: model='/m/llama', speculative_config=SpeculativeConfig("
     "method='eagle3', model='/d/e3', num_spec_tokens=3), tensor_parallel_size=2, enforce_eager=False,"),
    ("10:00:20", "vLLM is using nccl==2.21.5"),
    ("10:00:25", "Starting to load model /m/llama..."),
    ("", "Loading safetensors checkpoint shards:   0% Completed | 0/4 [00:00<?, ?it/s]"),
    ("", "\rLoading safetensors checkpoint shards:  50% Completed | 2/4 [00:04<00:04,  2.00s/it]"),
    ("", "\rLoading safetensors checkpoint shards: 100% Completed | 4/4 [00:08<00:00,  2.00s/it]"),
    ("10:00:34", "Loading weights took 8.40 seconds"),
    ("10:00:34", "Loading drafter model..."),
    ("10:00:36", "Loading weights took 1.10 seconds"),
    ("10:00:37", "Model loading took 15.4521 GiB and 11.512345 seconds"),
    ("10:00:40", "Using cache directory: /root/.cache/vllm/torch_compile_cache/ab/rank_0_0 for vLLM's torch.compile"),
    ("10:00:41", "Dynamo bytecode transform time: 6.12 s"),
    ("10:01:00", "Compiling a graph for general shape takes 20.11 s"),
    ("10:01:05", "torch.compile takes 26.23 s in total"),
    ("10:01:10", "GPU KV cache size: 312,448 tokens"),
    ("10:01:10", "Maximum concurrency for 8,192 tokens per request: 38.14x"),
    ("", "Capturing CUDA graph shapes:  50%|#####     | 33/67 [00:10<00:10,  3.30it/s]"),
    ("10:01:32", "Graph capturing finished in 21 secs, took 0.55 GiB"),
    ("10:01:32", "init engine (profile, create kv cache, warmup model) took 55.40 seconds"),
    ("10:01:33", "Starting vLLM API server on http://0.0.0.0:8000"),
    ("", "INFO:     Application startup complete."),
)  # fmt: skip


def test_vllm_085_without_prefixes() -> None:
    s = read(V085)
    assert (s.engine, s.engine_version, s.outcome, s.model, s.drafter) == ("vllm", "0.8.5", "ready", "/m/llama", "/d/e3")
    assert seen(s) == [
        ("spawn", None), ("config", None), ("workers", None), ("weights", "target"), ("process", "target"), ("weights", "drafter"),
        ("process", "drafter"), ("compile", "target"), ("profile", "target"), ("kv", None), ("capture", "target"), ("finish", None),
        ("api", None), ("ready", None),
    ]  # fmt: skip
    f = s.facts
    assert (f["k"], f["tp"], f["nccl"], f["kv_tokens"], f["load_gib"], f["init_seconds"]) == (
        3,
        2,
        "2.21.5",
        312448,
        15.4521,
        55.4,
    )
    assert (f["capture_seconds"], f["compile_seconds"], f["weights_seconds"], f["port"]) == (21, 26.23, 8.4, 8000)
    durations = {(p.id, p.role): p.seconds for p in s.phases}
    assert (durations["weights", "target"], durations["weights", "drafter"], durations["capture", "target"]) == (9, 2, 22)


ANSI = "\x1b[1;36m({} pid={})\x1b[0;0m INFO 09-20 {} [x.py:1] "


def test_vllm_0102_with_colour_ranks_and_bars_that_carry_a_prefix() -> None:
    def core(clock: str, text: str) -> str:
        return ANSI.format("EngineCore_DP0", 20, clock) + text + "\n"

    def rank(n: int, clock: str, text: str) -> str:
        return ANSI.format(f"Worker_TP{n}", 30 + n, clock) + text + "\n"

    bar = "\x1b[1;36m(Worker_TP0 pid=30)\x1b[0;0m \rLoading safetensors checkpoint shards: {:3}% Completed | {}/64 [00:0{}<00:01,  1.0it/s]\n"
    text = ANSI.format("APIServer", 10, "10:00:00") + "vLLM API server version 0.10.2\n"
    text += (
        ANSI.format("APIServer", 10, "10:00:00") + "non-default args: {'model': '/m', 'port': 8001, 'tensor_parallel_size': 2}\n"
    )
    text += ANSI.format("APIServer", 10, "10:00:04") + "Resolved architecture: DeepseekV3ForCausalLM\n"
    text += core(
        "10:00:10",
        "Initializing a V1 LLM engine (v0.10.2) with config: model='/m', speculative_config=None, tensor_parallel_size=2",
    )
    text += rank(1, "10:00:20", "Starting to load model /m...") + rank(0, "10:00:21", "Starting to load model /m...")
    text += bar.format(2, 1, 1) + bar.format(50, 32, 4) + bar.format(100, 64, 8)
    text += rank(0, "10:05:00", "Loading weights took 278.10 seconds") + rank(
        1, "10:05:03", "Loading weights took 281.33 seconds"
    )
    text += rank(0, "10:05:20", "Model loading took 72.0210 GiB and 298.900000 seconds")
    text += rank(0, "10:05:40", "Compiling a graph for dynamic shape takes 12.10 s")
    text += rank(0, "10:05:41", "torch.compile takes 18.20 s in total")
    text += core("10:05:50", "GPU KV cache size: 437,120 tokens")
    text += "\x1b[1;36m(Worker_TP0 pid=30)\x1b[0;0m \rCapturing CUDA graphs (mixed prefill-decode, PIECEWISE):  50%|#####     | 1/2 [00:01<00:01]"
    text += "\rCapturing CUDA graphs (mixed prefill-decode, PIECEWISE): 100%|##########| 2/2 [00:02<00:00,  1.0it/s]"
    text += rank(1, "10:05:59", "Graph capturing finished in 9 secs, took 1.21 GiB")
    text += core("10:06:00", "init engine (profile, create kv cache, warmup model) took 40.00 seconds")
    text += ANSI.format("APIServer", 10, "10:06:02") + "Starting vLLM API server 0 on http://127.0.0.1:8001\n"
    text += "\x1b[1;36m(APIServer pid=10)\x1b[0;0m INFO:     Application startup complete.\n"
    s = read(text)
    assert (s.engine_version, s.outcome, s.ready_seconds, s.facts["tp"], s.facts["port"]) == ("0.10.2", "ready", 362, 2, 8001)
    weights = next(p for p in s.phases if p.id == "weights")
    assert (weights.role, weights.done, weights.total, weights.seconds) == ("target", 64, 64, 280)
    capture = next(p for p in s.phases if p.id == "capture")
    assert (capture.done, capture.total) == (2, 2)
    assert (s.facts["kv_tokens"], s.facts["capture_gib"], s.facts["target_class"]) == (437120, 1.21, "DeepseekV3ForCausalLM")
    assert not any(p.role == "drafter" for p in s.phases)


def test_the_v2_runner_does_not_announce_the_drafter() -> None:
    head = "(EngineCore pid=20) INFO {} [x.py:1] "
    s = read(
        lines(
            "11-29",
            ("10:00:00", " \N{LOWER HALF BLOCK}\N{LOWER HALF BLOCK} \N{FULL BLOCK}  version 0.32.0"),
            ("10:00:00", " \N{LOWER HALF BLOCK}\N{LOWER HALF BLOCK} \N{FULL BLOCK}  model   /m/k25"),
            ("10:00:09", "Initializing a V1 LLM engine (v0.32.0) with config: model='/m/k25', speculative_config=SpeculativeConfig("
             "method='eagle3', model='/d/k25', num_spec_tokens=3), tensor_parallel_size=1"),
            ("10:00:12", "Loading model from scratch..."),
            ("10:00:13", "Filesystem type for checkpoints: XFS. Checkpoint size: 509.10 GiB. Available RAM: 1200.00 GiB."),
            ("", "Loading safetensors checkpoint shards: 100% Completed | 64/64 [03:00<00:00,  2.81s/it]"),
            ("10:03:20", "Loading weights took 185.00 seconds"),
            ("10:03:30", "Filesystem type for checkpoints: XFS. Checkpoint size: 2.10 GiB. Available RAM: 1100.00 GiB."),
            ("", "Loading safetensors checkpoint shards: 100% Completed | 1/1 [00:01<00:00,  1.00it/s]"),
            ("10:03:33", "Loading weights took 2.00 seconds"),
            ("10:03:34", "Using Eagle3 auxiliary layers from model: (2, 30, 58)"),
            ("10:03:40", "Model loading took 70.10 GiB memory and 200.000000 seconds"),
            head=head,
        )
    )  # fmt: skip
    assert (s.engine_version, s.model, s.drafter, s.phase) == ("0.32.0", "/m/k25", "/d/k25", "compile")
    assert [(p.id, p.role, p.done, p.total) for p in s.phases if p.id == "weights"] == [
        ("weights", "target", 64, 64),
        ("weights", "drafter", 1, 1),
    ]
    assert (s.facts["aux_layers"], s.facts["aux_source"], s.facts["drafter_checkpoint_gib"]) == ([2, 30, 58], "model", 2.1)


def test_a_load_over_new_year() -> None:
    s = read(
        "INFO 12-31 23:59:50 [x.py:1] vLLM API server version 0.18.1\n"
        "INFO 12-31 23:59:58 [x.py:1] Initializing a V1 LLM engine (v0.18.1) with config: model='/m', speculative_config=None\n"
        "INFO 01-01 00:00:08 [x.py:1] Starting to load model /m...\n"
        "INFO 01-01 00:20:08 [x.py:1] Loading weights took 1199.00 seconds\n"
        "INFO:     Application startup complete.\n"
    )
    assert (s.ready_seconds, [p.seconds for p in s.phases if p.id == "weights"]) == (1218, [1200])


def test_two_prefixes_and_none_from_nine_processes() -> None:
    s = read(
        "(APIServer pid=1) INFO 03-01 10:00:00 [x.py:1] vLLM API server version 0.16.0\n"
        "(EngineCore_DP0 pid=2) INFO 03-01 10:00:02 [x.py:1] Initializing a V1 LLM engine (v0.16.0) with config: model='/m',"
        " speculative_config=None, tensor_parallel_size=8\n"
        "(EngineCore_DP0 pid=2) (Worker_TP3 pid=7) INFO 03-01 10:00:05 [x.py:1] world_size=8 rank=3 local_rank=3"
        " distributed_init_method=tcp://127.0.0.1:1 backend=nccl\n"
        "(Worker_TP1 pid=5) (Worker_TP0 pid=4) INFO 03-01 10:00:05 [x.py:1] world_size=8 rank=0 local_rank=0"
        " distributed_init_method=tcp://127.0.0.1:1 backend=nccl\n"
        "(Worker_TP0 pid=4) INFO 03-01 10:00:09 [x.py:1] Starting to load model /m...\n"
        "(Worker_TP0 pid=4) Loading safetensors checkpoint shards:   5% Completed | 3/64 [00:09<03:00,  3.00s/it]"
        "(Worker_TP5 pid=9) INFO 03-01 10:00:20 [x.py:1] vLLM is using nccl==2.27.5\n"
    )
    assert (s.facts["ranks"], s.facts["world_size"], s.facts["nccl"]) == (2, 8, "2.27.5")
    assert [(p.done, p.total) for p in s.phases if p.id == "weights"] == [(3, 64)]


def test_statistics_of_data_parallel_engines_and_newer_tails() -> None:
    reader = LogReader()
    events = reader.feed(
        b"(APIServer pid=1) INFO 11-29 10:00:00 [l.py:1] Engine 001: Avg prompt throughput: 10.0 tokens/s, Avg generation throughput:"
        b" 61.2 tokens/s, Running: 3 reqs, Waiting: 1 reqs, Deferred: 2 reqs, Preemptions: 0, GPU KV cache usage: 4.0%, MM cache hit"
        b" rate: 0.0%\n"
        b"(APIServer pid=1) INFO 11-29 10:00:00 [m.py:1] SpecDecoding metrics: Mean acceptance length: nan, Accepted throughput: 0.00"
        b" tokens/s, Drafted throughput: 0.00 tokens/s, Accepted: 0 tokens, Drafted: 0 tokens, Per-position acceptance rate: nan, nan,"
        b" nan, Avg Draft acceptance rate: nan%\n"
    )
    first, second = (e.value for e in events if e.kind == "stats")
    assert (first["generated_per_s"], first["running"], first["waiting"], first["kv"], first["prefix_hit_rate"]) == (
        61.2,
        3,
        1,
        0.04,
        None,
    )
    assert (second["length"], second["rate"], second["per_position"]) == (None, None, [None, None, None])


def sglang(*timed: tuple[str, str, str]) -> str:
    return "".join((f"[2026-03-01 {clock}{rank}] " if clock else "") + text + "\n" for clock, rank, text in timed)


@pytest.mark.parametrize(
    ("capture", "draft", "end"),
    [
        ("Capture cuda graph begin. This can take up to several minutes. avail mem=4.00 GB",
         "Capture draft cuda graph begin. This can take up to several minutes. avail mem=3.00 GB",
         "Capture draft cuda graph end. Time elapsed: 3.50 s. mem usage=0.20 GB. avail mem=2.80 GB."),
        ("Capture target verify CUDA graph begin. backend=full, num_tokens_per_bs=4, avail mem=4.00 GB",
         "Capture draft decode CUDA graph begin. backend=full, avail mem=3.00 GB",
         "Capture draft decode CUDA graph end. bs=[1, 2], elapsed=3.50 s, mem usage=0.20 GB, avail mem=2.80 GB."),
    ],
    ids=["0.4.6 to 0.5.12", "0.5.14 on"],
)  # fmt: skip
def test_sglangs_graphs_of_target_and_drafter(capture: str, draft: str, end: str) -> None:
    s = read(
        sglang(
            ("10:00:00", "", "server_args=ServerArgs(model_path='/m/k25', port=30000, tp_size=2, speculative_algorithm='EAGLE3',"
             " speculative_draft_model_path='/d', speculative_num_steps=3)"),
            ("10:00:08", " TP0", "Init torch distributed begin."),
            ("10:00:09", " TP1", "Init torch distributed begin."),
            ("10:00:10", " TP0", "Init torch distributed ends. elapsed=2.00 s, mem usage=1.00 GB"),
            ("10:00:11", " TP0", "Load weight begin. avail mem=94.00 GB"),
            ("", "", "Multi-thread loading shards:  50% Completed | 32/64 [00:10<00:10,  3.20it/s]"),
            ("10:01:00", " TP0", "Load weight end. elapsed=49.00 s, type=KimiK25ForConditionalGeneration, dtype=torch.bfloat16,"
             " avail mem=20.00 GB, mem usage=74.00 GB."),
            ("10:01:01", " TP0", "Load weight begin. avail mem=20.00 GB"),
            ("10:01:03", " TP0", "Load weight end. elapsed=2.00 s, type=Eagle3DeepseekV2ForCausalLM, avail mem=18.00 GB, mem usage=2.00 GB."),
            ("10:01:04", " TP0", "Memory pool end. avail mem=4.00 GB"),
            ("10:01:05", " TP0", capture),
            ("10:01:25", " TP0", draft),
            ("10:01:29", " TP0", end),
            ("10:01:30", " TP0", "max_total_num_tokens=250000, chunked_prefill_size=8192, max_prefill_tokens=16384,"
             " max_running_requests=48, context_len=262144"),
            ("10:01:31", "", "INFO:     Application startup complete."),
            ("10:01:35", "", "The server is fired up and ready to roll!"),
        )
    )  # fmt: skip
    assert (s.outcome, s.ready_seconds, s.facts["ranks"]) == ("ready", 95, 2)
    assert [p for p in seen(s) if p[0] in ("weights", "capture")] == [
        ("weights", "target"), ("weights", "drafter"), ("capture", "target"), ("capture", "drafter"),
    ]  # fmt: skip
    durations = {(p.id, p.role): p.seconds for p in s.phases}
    assert (durations["weights", "target"], durations["weights", "drafter"], durations["capture", "target"]) == (49, 2, 20)
    f = s.facts
    assert (f["target_class"], f["drafter_class"]) == ("KimiK25ForConditionalGeneration", "Eagle3DeepseekV2ForCausalLM")
    assert (f["weights_seconds"], f["drafter_weights_seconds"], f["kv_tokens"], f["max_model_len"]) == (49, 2, 250000, 262144)
    assert f["capture_seconds"] == 3.5


def test_sglangs_stamps_with_milliseconds_and_more_ranks() -> None:
    s = read(
        "[2026-03-01 10:00:00.100] server_args={'model_path': '/m', 'port': 30000, 'tp_size': 8, 'dp_size': 2}\n"
        "[2026-03-01 10:00:05.250 DP0 TP3 EP3] Init parallel begin.\n"
        "[2026-03-01 10:00:05.350 DP1 TP4 EP4] Init parallel begin.\n"
        "[2026-03-01 10:00:09.100 DP0 TP0 EP0] Load weight begin. avail mem=94.00 GB\n"
    )
    assert (s.phase, s.facts["ranks"], s.last_time) == ("weights", 2, 9)
    assert [round(p.start, 2) for p in s.phases] == [0, 0, 5.15, 9]
