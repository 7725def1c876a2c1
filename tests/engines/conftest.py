from __future__ import annotations

from pathlib import Path

import pytest

DATA = Path(__file__).parent.parent / "data" / "engines"


@pytest.fixture
def data() -> Path:
    """Recorded logs and pages of real engines."""
    return DATA
