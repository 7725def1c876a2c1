"""What patches there are for this engine: offered, applied, or outgrown."""

from __future__ import annotations

from typing import Iterator

from eagletui.engines.patches.core import APPLICABLE, APPLIED, BACKUP
from eagletui.engines.patches.sets import SETS
from eagletui.engines.preflight.case import Case
from eagletui.engines.preflight.findings import INFO, WARN, Finding
from eagletui.engines.preflight.target_checks import patchable
from eagletui.engines.preflight.versions import before

PART = "engine"


def patches(case: Case) -> Iterator[Finding]:
    """Each set against the state of the installed source."""
    for patch in SETS:
        told = (case.engine.get("patches") or {}).get(patch.name)
        if patch.engine != case.launch.engine or not told:
            continue
        since, until = patch.versions
        within = before(case.version, since) is False and before(case.version, until) is True
        backups = told.get("backups") or []
        if backups and within and told.get("state") == APPLIED:
            yield Finding(
                "patch-applied",
                INFO,
                "%s is patched with %s" % (case.name, patch.name),
                "%d files with a %s beside them" % (len(backups), BACKUP),
                patch.limits,
                "",
                PART,
            )
        elif backups and before(case.version, until) is False:
            yield Finding(
                "patch-outgrown",
                INFO,
                "%s needs the patch %s no more" % (case.name, patch.name),
                "originals of an older version lie there: %s" % ", ".join(name + BACKUP for name in backups),
                "they are of no use",
                "eagletui patch revert clears them away",
                PART,
            )
        elif backups:
            yield Finding(
                "patch-partly",
                WARN,
                "the patch %s is not whole" % patch.name,
                "state of its files: %s" % told.get("state"),
                "the launch may die after the whole load",
                "eagletui patch check tells which file; revert, then apply",
                PART,
            )
        elif within and told.get("state") == APPLICABLE and case.eagle3 and patchable(case):
            yield Finding(
                "patch-offered",
                INFO,
                "the patch %s would make %s do this" % (patch.name, case.name),
                "all of its %d files are as it knows them" % len(patch.files),
                patch.limits,
                "eagletui patch apply",
                PART,
            )


CHECKS = (patches,)
