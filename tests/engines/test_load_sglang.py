"""Expected values were read off the recorded logs by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from eagletui.engines.events import Summary
from eagletui.engines.reader import LogReader, read_log


def summary(path: Path) -> Summary:
    return read_log([path.read_bytes()])


def test_sglang_0523_with_a_drafter(data: Path) -> None:
    s = summary(data / "sglang-0.5.23/eagle3.log")
    assert (s.engine, s.engine_version, s.outcome, s.failure) == ("sglang", None, "stopped", None)
    assert (s.model, s.drafter, s.ready_seconds) == ("/srv/lab/smollm2", "/srv/sgl/eagle3", 15)
    # first stamp 16:19:09, arguments :11, parallel :17, load :18, drafter :20, sizes :21, ready :24, SIGTERM :42
    assert [(p.id, p.role, p.start, p.seconds) for p in s.phases] == [
        ("spawn", None, 0, 2),
        ("config", None, 2, 6),
        ("workers", None, 8, 1),
        ("weights", "target", 9, 1),
        ("process", "target", 10, 1),
        ("weights", "drafter", 11, 0),
        ("process", "drafter", 11, 0),
        ("kv", None, 11, 1),
        ("finish", None, 12, 0),
        ("warmup", None, 12, 3),
        ("ready", None, 15, 18),
    ]
    f = s.facts
    assert (f["k"], f["topk"], f["method"], f["tp"], f["port"], f["host"]) == (3, 1, "EAGLE3", 1, 30000, "127.0.0.1")
    assert (f["target_class"], f["drafter_class"]) == ("LlamaForCausalLM", "LlamaForCausalLMEagle3")
    assert (f["kv_tokens"], f["max_model_len"], f["max_running"]) == (8192, 8192, 8)
    assert (f["weights_seconds"], f["drafter_weights_seconds"], f["load_gb"], f["drafter_load_gb"]) == (0.14, 0.04, 0.22, 0.05)
    assert (f["load_seconds"], f["kv_seconds"], f["init_seconds"]) == (0.18, 0.81, 3.84)


def test_decode_lines_in_the_common_definition(data: Path) -> None:
    events = LogReader().feed((data / "sglang-0.5.23/eagle3.log").read_bytes())
    first = next(e for e in events if e.kind == "stats")
    # Decode batch, #running-req: 1, #token: 55, token usage: 0.01, accept len: 1.20, accept rate: 0.07, ... 8.04, #queue-req: 0
    assert first.value == {"running": 1, "waiting": 0, "kv": 0.01, "generated_per_s": 8.04, "length": 1.2, "rate": 0.066667}


@pytest.mark.parametrize(
    ("line", "length", "tokens", "queue"),
    [
        (b"Decode batch. #running-req: 3, #token: 120, token usage: 0.02, accept len: 2.45, cuda graph: True, "
         b"gen throughput (token/s): 61.20, #queue-req: 4", 2.45, 61.2, 4),
        (b"Decode batch [40], #running-req: 3, #token: 120, token usage: 0.02, accept len: 2.45, accept rate: 0.61, "
         b"cuda graph: True, gen throughput (token/s): 61.20, #queue-req: 4, ", 2.45, 61.2, 4),
        (b"Decode batch, #running-req: 3, #full token: 120, full token usage: 0.02, cuda graph: True, "
         b"gen throughput (token/s): 61.20, #queue-req: 4", None, 61.2, 4),
    ],
)  # fmt: skip
def test_decode_lines_of_older_versions(line: bytes, length: float | None, tokens: float, queue: int) -> None:
    s = read_log([b"[2026-01-01 00:00:00 TP0] " + line + b"\n"])
    assert s.stats is not None
    assert (s.stats.get("length"), s.stats["generated_per_s"], s.stats["waiting"], s.stats["kv"]) == (length, tokens, queue, 0.02)


@pytest.mark.parametrize(("name", "ready"), [("plain", 12), ("sigint", 12)])
def test_healthy_logs_have_no_failure(data: Path, name: str, ready: float) -> None:
    s = summary(data / f"sglang-0.5.23/{name}.log")
    assert (s.engine, s.outcome, s.ready_seconds, s.failure, s.drafter) == ("sglang", "stopped", ready, None, None)


BAD = {
    "bad_draft_path": (17, "huggingface_hub.errors.HFValidationError: Repo id must be in the form", None),
    "eagle3_on_torch_native_refused": (82, "ValueError: EAGLE is not supported in decode attention backend torch_native", "kv"),
    "port_busy_other_server": (
        58,
        "ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 30000)",
        "warmup",
    ),
}


@pytest.mark.parametrize("name", sorted(BAD))
def test_first_root_error(data: Path, name: str) -> None:
    line, text, phase = BAD[name]
    s = summary(data / f"sglang-0.5.23/{name}.log")
    assert (s.engine, s.outcome, s.ready_seconds) == ("sglang", "failed", None)
    assert s.failure is not None
    assert s.failure.text.startswith(text)
    assert (s.failure.line, s.failure.phase) == (line, phase)


OLD = [
    "[2025-11-01 10:00:00] server_args=ServerArgs(model_path='/m/kimi', host='0.0.0.0', port=30001, tp_size=2, "
    "context_length=4096, speculative_algorithm='EAGLE3', speculative_draft_model_path='/d/k25', speculative_num_steps=3, "
    "speculative_eagle_topk=1, speculative_num_draft_tokens=4)",
    "[2025-11-01 10:00:05 TP1] Init torch distributed begin.",
    "[2025-11-01 10:00:06 TP0] Init torch distributed begin.",
    "[2025-11-01 10:00:08 TP0] sglang is using nccl==2.27.3",
    "[2025-11-01 10:00:10 TP0] Load weight begin. avail mem=94.00 GB",
    "[2025-11-01 10:00:11 TP1] Load weight begin. avail mem=94.00 GB",
    "\rLoading safetensors checkpoint shards:   0% Completed | 0/64 [00:00<?, ?it/s]",
    "\rLoading safetensors checkpoint shards:  50% Completed | 32/64 [00:10<00:10,  3.20it/s]",
    "\rLoading safetensors checkpoint shards: 100% Completed | 64/64 [00:20<00:00,  3.20it/s]",
    "[2025-11-01 10:00:40 TP0] Load weight end. type=KimiK25ForConditionalGeneration, avail mem=20.00 GB, mem usage=74.00 GB.",
    "[2025-11-01 10:00:41 TP1] Load weight end. type=KimiK25ForConditionalGeneration, avail mem=20.00 GB, mem usage=74.00 GB.",
    "[2025-11-01 10:00:42 TP0] KV Cache is allocated. #tokens: 250000, KV size: 15.00 GB",
    "[2025-11-01 10:00:42 TP0] Memory pool end. avail mem=4.00 GB",
    "[2025-11-01 10:00:43 TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=4.00 GB",
    "\rCapturing batches (bs=8 avail_mem=3.90 GB):  50%|#####     | 1/2 [00:01<00:01,  1.00s/it]",
    "\rCapturing batches (bs=1 avail_mem=3.80 GB): 100%|##########| 2/2 [00:02<00:00,  1.00s/it]",
    "[2025-11-01 10:00:50 TP0] Capture cuda graph end. Time elapsed: 7.10 s. mem usage=0.20 GB. avail mem=3.80 GB.",
    "[2025-11-01 10:00:51 TP0] Load weight begin. avail mem=3.80 GB",
    "\rLoading safetensors checkpoint shards: 100% Completed | 1/1 [00:00<00:00,  5.00it/s]",
    "[2025-11-01 10:00:53 TP0] Load weight end. type=LlamaForCausalLMEagle3, avail mem=2.00 GB, mem usage=1.80 GB.",
    "[2025-11-01 10:00:54 TP0] KV Cache is allocated. #tokens: 250000, KV size: 0.50 GB",
    "[2025-11-01 10:00:55 TP0] Capture draft cuda graph begin. This can take up to several minutes. avail mem=2.00 GB",
    "[2025-11-01 10:00:57 TP0] Capture draft cuda graph end. Time elapsed: 2.00 s. mem usage=0.20 GB. avail mem=1.80 GB.",
    "[2025-11-01 10:01:00 TP0] max_total_num_tokens=250000, chunked_prefill_size=8192, max_running_requests=48, context_len=4096",
    "[2025-11-01 10:01:01] INFO:     Started server process [5]",
    "[2025-11-01 10:01:01] INFO:     Application startup complete.",
    "[2025-11-01 10:01:05] The server is fired up and ready to roll!",
    "",
]


def test_the_order_of_older_versions_drafter_after_the_targets_graphs() -> None:
    s = read_log(["\n".join(OLD).encode()])
    assert [(p.id, p.role, p.seconds) for p in s.phases] == [
        ("spawn", None, 0),
        ("config", None, 5),
        ("workers", None, 5),
        ("weights", "target", 30),
        ("process", "target", 2),
        ("kv", None, 1),
        ("capture", "target", 8),
        ("weights", "drafter", 2),
        ("process", "drafter", 2),
        ("capture", "drafter", 5),
        ("finish", None, 1),
        ("warmup", None, 4),
        ("ready", None, None),
    ]
    assert (s.model, s.drafter, s.facts["tp"], s.facts["port"]) == ("/m/kimi", "/d/k25", 2, 30001)
    assert (s.facts["ranks"], s.facts["nccl"]) == (2, "2.27.3")
    weights = [(p.role, p.done, p.total) for p in s.phases if p.id == "weights"]
    assert weights == [("target", 64, 64), ("drafter", 1, 1)]
    assert (s.facts["capture_seconds"], s.facts["kv_tokens"]) == (9.1, 250000)


def test_application_startup_is_not_ready_for_sglang() -> None:
    s = read_log(["\n".join(OLD[:-2]).encode() + b"\n"])
    assert (s.outcome, s.phase) == ("loading", "warmup")


def test_a_load_that_hangs_after_the_last_shard_is_still_a_load() -> None:
    s = read_log(["\n".join(OLD[:9]).encode()])
    assert (s.outcome, s.phase, s.phases[-1].done, s.phases[-1].total) == ("loading", "weights", 64, 64)


def test_the_tick_without_a_line_end_is_seen_while_it_is_shown() -> None:
    reader = LogReader()
    reader.feed("\n".join(OLD[:7]).encode() + b"\n")
    reader.feed(b"\rLoading safetensors checkpoint shards:  50% Completed | 32/64 [00:10<00:10,  3.20it/s]")
    tick = reader.pending_progress()
    assert tick is not None
    assert (tick.done, tick.total, tick.value["left"]) == (32, 64, 10)
    assert reader.summary().phases[-1].done == 32
    reader.feed(b"\r")
    assert reader.pending_progress() is None
    assert reader.summary().phases[-1].done == 32


def test_eight_ranks_dying_are_one_failure_with_the_first_cause() -> None:
    lines = list(OLD[:9])
    for rank in (3, 0, 1):
        lines += [
            f"[2025-11-01 10:00:30 TP{rank}] Scheduler hit an exception: Traceback (most recent call last):",
            '  File "/x/sglang/srt/managers/scheduler.py", line 1, in run_scheduler_process',
            "    scheduler = Scheduler()",
            '  File "/x/sglang/srt/models/kimi.py", line 9, in load_weights',
            f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU {rank} has a total capacity of 95 GiB",
            "",
        ]
    lines += ["[2025-11-01 10:00:31] Received sigquit from a child process. It usually means the child failed.", "Killed", ""]
    s = read_log(["\n".join(lines).encode()])
    assert s.outcome == "failed"
    assert s.failure is not None
    assert "GPU 3 has" in s.failure.text
    assert (s.failure.phase, s.failure.role) == ("weights", "target")
