"""A finding: what was seen, how bad it is, why it matters, and what to do."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

BLOCK, WARN, INFO = "block", "warn", "info"
SEVERITIES = (BLOCK, WARN, INFO)
CLEAR, WARNINGS, BLOCKED = "clear", "warnings", "blocked"


class Finding(NamedTuple):
    """One thing that preflight found.

    ``severity``: block (the launch would fail, or draft nonsense), warn (it may, or is slower than it should be), info (worth
    knowing). ``evidence`` says what was read and where; ``why`` what comes of it; ``remedy`` what to do. ``part`` is what it
    is about: engine, target, drafter, checkpoint, memory, place, machine, rules.
    """

    id: str
    severity: str
    title: str
    evidence: str
    why: str = ""
    remedy: str = ""
    part: str = ""


class Report(NamedTuple):
    """All findings, worst first. ``looked`` names what was looked at, ``unseen`` what could not be and why."""

    findings: Tuple[Finding, ...] = ()
    looked: Tuple[str, ...] = ()
    unseen: Tuple[str, ...] = ()
    seconds: Optional[float] = None

    @property
    def verdict(self) -> str:
        """clear, warnings or blocked."""
        found = {finding.severity for finding in self.findings}
        return BLOCKED if BLOCK in found else WARNINGS if WARN in found else CLEAR

    def of(self, severity: str) -> List[Finding]:
        """The findings of one severity, in order."""
        return [finding for finding in self.findings if finding.severity == severity]


def ordered(found: Iterable[Finding]) -> Tuple[Finding, ...]:
    """Worst first, otherwise in the order they were found; the same finding only once."""
    unique: Dict[Tuple[str, str], Finding] = {}
    for finding in found:
        unique.setdefault((finding.id, finding.evidence), finding)
    return tuple(sorted(unique.values(), key=lambda finding: SEVERITIES.index(finding.severity)))


def as_doc(report: Report) -> Dict[str, Any]:
    """The report as a JSON object: ``verdict``, ``findings``, ``looked``, ``unseen``, ``seconds``."""
    return {
        "verdict": report.verdict,
        "findings": [finding._asdict() for finding in report.findings],
        "looked": list(report.looked),
        "unseen": list(report.unseen),
        "seconds": report.seconds,
    }
