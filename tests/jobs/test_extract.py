"""Hidden states: their size to the byte, the disk before the first of them, what cannot be right, and who was skipped."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagletui.engines.command import CommandError, serve_command
from eagletui.jobs import hidden_states, kinds
from eagletui.jobs.base import BadJob
from eagletui.jobs.extract import ExtractWatcher
from eagletui.jobs.extract_server import extraction_profile
from eagletui.jobs.hidden_states import Layout, Row
from eagletui.jobs.keys import read_keys
from eagletui.jobs.on_host import extract as program
from eagletui.jobs.on_host import probe, telling
from eagletui.jobs.on_host.target_config import Shape
from eagletui.jobs.outputs import NotOurs, claim
from tests.jobs.tensor_files import write

LAYERS, WIDTH = 4, 6
LAYOUT = Layout(LAYERS, WIDTH)
EXTRACTING = b'{"eagletui": "progress", "stage": "extracting", "total": 4, "unit": "samples"}\n'
DONE = b'{"eagletui": "result", "finished": true}\n'


def bf16(number: float) -> bytes:
    return struct.pack("<f", number)[2:]


def states(tokens: int, layers: int = LAYERS, width: int = WIDTH) -> list[list[list[float]]]:
    return [[[1.0 + token + 10 * layer + 0.5 * at for at in range(width)] for layer in range(layers)] for token in range(tokens)]


def put(folder: Path, index: int, ids: Sequence[int], values: Any = None) -> Path:
    values = states(len(ids)) if values is None else values
    body = b"".join(bf16(number) for token in values for layer in token for number in layer)
    shape = (len(values), len(values[0]), len(values[0][0]))
    return write(
        folder / hidden_states.file_name(index),
        {
            "token_ids": ("I64", (len(ids),), struct.pack(f"<{len(ids)}q", *ids)),
            "hidden_states": ("BF16", shape, body),
        },
    )


def row(ids: Sequence[int]) -> Row:
    return Row(len(ids), hidden_states.checksum(ids))


# ------------------------------------------------------------------------------------------------------------- their size


def test_the_size_of_a_file_is_known_to_the_byte(tmp_path: Path) -> None:
    assert hidden_states.file_bytes(196, Layout(4, 576)) == 904_896  # as measured
    for tokens in (1, 7, 99, 1000):
        path = put(tmp_path, tokens, range(tokens))
        assert path.stat().st_size == hidden_states.file_bytes(tokens, LAYOUT)


@given(st.integers(1, 20_000), st.integers(2, 6), st.integers(1, 8192))
def test_it_is_the_rule_of_thumb_and_a_header(tokens: int, layers: int, width: int) -> None:
    exact = hidden_states.file_bytes(tokens, Layout(layers, width))
    assert 0 < exact - tokens * (2 * width * layers + 8) <= 200


def test_what_is_needed_leaves_out_what_is_there() -> None:
    rows = [Row(100, 0), Row(200, 0), Row(300, 0)]
    found = hidden_states.need(rows, [1, 77], LAYOUT, at_once=1)
    size = [hidden_states.file_bytes(row.tokens, LAYOUT) for row in rows]
    assert (found.files, found.tokens, found.bytes) == (2, 400, size[0] + size[2])
    assert found.room % 4096 == 0
    assert found.bytes < found.room < found.bytes + 2 * 4096
    assert found.passing == size[0] + size[2]
    assert hidden_states.need(rows, range(3), LAYOUT, at_once=8).files == 0


def test_a_million_tokens_of_a_very_large_target() -> None:
    sizes = hidden_states.need([Row(2048, 0)] * 10_000, [], Layout(4, 7168), at_once=32)
    assert round(sizes.bytes / 1e12, 3) == 1.175


# ------------------------------------------------------------------------------------------------- what cannot be right


IDS = [5, 6, 7, 5, 9]


def test_good_states(tmp_path: Path) -> None:
    assert hidden_states.insane(str(put(tmp_path, 0, IDS)), row(IDS), LAYOUT) is None


def spoilt(what: str) -> tuple[list[int], Any]:
    values = states(len(IDS))
    if what == "zeros":
        values[3][2] = [0.0, -0.0, 0.0, 0.0, 0.0, 0.0]
    elif what == "nan":
        values[4][0][5] = float("nan")
    elif what == "infinity":
        values[0][3][1] = float("-inf")
    elif what == "alike":
        for token in values:
            token[2] = token[1]
    elif what == "length":
        return IDS, values[:-1]
    elif what == "layers":
        return IDS, [token[:3] for token in values]
    elif what == "ids":
        return [5, 6, 7, 8, 9], values
    return IDS, values


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("zeros", "layer 2 of token 3 is all zeros"),  # some hybrid targets gave only zeros
        ("nan", "layer 0 of token 4 has numbers that are none"),
        ("infinity", "layer 3 of token 0 has numbers that are none"),
        ("alike", "its layers 1 and 2 are the same"),
        ("length", "instead of BF16 [5, 4, 6]"),  # prefix caching left some of the tokens out
        ("layers", "instead of BF16 [5, 4, 6]"),
        ("ids", "other token ids"),
    ],
)
def test_states_that_cannot_be_right(tmp_path: Path, what: str, says: str) -> None:
    ids, values = spoilt(what)
    path = put(tmp_path, 0, ids, values)
    problem = hidden_states.insane(str(path), row(IDS), LAYOUT)
    assert problem is not None
    assert says in problem


def test_a_file_cut_short(tmp_path: Path) -> None:
    path = put(tmp_path, 0, IDS)
    path.write_bytes(path.read_bytes()[:-1])
    assert "instead of" in str(hidden_states.shape_problem(str(path), row(IDS), LAYOUT))
    path.write_bytes(b"\xff" * 100)
    assert "cut short in its header" in str(hidden_states.shape_problem(str(path), row(IDS), LAYOUT))


@pytest.mark.parametrize(("dtype", "name", "good", "bad"), [("float32", "F32", "f", 1), ("float16", "F16", "e", 1)])
def test_other_number_formats(tmp_path: Path, dtype: str, name: str, good: str, bad: int) -> None:
    layout = Layout(2, 3, dtype)
    numbers = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    ids = struct.pack("<q", 7)

    def made(values: list[float]) -> str:
        body = struct.pack(f"<6{good}", *values)
        return str(write(tmp_path / "x", {"token_ids": ("I64", (1,), ids), "hidden_states": (name, (1, 2, 3), body)}))

    assert hidden_states.insane(made(numbers), row([7]), layout) is None
    assert os.path.getsize(made(numbers)) - hidden_states.file_bytes(1, layout) == 0
    assert "none" in str(hidden_states.insane(made([*numbers[:5], float("inf")]), row([7]), layout))


def test_of_a_long_sample_a_few_tokens_are_looked_at(tmp_path: Path) -> None:
    ids = list(range(400))
    values = states(400, layers=2, width=1024)
    values[-1][1] = [0.0] * 1024
    path = put(tmp_path, 0, ids, values)
    assert "token 399 is all zeros" in str(hidden_states.insane(str(path), row(ids), Layout(2, 1024)))


# ------------------------------------------------------------------------------------------------------------ the watcher


SAMPLES = [[1, 2, 3], [4, 5], [6, 7, 8, 9], [10]]


def watcher(tmp_path: Path, **values: Any) -> ExtractWatcher:
    kind = kinds.kind("extract")
    given_values = {"kind": "extract", "python": "/p", "target": "/t", "data": "/d", "output": str(tmp_path / "hs"), **values}
    read, wrong = read_keys(kind.keys, given_values)
    assert wrong == []
    (tmp_path / "hs").mkdir(exist_ok=True)
    found = kind.watcher(kind.spec(read, "e-1"), str(tmp_path))
    assert isinstance(found, ExtractWatcher)
    return found


def begun(tmp_path: Path, **values: Any) -> ExtractWatcher:
    watch = watcher(tmp_path, **values)
    hidden_states.write_rows(str(tmp_path / "hs" / hidden_states.ROWS), [row(ids) for ids in SAMPLES], LAYOUT)
    watch.feed(EXTRACTING, 0.0)
    return watch


def test_progress_speed_and_resume(tmp_path: Path) -> None:
    put(tmp_path / "hs", 0, SAMPLES[0])  # of an earlier run
    watch = begun(tmp_path)
    watch.look(0.0)
    put(tmp_path / "hs", 2, SAMPLES[2])
    put(tmp_path / "hs", 1, SAMPLES[1])
    watch.look(10.0)
    work = watch.work(10.0)
    assert work is not None
    assert (work.stage, work.done, work.total, work.unit) == ("extracting", 3.0, 4.0, "samples")
    counters = {counter.name: counter.value for counter in work.counters}
    assert counters["tokens"] == 9
    assert counters["speed"] == 0.6  # six tokens in ten seconds: what was there before is nobody's work
    assert (counters["skipped"], counters["wrong"]) == (0, 0)
    put(tmp_path / "hs", 3, SAMPLES[3])
    watch.feed(DONE, 11.0)
    ended = watch.outcome(0, False)
    assert ended.ok is True
    assert {key: ended.result[key] for key in ("samples", "tokens", "skipped", "sane")} == {
        "samples": 4,
        "tokens": 10,
        "skipped": 0,
        "sane": True,
    }
    assert ended.result["bytes"] == sum(path.stat().st_size for path in (tmp_path / "hs").glob("hs_*"))


def test_rows_of_an_earlier_run_are_not_taken(tmp_path: Path) -> None:
    watch = watcher(tmp_path)
    hidden_states.write_rows(str(tmp_path / "hs" / hidden_states.ROWS), [row(ids) for ids in SAMPLES], LAYOUT)
    watch.look(0.0)
    assert watch.work(0.0) is None


def test_states_that_are_wrong_are_told_while_it_runs_and_fail_it(tmp_path: Path) -> None:
    watch = begun(tmp_path)
    for index, ids in enumerate(SAMPLES):
        put(tmp_path / "hs", index, ids, [[[0.0] * WIDTH] * LAYERS for _ in ids])
    watch.look(1.0)
    assert any("all zeros" in trouble for trouble in watch.troubles())
    watch.feed(DONE, 2.0)
    ended = watch.outcome(0, False)
    assert ended.ok is False
    assert ended.result["sane"] is False
    assert "all zeros" in ended.why


def test_skipped_samples_count_although_the_tool_exits_with_0(tmp_path: Path) -> None:
    watch = begun(tmp_path)
    for index in (0, 2, 3):
        put(tmp_path / "hs", index, SAMPLES[index])
    watch.feed(b"WARNING  Skipping sample 1 due to error: Request timed out.\n" + DONE, 1.0)
    assert any("1 samples, sample 1 by Request timed out." in trouble for trouble in watch.troubles())
    ended = watch.outcome(0, False)
    assert ended.ok is False
    assert ended.result["skipped"] == 1
    assert "1 were skipped (Request timed out.)" in ended.why

    lenient = begun(tmp_path, most_skipped=0.25)
    lenient.feed(DONE, 1.0)
    assert lenient.outcome(0, False).ok is True


def test_a_file_that_is_cut_short_at_the_end_fails_it(tmp_path: Path) -> None:
    """Present is not whole: a move to another disk that was interrupted leaves a part at the final name."""
    watch = begun(tmp_path)
    for index, ids in enumerate(SAMPLES):
        path = put(tmp_path / "hs", index, ids)
    path.write_bytes(path.read_bytes()[:-2])
    watch.feed(DONE, 1.0)
    ended = watch.outcome(0, False)
    assert ended.ok is False
    assert ended.result["samples"] == 3


def test_other_ends(tmp_path: Path) -> None:
    assert begun(tmp_path).outcome(-15, True).ok is None
    assert begun(tmp_path).outcome(None, False).ok is None
    assert begun(tmp_path).outcome(1, False).ok is False
    refused = watcher(tmp_path)
    refused.feed(b'{"eagletui": "result", "why": "1.2 TB are needed and /d has 3 GB free"}\n', 0.0)
    ended = refused.outcome(2, False)
    assert ended.ok is False
    assert "1.2 TB are needed" in ended.why


# --------------------------------------------------------------------------------------------------- before the first byte


def options(tmp_path: Path, *more: str) -> Any:
    argv = ["--data", str(tmp_path / "d"), "--output", str(tmp_path / "hs"), "--target", str(tmp_path / "t"), *more]
    return program._parser().parse_args(argv)


def test_too_little_disk_is_refused_before_anything_is_written(tmp_path: Path, capfd: Any) -> None:
    with pytest.raises(program.Refused, match=r"are needed for 2 samples of 7 tokens .* has .* free"):
        program._room(options(tmp_path, "--reserve", str(1 << 60)), [Row(3, 0), Row(4, 0)], LAYOUT)
    assert not (tmp_path / "hs").exists()
    assert "needed" in capfd.readouterr().out


def test_with_nothing_left_to_do_no_room_is_needed(tmp_path: Path) -> None:
    put(tmp_path / "hs", 0, IDS)
    found = program._room(options(tmp_path, "--reserve", str(1 << 60)), [row(IDS)], LAYOUT)
    assert found.files == 0


def test_a_file_of_another_shape_is_made_again(tmp_path: Path, capfd: Any) -> None:
    """The tool goes by names alone."""
    path = put(tmp_path / "hs", 0, IDS[:-1])
    assert program._room(options(tmp_path), [row(IDS)], LAYOUT).files == 1
    assert path.exists()  # whose it is, nobody has looked yet
    program._clear_wrong(str(tmp_path / "hs"), [row(IDS)], LAYOUT)
    assert not path.exists()
    assert "made again" in capfd.readouterr().out


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> probe.Handed:
    """One prepared sample, a target whose configuration says bfloat16, and a server that computes in float16."""
    handed = probe.Handed(LAYERS, WIDTH, "float16", str(tmp_path))
    monkeypatch.setattr(program, "find_spec", lambda name: True)
    monkeypatch.setattr(program, "read_shape", lambda target: Shape(WIDTH, 8, 100, 4096, "bfloat16"))
    monkeypatch.setattr(program, "read_prepared", lambda data: ([row(IDS)], list(IDS)))
    monkeypatch.setattr(program.probe, "probe", lambda *_: handed)
    return handed


def test_the_states_of_another_extraction_are_left_alone(tmp_path: Path, prepared: probe.Handed) -> None:
    claim(str(tmp_path / "hs"), "extract", {"data": "another"})
    path = put(tmp_path / "hs", 0, IDS[:-1])
    with pytest.raises(NotOurs):
        program.prepare(options(tmp_path, "--layers", "0,1,2", "--reserve", "0"), telling.Teller("samples"))
    assert path.exists()


def test_states_in_the_servers_own_format_are_gone_on_with(tmp_path: Path, prepared: probe.Handed) -> None:
    """The first look is by the target's configuration: what does not fit that may still fit the server."""
    folder = tmp_path / "hs"
    claim(str(folder), "extract", {})
    body = struct.pack(f"<{len(IDS) * LAYERS * WIDTH}e", *(float(at + 1) for at in range(len(IDS) * LAYERS * WIDTH)))
    path = write(
        folder / hidden_states.file_name(0),
        {
            "token_ids": ("I64", (len(IDS),), struct.pack(f"<{len(IDS)}q", *IDS)),
            "hidden_states": ("F16", (len(IDS), LAYERS, WIDTH), body),
        },
    )
    plan = program.prepare(options(tmp_path, "--layers", "0,1,2", "--reserve", "0"), telling.Teller("samples"))
    assert path.exists()
    assert (plan.need.files, plan.layout.dtype) == (0, "float16")


def test_a_servers_folder_on_another_disk_is_refused(tmp_path: Path) -> None:
    """The tool's move would be a copy, and one cut short would count as done."""
    other = next((path for path in ("/dev/shm", "/proc") if os.stat(path).st_dev != tmp_path.stat().st_dev), None)
    assert other is not None
    with pytest.raises(program.Refused, match="on another disk"):
        program._room(options(tmp_path, "--storage", other), [row(IDS)], LAYOUT)


def test_the_time_limit_grows_with_the_samples() -> None:
    assert program.time_limit(10, 1) < 121
    assert program.time_limit(8192, 32) > 1000


# -------------------------------------------------------------------------------------------------------------- the server


def test_the_server_of_an_extraction() -> None:
    profile = {
        "engine": "vllm",
        "model": "/m",
        "venv": "/v",
        "drafter": "/d",
        "k": 3,
        "max_model_len": 131072,
        "args": [
            "--dtype",
            "auto",
            "--enable_prefix_caching",
            "--max-num-batched-tokens",
            "2048",
            "--speculative-config.k=3",
            "-tp",
            "8",
        ],
    }
    made = extraction_profile(profile, [2, 30, 58], 61, "/data/passing", seq_length=4096)
    argv = list(serve_command(made).argv)
    assert argv.count("--speculative-config") == 1
    speculation = json.loads(argv[argv.index("--speculative-config") + 1])
    assert speculation["method"] == "extract_hidden_states"
    assert speculation["draft_model_config"]["hf_config"]["eagle_aux_hidden_state_layer_ids"] == [2, 30, 58, 61]
    transfer = json.loads(argv[argv.index("--kv-transfer-config") + 1])
    assert transfer["kv_connector_extra_config"]["shared_storage_path"] == "/data/passing"
    # what is served from the prefix cache is not computed, so it has no states
    assert "--no-enable-prefix-caching" in argv
    assert "--enable_prefix_caching" not in argv
    assert "--no-enable-chunked-prefill" in argv
    assert argv[argv.index("--max-model-len") + 1] == "4104"
    assert argv.count("--max-num-batched-tokens") == 1
    assert argv[argv.index("--max-num-batched-tokens") + 1] == "8192"
    assert argv[argv.index("-tp") + 1] == "8"
    assert "/d" not in argv


@pytest.mark.parametrize(
    ("change", "layers", "storage", "says"),
    [
        ({"engine": "sglang"}, [2], "/s", "hidden states come from vLLM"),
        ({}, [], "/s", "layers"),
        ({}, [2, 62], "/s", "layers"),
        ({}, [2], "relative", "absolute"),
        ({"command": ["x"]}, [2], "/s", "options are unknown"),
    ],
)
def test_what_cannot_extract(change: dict[str, Any], layers: list[int], storage: str, says: str) -> None:
    with pytest.raises(CommandError, match=says):
        extraction_profile({"engine": "vllm", "model": "/m", **change}, layers, 61, storage)


def test_a_storage_without_a_server_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadJob, match="storage"):
        watcher(tmp_path, backend="transformers", storage="/s")
