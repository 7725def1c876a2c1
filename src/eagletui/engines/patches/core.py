"""Hunks and sets: in what state an installed source is, and what applying or reverting makes of it."""

from __future__ import annotations

from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

BACKUP = ".eagletui-orig"
"""Behind a file's name: the original, byte for byte, for as long as the patch is applied."""

APPLICABLE, APPLIED, NATIVE, UNKNOWN = "applicable", "applied", "native", "unknown"
"""States of a hunk: it can be applied; it is; the engine has the change by itself; the text is not one that is known."""


class Hunk(NamedTuple):
    """One change in one file. ``before`` are the variants of the exact text it replaces, each with its ``after``.

    ``native`` are texts that show that the engine has it by itself; ``what`` says in a few words what it does.
    """

    file: str
    what: str
    variants: Tuple[Tuple[str, str], ...]
    native: Tuple[str, ...] = ()


class PatchSet(NamedTuple):
    """Hunks that belong together. ``order`` of files is that of writing: what lets a launch pass comes last.

    ``versions`` are the first version it is for and the first that needs it no more; ``limits`` what it does not do.
    """

    name: str
    title: str
    engine: str
    versions: Tuple[str, str]
    why: str
    limits: str
    hunks: Tuple[Hunk, ...]

    @property
    def files(self) -> Tuple[str, ...]:
        """The files it changes, in the order they are written."""
        return tuple(dict.fromkeys(hunk.file for hunk in self.hunks))


class FileState(NamedTuple):
    """One file of a set: the state of its hunks together, in words ``why``, and the text it ``becomes`` when applied."""

    file: str
    state: str
    why: str
    becomes: Optional[str] = None


def hunk_state(hunk: Hunk, text: str) -> str:
    """The state of one hunk in the text of its file."""
    if any(text.count(after) == 1 and before_gone(text, before, after) for before, after in hunk.variants):
        return APPLIED
    if any(text.count(before) == 1 for before, _ in hunk.variants):
        return APPLICABLE
    if hunk.native and all(mark in text for mark in hunk.native):
        return NATIVE
    return UNKNOWN


def before_gone(text: str, before: str, after: str) -> bool:
    """Whether ``before`` stands nowhere in the text but inside ``after`` (a hunk may only add lines)."""
    return text.count(before) == after.count(before)


def file_state(file: str, hunks: Sequence[Hunk], text: Optional[str]) -> FileState:
    """The state of one file with all of its hunks. ``text`` is None when the file is not there."""
    if text is None:
        return FileState(file, UNKNOWN, "it is not there")
    states = {hunk: hunk_state(hunk, text) for hunk in hunks}
    odd = [hunk.what for hunk, state in states.items() if state == UNKNOWN]
    if odd:
        return FileState(file, UNKNOWN, "its text is not one that is known: %s" % "; ".join(odd))
    kinds = set(states.values())
    if kinds == {APPLIED}:
        return FileState(file, APPLIED, "")
    if APPLICABLE not in kinds:
        return FileState(file, NATIVE if kinds == {NATIVE} else APPLIED, "")
    if APPLIED in kinds:
        return FileState(file, UNKNOWN, "it is changed in part, by somebody else")
    becomes = text
    for hunk, state in states.items():
        if state == APPLICABLE:
            before, after = next((b, a) for b, a in hunk.variants if text.count(b) == 1)
            becomes = becomes.replace(before, after)
    return FileState(file, APPLICABLE, "", becomes)


def set_state(patch: PatchSet, texts: Mapping[str, Optional[str]]) -> List[FileState]:
    """The state of every file of a set; ``texts`` by the file's path in the package."""
    by_file: Dict[str, List[Hunk]] = {}
    for hunk in patch.hunks:
        by_file.setdefault(hunk.file, []).append(hunk)
    return [file_state(file, by_file[file], texts.get(file)) for file in patch.files]


def summary(states: Sequence[FileState]) -> str:
    """One state for a set: applied, applicable, native, partly (some files are, others can be) or unknown."""
    kinds = {state.state for state in states}
    if UNKNOWN in kinds:
        return UNKNOWN
    if kinds <= {NATIVE}:
        return NATIVE
    if kinds <= {APPLIED, NATIVE}:
        return APPLIED
    return "partly" if APPLIED in kinds else APPLICABLE


def revert(original: str, patched: str, hunks: Sequence[Hunk]) -> Optional[str]:
    """The original's text, when ``patched`` is exactly what applying ``hunks`` to it gives; None when somebody changed it."""
    state = file_state("", hunks, original)
    return original if state.becomes == patched else None
