"""Does it work or hang, on the screen: the verdict with its evidence and keys, the stacks, one token, failures in one line."""

from __future__ import annotations

import pytest

from eagletui.commands.why import Canary, HostError, Looked, Stacks
from eagletui.records import Liveness
from tests.screens.conftest import Opener, app_of, screen_text
from tests.screens.serving_demo import loading_store
from tests.screens.serving_said import hides, says, shown
from tests.screens.test_acting import deeds, press, settle

STUCK = Liveness(
    "stuck",
    "nccl-deadlock",
    "the ranks wait for each other in a collective (NCCL): peer-to-peer over PCIe does not carry",
    ("no line in the log for 1 m 10 s", "cards: 0 at 100 % 140 W memory flat"),
    "launch with NCCL_P2P_DISABLE=1 to prove it",
)
SIZES = pytest.mark.parametrize("size", [(80, 24), (160, 50)], ids=str)


@SIZES
async def test_a_deadlock_is_told_on_the_load_screen(size: tuple[int, int], dashboard: Opener) -> None:
    store = loading_store(moving=False, silent=70.0)
    store.liveness = {"k25": STUCK}
    text = await shown(dashboard, store, "3", size)
    says(text, "✗ stuck: the ranks wait for each other", "140 W memory flat", "NCCL_P2P_DISABLE=1", "h why")
    hides(text, "last line")


async def test_work_is_told_without_a_cry(dashboard: Opener) -> None:
    store = loading_store(moving=True, silent=130.0)
    store.liveness = {"k25": Liveness("works", "reading", "silent, but it reads: 458 MB/s")}
    text = await shown(dashboard, store, "3")
    says(text, "● silent, but it reads: 458 MB/s")
    hides(text, "stuck", "hung?")


@SIZES
async def test_verdict_stacks_and_a_token_in_one_sheet(size: tuple[int, int], dashboard: Opener) -> None:
    store = loading_store(moving=False, silent=70.0)
    store.liveness = {"k25": STUCK}
    async with dashboard(store, size) as pilot:
        app = app_of(pilot)
        await press(pilot, "3", "h")
        await settle(pilot, lambda: "1 process" in screen_text(app))
        says(screen_text(app), "stuck: the ranks wait", "c asks the server for one token", "4711 VLLM::Worker_TP3")
        await press(pilot, "c")
        await settle(pilot, lambda: "one token in 0.4 s: it works" in screen_text(app))
        deeds(app).looked = Looked(
            (Stacks(5, "x\x1b[31m", "D", 1, (("nfs_wait (uninterruptible)", 1),)),), None, "py-spy is not there"
        )
        await press(pilot, "R")
        await settle(pilot, lambda: "py-spy is not there" in screen_text(app))
        says(screen_text(app), "state D", "nfs_wait (uninterruptible)")
        deeds(app).refusal = HostError("stacks", "the connection is lost", "it comes back by itself", kind="closed")
        await press(pilot, "R")
        await settle(pilot, lambda: "stacks: the connection is lost" in screen_text(app))
        deeds(app).refusal = None
        deeds(app).token = Canary(False, 60.0, "no token within 60 s")
        await press(pilot, "c")
        await settle(pilot, lambda: "no token within 60 s" in screen_text(app))


async def test_nothing_speaks_for_a_hang(dashboard: Opener) -> None:
    async with dashboard(loading_store(moving=True)) as pilot:
        app = app_of(pilot)
        await press(pilot, "3", "h")
        await settle(pilot, lambda: "nothing speaks for a hang" in screen_text(app))
