"""Patches of an installed engine from a desk: look, apply, revert. Files are replaced whole, and only as they were read.

The original of each changed file stays beside it, byte for byte, until the patch is reverted. What is not recognised is left
alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from eagletui.commands.desk import Desk, may_change
from eagletui.commands.jobs import plan_launch, profiles
from eagletui.engines.patches.core import (
    APPLICABLE,
    APPLIED,
    BACKUP,
    NATIVE,
    UNKNOWN,
    FileState,
    PatchSet,
    revert,
    set_state,
    summary,
)
from eagletui.engines.patches.sets import SETS
from eagletui.engines.preflight.versions import before
from eagletui.hosts.base import HostError

PIECE = 64 * 1024
MOST = 4 << 20
PARTLY, OUTGROWN, NOT_FOR = "partly", "outgrown", "not for it"


class Engine(NamedTuple):
    """An installed engine: its name, version and package folder."""

    name: str
    version: str
    package: str


class File(NamedTuple):
    """A file of a set as it lies there: its bytes, its original's when one is kept, and its mode."""

    path: str
    state: FileState
    data: bytes | None
    original: bytes | None
    mode: int | None


class Look(NamedTuple):
    """A set and its state on an engine: applicable, applied, partly, native, outgrown, not for it, unknown; ``why`` in words."""

    patch: PatchSet
    engine: Engine
    state: str
    why: str
    files: tuple[File, ...] = ()


# ------------------------------------------------------------------------------------------------------------------ looking


async def find_engine(desk: Desk, env: str, engine: str = "vllm") -> Engine:
    """The engine in ``env``: the folder of a venv, a python, or the name of a profile. Raises `HostError`."""
    argv, variables, cwd = await _start(desk, env)
    found = await desk.session.request("engine", engine=engine, argv=argv, env=variables, cwd=cwd)
    if not found.get("package") or not found.get("version"):
        why = found.get("problem") or f"{engine} was not found there"
        raise HostError("patch", why, "give the engine's venv, its python, or the name of a profile", kind="config")
    return Engine(engine, str(found["version"]), str(found["package"]))


async def _start(desk: Desk, env: str) -> tuple[list[str], dict[str, str], str]:
    """(argv, environment, folder) that lead to a python."""
    if "/" not in env and env != "~":
        profile = profiles(desk)[0].get(env)
        if profile is None:
            why = f"{env!r} is no profile for {desk.target}"
            raise HostError("patch", why, "give the path of a venv or a python, or the name of a profile", kind="config")
        from dataclasses import replace

        spec = (await plan_launch(desk, replace(profile, gpus=None))).spec
        return list(spec["argv"]), dict(spec["env"]), str(spec["cwd"])
    path = PurePosixPath(env)
    return [str(path) if path.name.startswith("python") else str(path / "bin" / "python")], {}, "/"


async def look(desk: Desk, engine: Engine, patch: PatchSet) -> Look:
    """The state of one set there. Reads the files it changes; raises `HostError`."""
    if patch.engine != engine.name:
        return Look(patch, engine, NOT_FOR, f"it is for {patch.engine}")
    paths = {file: f"{engine.package}/{file}" for file in patch.files}
    stats = await desk.session.request("stat", paths=[path + end for path in paths.values() for end in ("", BACKUP)])
    now = {file: await _read(desk, path, stats[2 * at]) for at, (file, path) in enumerate(paths.items())}
    kept = {file: await _read(desk, path + BACKUP, stats[2 * at + 1]) for at, (file, path) in enumerate(paths.items())}
    states = set_state(patch, {file: _text(data) for file, data in now.items()})
    files = tuple(
        File(paths[state.file], state, now[state.file], kept[state.file], _mode(stats[2 * at])) for at, state in enumerate(states)
    )
    state, why = _judged(patch, engine, states, any(data is not None for data in kept.values()))
    return Look(patch, engine, state, why, files)


def _judged(patch: PatchSet, engine: Engine, states: Sequence[FileState], kept: bool) -> tuple[str, str]:
    since, until = patch.versions
    if before(engine.version, since):
        return NOT_FOR, f"{engine.name} {engine.version} is older than {since}, for which it was made: install {until} or newer"
    if before(engine.version, until) is False:
        left = "; originals of an older version lie beside its files" if kept else ""
        return OUTGROWN, f"{engine.name} has it by itself since {until}{left}"
    state = summary(states)
    if state == UNKNOWN:
        odd = [f"{one.file}: {one.why}" for one in states if one.state == UNKNOWN]
        return UNKNOWN, "; ".join(odd) + f" - it is left alone; install {engine.name} {until} or newer"
    if state in (APPLIED, NATIVE) and not kept:
        return NATIVE, "the changes are there, but not made by this patch: there is no original to go back to"
    if state == APPLIED:
        return APPLIED, "all of its files are changed, their originals beside them"
    if state == PARTLY:
        return PARTLY, "only some of its files are changed: apply it again, or revert it"
    return APPLICABLE, "all of its files are as it knows them"


async def looks(desk: Desk, engine: Engine, name: str | None = None) -> list[Look]:
    """The sets there are for this engine, or the one called ``name``. Raises `HostError` when there is none of that name."""
    chosen = [patch for patch in SETS if name in (None, patch.name)]
    if not chosen:
        known = ", ".join(patch.name for patch in SETS)
        raise HostError("patch", f"there is no patch {name!r}", f"there are: {known}", kind="config")
    return [await look(desk, engine, patch) for patch in chosen]


def _mode(stat: dict[str, Any] | None) -> int | None:
    return int(stat["mode"]) & 0o777 if stat else None


def _text(data: bytes | None) -> str | None:
    try:
        return data.decode("utf-8") if data is not None else None
    except UnicodeDecodeError:
        return None  # no source that is known


async def _read(desk: Desk, path: str, stat: dict[str, Any] | None) -> bytes | None:
    """A whole file; None when it is not there."""
    if stat is None or stat["size"] > MOST:
        return None
    out = bytearray()
    while len(out) < stat["size"]:
        chunk = await desk.session.read(path, len(out), PIECE, identity=(stat["dev"], stat["inode"]))
        if not chunk.data:
            break
        out += chunk.data
    return bytes(out)


# ----------------------------------------------------------------------------------------------------------------- changing


async def apply(desk: Desk, seen: Look) -> Look:
    """Apply a set; the look afterwards. Refuses what is not applicable; when a step fails, what was written is taken back."""
    may_change(desk, "patch")
    if seen.state == APPLIED:
        return seen
    if seen.state not in (APPLICABLE, PARTLY):
        raise _refused(seen, "not applied")
    todo = [file for file in seen.files if file.state.becomes is not None]
    for file in todo:
        _compiles(file)
        if file.original is not None and file.original != file.data:
            raise HostError(
                "patch", f"{file.path}{BACKUP} is there and differs", "it is of another version: remove it", kind="taken"
            )
    written: list[File] = []
    try:
        for file in todo:
            data, becomes = file.data or b"", (file.state.becomes or "").encode()
            if file.original is None:
                await _write(desk, file.path + BACKUP, data, "", file.mode)
            written.append(file)
            await _write(desk, file.path, becomes, _sha(data), file.mode)
    except HostError as error:
        left = await _take_back(desk, written)
        raise HostError(error.step, error.why, f"{error.remedy or 'nothing of the patch stays'}{left}", kind=error.kind) from None
    return await look(desk, seen.engine, seen.patch)


def _compiles(file: File) -> None:
    try:
        compile(file.state.becomes or "", file.path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise HostError(
            "patch", f"{file.path} would be no Python any more: {error}", "please report this", kind="agent"
        ) from None


async def _take_back(desk: Desk, written: Sequence[File]) -> str:
    """Undo a half-made change; words about what could not be undone."""
    left = []
    for file in reversed(written):
        becomes = (file.state.becomes or "").encode()
        try:
            if await _read_now(desk, file.path) == becomes:
                await _write(desk, file.path, file.data or b"", _sha(becomes), file.mode)
            if file.original is None:
                await desk.session.request("discard", path=file.path + BACKUP, expect_sha=_sha(file.data or b""))
        except HostError as error:
            left.append(f"{file.path}: {error.why}")
    return f" - could not be taken back: {'; '.join(left)}" if left else ""


async def undo(desk: Desk, seen: Look) -> Look:
    """Revert a set: every file byte for byte as it was, the kept originals gone. Refuses files that were changed since."""
    may_change(desk, "patch")
    kept = [file for file in seen.files if file.original is not None]
    if not kept:
        raise _refused(seen, "not reverted")
    if seen.state != OUTGROWN:
        hunks = seen.patch.hunks
        for file in kept:
            own = [hunk for hunk in hunks if hunk.file == file.state.file]
            original, now = _text(file.original), _text(file.data)
            if file.data != file.original and (original is None or now is None or revert(original, now, own) is None):
                why = f"{file.path} was changed since it was patched"
                raise HostError("patch", why, f"compare it with {file.path}{BACKUP} and mend it by hand", kind="replaced")
        for file in reversed(kept):  # the list of families first: from then on a launch is refused at once
            if file.data != file.original:
                await _write(desk, file.path, file.original or b"", _sha(file.data or b""), file.mode)
    for file in kept:
        await desk.session.request("discard", path=file.path + BACKUP, expect_sha=_sha(file.original or b""))
    return await look(desk, seen.engine, seen.patch)


def _refused(seen: Look, what: str) -> HostError:
    return HostError("patch", f"{seen.patch.name} was {what}: {seen.why}", "", kind="config")


async def _read_now(desk: Desk, path: str) -> bytes | None:
    return await _read(desk, path, (await desk.session.request("stat", paths=[path]))[0])


async def _write(desk: Desk, path: str, data: bytes, expect: str, mode: int | None) -> None:
    await desk.session.request("write", data, path=path, expect_sha=expect, **({"mode": mode} if mode is not None else {}))


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
