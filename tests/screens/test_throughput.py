"""Throughput where there is little room."""

from __future__ import annotations

import pytest

from tests.screens.conftest import Opener
from tests.screens.serving_demo import SERVING_STORES
from tests.screens.test_serving import shown


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
async def test_no_number_of_the_window_is_left_out_for_want_of_room(size: tuple[int, int], dashboard: Opener) -> None:
    text = await shown(dashboard, SERVING_STORES["ready"](), "4", size)
    for name in ("generation", "prompt", "requests", "prefix hits", "running", "waiting", "KV cache", "TTFT", "ITL"):
        assert name in text
