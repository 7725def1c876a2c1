"""What pytest does about the marks ``fault`` and ``machine``.

``--faults`` runs the tests that carry one of them and ends with a line for each row of the table; ``--rows=3,4`` only those of
some rows; ``--faults-json=PATH`` writes the lines for a program. Without ``--faults`` what needs a machine of its own stays out,
unless its file is named.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.faults.rows import NOT_HERE, ROWS

ROWS_OF = "fault rows"


@dataclass
class Told:
    """How one test of a row ended: ``passed``, ``failed`` or ``skipped``, why if not passed, and how long it took."""

    test: str
    outcome: str
    why: str = ""
    seconds: float = 0.0


@dataclass
class Row:
    """One row: its tests and what they say together."""

    number: int
    tests: list[Told] = field(default_factory=list)

    @property
    def outcome(self) -> str:
        """``held`` when every test that ran has passed, ``LOST`` when one has not, ``not provoked`` when none ran."""
        kinds = {told.outcome for told in self.tests}
        return "LOST" if "failed" in kinds else "held" if "passed" in kinds else "not provoked"

    @property
    def what(self) -> str:
        """What was lost, or why it was not provoked, or what was left out of a row that held."""
        if self.outcome == "LOST":
            return "; ".join(f"{told.test}: {told.why}" for told in self.tests if told.outcome == "failed")
        left_out = sorted({told.why for told in self.tests if told.outcome == "skipped"})
        if self.number in NOT_HERE:
            left_out.append(NOT_HERE[self.number])
        if self.outcome == "held":
            return f"not provoked here: {'; '.join(left_out)}" if left_out else ""
        return "; ".join(left_out) or "no test of it was run"

    @property
    def line(self) -> str:
        what = f" - {self.what}" if self.what and self.outcome != "held" else f" ({self.what})" if self.what else ""
        return f"fault {self.number} {ROWS[self.number]}: {self.outcome}{what}"


class FaultTable:
    """Chooses the tests, hears how they end, tells the rows."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.wanted = {int(number) for number in config.getoption("rows").replace(" ", ",").split(",") if number}
        unknown = self.wanted - ROWS.keys()
        if unknown:
            raise pytest.UsageError(
                f"--rows: no row {', '.join(map(str, sorted(unknown)))} in the fault table, it has 1 to {max(ROWS)}"
            )
        self.all = bool(config.getoption("faults") or self.wanted)
        self.rows = {number: Row(number) for number in ROWS}

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        for item in items:
            numbers = sorted({int(mark.args[0]) for mark in item.iter_markers("fault")})
            unknown = [number for number in numbers if number not in ROWS]
            if unknown:
                raise pytest.UsageError(f"{item.nodeid}: the fault table has no row {unknown[0]}")
            if numbers:
                item.user_properties.append((ROWS_OF, numbers))
        if not self.all:
            named = {Path(arg.partition("::")[0]).resolve() for arg in config.args}
            asked = "machine" in (config.getoption("markexpr") or "")
            out = [item for item in items if item.get_closest_marker("machine") and not asked and item.path not in named]
        else:
            out = [item for item in items if not self._is_wanted(item)]
        if out:
            config.hook.pytest_deselected(items=out)
            gone = set(out)
            items[:] = [item for item in items if item not in gone]

    def _is_wanted(self, item: pytest.Item) -> bool:
        numbers = {int(mark.args[0]) for mark in item.iter_markers("fault")}
        if self.wanted:
            return bool(numbers & self.wanted)
        return bool(numbers) or item.get_closest_marker("machine") is not None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        numbers = [number for name, value in report.user_properties if name == ROWS_OF for number in value]
        if not numbers or (report.when != "call" and report.passed):
            return
        told = Told(report.nodeid, report.outcome, _why(report), round(report.duration, 2))
        for number in numbers:
            tests = self.rows[number].tests
            # a teardown that fails speaks over the call that passed
            tests[:] = [other for other in tests if other.test != told.test or other.outcome == "failed"]
            tests.append(told)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.all:
            return
        terminalreporter.section("faults")
        shown = [row for row in self.rows.values() if not self.wanted or row.number in self.wanted]
        for row in shown:
            terminalreporter.write_line(row.line, red=row.outcome == "LOST", green=row.outcome == "held")
        counts = {outcome: sum(row.outcome == outcome for row in shown) for outcome in ("held", "LOST", "not provoked")}
        terminalreporter.write_line(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
        path = self.config.getoption("faults_json")
        if path:
            write_json(Path(path), shown)


def write_json(path: Path, rows: list[Row]) -> None:
    """The rows for a program: ``{version, rows: [{row, name, outcome, what, tests: [{test, outcome, why, seconds}]}]}``."""
    told = [
        {
            "row": row.number,
            "name": ROWS[row.number],
            "outcome": row.outcome,
            "what": row.what,
            "tests": [vars(test) for test in row.tests],
        }
        for row in rows
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"version": 1, "rows": told}, indent=1) + "\n")


def _why(report: pytest.TestReport) -> str:
    """In one line why a test failed or was skipped."""
    if report.skipped and isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else str(report.longrepr or "")
    return text.strip().splitlines()[0][:200] if text.strip() else ""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("faults")
    group.addoption("--faults", action="store_true", help="run the tests of the fault table and tell each row")
    group.addoption("--rows", default="", help="run only the tests of these rows of the fault table: 3,4")
    group.addoption("--faults-json", default="", help="write the told rows to this file")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(FaultTable(config), "fault table")
