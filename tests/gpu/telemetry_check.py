"""eagletui's values beside nvidia-smi's, on a machine with real cards: `python -m tests.gpu.telemetry_check [--load] [--cost S]`.

Both are asked in the same second, and each pair is judged with the tolerance that its kind allows (a value that moves may
differ by as much as it moves between two readings). ``--load`` runs matrix products on every card but the last (needs torch
on that machine), ``--cost`` measures what the agent costs over S seconds at 1 Hz. Exit status 1 when a pair differs.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import io
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eagletui.agent.documents import board_from_doc
from eagletui.hosts.base import Push
from eagletui.hosts.local import connect_local
from eagletui.records import GpuBoard, GpuSample

MIB = 1 << 20
FIELDS: list[tuple[str, Callable[[GpuSample], Any], float]] = [
    ("name", lambda g: g.name, 0),
    ("index", lambda g: g.number, 0),
    ("utilization.gpu", lambda g: g.util, 12),
    ("memory.total", lambda g: None if g.mem_total is None else g.mem_total / MIB, 1),
    ("memory.used", lambda g: None if g.mem_used is None else g.mem_used / MIB, 4),
    ("memory.reserved", lambda g: None if g.mem_reserved is None else g.mem_reserved / MIB, 2),
    ("power.draw.instant", lambda g: g.power, 60),
    ("power.limit", lambda g: g.power_cap, 0.5),
    ("temperature.gpu", lambda g: g.temp, 2),
    ("temperature.gpu.tlimit", lambda g: g.margin, 2),
    ("temperature.memory", lambda g: g.temp_mem, 2),
    ("fan.speed", lambda g: g.fan, 3),
    ("clocks.sm", lambda g: g.clock_sm, 150),
    ("clocks.mem", lambda g: g.clock_mem, 30),
    ("clocks.max.sm", lambda g: g.clock_sm_max, 0),
    ("pstate", lambda g: None if g.pstate is None else f"P{g.pstate}", 0),
    ("pcie.link.gen.current", lambda g: g.pcie_gen, 0),
    ("pcie.link.gen.max", lambda g: g.pcie_gen_max, 0),
    ("pcie.link.width.current", lambda g: g.pcie_width, 0),
    ("ecc.errors.uncorrected.volatile.total", lambda g: g.ecc_uncorrected, 0),
]
LOAD = """
import sys, torch
a = torch.randn(8192, 8192, device="cuda:" + sys.argv[1], dtype=torch.bfloat16)
while True:
    a @ a
    torch.cuda.synchronize()
"""


def smi() -> dict[str, dict[str, str]]:
    names = ["uuid", *(name for name, _, _ in FIELDS), "clocks_event_reasons.active"]
    command = ["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = csv.reader(io.StringIO(text), skipinitialspace=True)
    return {row[0]: dict(zip(names, row, strict=True)) for row in rows if row}


def compare(board: GpuBoard, seen: dict[str, dict[str, str]]) -> int:
    wrong = 0
    for card in board.cards:
        row = seen.get(card.uuid, {})
        print(
            f"\ncard {card.number} {card.uuid[:12]}   throttle {card.throttle}, "
            f"nvidia-smi {row.get('clocks_event_reasons.active')}"
        )
        for name, value_of, tolerance in FIELDS:
            ours, theirs = value_of(card), row.get(name, "absent")
            if ours is None:
                same = theirs.startswith("[") or theirs in ("N/A", "absent")
            elif isinstance(ours, str):
                same = ours == theirs
            else:
                try:
                    same = abs(float(theirs) - float(ours)) <= tolerance
                except ValueError:
                    same = False
            wrong += not same
            shown = "-" if ours is None else f"{ours:.1f}" if isinstance(ours, float) else str(ours)
            print(f"  {name:40} {shown:>24} {theirs:>24}  {'same' if same else 'DIFFERENT'}")
    if {card.uuid for card in board.cards} != set(seen):
        print("the cards differ:", {card.uuid for card in board.cards} ^ set(seen))
        wrong += 1
    return wrong


def tree(root: int) -> list[int]:
    found, grown = {root}, True
    while grown:
        grown = False
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) not in found:
                try:
                    parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                except (FileNotFoundError, ProcessLookupError):
                    continue  # it ended while we looked
                if parent in found:
                    found.add(int(entry.name))
                    grown = True
    return sorted(found)


def cpu_and_pss(pids: list[int]) -> tuple[float, float]:
    ticks, pss = 0, 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                pss += int(line.split()[1])
    return ticks / os.sysconf("SC_CLK_TCK"), pss / 1024


async def run(options: argparse.Namespace) -> int:
    link = await connect_local()
    pushes: asyncio.Queue[Push] = asyncio.Queue()
    try:
        await link.subscribe("gpus", 1.0, pushes.put_nowait)
        await link.subscribe("host", 2.0, lambda push: None)
        await link.subscribe("processes", 15.0, lambda push: None)
        for _ in range(8):  # the slow fields come in turn
            push = await asyncio.wait_for(pushes.get(), 30)
        there, push = await asyncio.gather(asyncio.to_thread(smi), asyncio.wait_for(pushes.get(), 30))
        board = board_from_doc(push.doc)
        wrong = compare(board, there)
        for card in board.cards:
            for process in card.processes or ():
                print(f"  card {card.number}: pid {process.pid} {process.user} {process.mem} {process.command}")
        if options.cost:
            pids = tree(link.info.agent_pid)
            (cpu, _), began, bytes_before = cpu_and_pss(pids), time.monotonic(), link.received
            await asyncio.sleep(options.cost)
            (after, pss), seconds = cpu_and_pss(pids), time.monotonic() - began
            print(
                f"\nagent with {len(board.cards)} cards at 1 Hz over {seconds:.0f} s: "
                f"{100 * (after - cpu) / seconds:.2f} % of a core, "
                f"{pss:.1f} MiB PSS in {len(pids)} processes, {(link.received - bytes_before) / seconds:.0f} B/s"
            )
        return 1 if wrong else 0
    finally:
        await link.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--load", action="store_true")
    parser.add_argument("--cost", type=float, default=0.0)
    options = parser.parse_args()
    cards = len(smi())
    loads = [subprocess.Popen([sys.executable, "-c", LOAD, str(i)]) for i in range(max(1, cards - 1) if options.load else 0)]
    try:
        if loads:
            while all(float(row["utilization.gpu"]) < 50 for row in smi().values()):
                if any(load.poll() is not None for load in loads):
                    print("the load ended by itself: is torch there?")
                    return 2
        return asyncio.run(run(options))
    finally:
        for load in loads:
            load.kill()


if __name__ == "__main__":
    sys.exit(main())
