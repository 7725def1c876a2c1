"""From what a log shows, and how its process ended, to causes in order. Pure."""

from __future__ import annotations

import re
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple

from eagletui.engines.diagnosis.endings import ending_causes
from eagletui.engines.diagnosis.entry import HEARSAY, version_of
from eagletui.engines.diagnosis.witness import Hit
from eagletui.engines.events import Failure
from eagletui.records import Cause, Evidence

MOST_CAUSES = 4
MOST_EVIDENCE = 5
UNKNOWN = "unknown"
LEAST, VAGUE, CLEAR = 0.15, 0.5, 0.6
"""Confidence below which a cause is not told; below which not beside one of at least the third."""


class End(NamedTuple):
    """How the process ended, as far as the host knows: ``rc`` is negative for a signal, ``oom``: the kernel killed for memory.

    ``ended`` is False while it runs, ``asked`` True when somebody ended it with eagletui.
    """

    rc: Optional[int] = None
    oom: bool = False
    ended: bool = False
    asked: bool = False

    @property
    def failed(self) -> bool:
        """Whether it ended unasked and not in good order."""
        return self.ended and not self.asked and (self.oom or (self.rc is not None and self.rc != 0))


# how much a line says, by where it stands relative to the first root error
_NEAR = {"root": 1.0, "chain": 0.95, "fatal": 0.9, "exception": 0.75, "error": 0.7, "line": 0.6, "after": 0.5}


def judge(
    failure: Optional[Failure],
    root: Tuple[int, int],
    hits: Dict[str, List[Hit]],
    engine_version: Optional[str],
    end: Optional[End] = None,
) -> Tuple[Cause, ...]:
    """The causes, the likeliest first; none while nothing has failed.

    ``root`` is the offset of the first root error and of the chain of tracebacks it stands in.
    """
    if failure is None and (end is None or not end.failed):
        return ()
    ranked = [] if failure is None else list(_from_hits(failure, root, hits, engine_version))
    if end is not None:
        ranked += ending_causes(end.rc, end.oom, failure)
    ranked = _distinct(_merged(ranked))
    if not ranked or ranked[0].provenance == HEARSAY or ranked[0].confidence < 0.3:
        ranked.insert(0, unknown(failure))
    return tuple(ranked[:MOST_CAUSES])


def unknown(failure: Optional[Failure]) -> Cause:
    """What is told when no entry fits: the best lines, and where to look."""
    if failure is None:
        return Cause(
            UNKNOWN, "it ended, and its log names no error", 0.2, "look at the end of its log, and at dmesg for its process"
        )
    who = " by %s" % failure.process if failure.process else ""
    during = " while at %s" % failure.phase if failure.phase else ""
    return Cause(
        UNKNOWN,
        failure.text[:300],
        0.2,
        "not in the catalogue: read the log from line %d on; it is the first error that no other explains" % failure.line,
        "the first error in the log, printed%s%s" % (who, during),
        failure.evidence[:MOST_EVIDENCE],
        "this log",
        "",
    )


def _from_hits(
    failure: Failure, root: Tuple[int, int], hits: Dict[str, List[Hit]], engine_version: Optional[str]
) -> Iterable[Cause]:
    version = version_of(engine_version)
    for found in hits.values():
        entry = found[0].entry
        best = max(found, key=lambda hit: (_weight(hit, root), -hit.evidence.offset))
        if entry.first and 0 <= root[0] < best.evidence.offset:
            continue
        confidence = entry.confidence * _weight(best, root)
        if entry.before and version and version >= entry.before:
            confidence *= 0.6
        if entry.weak:
            confidence *= 0.5
        if any(other in hits for other in entry.over):
            confidence = entry.confidence  # its line need not be the first error: what that says is the same, in fewer words
        yield Cause(
            entry.id,
            fill(entry.title, best.groups),
            round(confidence, 3),
            fill(entry.remedy, best.groups),
            fill(entry.cause, best.groups),
            _evidence(best, found, failure),
            entry.source,
            entry.provenance,
        )


def _weight(hit: Hit, root: Tuple[int, int]) -> float:
    offset, chain = root
    if hit.evidence.offset == offset:
        return _NEAR["root"]
    if chain >= 0 and hit.chain == chain:
        return _NEAR["chain"]
    if hit.kind == "fatal":
        return _NEAR["fatal"]
    if hit.evidence.offset > offset >= 0:
        return _NEAR["after"]
    return _NEAR.get(hit.kind, _NEAR["line"])


def _evidence(best: Hit, found: List[Hit], failure: Failure) -> Tuple[Evidence, ...]:
    """The line itself, then what the first error adds when it is that one, then the same from others."""
    lines = [best.evidence]
    if any(place.offset == best.evidence.offset for place in failure.evidence):
        lines += failure.evidence
    lines += [hit.evidence for hit in found]
    kept: List[Evidence] = []
    for line in lines:
        if line not in kept:
            kept.append(line)
    return tuple(kept[:MOST_EVIDENCE])


def _merged(causes: Iterable[Cause]) -> List[Cause]:
    """One of each id; hearsay comes last whatever its confidence."""
    best: Dict[str, Cause] = {}
    for cause in causes:
        known = best.get(cause.id)
        if known is None or cause.confidence > known.confidence:
            best[cause.id] = cause
    return sorted(best.values(), key=lambda cause: (cause.provenance == HEARSAY, -cause.confidence))


def _distinct(ranked: List[Cause]) -> List[Cause]:
    """Without those that only repeat: of several that one line stands for the best, and nothing vague beside what is clear."""
    best = ranked[0].confidence if ranked and ranked[0].provenance != HEARSAY else 0.0
    kept: List[Cause] = []
    lines = set()
    for cause in ranked:
        place = cause.evidence[0].offset if cause.evidence else None
        if cause.confidence < LEAST or (best >= CLEAR and cause.confidence < VAGUE) or (place is not None and place in lines):
            continue
        if place is not None:
            lines.add(place)
        kept.append(cause)
    return kept


_BRACKETS = re.compile(r" ?\([^()]*\{\w+\}[^()]*\)")
_HOLE = re.compile(r"(?:: )?\{(\w+)\}")


def fill(text: str, groups: Dict[str, str]) -> str:
    """Put the groups of the expression into a text: ``{name}``. One that took no part goes, with colon or brackets around it."""
    if "{" not in text:
        return text

    def bracket(match: "re.Match[str]") -> str:
        return match.group(0) if all(groups.get(name) for name in re.findall(r"\{(\w+)\}", match.group(0))) else ""

    def hole(match: "re.Match[str]") -> str:
        value = groups.get(match.group(1), "")[:200]
        return match.group(0).replace("{%s}" % match.group(1), value) if value else ""

    return _HOLE.sub(hole, _BRACKETS.sub(bracket, text)).strip()


HANGS_AFTER = 5
"""Notices in a row, one a minute, after which a rank is suspected to hang; one or two come in most large loads."""


def stuck_causes(waits: int) -> Tuple[Cause, ...]:
    """What a load that goes on shows of a hang: ``waits`` notices that a rank does not answer, and nothing else since."""
    if waits < HANGS_AFTER:
        return ()
    return (
        Cause(
            "rank-silent",
            "a rank has not answered for %d minutes" % waits,
            0.4,
            "look at the cards: all at 100 % with little power and memory that does not grow is a deadlock"
            " (NCCL_P2P_DISABLE=1 proves it);"
            " one busy processor and idle cards is a compilation: wait",
            "vLLM tells every minute that a worker does not take its message, and nothing else was logged in between",
            (),
            "vllm-project/vllm#27313, #46611",
            "seen",
        ),
    )
