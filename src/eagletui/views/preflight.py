"""What a preflight found, worked out for whoever shows it: counts, the words of the verdict, the order of the findings."""

from __future__ import annotations

from typing import NamedTuple

from eagletui.engines.preflight.findings import BLOCK, BLOCKED, INFO, WARN, Report
from eagletui.text import clean, plural

SIGNS = {BLOCK: "✗", WARN: "!", INFO: "·"}
STYLES = {BLOCK: "bad", WARN: "warn", INFO: "dim"}


class Item(NamedTuple):
    """One finding, safe to draw. ``details`` are (label, words) of what was seen, why it matters and what to do."""

    sign: str
    style: str
    title: str
    details: tuple[tuple[str, str], ...]


def items(report: Report) -> list[Item]:
    """The findings, worst first."""
    return [
        Item(
            SIGNS[finding.severity],
            STYLES[finding.severity],
            clean(finding.title, 400),
            tuple(
                (label, clean(words, 2000))
                for label, words in (("seen", finding.evidence), ("why", finding.why), ("do", finding.remedy))
                if words
            ),
        )
        for finding in report.findings
    ]


def blocked(report: Report) -> bool:
    """Whether a launch would not come up."""
    return report.verdict == BLOCKED


def headline(report: Report) -> tuple[str, str]:
    """(words, style) of the verdict: ``would not come up: 1 blocking, 2 notes``."""
    block, warn, info = (len(report.of(severity)) for severity in (BLOCK, WARN, INFO))
    counts = [
        words
        for count, words in ((block, f"{block} blocking"), (warn, plural(warn, "warning")), (info, plural(info, "note")))
        if count
    ]
    words, style = {
        "blocked": ("would not come up", "bad"),
        "warnings": ("may come up", "warn"),
        "clear": ("is clear", "good"),
    }[report.verdict]
    return words + (f": {', '.join(counts)}" if counts else ""), style
