"""The desk: settings and their order, alerts acknowledged, read-only, and a real session under the real dashboard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from eagletui import commands
from eagletui.app import EagleApp
from eagletui.commands import Desk, open_desk, settings_for
from eagletui.config import parse_config
from eagletui.hosts.base import HostError
from eagletui.hosts.target import parse_target
from eagletui.records import Alert
from tests.screens.conftest import screen_text

CONFIG = parse_config(
    'readonly = true\n[intervals]\ngpus = 3\n[hosts.box]\ngpus = 8\nidentity = "/k"\n[hosts."root@box"]\nreadonly = false\n',
    Path("c"),
)


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("EAGLETUI_STATE", str(tmp_path / "jobs"))
    return tmp_path


@pytest.fixture
async def desk(own_places: Path) -> AsyncIterator[Desk]:
    opened = await open_desk(parse_target("local"), None, {"readonly": True})
    yield opened
    await opened.close()


@pytest.mark.parametrize(
    ("target", "given", "expected"),
    [
        ("elsewhere", {}, (True, None, None)),
        ("box", {}, (True, 8, "/k")),
        ("root@box", {}, (False, 8, "/k")),
        ("root@box:2222", {}, (False, 8, "/k")),
        ("root@box", {"readonly": True, "identity": "/mine"}, (True, 8, "/mine")),
    ],
)
def test_the_order_of_settings(target: str, given: dict[str, Any], expected: tuple[object, ...]) -> None:
    settings = settings_for(CONFIG, parse_target(target), given)
    assert (settings.readonly, settings.gpus, settings.identity) == expected
    assert settings.intervals == {"gpus": 3.0}


async def test_a_desk_on_this_machine(desk: Desk) -> None:
    assert desk.readonly
    assert desk.store.info is not None
    assert desk.store.connection.state == "online"
    async with asyncio.timeout(30):
        await desk.watch.sample("host", 2)
        await desk.watch.sample("processes")
    assert desk.store.host is not None
    assert desk.store.host.cpu is not None
    assert desk.store.processes
    assert not [key for key in desk.store.alerts if key.startswith("stream:")]


async def test_read_only_refuses_before_asking_the_host(desk: Desk) -> None:
    with pytest.raises(HostError, match="read-only"):
        await commands.end_job(desk, "any")


async def test_acknowledging(desk: Desk) -> None:
    for key in ("a", "b"):
        desk.store.raise_alert(Alert(key, "warn", key, 1.0))
    assert [alert.key for alert in commands.acknowledge(desk, ["a", "gone"])] == ["a"]
    assert "b" in [alert.key for alert in commands.acknowledge(desk)]
    assert commands.acknowledge(desk) == []


async def test_what_comes_over_the_session_is_drawn_while_it_comes(desk: Desk) -> None:
    """The pushes arrive in the session's own task, which knows nothing of the dashboard."""
    app = EagleApp(desk.store, desk)
    async with app.run_test(size=(140, 40)) as pilot:
        desk.store.host = None
        async with asyncio.timeout(60):
            while "load" not in screen_text(app):
                await desk.watch.sample("host", desk.watch.count("host") + 1)
                await pilot.pause(0.3)
        await desk.close()
        await pilot.pause()


async def test_a_closed_desk_stays_closed(own_places: Path) -> None:
    opened = await open_desk(parse_target("local"), None, {})
    await opened.close()
    assert opened.store.connection.state == "closed"
    with pytest.raises(HostError):
        await opened.session.request("hello")


async def test_the_keys_of_alerts_and_link_go_through_the_commands(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Desk] = []
    monkeypatch.setattr(commands, "retry", tried.append)
    app = EagleApp(desk.store, desk)
    async with app.run_test(size=(140, 40)) as pilot:
        desk.store.alerts.clear()
        desk.store.raise_alert(Alert("a", "warn", "a", 1.0))
        await pilot.press("a")
        assert desk.store.alerts["a"].acknowledged
        desk.store.connection = desk.store.connection._replace(state="blocked")
        await pilot.press("R")
        assert tried == [desk]
