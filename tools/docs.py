"""Write the generated documents, or with ``--check`` fail when one is not what it would be: docs/bench.md, docs/commands.md,
docs/jobs.md, docs/keys.md, docs/failures.md and docs/faults.md."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from failure_table import failure_table
from fault_table import fault_table
from job_table import job_table, key_table

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- generated: {} -->", "<!-- end: {} -->"


def commands_table() -> str:
    """Verbs with their arguments, and the exit codes."""
    from eagletui.cli.errors import Exit
    from eagletui.cli.parser import VERBS, build_parser

    os.environ["COLUMNS"] = "100"
    parser = build_parser()
    (choices,) = (action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    out = []
    for verb in VERBS:
        sub = choices[verb.name]
        usage = " ".join(sub.format_usage().removeprefix("usage: ").split())
        out += [
            f"## {verb.name}",
            "",
            verb.help[0].upper() + verb.help[1:] + ".",
            "",
            f"`{usage}`",
            "",
            "| argument | means |",
            "|---|---|",
        ]
        for action in sub._actions:
            if action.dest == "help":
                continue
            name = ", ".join(action.option_strings) or str(action.metavar)
            if action.option_strings and action.metavar:
                name += f" {action.metavar}"
            out.append(f"| `{name}` | {action.help} |")
        out.append("")
    out += ["## Exit codes", "", "| code | means |", "|---|---|", *(f"| {code.value} | {code.meaning} |" for code in Exit)]
    out.append("| 128 + n | ended by signal n (129: the terminal has gone, 143: asked to end); the terminal is left as it was |")
    return "\n".join(out)


def plan_table() -> str:
    """The keys of a benchmark plan and of its arms."""
    from eagletui.bench_plans import ARM_KEYS, KEYS

    return "\n".join([*key_table("key", KEYS), *key_table("key of an `[[arm]]`", ARM_KEYS)][:-1])


def filled(text: str, name: str, content: str) -> str:
    """``text`` with what stands between the marks of ``name`` replaced."""
    begin, end = BEGIN.format(name), END.format(name)
    before, _, rest = text.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"docs: the marks of {name!r} are missing")
    return f"{before}{begin}\n{content}\n{end}{after}"


def documents() -> dict[Path, str]:
    """Every generated document and what it should hold."""
    commands = ROOT / "docs" / "commands.md"
    failures = ROOT / "docs" / "failures.md"
    faults = ROOT / "docs" / "faults.md"
    bench = ROOT / "docs" / "bench.md"
    jobs = ROOT / "docs" / "jobs.md"
    keys = subprocess.run([sys.executable, "-m", "eagletui.actions"], check=True, capture_output=True, text=True).stdout
    return {
        commands: filled(commands.read_text(), "commands", commands_table()),
        bench: filled(bench.read_text(), "plan", plan_table()),
        jobs: filled(jobs.read_text(), "kinds", job_table()),
        failures: filled(failures.read_text(), "failures", failure_table()),
        faults: filled(faults.read_text(), "faults", fault_table()),
        ROOT / "docs" / "keys.md": keys,
    }


def main() -> int:
    check = "--check" in sys.argv[1:]
    stale = [(path, text) for path, text in documents().items() if not path.exists() or path.read_text() != text]
    for path, text in stale:
        if not check:
            path.write_text(text)
        print(f"{path.relative_to(ROOT)}: {'not current - run `make docs`' if check else 'written'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
