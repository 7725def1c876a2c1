"""``eagletui doctor TARGET``: every check between this terminal and the host's cards."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterable

from eagletui import __version__
from eagletui.cli.errors import Exit, exit_of
from eagletui.cli.parser import given_by
from eagletui.commands import connector, settings_for
from eagletui.config import load_config
from eagletui.doctor import Finding, examine, verdict
from eagletui.hosts.prompts import TerminalPrompter
from eagletui.hosts.target import parse_target
from eagletui.text import clean, pad

WIDTH = 28


def run(options: argparse.Namespace) -> int:
    return asyncio.run(_doctor(options))


async def _doctor(options: argparse.Namespace) -> int:
    target = parse_target(options.target)
    config = load_config()
    settings = settings_for(config, target, given_by(options))
    findings = [
        Finding("config", "warn", "configuration", f"{notice.file}:{notice.line or 1}: {notice.what}", notice.remedy)
        for notice in config.notices
    ]

    def tell(line: str) -> None:
        findings.append(Finding("connection", "warn", "connecting", line))

    connect = connector(target, settings, TerminalPrompter(), tell)
    found, error = await examine(
        target,
        lambda: connect(lambda _link: None),
        read_config=settings.ssh_config,
        identity=settings.identity,
        expected_cards=settings.gpus,
    )
    findings += found
    worst = verdict(findings)
    if options.json:
        document = {"version": __version__, "target": str(target), "verdict": worst, "findings": [f._asdict() for f in findings]}
        print(json.dumps(document, indent=2))
    else:
        print("\n".join(lines(findings)))
    if error is not None:
        return exit_of(error)
    return {"ok": Exit.OK, "warn": Exit.WARNINGS, "bad": Exit.USAGE}[worst]


def lines(findings: Iterable[Finding]) -> list[str]:
    """One line for each finding, its remedy below it, and a closing line with the counts."""
    out = []
    count = {"ok": 0, "info": 0, "warn": 0, "bad": 0}
    for finding in findings:
        count[finding.severity] += 1
        evidence = f"  {clean(finding.evidence)}" if finding.evidence else ""
        title = pad(clean(finding.title), WIDTH) if evidence else clean(finding.title)
        out.append(f"{pad(finding.severity, 5)} {title}{evidence}")
        if finding.remedy and finding.severity != "ok":
            out.append(f"      -> {clean(finding.remedy)}")
    out.append("")
    total = count["ok"] + count["info"]
    out.append(f"{total} fine, {count['warn']} to look at, {count['bad']} wrong")
    return out
