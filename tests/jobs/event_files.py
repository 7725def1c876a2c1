"""Event files as a trainer writes them, for tests: the format's own encoder, made independently of the reader."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from eagletui.jobs.crc32c import masked


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while True:
        byte, number = number & 0x7F, number >> 7
        out.append(byte | (0x80 if number else 0))
        if not number:
            return bytes(out)


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def value(tag: str, number: float) -> bytes:
    return field(1, field(1, tag.encode()) + varint(2 << 3 | 5) + struct.pack("<f", number))


def tensor_value(tag: str, tensor: bytes) -> bytes:
    return field(1, field(1, tag.encode()) + field(8, tensor))


def event(wall: float, step: int, *values: bytes) -> bytes:
    return varint(1 << 3 | 1) + struct.pack("<d", wall) + varint(2 << 3) + varint(step) + field(5, b"".join(values))


def record(body: bytes) -> bytes:
    head = struct.pack("<Q", len(body))
    return head + struct.pack("<I", masked(head)) + body + struct.pack("<I", masked(body))


def version(wall: float) -> bytes:
    return record(varint(1 << 3 | 1) + struct.pack("<d", wall) + field(3, b"brain.Event:2"))


def scalars(wall: float, step: int, values: Mapping[str, float]) -> bytes:
    """One record a tag, as SummaryWriter does."""
    return b"".join(record(event(wall, step, value(tag, number))) for tag, number in values.items())


def train_step(wall: float, step: int, epoch: int, losses: Sequence[float], joint: Sequence[float] = (), **more: float) -> bytes:
    """What speculators logs of one step, in its order."""
    tags: dict[str, float] = {}
    for number, loss in enumerate(losses):
        tags[f"train/loss_{number}"] = loss
        if joint:
            before = joint[number - 1] if number else 1.0
            tags[f"train/full_acc_{number}"] = joint[number]
            tags[f"train/cond_acc_{number}"] = joint[number] / before if before else 0.0
    tags["train/loss"] = sum(losses)
    tags["train/error_records"] = more.pop("error_records", 0.0)
    profile = {"fetch_ms": 10.0, "step_ms": 100.0, "tokens_per_s": 1000.0, "fetch_frac": 0.1, **more}
    tags.update({f"profile/{name}": number for name, number in profile.items()})
    tags.update({"epoch": epoch, "lr": 1e-4, "global_step": step})
    return scalars(wall, step, tags)


def val_step(wall: float, step: int, epoch: int, losses: Sequence[float], joint: Sequence[float]) -> bytes:
    """What it logs of a validation: under the number of the step that comes next."""
    tags: dict[str, float] = {}
    for number, loss in enumerate(losses):
        before = joint[number - 1] if number else 1.0
        tags[f"val/loss_{number}_epoch"] = loss
        tags[f"val/full_acc_{number}_epoch"] = joint[number]
        tags[f"val/cond_acc_{number}_epoch"] = joint[number] / before if before else 0.0
    tags.update({"val/loss_epoch": sum(losses), "epoch": epoch})
    return scalars(wall, step, tags)
