"""What was told, as lines and as the table in docs/provoked.md. A run of some cases leaves the rows of the others."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from eagletui.agent.facts.engine import find
from eagletui.text import duration
from tests.lab.provoke.case import Case
from tests.lab.provoke.run import Outcome

DOCUMENT = Path(__file__).parents[3] / "docs" / "provoked.md"
BEGIN, END = "<!-- provoked: begin -->", "<!-- provoked: end -->"
COMES_UP = "nothing fails: it comes up"
HEAD = ("| case | what is done | diagnosed as | preflight | engine | on |", "|---|---|---|---|---|---|")


class Row(NamedTuple):
    """One row of the table: ``engine`` with its version, ``day`` when it was last run."""

    case: str
    what: str
    diagnosed: str
    preflight: str
    engine: str
    day: str

    @property
    def line(self) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in self) + " |"


def line(outcome: Outcome, seconds: float, only_look: bool = False) -> str:
    """One line for who reads along."""
    case = outcome.case
    before = outcome.preflight or "nothing"
    if not case.preflight:
        before = f"cannot know ({case.unknowable})"
    wrong = outcome.missed if only_look else outcome.wrong
    told = "" if only_look else f"diagnosed as {outcome.diagnosed or 'nothing'}, "
    if outcome.ready:
        told = "it comes up, "
    return f"{case.id}: {told}preflight {before}  [{duration(seconds)}]" + "".join(f"\n    WRONG: {why}" for why in wrong)


def row(outcome: Outcome, version: str) -> Row:
    case = outcome.case
    before = f"`{outcome.preflight}`" if case.preflight and outcome.preflight else f"cannot know: {case.unknowable}"
    if case.preflight and outcome.missed:
        before = "missed"
    title = re.sub(r"(?:/[\w.-]+){2,}/([\w.-]+)", r"\1", outcome.title)  # where this machine keeps them is nobody's concern
    told = f"`{outcome.diagnosed}`: {title}" if not outcome.problem else f"not over: {outcome.problem}"
    if outcome.ready:
        told = COMES_UP
    return Row(case.id, case.what, told, before, version, time.strftime("%Y-%m-%d"))


def rows_of(text: str) -> dict[str, Row]:
    """The rows that a document holds, by case."""
    inside = text.partition(BEGIN)[2].partition(END)[0]
    found = [re.split(r" (?<!\\)\| ", line[2:-2]) for line in inside.splitlines() if line.startswith("| ")]
    return {cells[0]: Row(*(cell.replace("\\|", "|") for cell in cells)) for cells in found[1:]}


def filled(text: str, rows: Mapping[str, Row], order: Iterable[str]) -> str:
    """``text`` with these rows between its marks, in the order of the cases."""
    lines = [*HEAD, *(rows[case].line for case in order if case in rows)]
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    return "\n".join([before + BEGIN, *lines, END + after])


def write(outcomes: Sequence[Outcome], cases: Sequence[Case], programs: Mapping[str, str]) -> None:
    """Put the outcomes into the document; ``programs`` are the pythons of the engines, for their versions."""
    versions = {
        name: version_of(name, python) for name, python in programs.items() if any(o.case.engine == name for o in outcomes)
    }
    text = DOCUMENT.read_text()
    rows = {**rows_of(text), **{o.case.id: row(o, versions[o.case.engine]) for o in outcomes}}
    DOCUMENT.write_text(filled(text, rows, [case.id for case in cases]))


def version_of(name: str, python: str) -> str:
    """``vllm 0.32.0``: the engine that this python has."""
    return f"{name} {find(name, [python], {}, '/').get('version') or '?'}"
