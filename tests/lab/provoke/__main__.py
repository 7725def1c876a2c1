"""``make provoke``: every failure of the tables on the real engines; a line for each, and the table in docs/provoked.md.

usage: python -m tests.lab.provoke [--look | --again | --stuck] [--lock FILE] [CASE ...]     (CASE: vllm, sglang/spec-some, ...)
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from eagletui import lab as labs
from eagletui.commands import Desk, open_desk
from eagletui.hosts.target import parse_target
from eagletui.labparts.paths import find_lab
from eagletui.labparts.report import TerminalReporter
from tests.agent.jobs_harness import free_port
from tests.lab.provoke import cases_sglang, cases_vllm, table
from tests.lab.provoke.case import Case, World
from tests.lab.provoke.models import Models, cache_root
from tests.lab.provoke.run import Outcome, Turn, again, look, run
from tests.lab.provoke.stuck import MARKS, stuck
from tests.lab.sglang_server import Sglang, is_built, sglang_root

CASES: tuple[Case, ...] = (*cases_vllm.CASES, *cases_sglang.CASES)
LOGS = Path("build/provoke")


def chosen(words: Sequence[str]) -> list[Case]:
    """The cases that ``words`` name, in their order: an engine, or engine/name; all without words."""
    unknown = [word for word in words if not any(word in (case.engine, case.id) for case in CASES)]
    if unknown:
        raise SystemExit(f"provoke: there is no case {unknown[0]!r}; {', '.join(case.id for case in CASES)}")
    return [case for word in words for case in CASES if word in (case.engine, case.id)] or list(CASES)


@asynccontextmanager
async def seated() -> AsyncIterator[tuple[Desk, Callable[[], World], dict[str, str]]]:
    """A desk at this machine with a state directory of its own, what makes a case's `World`, and the engines' pythons."""
    lab, root = find_lab(), sglang_root()
    sglang = Sglang(root, lab) if is_built(root) else None
    pythons = {"vllm": str(lab.python)}
    if sglang is not None:
        sglang.prepare()
        pythons["sglang"] = str(sglang.venv / "bin/python")
    else:
        print(f"without SGLang, there is none in {root}: `make sglang` builds it", flush=True)
    models = Models(cache_root(), lab, sglang.drafter if sglang is not None else None)
    with tempfile.TemporaryDirectory(prefix="provoke-") as folder:
        for variable in ("EAGLETUI_STATE", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
            os.environ[variable] = str(Path(folder) / variable)

        def world() -> World:
            return World(lab, sglang, models, free_port(), Path(tempfile.mkdtemp(dir=folder)))

        desk = await open_desk(parse_target("local"), None, {}, ("jobs", "gpus"))
        try:
            yield desk, world, pythons
        finally:
            await desk.close()


async def provoke(cases: Sequence[Case], how: str, lock: Path) -> list[Outcome]:
    """Deal with them one after the other, a line for each. ``how``: run, look (preflight alone) or again (kept logs)."""
    turn = Turn(lock)
    outcomes = []
    async with seated() as (desk, world, pythons):
        for case in cases:
            kept = LOGS / f"{case.engine}-{case.name}.log"
            # how it ended counts as well where the log says nothing, or something was done to it
            told = kept.exists() and kept.stat().st_size and case.act is None
            if case.engine not in pythons or (how == "again" and not told):
                continue
            if how == "run":
                await turn.take()
            began = time.monotonic()
            if how == "look":
                outcome = await look(desk, case, world())
            else:
                outcome = await (run if how == "run" else again)(desk, case, world(), kept)
                table.write([outcome], CASES, pythons)
            outcomes.append(outcome)
            print(table.line(outcome, time.monotonic() - began, how == "look"), flush=True)
    return outcomes


async def all_stuck(engines: Sequence[str], lock: Path) -> int:
    """How many of the engines were told otherwise than they should."""
    turn = Turn(lock)
    wrong = 0
    async with seated() as (desk, world, pythons):
        for engine in engines or MARKS:
            if engine in pythons:
                await turn.take()
                found = await stuck(desk, engine, world())
                wrong += bool(found.problem)
                print(found.line, flush=True)
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="provoke")
    parser.add_argument("--look", action="store_true", help="preflight alone, nothing is launched")
    parser.add_argument("--again", action="store_true", help="the logs of the last run, judged by today's catalogue")
    parser.add_argument("--stuck", action="store_true", help="instead of failures: a server that is stopped while it is asked")
    parser.add_argument("--lock", type=Path, help="the file whose lock is held while an engine runs (default: the lab's)")
    parser.add_argument("cases", nargs="*", help="an engine, or engine/name (with --stuck: engines)")
    options = parser.parse_args()
    cases = [] if options.stuck else chosen(options.cases)
    lab = find_lab()
    if labs.up(lab.root, reporter=TerminalReporter(sys.stdout, sys.stderr)) != 0:
        return 1
    LOGS.mkdir(parents=True, exist_ok=True)
    lock = options.lock or lab.root.with_name(lab.root.name + ".lock")
    if options.stuck:
        return 1 if asyncio.run(all_stuck(options.cases, lock)) else 0
    how = "look" if options.look else "again" if options.again else "run"
    outcomes = asyncio.run(provoke(cases, how, lock))
    wrong = [outcome for outcome in outcomes if (outcome.missed if options.look else outcome.wrong)]
    print(f"{len(outcomes) - len(wrong)} of {len(outcomes)} told right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
