"""Versions of engines and packages, compared as far as their numbers go."""

from __future__ import annotations

import re
from typing import Optional, Tuple

Version = Tuple[int, ...]


def version_of(text: Optional[str]) -> Optional[Version]:
    """The release numbers of a version text: ``0.16.0rc2.dev8+gabc`` is (0, 16, 0); None when it starts with no number."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", text or "")
    return tuple(int(part) for part in match.group(1).split(".")) if match else None


def before(text: Optional[str], than: str) -> Optional[bool]:
    """Whether a version is older than another; None when it is not known.

    A development build (``0.17.0.dev12``, ``0.18.0rc1``) counts as the release it leads to.
    """
    ours, other = version_of(text), version_of(than)
    if ours is None or other is None:
        return None
    width = max(len(ours), len(other))
    return ours + (0,) * (width - len(ours)) < other + (0,) * (width - len(other))
