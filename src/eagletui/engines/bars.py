"""Progress bars: tqdm's own form and the one both engines use for weights.

``Loading safetensors checkpoint shards:  20% Completed | 13/64 [04:02<15:49, 18.6s/it]`` and
``Capturing CUDA graphs (FULL):  27%|##7   | 13/49 [00:00<00:01, 20.3it/s]``.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

_BAR = re.compile(
    rb"^(?P<desc>[^|\r\n]*?): +(?P<percent>\d+)%(?: Completed \||\|[^|\r\n]*\|) *"
    rb"(?P<done>[\d.]+)(?P<du>[kKMGTP]?)i?B?/(?P<total>[\d.]+)(?P<tu>[kKMGTP]?)i?B? "
    rb"\[(?P<elapsed>[\d:]+|\?)<(?P<left>[\d:]+|\?), *(?P<rate>[^\],]+)"
)
_RATE = re.compile(rb"([\d.]+)([kKMGT]?)i?(\w+)?/(\w+)")
_SCALE = {b"": 1.0, b"k": 1e3, b"K": 1e3, b"M": 1e6, b"G": 1e9, b"T": 1e12, b"P": 1e15}


class Bar(NamedTuple):
    """One tick. ``elapsed`` and ``left`` in seconds, ``rate`` in units per second; None where tqdm prints a question mark."""

    desc: str
    done: float
    total: float
    elapsed: Optional[float]
    left: Optional[float]
    rate: Optional[float]


def seconds_of(clock: bytes) -> Optional[float]:
    """``04:02`` or ``1:02:03`` in seconds; None for ``?``."""
    if not clock or clock == b"?":
        return None
    total = 0.0
    for part in clock.split(b":"):
        if not part.isdigit():
            return None
        total = total * 60 + int(part)
    return total


def rate_of(text: bytes) -> Optional[float]:
    """``1.87it/s`` or ``12.33s/it`` in units per second; None for ``?it/s``."""
    match = _RATE.match(text.strip())
    if match is None:
        return None
    value = float(match.group(1)) * _SCALE[match.group(2)]
    if match.group(3) == b"s":
        return 1.0 / value if value else None
    return value


def parse_bar(message: bytes) -> Optional[Bar]:
    """The bar in a message, or None. Numbers with a unit prefix (``12.3G``) are scaled."""
    if b"%" not in message or b"|" not in message:
        return None
    match = _BAR.match(message)
    if match is None:
        return None
    try:
        done = float(match.group("done")) * _SCALE[match.group("du")]
        total = float(match.group("total")) * _SCALE[match.group("tu")]
    except ValueError:  # "1.2.3" is no number, so this is no bar
        return None
    return Bar(
        match.group("desc").decode("utf-8", "replace").strip(),
        done,
        total,
        seconds_of(match.group("elapsed")),
        seconds_of(match.group("left")),
        rate_of(match.group("rate")),
    )


def weight_unit(desc: str) -> Optional[str]:
    """What a weight bar counts, by the loader that prints it; None when ``desc`` is no weight bar.

    Fast loaders count batches of as many files as there are ranks, tensors or bytes instead of shards.
    """
    if "Fastsafetensor" in desc:
        return "batches"
    if "Runai" in desc:
        return "tensors"
    if "InstantTensor" in desc:
        return "bytes"
    if desc.startswith(("Loading", "Multi-thread loading")):
        if "pt checkpoint" in desc:
            return "files"
        if "shards" in desc or "safetensors" in desc:
            return "shards"
    return None
