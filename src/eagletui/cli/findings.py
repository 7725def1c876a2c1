"""The findings of a preflight as text, the same for `preflight` and `launch`."""

from __future__ import annotations

import textwrap

from eagletui import text
from eagletui.cli.errors import say
from eagletui.commands.preflight import Preflight
from eagletui.engines.preflight.findings import BLOCK, INFO, WARN, Finding, Report
from eagletui.views.preflight import SIGNS, headline


def conclusion(found: Preflight) -> str:
    """One line that says what the findings come to."""
    return f"{text.clean(found.profile.name)} {headline(found.report)[0]}"


def lines(report: Report, width: int, *, everything: bool = True) -> list[str]:
    """The findings as text, folded to ``width``; without ``everything`` the notes in one line each."""
    out: list[str] = []
    for finding in report.findings:
        out += _brief(finding, width) if finding.severity == INFO and not everything else _whole(finding, width)
    return out


def _brief(finding: Finding, width: int) -> list[str]:
    words = f"{finding.title}  ({finding.evidence})" if finding.evidence else finding.title
    return [text.fold_words(text.clean(f"{SIGNS[finding.severity]} {words}", 1000), width)]


def _whole(finding: Finding, width: int) -> list[str]:
    out = _block(f"{SIGNS[finding.severity]} ", "  ", finding.title, width)
    for label, words in (("seen", finding.evidence), ("why", finding.why), ("do", finding.remedy)):
        if words:
            out += _block(f"    {label:<5}", " " * 9, words, width)
    return out


def _block(first: str, rest: str, words: str, width: int) -> list[str]:
    safe = text.clean(words, 2000)
    return textwrap.wrap(safe, max(30, width), initial_indent=first, subsequent_indent=rest, break_on_hyphens=False) or [
        first.rstrip()
    ]


def tell(report: Report) -> None:
    """What a launch says of the findings on stderr: those that block whole, each warning in one line."""
    for finding in report.of(BLOCK):
        remedy = f" - {finding.remedy}" if finding.remedy else ""
        say(f"preflight: {finding.title}: {finding.evidence}{remedy}")
    for finding in report.of(WARN):
        say(f"warning: {finding.title}" + (f" - {finding.remedy}" if finding.remedy else ""))
