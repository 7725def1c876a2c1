"""The table of sets."""

from __future__ import annotations

from typing import Tuple

from eagletui.engines.patches.core import PatchSet
from eagletui.engines.patches.kimi_eagle3 import KIMI_EAGLE3

SETS: Tuple[PatchSet, ...] = (KIMI_EAGLE3,)
