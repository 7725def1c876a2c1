"""One result of the doctor."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

SEVERITIES = ("ok", "info", "warn", "bad")


class Finding(NamedTuple):
    """What one check found. ``id`` is stable, ``severity`` one of `SEVERITIES`; info is a fact nobody needs to act on."""

    id: str
    severity: str
    title: str
    evidence: str = ""
    remedy: str = ""


def verdict(findings: Iterable[Finding]) -> str:
    """The worst of the findings: ok, warn or bad."""
    worst = max((SEVERITIES.index(finding.severity) for finding in findings), default=0)
    return "ok" if worst < 2 else SEVERITIES[worst]
