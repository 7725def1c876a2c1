from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eagletui
from eagletui.engines.reader import LogClock, LogReader, phases_json, read_log
from eagletui.records import to_doc

DATA = Path(__file__).parent.parent / "data" / "engines"
LOGS = sorted(DATA.glob("*/*.log"))


def run(raw: bytes, cuts: list[int]) -> tuple:
    reader, events = LogReader(), []
    edges = sorted({0, len(raw), *(c % (len(raw) + 1) for c in cuts)})
    for low, high in zip(edges, edges[1:], strict=False):  # noqa: RUF007 - plain and clear
        events += reader.feed(raw[low:high])
    events += reader.finish()
    return [e for e in events if e.kind != "failure"], reader.summary()


@pytest.mark.parametrize("path", LOGS, ids=lambda p: p.stem)
def test_any_chunking_gives_the_same_events_and_summary(path: Path) -> None:
    raw = path.read_bytes()[:60000]
    whole = run(raw, [])
    assert run(raw, list(range(0, len(raw), 97))) == whole
    assert run(raw, list(range(0, len(raw), 4099))) == whole


def test_byte_by_byte() -> None:
    raw = (DATA / "vllm-0.32/corrupt_shard.log").read_bytes()
    assert run(raw, list(range(len(raw)))) == run(raw, [])


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_lines_shuffled_and_garbage_between_never_raise(data: st.DataObject) -> None:
    lines = data.draw(st.sampled_from(LOGS)).read_bytes().splitlines(keepends=True)
    order = data.draw(st.permutations(range(min(len(lines), 60))))
    junk = data.draw(st.binary(max_size=40))
    summary = read_log([junk.join(lines[i] for i in order)])
    json.dumps(phases_json(summary), allow_nan=False)
    assert summary.outcome in ("loading", "ready", "failed", "stopped")


@pytest.mark.parametrize("path", LOGS, ids=lambda p: p.stem)
def test_the_json_document(path: Path) -> None:
    doc = json.loads(json.dumps(phases_json(read_log([path.read_bytes()])), allow_nan=False))
    assert {"version", "engine", "engine_version", "outcome", "model", "drafter", "phases", "facts"} <= set(doc)
    for phase in doc["phases"]:
        assert {"id", "role", "start", "seconds", "done", "total"} <= set(phase)
        assert phase["role"] in ("target", "drafter", None)


def test_events_are_plain_documents() -> None:
    events = list(LogReader().feed((DATA / "vllm-0.26/eagle.log").read_bytes()))
    assert events
    for event in events:
        json.dumps(to_doc(event))


def test_live_reading_times_phases_by_arrival_since_the_launch() -> None:
    reader = LogReader(started=100.0)
    lines = (DATA / "vllm-0.32/serve_eagle3.log").read_bytes().splitlines(keepends=True)
    for i, line in enumerate(lines):
        reader.feed(line, boot=120.0 + i * 0.5)
    phases = {(p.id, p.role): p for p in reader.summary().phases}
    spawn, config = phases["spawn", None], phases["config", None]
    assert spawn.start == 0
    assert spawn.seconds == config.start == 20.0 + 3 * 0.5  # the version stands in the fourth line


def test_the_new_year_and_leap_days() -> None:
    clock = LogClock()
    before, after = clock.seconds(b"12-31 23:59:59"), clock.seconds(b"01-01 00:00:01")
    assert before is not None
    assert after is not None
    assert after - before == 2
    assert LogClock().seconds(b"02-29 00:00:00") is not None
    assert LogClock().seconds(b"13-45 00:00:00") is None
    fine = LogClock()
    a, b = fine.seconds(b"2026-12-31 23:59:59.500"), fine.seconds(b"2027-01-01 00:00:00.250")
    assert a is not None
    assert b is not None
    assert b - a == 0.75


def test_other_programs_logs_are_of_no_engine() -> None:
    s = read_log([(DATA / "vllm-0.26/bench_eagle_c1.log").read_bytes()])
    assert (s.phases, s.failure, s.model) == ((), None, None)


@pytest.mark.parametrize("version", ["3.8.18", "3.10.13", "3.13.0"])
def test_it_runs_on_the_hosts_python_with_the_standard_library_alone(version: str) -> None:
    python = Path.home() / ".pyenv" / "versions" / version / "bin" / "python3"
    if not python.exists():
        pytest.skip(f"no Python {version} here")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from eagletui import speculation\n"
        "from eagletui.engines import bars, command, metrics, noise, prometheus, readiness, reader, stream\n"
        "s = reader.read_log([open(sys.argv[2], 'rb').read()])\n"
        "bad = [m for m in ('dataclasses', 'asyncio', 'psutil', 'textual') if m in sys.modules]\n"
        "print(s.outcome, s.ready_seconds, bad)\n"
    )
    source = str(Path(eagletui.__file__).parent.parent)
    log = str(DATA / "vllm-0.26/eagle.log")
    done = subprocess.run([str(python), "-I", "-S", "-c", program, source, log], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("stopped 61.0 []", "")


FIELD = os.environ.get("EAGLETUI_FIELD_LOGS")


@pytest.mark.skipif(not FIELD, reason="EAGLETUI_FIELD_LOGS names no directory of logs from large hosts")
def test_eight_cards_with_a_drafter() -> None:
    s = read_log([(Path(FIELD or "") / "vllm-0.20-glm51-tp8-mtp1.full.log").read_bytes()])
    assert (s.engine, s.outcome, s.failure, s.ready_seconds) == ("vllm", "ready", None, 405)
    spent = {(p.id, p.role): p.seconds for p in s.phases}
    assert spent["config", None] == 38
    assert spent["workers", None] == 14
    assert spent["weights", "target"] == 70
    assert spent["weights", "drafter"] == 40
    assert [(p.done, p.total, p.unit) for p in s.phases if p.id == "weights"] == [(11, 11, "batches")] * 2
    assert (s.facts["tp"], s.facts["ranks"], s.facts["k"], s.facts["kv_tokens"], s.facts["nccl"]) == (8, 8, 3, 319232, "2.30.3")
    assert (s.facts["load_gib"], s.facts["init_seconds"], s.facts["capture_seconds"]) == (56.62, 234.64, 41)


@pytest.mark.skipif(not FIELD, reason="EAGLETUI_FIELD_LOGS names no directory of logs from large hosts")
def test_eight_cards_without_a_drafter() -> None:
    s = read_log([(Path(FIELD or "") / "vllm-0.20-glm51-tp8-plain.startup.log").read_bytes()])
    assert (s.outcome, s.failure, s.ready_seconds, s.drafter) == ("ready", None, 233, None)
    assert not any(p.role == "drafter" for p in s.phases)
