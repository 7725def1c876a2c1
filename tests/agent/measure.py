"""Measures what a telemetry source costs: CPU of its process and child, memory, and bytes of the patches. Run it by hand.

python -m tests.agent.measure gpus [--cards 8] [--busy] [--seconds 25] [--interval 1] [--real] [--traffic]
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

from eagletui.agent.patch import diff
from tests.agent.fakenvml import FakeNvml, Running, build

SOURCES = {"gpus": "gpus:GpuSource", "host": "host:HostSource", "processes": "procs:ProcessSource"}
BUSY = ("util 97", "memutil 40", "power 310000", "temp 61", "sm 2300", "mem 12481", "pstate 0", "used 90000000000", "gen 5")


def cpu_seconds(pids: list[int]) -> float:
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def run_nanoseconds(pids: list[int]) -> int:
    """Time on a CPU by the scheduler's own account, finer than clock ticks."""
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in pids)


def pss(pids: list[int]) -> float:
    texts = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids]
    return sum(int(line.split()[1]) for text in texts for line in text.splitlines() if line.startswith("Pss:")) / 1024


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("source", choices=SOURCES)
    parser.add_argument("--cards", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=25)
    parser.add_argument("--interval", type=float, default=1.0)
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--real", action="store_true", help="the driver of this machine instead of the stand-in")
    parser.add_argument("--traffic", action="store_true")
    args = parser.parse_args()
    environ = {}
    if args.source == "gpus" and not args.real:
        folder = Path(tempfile.mkdtemp())
        fake = FakeNvml(build(folder), folder)
        lines = [f"count {args.cards}"] + [f"card {n} noisy 1" for n in range(args.cards)]
        if args.busy:
            lines += [f"card {n} {value}" for n in range(args.cards) for value in BUSY]
            lines += [f"card {n} tx 12000000000\ncard {n} rx 9000000000" for n in range(args.cards)]
            lines += [f"process {n} C {os.getpid()} 90000000000" for n in range(args.cards)]
        fake.set(*lines)
        environ = fake.environ
    running = Running("eagletui.agent." + SOURCES[args.source], environ=environ)
    try:
        measure(running, args)
    finally:
        running.close()


def measure(running: Running, args: argparse.Namespace) -> None:
    begin = time.monotonic()
    running.send(start=[args.interval, {"traffic": args.traffic}])
    first = running.until(lambda doc: args.source != "gpus" or doc.get("cards") or doc.get("problem"), "a first document")
    print(f"first document after {time.monotonic() - begin:.3f} s")
    settle = time.monotonic() + 5
    old = running.until(lambda doc: time.monotonic() > settle)
    pids = [running.process.pid, *running.children()]
    before, ran, start = cpu_seconds(pids), run_nanoseconds(pids), time.monotonic()
    docs, sent = 0, 0
    while time.monotonic() - start < args.seconds:
        doc = running.until(lambda doc: True)
        sent += len(json.dumps(diff(old, doc), separators=(",", ":")))
        old, docs = doc, docs + 1
    seconds = time.monotonic() - start
    print(f"{len(pids)} processes, {docs} documents in {seconds:.1f} s")
    print(f"CPU {100 * (cpu_seconds(pids) - before) / seconds:.2f} % by ticks", end=", ")
    print(f"{(run_nanoseconds(pids) - ran) / seconds / 1e7:.3f} % by the scheduler, of one core (with a JSON line per document)")
    print(f"PSS {pss(pids):.1f} MiB, patches {sent / seconds:.0f} bytes/s, whole document {len(json.dumps(old))} bytes")
    if args.real:
        print(json.dumps(old, indent=1)[:6000], json.dumps(first)[:300])


if __name__ == "__main__":
    main()
