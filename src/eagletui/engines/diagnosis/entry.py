"""One entry of the failure catalogue."""

from __future__ import annotations

import re
from typing import NamedTuple, Optional, Tuple

VLLM, SGLANG = "vllm", "sglang"
SEEN, SOURCE, HEARSAY = "seen", "source", "hearsay"

# where in its life an engine is when it prints this; for the table, and for what only means something at one stage
BUILD, IMPORT, CONFIG, WORKERS, LOAD, AFTER, KV, GRAPHS, SERVING, HOST = (
    "build",
    "import",
    "config",
    "workers",
    "load",
    "after load",
    "KV cache",
    "graphs",
    "serving",
    "host",
)
LOAD_PHASES = ("weights", "process")
GRAPH_PHASES = ("capture", "warmup", "compile", "profile", "finish", "kv")
SERVING_PHASES = ("ready",)


class Signature(NamedTuple):
    """A text that names a cause.

    ``pattern`` is a regular expression on one message (without its header); its named groups may be used in ``title``,
    ``cause`` and ``remedy`` as ``{name}``. ``keys`` are literal texts, one of which is in every message that the pattern fits:
    they are looked for first. each of ``trace`` must besides fit the traceback above. ``phases`` limits it to phases of a load,
    ``engine`` to one engine, ``before`` to versions below one (as far as the log names it). ``weak`` entries tell that something
    broke but not what broke it: they rank below any other. ``over`` are ids of entries that say less where both stand in a log,
    wherever their lines are: this one then comes before them. ``first`` entries say what they say only where no error came before
    their line. ``hit`` is an example (lines as they stand in a log), ``miss`` a
    text that is close to it and means something else.
    """

    id: str
    title: str
    keys: Tuple[str, ...]
    pattern: str
    cause: str
    remedy: str
    stage: str
    source: str
    hit: str
    miss: str
    provenance: str = SOURCE
    confidence: float = 0.9
    engine: Optional[str] = None
    versions: str = ""
    before: Tuple[int, ...] = ()
    over: Tuple[str, ...] = ()
    phases: Tuple[str, ...] = ()
    trace: Tuple[str, ...] = ()
    weak: bool = False
    first: bool = False


class Matcher:
    """A `Signature` ready for bytes. Its expressions are compiled when one of its keys is first met: most never are."""

    __slots__ = ("_pattern", "_trace", "entry", "keys")

    def __init__(self, entry: Signature) -> None:
        self.entry = entry
        self.keys = tuple(key.encode() for key in entry.keys)
        self._pattern: Optional["re.Pattern[bytes]"] = None
        self._trace: Tuple["re.Pattern[bytes]", ...] = ()

    def match(self, text: bytes, trace: bytes) -> Optional["re.Match[bytes]"]:
        """Where the entry fits the message ``text``, with the traceback ``trace`` above it; None when it does not."""
        if self._pattern is None:
            self._trace = tuple(re.compile(part.encode()) for part in self.entry.trace)
            self._pattern = re.compile(self.entry.pattern.encode())
        found = self._pattern.search(text)
        return found if found is not None and all(part.search(trace) for part in self._trace) else None


def version_of(text: Optional[str]) -> Tuple[int, ...]:
    """``0.20.2rc1.dev9+g1`` as (0, 20, 2); () when it is not known."""
    if not text:
        return ()
    match = re.match(r"v?(\d+(?:\.\d+)*)", text)
    return tuple(int(part) for part in match.group(1).split(".")) if match else ()
