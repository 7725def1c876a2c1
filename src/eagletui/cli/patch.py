"""``eagletui patch list|check|apply|revert TARGET ENV [NAME]``: named, reversible changes to an installed engine's source."""

from __future__ import annotations

import argparse
import asyncio
import textwrap

from eagletui import text
from eagletui.cli.desk import print_json, seated, table
from eagletui.cli.errors import Exit
from eagletui.commands import Desk
from eagletui.commands import patch as patches
from eagletui.commands.patch import OUTGROWN, PARTLY, Look
from eagletui.engines.patches.core import APPLICABLE, APPLIED, NATIVE
from eagletui.hosts.base import HostError

FINE = (APPLIED, NATIVE, OUTGROWN)
WIDTH = 100


def run(options: argparse.Namespace) -> int:
    return asyncio.run(_patch(options))


async def _patch(options: argparse.Namespace) -> int:
    async with seated(options) as desk:
        engine = await patches.find_engine(desk, options.env)
        seen = await patches.looks(desk, engine, options.name)
        if options.action in ("apply", "revert"):
            seen = [await _changed(desk, options.action, one, options.name) for one in seen]
        if options.json:
            print_json(
                target=options.target,
                engine={"name": engine.name, "version": engine.version, "package": engine.package},
                patches=[_plain(one) for one in seen],
            )
        else:
            _show(options.action, seen)
    return _code(options.action, seen)


async def _changed(desk: Desk, action: str, one: Look, name: str | None) -> Look:
    """Apply or revert one set. Without a name, those that are in no state for it are passed over."""
    if name is None:
        able = (APPLICABLE, PARTLY) if action == "apply" else (APPLIED, PARTLY, OUTGROWN)
        if one.state not in able or (action == "revert" and not any(file.original is not None for file in one.files)):
            raise HostError("patch", f"{one.patch.name}: nothing to {action}: {one.why}", "", kind="config")
    return await (patches.apply if action == "apply" else patches.undo)(desk, one)


def _plain(one: Look) -> dict[str, object]:
    return {
        "name": one.patch.name,
        "title": one.patch.title,
        "versions": list(one.patch.versions),
        "state": one.state,
        "why": one.why,
        "does": one.patch.why,
        "limits": one.patch.limits,
        "files": [{"path": file.path, "state": file.state.state, "original": file.original is not None} for file in one.files],
    }


def _show(action: str, seen: list[Look]) -> None:
    engine = seen[0].engine
    print(text.clean(f"{engine.name} {engine.version} in {engine.package}"))
    if action == "list":
        rows = [("PATCH", "FOR", "STATE", "WHAT")]
        rows += [
            (one.patch.name, f"{one.patch.versions[0]} up to {one.patch.versions[1]}", one.state, one.patch.title) for one in seen
        ]
        print("\n".join(table(rows)))
        return
    for one in seen:
        print(text.clean(f"{one.patch.name}: {one.state}"))
        for label, words in (("", one.why), ("does: ", one.patch.why), ("limits: ", one.patch.limits)):
            print(textwrap.fill(text.clean(label + words, 4000), WIDTH, initial_indent="  ", subsequent_indent="    "))
        for file in one.files:
            kept = ", original kept" if file.original is not None else ""
            print(text.clean(f"  {file.state.file}: {file.state.state}{kept}"))
    if action in ("apply", "revert"):
        print("servers that run now are not affected; the next launch is")


def _code(action: str, seen: list[Look]) -> Exit:
    """For `check`: 0 nothing to do, 1 can be applied, 2 not for this engine or not recognised."""
    if action != "check" or all(one.state in FINE for one in seen):
        return Exit.OK
    return Exit.WARNINGS if all(one.state in (*FINE, APPLICABLE, PARTLY) for one in seen) else Exit.USAGE
