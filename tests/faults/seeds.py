"""A seed for what a test samples: printed, so that a failure can be had again with ``EAGLETUI_SEED=...``."""

from __future__ import annotations

import os
import random


def seeded(what: str) -> random.Random:
    """Random numbers of this run; pytest shows the line when the test fails."""
    seed = int(os.environ.get("EAGLETUI_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"{what}: EAGLETUI_SEED={seed}")
    return random.Random(seed)
