"""What running a pipeline would do: its steps, which of them are done already, and the room where its results go."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from eagletui.commands.desk import Desk
from eagletui.hosts.base import HostError
from eagletui.jobs.hidden_states import Layout, file_bytes
from eagletui.jobs.on_host.target_config import text_config
from eagletui.jobs.pipeline import RECORD, todo
from eagletui.text import size

MOST = 8 << 20
"""Bytes of a record that are read: those of a thousand steps."""
PIECE = 1 << 16


class StepAhead(NamedTuple):
    """One step. ``why`` it will be run; None when it is done already. ``gates`` in words."""

    id: str
    kind: str
    stage: str | None = None
    server: str | None = None
    why: str | None = None
    title: str = ""
    gates: tuple[str, ...] = ()


class Ahead(NamedTuple):
    """``steps`` in their order, ``notes`` on what was there before and how much room there is."""

    steps: tuple[StepAhead, ...]
    notes: tuple[str, ...] = ()


async def look_ahead(desk: Desk, spec: Mapping[str, Any]) -> Ahead:
    """What the pipeline with this spec would do on the host as it is now. Raises `HostError`."""
    from eagletui.jobs import gates
    from eagletui.jobs.kinds import kind

    plan = spec["pipeline"]
    record = await _record(desk, f"{plan['dir']}/{RECORD}")
    entries = {str(entry.get("id")): entry for entry in record.get("steps") or () if isinstance(entry, dict)}
    paths = sorted({str(path) for entry in entries.values() for path in entry.get("made") or ()})
    there = dict(zip(paths, await desk.session.request("stat", paths=paths), strict=True)) if paths else {}

    def gone(made: Mapping[str, Any]) -> str | None:
        return next((f"{path} is not there any more" for path in made if there.get(path) is None), None)

    again = todo(plan, entries, gone)
    steps = tuple(
        StepAhead(
            step["id"],
            step["kind"],
            step.get("stage"),
            step.get("server"),
            again.get(step["id"]),
            kind(step["kind"]).title(step["spec"]),
            tuple(gates.bound(gate) for gate in step.get("gates") or ()),
        )
        for step in plan["steps"]
    )
    states = [await _states(desk, step) for step in plan["steps"] if step.get("size") and step["id"] in again]
    return Ahead(steps, (*_notes(desk, plan, record), *(words for words in states if words)))


async def _record(desk: Desk, path: str) -> dict[str, Any]:
    """What an earlier run has left; empty where there was none."""
    data = await _file(desk, path)
    if data is None:
        return {}
    try:
        doc = json.loads(data)
    except ValueError:
        raise HostError("pipeline", f"{path} is damaged", "move it away to begin anew, or choose another dir") from None
    return doc if isinstance(doc, dict) else {}


async def _file(desk: Desk, path: str) -> bytes | None:
    """A small file of the host; None when there is none."""
    try:
        chunk = await desk.session.read(path, 0, PIECE)
        data, same = chunk.data, (chunk.dev, chunk.inode)
        while len(data) < min(chunk.size, MOST) and chunk.data:
            chunk = await desk.session.read(path, len(data), PIECE, identity=same)
            data += chunk.data
    except HostError as error:
        if error.kind == "absent":
            return None
        raise
    return data


async def _states(desk: Desk, step: Mapping[str, Any]) -> str | None:
    """The most that a step's hidden states will take; None where the target's configuration or the rows are not known."""
    wanted = step["size"]
    if not wanted["rows"] or not wanted["tokens"]:
        return None
    try:
        data = await _file(desk, f"{wanted['target']}/config.json")
        width = text_config(json.loads(data)).get("hidden_size") if data else None
    except (HostError, ValueError, AttributeError):
        return None  # an estimate is all that is lost: the step looks itself, before it writes a byte
    if not isinstance(width, int):
        return None
    most = wanted["rows"] * file_bytes(wanted["tokens"], Layout(wanted["layers"], width, "bfloat16"))
    rows = f"{wanted['rows']:,} rows of at most {wanted['tokens']:,} tokens, in bfloat16"
    return f"{step['id']}: at most {size(most)} of hidden states ({rows}); it counts exactly before it writes"


def _notes(desk: Desk, plan: Mapping[str, Any], record: Mapping[str, Any]) -> list[str]:
    out = []
    if record:
        words = {"done": "was done", "failed": "had failed", "ended": "was ended", "running": "runs, or was cut off"}
        how = words.get(str(record.get("state")), "was begun")
        out.append(f"an earlier run (job {record.get('job')}) {how}{': ' + str(record['why']) if record.get('why') else ''}")
    disks = desk.store.host.disks if desk.store.host is not None else ()
    mounts = [disk for disk in disks if f"{plan['dir']}/".startswith(disk.mount.rstrip("/") + "/")]
    if mounts:
        disk = max(mounts, key=lambda disk: len(disk.mount))
        out.append(f"free where it works ({disk.mount}): {size(disk.free)}")
    return out
