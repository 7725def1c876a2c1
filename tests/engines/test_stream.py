from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eagletui.engines.noise import is_noise
from eagletui.engines.stream import LINE_CAP, LineSplitter, RecordReader, clean, severity_of, split_header


def records(data: bytes, cuts: list[int] | None = None) -> list[tuple]:
    reader = RecordReader()
    out = []
    edges = sorted({0, len(data), *(c % (len(data) + 1) for c in cuts or [])})
    for low, high in pairwise(edges):
        out += reader.feed(data[low:high])
    return [tuple(r) for r in out + reader.finish()]


def test_carriage_return_and_newline_both_end_a_line_and_offsets_are_of_the_bytes() -> None:
    assert LineSplitter(100).feed(b"\rone\r\ntwo\n\n\rthree\r") == [(101, b"one", 0), (106, b"two", 0), (112, b"three", 0)]


def test_headers_of_every_form() -> None:
    assert split_header(b"(Worker_TP3 pid=7) INFO 05-15 03:15:46 [pynccl.py:113] x")[:3] == (
        b"Worker_TP3",
        b"INFO",
        b"05-15 03:15:46",
    )
    assert split_header(b"(VllmWorker rank=2 pid=7) ERROR 04-01 03:15:46 [a.py:1] x")[:2] == (b"VllmWorker rank=2", b"ERROR")
    assert split_header(b"INFO 04-01 03:15:46 config.py:12] x")[1:] == (b"INFO", b"04-01 03:15:46", 34)
    assert split_header(b"[2026-11-29 16:19:18 DP0 TP3] x")[:3] == (b"DP0 TP3", None, b"2026-11-29 16:19:18")
    assert split_header(b"[2026-11-29 16:19:18.123] x")[:3] == (None, None, b"2026-11-29 16:19:18.123")
    assert split_header(b"Loading weights") == (None, None, None, 0)
    assert split_header(b"INFO:     127.0.0.1:50928 - x") == (None, None, None, 0)


def test_the_message_of_a_record() -> None:
    got = records(b"(Worker pid=1) (Worker_TP5 pid=9) WARNING 05-15 03:15:47 [symm_mem.py:66] SymmMem\nbare text\n")
    assert [(r[1], r[2], r[3], r[5]) for r in got] == [("Worker_TP5", 5, "warning", "SymmMem"), (None, None, "info", "bare text")]


def test_a_bar_glued_to_a_record_becomes_two_records_with_their_own_offsets() -> None:
    line = (
        b"Capturing CUDA graphs: 40%|####      | 4/10 [00:01<00:02, 3it/s](Worker_TP1 pid=3) INFO 05-15 03:15:47 [a.py:1] done\n"
    )
    got = records(line)
    assert [(r[0], r[1], r[5][:9]) for r in got] == [(0, None, "Capturing"), (line.index(b"(Worker"), "Worker_TP1", "done")]
    text = b"See https://x/refleaks.html[2026-11-29 16:09:18] kill_process_tree called\n"
    assert [r[5] for r in records(text)] == ["See https://x/refleaks.html", "kill_process_tree called"]


def test_a_header_quoted_inside_a_message_does_not_split_it() -> None:
    got = records(b"[2026-11-29 16:09:18 TP0] said: (Worker_TP1 pid=3) INFO 05-15 03:15:47 [a.py:1] done\n")
    assert len(got) == 1


def test_torchs_rank_prefix_is_a_process() -> None:
    assert records(b"[rank3]: ValueError: no\n")[0][1:4] == ("rank3", 3, "error")


def test_escapes_holes_and_invalid_utf8_do_not_stop_the_reader() -> None:
    assert clean(b"\x1b[1;36m(APIServer pid=1)\x1b[0;0m x\0\0") == b"(APIServer pid=1) x"
    got = records(b"\0\0\0\0\x1b[1;36m(APIServer pid=1)\x1b[0;0m INFO 05-15 03:15:47 [a.py:1] caf\xe9\n")
    assert (got[0][1], got[0][5]) == ("APIServer", "caf\N{REPLACEMENT CHARACTER}")


def test_a_line_of_twenty_megabytes_is_folded_and_the_rest_counted() -> None:
    splitter = LineSplitter()
    for _ in range(20):
        assert splitter.feed(b"x" * 1_000_000) == []
        assert len(splitter.pending) <= LINE_CAP
    ((offset, line, cut),) = splitter.feed(b"\n")
    assert (offset, len(line), cut) == (0, LINE_CAP, 20_000_000 - LINE_CAP)
    assert splitter.feed(b"y\n") == [(20_000_001, b"y", 0)]


FRAGMENTS = st.sampled_from(
    [
        b"(Worker_TP0 pid=420) ",
        b"INFO 05-15 03:15:47 [a.py:1] text",
        b"[2026-11-29 16:19:18 TP1] text",
        b"\r",
        b"\n",
        b"\r\n",
        b"\x1b[0m",
        b"Loading safetensors checkpoint shards:  20% Completed | 1/5 [00:01<00:04,  1.0it/s]",
        b"Traceback (most recent call last):",
        b'  File "x.py", line 1, in f',
        b"ValueError: bad",
        b"\xff\xfe\0",
        b"x" * 40000,
    ]
)


@given(st.lists(FRAGMENTS | st.binary(max_size=12), max_size=30).map(b"".join), st.lists(st.integers(0, 200000), max_size=8))
@settings(max_examples=150, deadline=None)
def test_any_chunking_gives_the_same_records(data: bytes, cuts: list[int]) -> None:
    whole = records(data)
    assert records(data, cuts) == whole
    if len(data) < 3000:
        assert records(data, list(range(len(data)))) == whole


def test_severity_of_lines_without_a_header() -> None:
    assert severity_of(None, b"RuntimeError: no") == "error"
    assert severity_of(None, b"vllm: error: unrecognized arguments: --x") == "error"
    assert severity_of(None, b"/a/b.py:3: FutureWarning: old") == "warning"
    assert severity_of(None, b"INFO:     Application startup complete.") == "info"
    assert severity_of(b"ERROR", b"anything") == "error"


@pytest.mark.parametrize(
    "line",
    [
        "/a/b.py:138: FutureWarning: `torch.distributed.reduce_op` is deprecated",
        "<frozen importlib._bootstrap>:241: DeprecationWarning: builtin type has no __module__",
        "SymmMemCommunicator: Device capability 12.0 not supported, communicator is not available.",
        "Route: /health, Methods: GET",
        ' - leaked type "ATOMIC_OP"',
        "Unknown vLLM environment variable detected: VLLM_CACHE_DIR",
        'INFO:     127.0.0.1:43270 - "GET /metrics HTTP/1.1" 200 OK',
        'INFO:     127.0.0.1:43270 - "GET /metrics HTTP/1.1" 404 Not Found',
        'INFO:     127.0.0.1:43270 - "GET /health HTTP/1.1" 503 Service Unavailable',
        "       █     █     █▄   ▄█",
        "   ▀▀  ▀▀▀▀▀ ▀▀▀▀▀ ▀     ▀",
    ],
)
def test_known_chatter_is_noise(line: str) -> None:
    assert is_noise(line)


@pytest.mark.parametrize(
    "line",
    [
        "Loading safetensors checkpoint shards:  20% Completed | 13/64 [04:02<15:49, 18.6s/it] FutureWarning",
        "Capturing CUDA graphs (FULL):   0%|          | 0/49 [00:00<?, ?it/s]",
        "ValueError: FutureWarning",
        "RuntimeError: frozen importlib",
        "torch.OutOfMemoryError: CUDA out of memory. UserWarning",
        "Load weight begin. avail mem=21.49 GB",
        " ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.26.0",
        "  █▄█▀ █     █     █     █  model   smollm2",
        'INFO:     127.0.0.1:43270 - "POST /v1/completions HTTP/1.1" 200 OK',
        'INFO:     127.0.0.1:43270 - "GET /metrics HTTP/1.1" 500 Internal Server Error',
    ],
)
def test_progress_and_errors_are_never_noise(line: str) -> None:
    assert not is_noise(line)


def test_of_the_logo_of_a_real_log_the_rows_with_facts_stay(data: Path) -> None:
    reader = RecordReader()
    found = reader.feed((data / "vllm-0.26" / "plain.log").read_bytes()) + reader.finish()
    rows = [record for record in found if ("█" in record.text and "%" not in record.text) or "▀▀" in record.text]
    assert [record.noise for record in rows] == [True, False, False, True]
    assert "version 0.26.0" in rows[1].text
    assert "model   smollm2" in rows[2].text
    asked = [record for record in found if "GET /metrics" in record.text]
    assert asked
    assert all(record.noise for record in asked)


def test_no_progress_line_and_no_error_of_a_real_log_is_noise(data: Path) -> None:
    seen = 0
    for path in sorted(data.glob("*/*.log")):
        reader = RecordReader()
        for record in reader.feed(path.read_bytes()) + reader.finish():
            if "it/s]" in record.text or "Traceback" in record.text or record.severity == "error":
                seen += 1
                assert not record.noise, record
    assert seen > 300
