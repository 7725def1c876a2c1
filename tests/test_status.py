"""What a snapshot waits for."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eagletui.cli.status import INTERVALS, STREAMS, _sample
from eagletui.commands import Desk
from eagletui.store import Store
from eagletui.watch.core import Intervals, Watch
from tests.watch.double import FakeHost

CARD = {"number": 0, "name": "NVIDIA H200", "util": 90.0}


@pytest.mark.parametrize(("cards", "wanted"), [({"GPU-a": CARD}, 2), ({}, 1)])
async def test_a_second_sample_of_the_cards_is_awaited_where_there_are_any(cards: dict[str, Any], wanted: int) -> None:
    host, store = FakeHost(), Store()
    watch = Watch(host, store, intervals=Intervals()._replace(**INTERVALS))
    await watch.start(STREAMS)
    sampling = asyncio.ensure_future(_sample(cast(Desk, SimpleNamespace(store=store, watch=watch))))
    for stream, doc in (("jobs", {}), ("host", {}), ("gpus", {"present": bool(cards), "cards": cards})):
        host.push(stream, doc)
    for _ in range(5):
        await asyncio.sleep(0)  # the first samples are there: it waits for the second ones
    host.push("host", {})
    for _ in range(5):
        await asyncio.sleep(0)
    assert sampling.done() == (wanted == 1)
    host.push("gpus", {"present": bool(cards), "cards": cards})
    await sampling
    await watch.stop()
