"""What reads a running job that is no server: its output, the files it writes, and in the end whether its result is right.

A kind's `Kind.watcher` makes one; the job's supervisor owns it, on the host, for the whole life of the job. It may read files
(and never writes any but through what it returns); each call does little work, for the supervisor does all it has to in one loop.
An exit status proves nothing: `outcome` counts and looks.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from eagletui.records.work import Work


class Outcome(NamedTuple):
    """How a job ended: ``ok`` True, False, or None where nobody can know or it was ended on request; ``why`` in one line with
    the counts it rests on; ``result`` what it made, JSON-ready, for ``result.json`` (paths, counts, figures; gates look at it).
    """

    ok: Optional[bool]
    why: str
    result: Dict[str, Any]


class Watcher:
    """``spec`` is the job's, ``directory`` its own (``log``, ``samples.jsonl``, ``result.json`` are in it)."""

    def __init__(self, spec: Mapping[str, Any], directory: str) -> None:
        self.spec, self.directory = spec, directory

    def feed(self, data: bytes, boot: float) -> None:
        """More of the job's output (stdout and stderr in one), in pieces of any size; ``boot`` is now."""

    def look(self, boot: float) -> None:
        """Called every two seconds: read on in the job's files."""

    def work(self, boot: float) -> Optional[Work]:
        """How far it is; None while nothing is known."""
        return None

    def samples(self) -> List[Dict[str, Any]]:
        """What belongs into ``samples.jsonl``, since this was last asked: flat JSON objects with ``wall``."""
        return []

    def notes(self) -> List[str]:
        """What happened (a checkpoint was written, a validation began), one line each, since this was last asked."""
        return []

    def troubles(self) -> Tuple[str, ...]:
        """What needs a person although the job goes on, each ``subject: words``; as long as it holds."""
        return ()

    def outcome(self, rc: Optional[int], killed: bool) -> Outcome:
        """The job has ended with this status (None: unknown), ``killed`` on request. All output has been fed before."""
        raise NotImplementedError
