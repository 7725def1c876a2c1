"""``eagletui bench``: run a plan, list what was measured, report a result, compare two."""

from __future__ import annotations

import argparse
import asyncio
import csv
import sys
from collections.abc import Sequence
from pathlib import Path

from eagletui import text
from eagletui.cli.desk import print_json, seated, table
from eagletui.cli.errors import Exit, say
from eagletui.commands import may_change
from eagletui.commands.bench import (
    BadPlan,
    Found,
    compared,
    fetch,
    listed,
    order_words,
    plan_bench,
    read_local,
    regressions,
)
from eagletui.commands.run import run_job
from eagletui.hosts.base import HostError
from eagletui.hosts.prompts import TerminalPrompter
from eagletui.jobs.bench.words import at_load, faster
from eagletui.records import to_doc
from eagletui.records.bench import Comparison
from eagletui.views.bench_report import as_csv, as_json, as_markdown, break_even_rows, cell_rows, load_rows, plots
from eagletui.views.work import outcome_words

WORDS = {"run": ("TARGET", "PLAN"), "list": ("TARGET",), "report": ("RESULT",), "compare": ("A", "B")}


def run(options: argparse.Namespace) -> int:
    wanted = WORDS[options.action]
    if len(options.words) != len(wanted):
        say(f"arguments: bench {options.action} takes {' '.join(wanted)} - see `eagletui bench --help`")
        return Exit.USAGE
    if options.action in ("run", "list"):
        options.target = options.words[0]
    else:
        options.target = options.on
    try:
        return asyncio.run({"run": _run, "list": _list, "report": _report, "compare": _compare}[options.action](options))
    except BadPlan as error:
        for notice in error.notices:
            say(str(notice))
        return Exit.USAGE


# ------------------------------------------------------------------------------------------------------------------- run


async def _run(options: argparse.Namespace) -> int:
    from eagletui.cli.started import followed_job, show_plan, sure, told

    async with seated(options, ("jobs", "gpus")) as desk:
        if not options.dry_run:
            may_change(desk, "bench")
        plan, started = await plan_bench(desk, options.words[1], options.synthetic, tuple(options.set))
        for warning in started.warnings:
            say(f"warning: {warning}")
        if options.dry_run:
            if not options.json:
                say(f"arms: {', '.join(arm.name for arm in plan.arms)}; {order_words(desk, plan)}")
                for step in started.spec["pipeline"]["steps"]:
                    print(text.clean(f"{step['id']:<28}  {step['kind']:<10}  {step['server'] or '-'}"))
                return Exit.OK
            show_plan(options, started)
            return Exit.OK
        if started.busy and not options.force and not await sure(started):
            return Exit.USAGE
        prompter = TerminalPrompter()
        secrets = {name: await prompter.secret(f"{name} (not shown, kept nowhere)") or "" for name in started.missing}
        state = await run_job(desk, started, secrets)
        if not options.wait:
            return told(options, state)
        state = await followed_job(desk, state)
        code = told(options, state)
        if state.ok and not options.json:
            await _tell(await fetch(desk, str(plan.values["output"])))
        return code


async def _tell(found: Found) -> None:
    for line in report_lines(found):
        print(line)


# ---------------------------------------------------------------------------------------------------------------- list


async def _list(options: argparse.Namespace) -> int:
    async with seated(options) as desk:
        jobs = listed(desk)
        if options.json:
            print_json(target=options.target, benchmarks=[to_doc(job) for job in jobs])
            return Exit.OK
        rows = [("ID", "KIND", "NAME", "STATE", "WHAT"), *((j.id, j.kind, j.name, j.state, outcome_words(j) or "") for j in jobs)]
        print("\n".join(table(rows)) if jobs else "no benchmarks on this host")
    return Exit.OK


# -------------------------------------------------------------------------------------------------------------- report


async def _fetched(options: argparse.Namespace, words: Sequence[str]) -> list[Found]:
    if options.on is None:
        return [await read_local(word) for word in words]
    async with seated(options) as desk:
        return [await fetch(desk, word) for word in words]


async def _report(options: argparse.Namespace) -> int:
    (found,) = await _fetched(options, options.words)
    if options.json:
        print_json(**as_json(found.verdict, found.results))
        return Exit.OK
    if options.csv:
        sys.stdout.write(as_csv(found.verdict, found.results))
        return Exit.OK
    if options.md:
        report = as_markdown(found.verdict, found.results)
        try:
            await asyncio.to_thread(_write, options.md, report)
        except OSError as error:
            raise HostError("bench", f"{options.md}: {error.strerror}", "name another file", kind="config") from None
        print(text.clean(f"written: {options.md}"))
        return Exit.OK
    await _tell(found)
    return Exit.OK


def _write(path: str, report: str) -> None:
    Path(path).expanduser().write_text(report, "utf-8")


def report_lines(found: Found) -> list[str]:
    """The report as lines of a terminal."""
    out: list[str] = []
    verdict = found.verdict
    if verdict is not None:
        out += [verdict.headline, ""]
        out += [f"! {text}" for text in verdict.suspects]
        for one in verdict.comparisons:
            out += [f"{one.other} against {one.base}", *("  " + line for line in table(load_rows(one)))]
            out += [f"  {load.sentence}" for load in one.loads]
            out += [f"  {crossover.words}" for crossover in one.crossovers]
            out += [f"  c{load.concurrency}: {note}" for load in one.loads for note in load.notes]
            out.append("")
        if verdict.break_even:
            out += ["before any training", *("  " + line for line in table(break_even_rows(verdict.break_even)))]
            out += [f"  {one.sentence}" for one in verdict.break_even]
            out.append("")
        out += [line for text in plots(verdict) for line in text.splitlines()]
        out += [f"note: {note}" for note in verdict.notes]
    for result in found.results:
        out += ["", f"arm {result.arm}", *("  " + line for line in table(cell_rows(result)))]
        out += [f"  c{cell.concurrency}: {words}" for cell in result.cells for words in (*cell.problems, *cell.notes)]
        out += [f"  {note}" for note in result.notes]
    return [text.clean(line, 4000) for line in out]


# ------------------------------------------------------------------------------------------------------------- compare


async def _compare(options: argparse.Namespace) -> int:
    first, second = await _fetched(options, options.words)
    comparisons = compared(first, second)
    worse = regressions(comparisons, options.noise / 100)
    code = Exit.WARNINGS if worse else Exit.OK
    if options.json:
        print_json(
            comparisons=[to_doc(one) for one in comparisons],
            regressions=[{"arm": one.arm, "concurrency": one.load.concurrency, "context": one.load.context,
                          "gain": one.load.gain} for one in worse],
        )  # fmt: skip
        return code
    if options.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(("arm", "concurrency", "context", "gain", "low", "high", "regression"))
        bad = {(one.arm, one.load.concurrency, one.load.context) for one in worse}
        for one in comparisons:
            for load in one.loads:
                flag = (one.other, load.concurrency, load.context) in bad
                writer.writerow((one.other, load.concurrency, load.context, load.gain, load.low, load.high, int(flag)))
        return code
    for line in compare_lines(comparisons, {id(one.load) for one in worse}):
        print(text.clean(line, 4000))
    return code


def compare_lines(comparisons: Sequence[Comparison], worse: set[int]) -> list[str]:
    """The launch diff beside the result diff; regressions marked."""
    out: list[str] = []
    for one in comparisons:
        out.append(f"{one.base} -> {one.other}")
        launch = [(d.what, d.base if d.base is not None else "-", d.other if d.other is not None else "-") for d in one.launch]
        out += ["  launched alike"] if not launch else ["  " + line for line in table([("LAUNCH", "A", "B"), *launch])]
        rows = [("LOAD", "A tok/s", "B tok/s", "B IS", "95 %", "")]
        for load in one.loads:
            where = at_load(load.concurrency, load.context).removeprefix("at ")
            if load.gain is None:
                rows.append((where, "-", "-", "-", "-", "; ".join(load.problems)))
                continue
            interval = f"{load.low:.2f}-{load.high:.2f}" if load.low is not None and load.high is not None else "-"
            mark = "REGRESSION" if id(load) in worse else "; ".join(load.problems)
            speeds = (text.number(load.base_tokens_per_s, 1), text.number(load.tokens_per_s, 1))
            rows.append((where, *speeds, faster(load.gain), interval, mark))
        out += ["  " + line for line in table(rows)]
        out += [f"  {note}" for note in one.notes]
    return out
