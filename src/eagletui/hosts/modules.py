"""Modules of other projects that an agent may ask for: nvidia-ml-py's pynvml, sent only where a driver is installed."""

from __future__ import annotations

import importlib.machinery
import zlib
from functools import cache
from pathlib import Path

ALLOWED = frozenset({"pynvml"})


@cache
def packed(name: str) -> bytes | None:
    """The module's source text, compressed with zlib; None for a module that is not to be given, or not installed."""
    if name not in ALLOWED:
        return None
    # the path, not what is loaded: a module of that name in this process may have come from elsewhere
    spec = importlib.machinery.PathFinder.find_spec(name)
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        return None
    return zlib.compress(Path(spec.origin).read_bytes(), 6)
