"""What of the catalogue a log shows, noted while it is read: which entry, in which line, and how near to the first error."""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

from eagletui.engines.diagnosis.entries import candidates
from eagletui.engines.diagnosis.entry import Signature
from eagletui.engines.failure import Witness, line_text
from eagletui.engines.failure_words import suspicious
from eagletui.records import Evidence

MOST_HITS = 6
"""Lines kept of one entry."""
LONGEST = 1600
"""Bytes of a message that are looked at."""


class Hit(NamedTuple):
    """A line that fits an entry. ``kind`` and ``chain`` as in `Witness.see`, ``groups`` the expression's named groups."""

    entry: Signature
    evidence: Evidence
    process: Optional[str]
    chain: int
    kind: str
    groups: Dict[str, str]


class Notes(Witness):
    """The hits so far, by entry. ``changes`` grows with each.

    ``now`` gives (phase, engine) at the line at hand, ``line_of`` its number.
    """

    def __init__(self, now: Callable[[], Tuple[Optional[str], Optional[str]]], line_of: Callable[[int], int]) -> None:
        self._now = now
        self._line_of = line_of
        self.hits: Dict[str, List[Hit]] = {}
        self.errors: List[Evidence] = []
        self.changes = 0

    def see(
        self, offset: int, message: bytes, process: Optional[bytes], chain: int, kind: str, trace: bytes, number: int = 0
    ) -> None:
        # a line may come for its place in the stream alone: only its own words count, so that pieces of any size give the same
        if kind not in ("exception", "error") and not suspicious(message):
            return
        text = message[:LONGEST]
        phase, engine = self._now()
        for matcher in candidates(text):
            entry = matcher.entry
            if (entry.engine is not None and engine is not None and entry.engine != engine) or (
                entry.phases and (phase or "spawn") not in entry.phases
            ):
                continue
            found = self.hits.get(entry.id) or []
            # the same exception again: its text has got further lines
            again = bool(found) and found[-1].evidence.offset == offset and kind == found[-1].kind == "exception"
            if len(found) >= MOST_HITS and not again:
                continue
            match = matcher.match(text, trace)
            if match is None:
                continue
            groups = {name: line_text(value) for name, value in match.groupdict(b"").items()}
            name = process.decode("utf-8", "replace") if process else None
            words = b" ".join(part.strip() for part in message.splitlines())  # of an exception's text all lines that were read
            hit = Hit(entry, Evidence(offset, number or self._line_of(offset), line_text(words)), name, chain, kind, groups)
            self.hits[entry.id] = [*found[:-1], hit] if again else [*found, hit]
            self.changes += 1
