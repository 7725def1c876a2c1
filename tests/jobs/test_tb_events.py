"""Event files read on while they grow: real ones, every chunking, damage, restarts."""

from __future__ import annotations

import os
import struct
from itertools import pairwise
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from eagletui.jobs.crc32c import crc32c
from eagletui.jobs.curve import Curve
from eagletui.jobs.tb_events import EventDir, Records
from eagletui.records.training import TRAIN, VAL
from tests.jobs import event_files as ef

LAB = Path(__file__).parent / "data" / "train_lab"
FILE = "events.out.tfevents.1.host.1.0"


def test_the_checksum_is_castagnolis() -> None:
    assert crc32c(b"") == 0
    assert crc32c(b"123456789") == 0xE3069283  # the check value of its definition
    assert crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, B.4


def whole() -> bytes:
    return (
        ef.version(1.0)
        + ef.record(ef.field(4, b"a graph"))
        + ef.train_step(2.0, 0, 0, (3.0, 4.0), (0.2, 0.1))
        + ef.scalars(3.0, -1, {"strange": float("nan")})
        + ef.val_step(4.0, 1, 0, (3.5, 4.5), (0.25, 0.05))
    )


@settings(max_examples=60)
@given(st.lists(st.integers(0, len(whole())), max_size=30))
def test_any_chunking_reads_the_same(cuts: list[int]) -> None:
    data, once = whole(), Records()
    expected = once.feed(data)
    pieces = sorted({0, *cuts, len(data)})
    reader = Records()
    found = [scalar for start, end in pairwise(pieces) for scalar in reader.feed(data[start:end])]
    assert [repr(scalar) for scalar in found] == [repr(scalar) for scalar in expected]
    assert reader.offset == len(data)
    assert not reader.pending


@settings(max_examples=60)
@given(st.integers(0, len(whole()) - 1))
def test_a_truncated_record_waits_for_its_rest(tmp_path_factory: object, cut: int) -> None:
    folder = tmp_path_factory.mktemp("tb")  # type: ignore[attr-defined]
    data = whole()
    (folder / FILE).write_bytes(data[:cut])
    events = EventDir(str(folder))
    found = events.look()
    assert events.problem is None
    (folder / FILE).write_bytes(data)
    found += events.look()
    assert [repr(scalar) for scalar in found] == [repr(scalar) for scalar in Records().feed(data)]
    assert events.look() == []


def test_a_record_whose_contents_do_not_fit_is_passed_over(tmp_path: Path) -> None:
    data = bytearray(ef.scalars(1.0, 1, {"a": 1.0}) + ef.scalars(2.0, 2, {"b": 2.0}))
    data[20] ^= 1
    (tmp_path / FILE).write_bytes(data)
    events = EventDir(str(tmp_path))
    assert [scalar.tag for scalar in events.look()] == ["b"]
    assert events.damaged == 1


def test_a_length_that_is_none_stops_that_file_alone_and_is_tried_again(tmp_path: Path) -> None:
    first = ef.scalars(1.0, 1, {"a": 1.0})
    (tmp_path / FILE).write_bytes(first + bytes(40))  # the last piece has not reached this disk yet
    (tmp_path / "events.out.tfevents.2.host.1.0").write_bytes(ef.scalars(3.0, 3, {"c": 3.0}))
    events = EventDir(str(tmp_path))
    assert [scalar.tag for scalar in events.look()] == ["a", "c"]
    assert events.problem is not None
    assert f"byte {len(first)}" in events.problem
    (tmp_path / FILE).write_bytes(first + ef.scalars(2.0, 2, {"b": 2.0}))
    assert [scalar.tag for scalar in events.look()] == ["b"]
    assert events.problem is None


def test_one_look_reads_little_and_the_next_goes_on(tmp_path: Path) -> None:
    data = b"".join(ef.train_step(float(step), step, 0, (3.0,)) for step in range(200))
    (tmp_path / FILE).write_bytes(data)
    events, found, looks = EventDir(str(tmp_path)), [], 0
    while more := events.look(limit=5000):
        found += more
        looks += 1
    assert looks > 10
    assert found == Records().feed(data)


def test_a_record_longer_than_a_look_is_passed(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(ef.record(ef.field(4, b"x" * 600_000)) + ef.scalars(1.0, 1, {"a": 1.0}))
    events = EventDir(str(tmp_path))
    found = [scalar for _ in range(4) for scalar in events.look(limit=1000)]
    assert [scalar.tag for scalar in found] == ["a"]


def packed(kind: str, *numbers: float) -> bytes:
    return struct.pack(f"<{len(numbers)}{kind}", *numbers)


def test_scalars_that_are_tensors() -> None:
    def dtype(number: int) -> bytes:
        return ef.varint(1 << 3) + ef.varint(number)

    one = ef.field(2, ef.field(2, ef.varint(1 << 3) + ef.varint(1)))
    three = ef.field(2, ef.field(2, ef.varint(1 << 3) + ef.varint(3)))
    tensors = {
        "content float": dtype(1) + ef.field(4, packed("f", 1.5)),
        "content double": dtype(2) + one + ef.field(4, packed("d", 2.5)),
        "content int64": dtype(9) + ef.field(4, packed("q", -3)),
        "content bfloat16": dtype(14) + ef.field(4, packed("f", 4.0)[2:]),
        "float_val": dtype(1) + ef.field(5, packed("f", 5.5)),
        "double_val": dtype(2) + ef.field(6, packed("d", 6.5)),
        "int_val": dtype(3) + ef.field(7, ef.varint(7)),
        "int64_val": dtype(9) + ef.varint(10 << 3) + ef.varint(-8),
        "half_val": dtype(19) + ef.field(13, ef.varint(struct.unpack("<H", packed("e", 9.5))[0])),
        "bfloat16 half_val": dtype(14) + ef.field(13, ef.varint(struct.unpack("<H", packed("f", 10.0)[2:])[0])),
        "a vector": dtype(1) + three + ef.field(4, packed("f", 1, 2, 3)),
        "empty": dtype(1),
        "a text": dtype(7) + ef.field(8, b"hello"),
    }
    data = b"".join(ef.record(ef.event(1.0, 1, ef.tensor_value(tag, tensor))) for tag, tensor in tensors.items())
    assert {scalar.tag: scalar.value for scalar in Records().feed(data)} == {
        "content float": 1.5,
        "content double": 2.5,
        "content int64": -3.0,
        "content bfloat16": 4.0,
        "float_val": 5.5,
        "double_val": 6.5,
        "int_val": 7.0,
        "int64_val": -8.0,
        "half_val": 9.5,
        "bfloat16 half_val": 10.0,
    }


@given(st.binary(max_size=80))
def test_contents_that_are_no_event_give_nothing_and_raise_nothing(body: bytes) -> None:
    reader = Records()
    reader.feed(ef.record(body))
    assert reader.offset == len(body) + 16


def test_a_real_training_is_read_whole() -> None:
    events, curve = EventDir(str(LAB / "tb")), Curve()
    points = []
    while found := events.look(limit=7777):
        points += curve.feed(found)
    assert events.problem is None
    assert events.damaged == 0
    steps = [point for point in points if point.split == TRAIN]
    assert [point.step for point in steps] == list(range(79))
    assert len([point for point in points if point.split == VAL]) == 3
    assert points[-1].split == VAL
    assert (points[-1].step, points[-1].epoch) == (78, 2)
    assert round(points[-1].values["loss"], 3) == 10.795
    assert round(points[-1].values["full_acc_0"], 3) == 0.219
    # the loss is the sum over the drafted positions
    first = steps[0].values
    assert abs(first["loss"] - first["loss_0"] - first["loss_1"] - first["loss_2"]) < 1e-3
    assert set(first) >= {"tokens_per_s", "fetch_frac", "step_ms", "lr", "error_records", "cond_acc_2"}


def test_a_step_and_a_validation_of_the_same_number_are_two_points() -> None:
    data = ef.val_step(1.0, 26, 0, (3.0,), (0.2,)) + ef.train_step(2.0, 26, 1, (2.5,), (0.3,))
    val, train = Curve().feed(Records().feed(data))
    assert (val.split, val.step, val.epoch, val.values["full_acc_0"]) == (
        VAL,
        25,
        0,
        float(struct.unpack("<f", packed("f", 0.2))[0]),
    )
    assert (train.split, train.step, train.epoch) == (TRAIN, 26, 1)


def test_after_a_restart_what_was_logged_last_counts(tmp_path: Path) -> None:
    old = b"".join(ef.train_step(100.0 + step, step, 0, (9.0,)) for step in range(6))
    new = b"".join(ef.train_step(200.0 + step, step, 0, (5.0,)) for step in range(4, 8))
    # the newer file sorts first and is read first
    (tmp_path / "events.out.tfevents.1").write_bytes(new)
    (tmp_path / "events.out.tfevents.2").write_bytes(old)
    points = Curve().feed(EventDir(str(tmp_path)).look())
    curve = {point.step: point.values["loss"] for point in sorted(points, key=lambda point: point.wall)}
    assert [curve[step] for step in range(8)] == [9.0] * 4 + [5.0] * 4
    assert len(points) == 8  # what is overtaken is not told at all


def test_a_record_that_a_kill_cut_in_two_is_no_point() -> None:
    cut = Records().feed(ef.train_step(1.0, 5, 0, (3.0,)))[:1]
    again = Records().feed(ef.train_step(9.0, 5, 0, (2.0,)))
    (point,) = Curve().feed([*cut, *again])
    assert (point.wall, point.values["loss"]) == (9.0, 2.0)
    # the file's beginning was lost: what cannot be placed is left out
    assert [point.values["loss"] for point in Curve().feed([*again[-2:], *again])] == [2.0]


def test_losses_that_are_no_numbers_are_left_out_and_told() -> None:
    curve = Curve()
    (point,) = curve.feed(Records().feed(ef.train_step(1.0, 3, 0, (float("nan"),))))
    assert "loss" not in point.values
    assert "loss_0" not in point.values
    assert curve.broken == {TRAIN: 3}
    curve.feed(Records().feed(ef.train_step(2.0, 4, 0, (2.0,))))
    assert curve.broken == {}


def test_several_optimizers_and_the_memory_of_a_card() -> None:
    tags = {
        "train/loss": 2.0,
        "profile/memory_mb/fwd": 900.0,
        "profile/memory_mb/opt": 300.0,
        "epoch": 0.0,
        "lr/Muon": 0.5,
        "lr/AdamW": 0.25,
        "global_step": 1.0,
    }
    (point,) = Curve().feed(Records().feed(ef.scalars(1.0, 1, tags)))
    assert point.values == {"loss": 2.0, "memory_mb": 900.0, "lr_Muon": 0.5, "lr_AdamW": 0.25, "lr": 0.5}


def test_a_missing_folder_is_no_problem_and_a_forbidden_one_is(tmp_path: Path) -> None:
    events = EventDir(str(tmp_path / "none"))
    assert events.look() == []
    assert events.problem is None
    (tmp_path / "file").write_text("")
    events = EventDir(str(tmp_path / "file"))
    assert events.look() == []
    assert events.problem is not None
    assert os.fspath(tmp_path) in events.problem
