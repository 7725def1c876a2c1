"""docs/provoked.md and the tables of what is provoked: whole, and of one mind with catalogue and checks. No engine is started."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import eagletui
from eagletui.engines.diagnosis.entries import BY_ID
from tests.lab.provoke import table
from tests.lab.provoke.__main__ import CASES, chosen
from tests.lab.provoke.case import Case
from tests.lab.provoke.models import BUILDERS, read_tensors, write_tensors
from tests.lab.provoke.table import Row

SOURCE = Path(eagletui.__file__).parent
BY_NAME = {case.id: case for case in CASES}
ENDINGS = set(re.findall(r"\"([a-z0-9-]+)\"", (SOURCE / "engines/diagnosis/endings.py").read_text()))
FINDINGS = "\n".join(path.read_text() for path in (SOURCE / "engines/preflight").glob("*_checks.py"))
ROWS = table.rows_of(table.DOCUMENT.read_text())


def test_there_are_enough_of_both_engines() -> None:
    assert len(BY_NAME) == len(CASES) >= 60
    told = [row for row in ROWS.values() if row.preflight != "missed" and not row.diagnosed.startswith("not over")]
    assert len(told) >= 25
    assert {row.engine.split()[0] for row in told} == {"vllm", "sglang"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_case_names_what_there_is(case: Case) -> None:
    for cause in case.diagnosed:
        assert cause in BY_ID or cause in ENDINGS, cause
    for finding in case.preflight:
        role = re.sub(r"^(target|drafter)-", "%s-", finding)
        assert f'"{finding}"' in FINDINGS or f'"{role}"' in FINDINGS, finding


@pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: row.case)
def test_a_row_was_told_as_its_case_wants(row: Row) -> None:
    case = BY_NAME[row.case]
    assert row.what == case.what
    if case.diagnosed:
        assert re.match(r"`([a-z0-9-]+)`: .", row.diagnosed), row
        assert row.diagnosed[1:].partition("`")[0] in case.diagnosed
    else:
        assert row.diagnosed == table.COMES_UP
    if case.preflight:
        assert row.preflight.strip("`") in case.preflight
    else:
        assert row.preflight == f"cannot know: {case.unknowable}"
    assert re.fullmatch(r"(vllm|sglang) [\d.]+\S*", row.engine)
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", row.day)


def test_rows_that_were_not_run_again_stay() -> None:
    one = Row("vllm/a", "with a | in it", "`x`: y", "`z`", "vllm 1", "2026-01-01")
    other = one._replace(case="vllm/b")
    text = f"head\n{table.BEGIN}\n{table.END}\ntail\n"
    text = table.filled(text, {"vllm/a": one, "vllm/b": other}, ["vllm/b", "vllm/a"])
    assert table.rows_of(text) == {"vllm/b": other, "vllm/a": one}
    assert table.filled(text, table.rows_of(text), ["vllm/b", "vllm/a"]) == text
    assert (text.startswith("head\n"), text.endswith("tail\n")) == (True, True)


def test_cases_are_chosen_by_engine_and_name() -> None:
    assert chosen([]) == list(CASES)
    assert [case.id for case in chosen(["sglang/spec-some", "vllm/empty"])] == ["sglang/spec-some", "vllm/empty"]
    assert {case.engine for case in chosen(["sglang"])} == {"sglang"}
    with pytest.raises(SystemExit, match="no case 'vllm/none'"):
        chosen(["vllm/none"])


def test_tensors_are_written_as_they_were_read(tmp_path: Path) -> None:
    tensors = {"d2t": ({"dtype": "I64", "shape": [2]}, b"a" * 16), "fc.weight": ({"dtype": "BF16", "shape": [1, 3]}, b"b" * 6)}
    write_tensors(tmp_path / "x", tensors)
    read = read_tensors(tmp_path / "x")
    assert {name: (entry["shape"], data) for name, (entry, data) in read.items()} == {
        "d2t": ([2], b"a" * 16),
        "fc.weight": ([1, 3], b"b" * 6),
    }
    assert "drafter-narrow" in BUILDERS
