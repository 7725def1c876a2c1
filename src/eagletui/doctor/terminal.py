"""The terminal on this side: kind, colours, size, encoding."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import NamedTuple

from eagletui.doctor.findings import Finding

COLUMNS, ROWS = 80, 24


class TerminalFacts(NamedTuple):
    """What is known of the terminal. ``size`` is (columns, rows), None when there is none."""

    term: str
    colorterm: str
    no_color: bool
    encoding: str
    size: tuple[int, int] | None
    multiplexer: str | None = None


def look(environ: Mapping[str, str] | None = None) -> TerminalFacts:
    """Read this process's environment and terminal."""
    env = os.environ if environ is None else environ
    try:
        size: tuple[int, int] | None = tuple(os.get_terminal_size(sys.__stderr__.fileno() if sys.__stderr__ else 2))  # type: ignore[assignment]
    except OSError:
        size = None  # no terminal: the output goes to a file or a pipe
    multiplexer = "tmux" if env.get("TMUX") else "screen" if env.get("STY") else None
    return TerminalFacts(
        env.get("TERM", ""), env.get("COLORTERM", ""), bool(env.get("NO_COLOR")), sys.stdout.encoding or "", size, multiplexer
    )


def judge_terminal(facts: TerminalFacts) -> list[Finding]:
    """Findings on whether the dashboard can be drawn here."""
    out = []
    if facts.term in ("", "dumb"):
        out.append(
            Finding(
                "terminal",
                "bad",
                "terminal cannot draw",
                f"TERM is {facts.term or 'not set'}",
                "use a terminal emulator, or `ssh -t` when you came through ssh; `status` works without",
            )
        )
    else:
        via = f" in {facts.multiplexer}" if facts.multiplexer else ""
        out.append(Finding("terminal", "ok", "terminal", f"{facts.term}{via}, {_colours(facts)}"))
    if facts.encoding.lower().replace("-", "") != "utf8":
        out.append(
            Finding(
                "encoding",
                "warn",
                "terminal is not UTF-8",
                f"encoding {facts.encoding or 'unknown'}",
                "export LC_ALL=C.UTF-8",
            )
        )
    if facts.size is not None:
        columns, rows = facts.size
        small = columns < COLUMNS or rows < ROWS
        out.append(
            Finding(
                "size",
                "warn" if small else "ok",
                "terminal size",
                f"{columns}x{rows}",
                f"at least {COLUMNS}x{ROWS} shows every column; 160x50 is comfortable" if small else "",
            )
        )
    return out


def _colours(facts: TerminalFacts) -> str:
    if facts.no_color:
        return "no colours (NO_COLOR is set)"
    if facts.colorterm in ("truecolor", "24bit"):
        return "24-bit colour"
    return "256 colours" if "256" in facts.term else "16 colours"
