"""``eagletui connect TARGET``: the dashboard.

The connection comes first, so that what SSH has to ask is asked in the plain terminal; while the network is awaited, the
dashboard's modules are imported in a thread.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from importlib import import_module

from eagletui.cli.desk import LiveLine
from eagletui.cli.errors import Exit, say
from eagletui.cli.parser import given_by
from eagletui.commands import open_desk
from eagletui.hosts.prompts import TerminalPrompter
from eagletui.hosts.target import parse_target


def run(options: argparse.Namespace) -> int:
    target = parse_target(options.target)
    if sys.stdin.isatty() and sys.stdout.isatty() and not sys.stderr.isatty():
        # Textual draws on stderr; and who reads the terminal is to see why nothing comes
        words = "connect: stderr is no terminal, and the dashboard is drawn on it - run it without 2>"
        say(words)
        print(f"eagletui: {words}")
        return Exit.USAGE
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        say(f"connect: this is no terminal - run it in one (ssh -t when it is remote), or use `eagletui status {target}`")
        return Exit.USAGE
    if os.environ.get("TERM", "dumb") == "dumb":
        say(f"connect: this terminal cannot draw (TERM is dumb or not set) - set TERM, or use `eagletui status {target}`")
        return Exit.USAGE
    return asyncio.run(_connect(options))


async def _connect(options: argparse.Namespace) -> int:
    screens = asyncio.create_task(asyncio.to_thread(import_module, "eagletui.app"))
    target = parse_target(options.target)
    waiting = _Waiting(f"connecting to {target} ...")
    try:
        desk = await open_desk(target, TerminalPrompter(asking=waiting.asking), given_by(options))
    except BaseException:
        waiting.end()
        await screens  # a thread cannot be stopped halfway; this takes a tenth of a second
        raise
    waiting.end()
    try:
        app = (await screens).EagleApp(desk.store, desk, readonly=desk.readonly, keys=desk.config.keys)
        code: int | None = await app.run_async()
    finally:
        await desk.close()
    # an error that ended the dashboard has been told by it, after it gave the terminal back
    return Exit.INTERNAL if app.failure is not None else code or Exit.OK


class _Waiting:
    """The line that says what is waited for: not while something is asked, and gone before the dashboard is drawn."""

    def __init__(self, words: str) -> None:
        self._line, self._words, self._over = LiveLine(), words, False
        self.asking(False)

    def asking(self, asks: bool) -> None:
        if asks:
            self._line.end()
        elif not self._over:
            self._line.show(self._words, self._words)

    def end(self) -> None:
        self._over = True
        self._line.end()
