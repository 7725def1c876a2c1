"""The command line: reads the arguments, hands over to the verb's module, and turns what went wrong into one line.

Only argparse is imported here: ``eagletui --help`` must answer at once. Each verb's module is imported when it is called.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from eagletui.cli.parser import VERBS, build_parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code (`eagletui.cli.errors.Exit`). Never raises and never prints a traceback."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        options = build_parser().parse_args(arguments)
        module = next(verb.module for verb in VERBS if verb.name == options.verb)
        return int(import_module(module).run(options))
    except SystemExit as stop:
        # argparse has printed its line (or the help) already
        return stop.code if isinstance(stop.code, int) else 2
    except BaseException as error:  # noqa: BLE001 - the last line of defence: every kind becomes one line and an exit code
        from eagletui.cli.errors import explain

        return explain(error, arguments)
