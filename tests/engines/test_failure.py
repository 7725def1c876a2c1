from __future__ import annotations

from pathlib import Path

import pytest

from eagletui.engines.reader import LogReader, read_log

HEAD = b"(APIServer pid=1) INFO 11-29 10:00:00 [api_utils.py:1]  x  version 0.20.0\n".replace(
    b" x ", " \N{LOWER HALF BLOCK} ".encode()
)
TRACE = b"""Traceback (most recent call last):
  File "/srv/bin/vllm", line 6, in <module>
    sys.exit(main())
  File "/srv/vllm/config.py", line 9, in check
    raise ValueError
"""


CORE = b"(EngineCore pid=5) ERROR 11-29 10:09:00 [core.py:1] "


def logged(text: bytes) -> bytes:
    """The text as the logger writes it: a header before each line."""
    return b"".join(CORE + line for line in text.splitlines(keepends=True))


def failure_text(log: bytes) -> str | None:
    failure = read_log([HEAD + log]).failure
    return None if failure is None else failure.text


def test_an_uncaught_exception_ends_the_launch() -> None:
    assert failure_text(TRACE + b"ValueError: no such thing\n") == "ValueError: no such thing"


def test_a_prefixed_traceback_between_lines_of_other_processes() -> None:
    lines = (TRACE + b"KeyError: 'Eagle3DeepseekV2ForCausalLM'\n").splitlines(keepends=True)
    mixed = b"".join(
        b"(EngineCore pid=5) " + line + b"(Worker_TP1 pid=9) INFO 11-29 10:00:01 [a.py:1] still here\n" for line in lines
    )
    assert failure_text(mixed) == "KeyError: 'Eagle3DeepseekV2ForCausalLM'"


def test_pydantics_second_line_belongs_to_the_error() -> None:
    log = TRACE + (
        b"pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig\n"
        b"  Value error, Unsupported speculative method: 'eagle4' [type=value_error]\n"
        b"    For further information visit https://errors.pydantic.dev\n"
    )
    assert "Unsupported speculative method: 'eagle4'" in (failure_text(log) or "")


def test_a_chain_gives_the_first_cause() -> None:
    first = TRACE.replace(b"<module>", b"open_it") + b"OSError: the cause\n"
    chain = (
        first
        + b"\nThe above exception was the direct cause of the following exception:\n\n"
        + TRACE
        + b"RuntimeError: the consequence\n"
    )
    assert failure_text(chain) == "OSError: the cause"


def test_torchs_rank_prefix() -> None:
    log = b"".join(b"[rank2]: " + line for line in (TRACE + b"ValueError: on rank 2\n").splitlines(keepends=True))
    failure = read_log([HEAD + log]).failure
    assert failure is not None
    assert (failure.text, failure.process) == ("ValueError: on rank 2", "rank2")


@pytest.mark.parametrize(
    "line",
    [
        b"Killed",
        b"vllm serve: error: argument --tensor-parallel-size: invalid int value: 'x'",
        b"Fatal Python error: Segmentation fault",
        b"launch_server.py: error: unrecognized arguments: --x",
    ],
)
def test_one_line_ends(line: bytes) -> None:
    assert failure_text(line + b"\n") == line.decode()


@pytest.mark.parametrize(
    "log",
    [
        b"Exception in thread Thread-3 (_report_usage):\n"
        + TRACE.replace(b"<module>", b"_bootstrap_inner")
        + b"OSError: offline\n",
        b"Exception ignored in: <function X.__del__ at 0x7f>\n" + TRACE.replace(b"<module>", b"__del__") + b"TypeError: gone\n",
        TRACE.replace(b"<module>", b"probe") + b"ImportError: optional\n",
        logged(b"JIT kernel warmup failed after 2.00s.\n" + TRACE + b"RuntimeError: no kernel\n"),
        b"(APIServer pid=1) WARNING 11-29 10:00:01 [a.py:1] Failed to import: EngineDeadError\n",
    ],
)
def test_what_the_engine_survives_is_no_failure(log: bytes) -> None:
    assert failure_text(log) is None


def test_a_request_that_fails_after_ready_is_no_failure_of_the_server() -> None:
    s = read_log(
        [
            HEAD
            + b"INFO:     Application startup complete.\nERROR:    Exception in ASGI application\n"
            + TRACE
            + b"ValueError: bad request\n"
        ]
    )
    assert (s.outcome, s.failure) == ("ready", None)


def test_an_engine_that_dies_while_serving_is_a_failure() -> None:
    s = read_log(
        [
            HEAD
            + b"INFO:     Application startup complete.\n"
            + logged(b"EngineCore encountered a fatal error.\n" + TRACE.replace(b"<module>", b"run_engine_core"))
            + logged(b"torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n")
            + logged(b"vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.\n")
        ]
    )
    assert (s.outcome, s.ready_seconds) == ("failed", 0)
    assert s.failure is not None
    assert s.failure.text.startswith("torch.AcceleratorError: CUDA error")
    assert s.failure.phase == "ready"


def test_a_signal_while_loading_is_a_stop() -> None:
    s = read_log([HEAD + TRACE + b"KeyboardInterrupt: terminated\n"])
    assert (s.outcome, s.failure) == ("stopped", None)


def test_wrappers_alone_are_told_at_the_end() -> None:
    reader = LogReader()
    log = HEAD + TRACE + b"RuntimeError: Engine core initialization failed. See root cause above. {'EngineCore': -9}\n"
    events = reader.feed(log)
    assert [e.kind for e in events if e.kind == "failure"] == []
    assert reader.outcome == "failed"
    (told,) = [e for e in reader.finish() if e.kind == "failure"]
    assert "{'EngineCore': -9}" in told.text


def test_a_server_that_says_ready_on_a_port_of_another_has_failed() -> None:
    log = (
        b"[2026-01-01 00:00:00] server_args={'model_path': '/m', 'port': 30000}\n"
        b"[2026-01-01 00:00:01] ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 30000): in use\n"
        b"[2026-01-01 00:00:02] The server is fired up and ready to roll!\n"
    )
    assert read_log([log]).outcome == "failed"


def test_cut_logs_never_raise_and_never_fail_a_healthy_load(data: Path) -> None:
    for path in (data / "vllm-0.26/eagle_first_start.log", data / "sglang-0.5.23/eagle3.log"):
        raw = path.read_bytes()
        for cut in range(0, len(raw), 777):
            assert read_log([raw[:cut]]).failure is None
            assert read_log([raw[cut:]]).failure is None
