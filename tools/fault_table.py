"""The table of docs/faults.md: each row of the fault table with what provokes it, read from the marks in the tests' source."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.faults.rows import NOT_HERE, ROWS  # noqa: E402 - the tests are no installed package


class Mark(NamedTuple):
    """One ``@pytest.mark.fault``: its row, with what it is provoked, which file, and whether it needs a machine of its own."""

    row: int
    how: str
    file: str
    machine: bool


def _marker(node: ast.AST) -> str | None:
    """``name`` of an expression ``pytest.mark.name`` or ``pytest.mark.name(...)``."""
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) and node.value.attr == "mark":
        return node.attr
    return None


def _marks_machine(nodes: list[ast.expr]) -> bool:
    return any(_marker(node) == "machine" for top in nodes for node in ast.walk(top))


def marks_of(path: Path) -> list[Mark]:
    """The marks of one file of tests, in its order."""
    file = str(path.relative_to(ROOT))
    tree = ast.parse(path.read_text())
    of_file = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets)
    ]
    found: list[Mark] = []

    def look(node: ast.AST, machine: bool) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            machine = machine or _marks_machine(node.decorator_list)
        if isinstance(node, ast.Call) and _marker(node) == "fault":
            how = next((word.value for word in node.keywords if word.arg == "how"), None)
            number = node.args[0] if node.args else None
            if not (isinstance(number, ast.Constant) and isinstance(how, ast.Constant) and number.value in ROWS):
                raise SystemExit(
                    f'docs: {file}:{node.lineno}: a fault mark is written fault(NUMBER, how="...") with a row\'s number'
                )
            found.append(Mark(int(number.value), str(how.value), file, machine))
        for child in ast.iter_child_nodes(node):
            look(child, machine)

    look(tree, _marks_machine(of_file))
    return found


def fault_table() -> str:
    """The rows with what provokes each, where that runs, and what cannot be provoked."""
    marks: dict[int, list[Mark]] = {number: [] for number in ROWS}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for mark in marks_of(path):
            marks[mark.row].append(mark)
    out = ["| row | fault | provoked by | where it runs |", "|---|---|---|---|"]
    for number, name in ROWS.items():
        told: dict[str, tuple[set[str], set[bool]]] = {}
        for mark in marks[number]:
            files, machine = told.setdefault(mark.how, (set(), set()))
            files.add(mark.file)
            machine.add(mark.machine)
        lines = [f"{how} (`{'`, `'.join(sorted(files))}`)" for how, (files, _) in told.items()]
        if number in NOT_HERE:
            lines.append(f"not provoked here: {NOT_HERE[number]}")
        kinds = {kind for _, machine in told.values() for kind in machine}
        where = {frozenset(): "-", frozenset({False}): "CI", frozenset({True}): "`make faults`"}.get(
            frozenset(kinds), "CI, more in `make faults`"
        )
        out.append(f"| {number} | {name} | {'<br>'.join(lines) or 'no test yet'} | {where} |")
    return "\n".join(out)
