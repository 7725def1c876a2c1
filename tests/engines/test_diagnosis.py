"""Whole logs: a healthy one has no cause, a failed one its own; and how causes are ranked."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eagletui.engines.diagnosis.judge import End
from eagletui.engines.diagnosis.report import diagnosis_json
from eagletui.engines.reader import LogReader
from tests.engines.test_catalogue import TRACE, VLLM_HEAD

DATA = Path(__file__).parent.parent / "data" / "engines"
LOGS = sorted(DATA.glob("*/*.log"))
CAUSES = {
    "bad_flag": "unknown-argument",
    "bad_path": "path-missing",
    "bad_vocab_drafter": "drafter-shape",
    "corrupt_shard": "shard-corrupt",
    "bad_drafter_path": "path-missing",
    "drafter_incomplete": "speculators-config",
    "drafter_no_type": "config-no-type",
    "spec_method": "spec-method-unknown",
    "spec_some": "sglang-spec-partial-assert",
    "spec_tokens": "sglang-spec-tokens",
    "quantization": "quantization-config",
    "shard_missing": "shards-missing",
    "port_taken": "port-taken",
    "bad_draft_path": "path-missing",
    "eagle3_on_torch_native_refused": "sglang-draft-backend",
    "port_busy_other_server": "port-taken",
    "command_missing": "command-missing",
    "core_vanished": "core-vanished",
    "disk_full": "disk-full",
    "killed": "process-killed",
    "module_missing": "module-missing",
    "numa_header": "build-numa",
    "segfault": "core-segfault",
    "too_many_files": "too-many-files",
}
"""Of the recorded logs those that failed, by name; every other one is healthy."""


def diagnose(raw: bytes, end: End | None = None) -> tuple:
    reader = LogReader()
    reader.feed(raw)
    reader.finish()
    outcome, causes = reader.diagnosis(end)
    json.dumps(diagnosis_json(reader.engine, outcome, causes), allow_nan=False)
    return outcome, causes


@pytest.mark.parametrize("path", LOGS, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_recorded_logs(path: Path) -> None:
    raw = path.read_bytes()
    outcome, causes = diagnose(raw)
    name = CAUSES.get(path.stem)
    if name is None:
        assert outcome != "failed"
        assert causes == ()
        return
    assert outcome == "failed"
    assert causes[0].id == name, causes
    assert causes[0].confidence >= 0.5
    lines = raw.split(b"\n")
    for cause in causes:
        for place in cause.evidence:
            line = lines[place.line - 1].decode()
            # of an exception's text several lines are one piece of evidence
            assert place.text[:300] in line or (line.strip() and place.text.startswith(line.strip()))
            assert raw[place.offset :].split(b"\n")[0].decode() in lines[place.line - 1].decode()


@pytest.mark.parametrize("path", [p for p in LOGS if p.stem in CAUSES], ids=lambda p: p.stem)
def test_the_cause_is_told_while_the_log_grows_and_the_same_in_any_pieces(path: Path) -> None:
    raw = path.read_bytes()
    alerts = []
    for size in (len(raw), 8192, 61):
        reader = LogReader()
        events = [e for at in range(0, len(raw), size) for e in reader.feed(raw[at : at + size])] + reader.finish()
        alerts.append([(e.name, e.offset) for e in events if e.kind == "alert"])
    assert alerts[0] == alerts[1] == alerts[2]
    assert alerts[0][0][0] == CAUSES[path.stem]


def test_an_engine_that_ends_itself_by_signal_9_was_not_killed_from_outside() -> None:
    raw = (DATA / "sglang-0.5.23" / "spec_tokens.log").read_bytes()
    end = End(-9, False, True, False)
    assert diagnose(raw, end)[1][0].id == "sglang-spec-tokens"
    unknown = diagnose(raw.replace(b"selected index k out of range", b"something new"), end)[1]
    assert [cause.id for cause in unknown[:2]] == ["unknown", "killed-9"]
    assert "something new" in unknown[0].title
    assert diagnose(raw[:2000], end)[1][0].id == "killed-9", "a log without an error"


HEALTHY = [p for p in LOGS if p.stem not in CAUSES]


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_healthy_log_cut_anywhere_raises_no_alarm(data: st.DataObject) -> None:
    raw = data.draw(st.sampled_from(HEALTHY)).read_bytes()
    cut = data.draw(st.integers(0, len(raw)))
    assert diagnose(raw[:cut])[1] == ()


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_garbage_between_the_lines_never_raises(data: st.DataObject) -> None:
    lines = data.draw(st.sampled_from(LOGS)).read_bytes().splitlines(keepends=True)
    junk = data.draw(st.lists(st.binary(max_size=60), min_size=1, max_size=5))
    step = data.draw(st.integers(1, 9))
    mixed = b"".join(line + (junk[i % len(junk)] if i % step == 0 else b"") for i, line in enumerate(lines))
    diagnose(mixed)


def log(*lines: str) -> bytes:
    return (VLLM_HEAD + "\n".join(lines) + "\n").encode()


BENIGN = [
    "WARNING 11-29 10:00:00 [a.py:1] Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs.",
    "WARNING 11-29 10:00:00 [a.py:1] SymmMemCommunicator: Device capability 12.0 not supported, communicator is not available.",
    "INFO 11-29 10:00:00 [a.py:1] No available shared memory broadcast block found in 60 seconds. This typically happens when",
    "WARNING 11-29 10:00:00 [a.py:1] Using default MoE config. Performance might be sub-optimal! Config file not found at ['/x']",
    "WARNING 11-29 10:00:00 [a.py:1] Unknown vLLM environment variable detected: VLLM_X",
    "WARNING 11-29 10:00:00 [a.py:1] Checkpoint does not provide a q scaling factor.",
    "WARNING 11-29 10:00:00 [a.py:1] Flashinfer allreduce fusion is not supported for world size 8 or max size is not provided",
    "/a/b.py:9: FutureWarning: The pynvml package is deprecated. Please install nvidia-ml-py instead.",
    "WARNING 11-29 10:00:00 [a.py:1] Reducing Torch parallelism from 64 threads to 1",
    "WARNING 11-29 10:00:00 [a.py:1] Triton JIT compilations during inference",
    "WARNING 11-29 10:00:00 [a.py:1] The following generation flags are not valid and may be ignored: ['top_k']",
    "WARNING 11-29 10:00:00 [a.py:1] Found ulimit of 1024 and failed to automatically increase with error [Errno 1]",
    'INFO:     127.0.0.1:5000 - "GET /v1/models HTTP/1.1" 401 Unauthorized',
    'INFO:     127.0.0.1:5000 - "GET /nothing HTTP/1.1" 404 Not Found',
    "gpu1:423:1200 [3] NCCL INFO Could not find: libnccl-net.so. Using internal network plugin. Failed to load",
    "bash: warning: setlocale: LC_ALL: cannot change locale (en_US.UTF-8): No such file or directory",
    "[2026-11-29 16:19:18] Port 30001 is already in use, trying port 30002",
    "[2026-11-29 16:19:18] Ignore import error when loading sglang.srt.models.x: No module named 'torchaudio'",
    "[2026-11-29 16:19:18 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_token_ratio: 0.7 -> 1.0",
]


@pytest.mark.parametrize("line", BENIGN)
def test_what_looks_like_a_failure_and_is_none(line: str) -> None:
    assert diagnose(log(*[line] * 3))[1] == ()
    assert diagnose(log(line, "INFO:     Application startup complete.", line)) == ("ready", ())


def test_a_scripts_complaint_before_the_engine_begins_is_none() -> None:
    raw = b"bash: /etc/extra: No such file or directory\n/opt/run.sh: line 3: module: command not found\n" + log("x")
    assert diagnose(raw)[1] == ()


def test_what_a_line_before_the_wrapper_says_ranks_above_it() -> None:
    outcome, causes = diagnose(
        log(
            "gpu1:9:9 [3] misc/shmutils.cc:87 NCCL WARN Error: failed to extend /dev/shm/nccl-X to 9 bytes, error: No space left"
            " on device (28)",
            TRACE + "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
        )
    )
    assert (outcome, causes[0].id) == ("failed", "shm-full")


def test_of_eight_ranks_the_first_error_counts() -> None:
    def rank(n: int, text: str) -> list[str]:
        head = f"(Worker_TP{n} pid={n}) ERROR 11-29 10:00:0{n} [w.py:1] "
        return [head + line for line in ("WorkerProc failed to start.\n" + TRACE + text).split("\n")]

    lines = rank(3, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
    for n in (0, 1, 2):
        lines += rank(n, "RuntimeError: [/pytorch/gloo/pair.cc:534] Connection closed by peer [10.0.0.1]:3")
    start = "(Worker_TP3 pid=3) INFO 11-29 10:00:00 [m.py:1] Starting to load model x..."
    outcome, causes = diagnose(log(start, *lines))
    assert (outcome, causes[0].id) == ("failed", "oom-weights")
    assert "Worker_TP3" not in causes[0].evidence[0].text


def test_of_a_chain_a_later_link_may_be_the_known_one() -> None:
    inner = TRACE.replace("<module>", "inner")
    _, causes = diagnose(
        log(
            inner + "KeyError: 'x_model'",
            "",
            "During handling of the above exception, another exception occurred:",
            "",
            TRACE
            + "ValueError: The checkpoint you are trying to load has model type `x_model` but Transformers does not recognize"
            " this architecture.",
        )
    )
    assert causes[0].id == "model-type-unknown"


def test_an_unknown_error_is_told_as_such_with_its_place() -> None:
    outcome, causes = diagnose(log(TRACE + "FrobnicationError: the frobs are out of order"))
    assert (outcome, causes[0].id) == ("failed", "unknown")
    assert causes[0].evidence[0].text == "FrobnicationError: the frobs are out of order"
    assert "line 5" in causes[0].remedy


def test_a_core_that_had_an_error_of_its_own_has_not_vanished() -> None:
    raw = (DATA / "vllm-0.26" / "core_vanished.log").read_bytes()
    warning = raw.index(b"\n", raw.index(b"Parent process exited")) + 1
    own = TRACE.replace("APIServer", "EngineCore") + "FrobnicationError: the frobs are out of order\n"
    _, causes = diagnose(raw[:warning] + own.encode() + raw[warning:])
    assert causes[0].id == "unknown"
    assert causes[0].evidence[0].text == "FrobnicationError: the frobs are out of order"
    assert "core-vanished" not in [cause.id for cause in causes]


@pytest.mark.parametrize(
    ("end", "outcome", "cause"),
    [
        (End(-9, oom=True, ended=True), "failed", "oom-killed"),
        (End(137, ended=True), "failed", "killed-9"),
        (End(-11, ended=True), "failed", "segfault"),
        (End(127, ended=True), "failed", "command-not-found"),
        (End(1, ended=True), "failed", "unknown"),
        (End(-15, ended=True, asked=True), "loading", None),
        (End(0, ended=True), "loading", None),
        (End(), "loading", None),
    ],
)
def test_how_the_process_ended_counts(end: End, outcome: str, cause: str | None) -> None:
    told, causes = diagnose(log("x"), end)
    assert told == outcome
    assert (causes[0].id if causes else None) == cause


def test_a_kill_for_memory_outranks_the_wrapper_and_not_a_clear_error() -> None:
    wrapper = log(TRACE + "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}")
    assert diagnose(wrapper, End(-9, oom=True, ended=True))[1][0].id == "oom-killed"
    clear = log(TRACE + "OSError: [Errno 98] Address already in use")
    assert diagnose(clear, End(1, ended=True))[1][0].id == "port-taken"


def test_a_rank_that_does_not_answer_for_minutes_is_suspected() -> None:
    notice = "(EngineCore pid=5) INFO 11-29 10:0{}:00 [s.py:1] No available shared memory broadcast block found in 60 seconds."
    few, many = ([notice.format(n) for n in range(count)] for count in (3, 6))
    assert diagnose(log(*few))[1] == ()
    outcome, causes = diagnose(log(*many))
    assert (outcome, causes[0].id) == ("loading", "rank-silent")
    worked = "(Worker_TP0 pid=9) INFO 11-29 10:06:00 [m.py:1] Model loading took 56.62 GiB memory and 111.1 seconds"
    assert diagnose(log(*many, worked))[1] == ()


def test_processes_that_end_with_the_server_have_not_failed() -> None:
    died = "(EngineCore pid=5) ERROR 11-29 10:00:00 [m.py:1] Worker proc VllmWorker-1 died unexpectedly, shutting down executor."
    stop = "(APIServer pid=1) INFO 11-29 10:00:00 [launcher.py:1] Shutting down FastAPI HTTP server."
    assert diagnose(log(died, stop)) == ("stopped", ())
    assert (
        diagnose(log(died, "(EngineCore pid=5) ERROR 11-29 10:00:00 [m.py:1] EngineCore encountered a fatal error.", stop))[0]
        == "failed"
    )


FIELD = os.environ.get("EAGLETUI_FIELD_LOGS")


@pytest.mark.skipif(not FIELD, reason="EAGLETUI_FIELD_LOGS names no directory of logs from large hosts")
def test_logs_of_large_hosts_raise_no_alarm() -> None:
    paths = sorted(Path(FIELD or "").glob("*.log"))
    assert paths
    for path in paths:
        assert diagnose(path.read_bytes()) == ("ready", ()), path
