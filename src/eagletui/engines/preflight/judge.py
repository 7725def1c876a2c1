"""From facts to findings: every check is asked, and one that fails on strange facts is told instead of stopping the others."""

from __future__ import annotations

from typing import Any, Callable, Iterator, List, Mapping, Optional

from eagletui.engines.preflight import (
    checkpoint_checks,
    config_checks,
    drafter_checks,
    engine_checks,
    machine_checks,
    memory_checks,
    patch_checks,
    place_checks,
    rule_checks,
    target_checks,
)
from eagletui.engines.preflight.case import Case
from eagletui.engines.preflight.findings import INFO, Finding, Report, ordered
from eagletui.engines.preflight.launch import Launch
from eagletui.records import GpuBoard, JobState

Check = Callable[[Case], Iterator[Finding]]
MODULES = (
    engine_checks, target_checks, drafter_checks, patch_checks, checkpoint_checks, config_checks, memory_checks, place_checks,
    machine_checks, rule_checks,
)  # fmt: skip
OF_ANY = (engine_checks.present, *place_checks.CHECKS, *machine_checks.CHECKS)
"""What is asked of a command that starts no engine that is known."""
PARTS = ("engine", "target", "drafter", "place", "machine")


def judge(
    launch: Launch,
    facts: Mapping[str, Any],
    board: Optional[GpuBoard] = None,
    jobs: Optional[Mapping[str, JobState]] = None,
    expected: Optional[int] = None,
) -> Report:
    """What stands in the way of ``launch`` on a host with these ``facts`` (the answer to the request ``facts``)."""
    case = Case(
        launch,
        _part(facts, "engine"),
        _part(facts, "target"),
        _part(facts, "drafter"),
        _part(facts, "place"),
        _part(facts, "machine"),
        board,
        dict(jobs or {}),
        expected,
    )
    found: List[Finding] = []
    unseen = [str(what) for what in facts.get("skipped") or ()]
    for check in [check for module in MODULES for check in module.CHECKS] if launch.known else OF_ANY:
        found += _asked(check, case, unseen)
    unseen += [
        "%s: %s" % (name, part["problem"])
        for name in ("place", "machine")
        for part in [_part(facts, name)]
        if part.get("problem")
    ]
    if unseen:
        what = "; ".join(unseen[:4])
        found.append(Finding("not-looked-at", INFO, "not everything could be looked at", what, "", "", "preflight"))
    looked = tuple(name for name in PARTS if facts.get(name))
    return Report(ordered(found), looked, tuple(unseen), facts.get("seconds"))


def _part(facts: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = facts.get(name)
    return part if isinstance(part, dict) else {}


def _asked(check: Check, case: Case, unseen: List[str]) -> List[Finding]:
    """The findings of one check. Configurations are other people's files: a value of the wrong kind costs one check alone."""
    try:
        return list(check(case))
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, ZeroDivisionError) as error:
        unseen.append("the check %s: %s" % (check.__name__.replace("_", " "), error))
        return []
