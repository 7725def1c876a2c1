"""What nvidia-smi prints, read into a `GpuBoard`: for hosts where no agent can run. Pure functions.

Only fields that every driver of the last ten years knows are asked for: one that it does not know makes it print nothing else.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import Any

from eagletui.records import GpuBoard, GpuProcess, GpuSample

MIB = 1024 * 1024
LOST = "[GPU is lost]"


def _whole(scale: int = 1) -> Callable[[str], int]:
    return lambda text: round(float(text) * scale)


# nvidia-smi's name -> field of `GpuSample` and how it is read; the driver's version is the same in every row
FIELDS: tuple[tuple[str, str, Callable[[str], Any]], ...] = (
    ("index", "number", int),
    ("uuid", "uuid", str),
    ("name", "name", str),
    ("pci.bus_id", "bus_id", str),
    ("driver_version", "driver", str),
    ("utilization.gpu", "util", float),
    ("utilization.memory", "mem_util", float),
    ("memory.used", "mem_used", _whole(MIB)),
    ("memory.total", "mem_total", _whole(MIB)),
    ("power.draw", "power", float),
    ("power.limit", "power_cap", float),
    ("temperature.gpu", "temp", int),
    ("fan.speed", "fan", int),
    ("clocks.sm", "clock_sm", int),
    ("clocks.mem", "clock_mem", int),
    ("clocks.max.sm", "clock_sm_max", int),
    ("clocks.max.mem", "clock_mem_max", int),
    ("pstate", "pstate", lambda text: int(text.removeprefix("P"))),
    ("pcie.link.gen.current", "pcie_gen", int),
    ("pcie.link.gen.max", "pcie_gen_max", int),
    ("pcie.link.width.current", "pcie_width", int),
    ("pcie.link.width.max", "pcie_width_max", int),
)
CARDS = f"nvidia-smi --query-gpu={','.join(name for name, _, _ in FIELDS)} --format=csv,noheader,nounits"
PROCESSES = "nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory,process_name --format=csv,noheader,nounits"


def board(boot: float, cards: str, processes: str, status: int) -> GpuBoard:
    """What `CARDS` and `PROCESSES` printed. ``status`` is the exit status of the first (127: there is no nvidia-smi)."""
    if status == 127:
        return GpuBoard(boot, False, problem="the host has no nvidia-smi")
    found: list[GpuSample] = []
    driver: str | None = None
    for row in csv.reader(io.StringIO(cards), skipinitialspace=True):
        if len(row) != len(FIELDS):
            continue  # a warning of the driver between the rows; if it is all there is, it is told below
        values = {field: _value(text, read) for (_, field, read), text in zip(FIELDS, row, strict=True)}
        driver = values.pop("driver") or driver
        number = values["number"] if values["number"] is not None else len(found)
        values.update(number=number, uuid=values["uuid"] or f"card {number}", lost=_lost(row))
        found.append(GpuSample(**values))
    if not found:
        said = " ".join(cards.split())[-300:]
        why = f"nvidia-smi ended with status {status}" + (f": {said}" if said else "") if status or said else "no cards"
        return GpuBoard(boot, True, problem=why)
    held = _processes(processes)
    known = tuple(card._replace(processes=held.get(card.uuid, ()) if held is not None else None) for card in found)
    return GpuBoard(boot, True, driver=driver, cards=known)


def _value(text: str, read: Callable[[str], Any]) -> Any:
    """One cell; None for ``[N/A]``, ``[Not Supported]``, ``[Unknown Error]`` and whatever else is no value."""
    if text.startswith("[") or text in ("N/A", ""):
        return None
    try:
        return read(text)
    except (ValueError, OverflowError):
        return None


def _lost(row: list[str]) -> str | None:
    """Why a card does not answer, in nvidia-smi's words; None when it does."""
    if any(text == LOST for text in row):
        return LOST.strip("[]")
    asked = [
        text for (name, _, _), text in zip(FIELDS, row, strict=True) if name in ("utilization.gpu", "memory.used", "power.draw")
    ]
    return "Unknown Error" if all(text == "[Unknown Error]" for text in asked) else None


def _processes(text: str) -> dict[str, tuple[GpuProcess, ...]] | None:
    """Per uuid; None when nvidia-smi printed something else than a table."""
    out: dict[str, tuple[GpuProcess, ...]] = {}
    for row in csv.reader(io.StringIO(text), skipinitialspace=True):
        if len(row) < 4 or not row[1].isdigit():
            return None
        command = ", ".join(row[3:])
        process = GpuProcess(int(row[1]), mem=_value(row[2], _whole(MIB)), command=command or None)
        out[row[0]] = (*out.get(row[0], ()), process)
    return out
