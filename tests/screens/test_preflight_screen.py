"""Preflight in the dashboard: in short in the launch form, whole on its page, and a launch that is blocked asks first."""

from __future__ import annotations

import pytest

from eagletui.engines.preflight.findings import BLOCK, INFO, WARN, Finding, Report
from eagletui.screens.launch import LaunchForm
from eagletui.screens.preflight import PreflightSheet
from tests.screens.conftest import Opener, app_of, screen_text
from tests.screens.demo import board_store
from tests.screens.test_acting import deeds, did, press, settle
from tests.screens.test_launch import opened, put

NO_D2T = Finding(
    "no-d2t",
    BLOCK,
    "the drafter's table to the target's tokens is missing",
    "/data/eagle3 has no d2t; draft_vocab_size 32000 of 163840",
    "nothing fails, but almost none of its tokens is accepted",
    "export the drafter again with d2t",
    "drafter",
)
IOMMU = Finding("iommu-on", WARN, "the IOMMU is on", "/sys/class/iommu: ivhd0", "collectives can hang", "iommu=off", "machine")
NOTE = Finding("swappiness", INFO, "swappiness is 60", "/proc/sys/vm/swappiness")
SIZES = pytest.mark.parametrize("size", [(80, 24), (160, 50)], ids=str)


@SIZES
async def test_the_form_shows_the_verdict_and_the_page_every_finding(size: tuple[int, int], dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3), size) as pilot:
        deeds(app_of(pilot)).findings = Report((IOMMU, NOTE), seconds=0.4)
        app = await opened(pilot)
        await settle(pilot, lambda: "may come up: 1 warning, 1 note" in screen_text(app))
        assert "the IOMMU is on" in screen_text(app)
        assert "swappiness" not in screen_text(app)
        await press(pilot, "ctrl+n")
        await settle(pilot, lambda: isinstance(app.screen, PreflightSheet))
        page = screen_text(app)
        for words in ("collectives can hang", "iommu=off", "/sys/class/iommu: ivhd0", "swappiness is 60", "0.4 s"):
            assert words in page
        await press(pilot, "escape")
        assert isinstance(app.screen, LaunchForm)
        assert not did(app, "launch")


@SIZES
async def test_a_blocked_launch_shows_why_and_can_be_overridden(size: tuple[int, int], dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3), size) as pilot:
        deeds(app_of(pilot)).findings = Report((NO_D2T, IOMMU, NOTE))
        app = await opened(pilot)
        await press(pilot, "ctrl+l")
        await settle(pilot, lambda: isinstance(app.screen, PreflightSheet))
        assert "would not come up: 1 blocking" in screen_text(app)
        assert "export the drafter again" in screen_text(app)
        assert not did(app, "launch")
        await press(pilot, "escape")
        assert "it would not come up" in screen_text(app)
        await press(pilot, "ctrl+l")
        await settle(pilot, lambda: isinstance(app.screen, PreflightSheet))
        await press(pilot, "ctrl+l")
        await settle(pilot, lambda: did(app, "launch"))
        await settle(pilot, lambda: app.page_name == "load")


async def test_warnings_do_not_stop_a_launch(dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3)) as pilot:
        deeds(app_of(pilot)).findings = Report((IOMMU,))
        app = await opened(pilot)
        await press(pilot, "ctrl+l")
        await settle(pilot, lambda: did(app, "launch"))


async def test_a_host_that_cannot_say_is_told_and_stops_nothing(dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3)) as pilot:
        deeds(app_of(pilot)).findings = None
        app = await opened(pilot)
        await settle(pilot, lambda: "preflight: the host did not answer" in screen_text(app))
        await press(pilot, "ctrl+l")
        await settle(pilot, lambda: did(app, "launch"))


async def test_a_change_is_looked_at_anew_and_the_same_is_not(dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3)) as pilot:
        app = await opened(pilot)
        await settle(pilot, lambda: deeds(app).looks == 1)
        deeds(app).findings = Report((NO_D2T,))
        await put(pilot, "drafter", "/data/other")
        await settle(pilot, lambda: "would not come up" in screen_text(app))
        assert deeds(app).looks == 2
        await press(pilot, "ctrl+n")
        await settle(pilot, lambda: isinstance(app.screen, PreflightSheet))
        assert deeds(app).looks == 2
        deeds(app).findings = Report()
        await press(pilot, "R")
        await settle(pilot, lambda: "nothing was found that would stop it" in screen_text(app))
        assert deeds(app).looks == 3
