"""Secrets of a launch, looked for in everything that is kept, shown or printed: they are in the program and nowhere else."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from textual.pilot import Pilot

from eagletui import cli
from eagletui.actions import SCREENS
from eagletui.agent import procfs
from eagletui.app import EagleApp
from eagletui.commands import Desk
from eagletui.profiles import save_profile
from eagletui.widgets.table import Table
from tests.commands.conftest import desk, fake, places
from tests.faults.seeds import seeded
from tests.screens.conftest import screen_text
from tests.screens.test_acting import press
from tests.screens.test_acting_for_real import until

__all__ = ["desk", "places"]

PLAIN = "seen-in-plain"
"""A value that is no secret: where it is shown, a secret would have been shown too."""


class Eyes:
    """Reads every screen that it is led to; ``seen`` is all of it."""

    def __init__(self, pilot: Pilot[int], app: EagleApp, secrets: tuple[str, ...]) -> None:
        self.pilot, self.app, self.secrets, self.seen = pilot, app, secrets, ""

    async def look(self, *keys: str, until_shown: str = "") -> None:
        await press(self.pilot, *keys)
        if until_shown:
            await until(self.pilot, self.app, lambda: until_shown in screen_text(self.app))
        text = screen_text(self.app)
        self.seen += text
        for secret in self.secrets:
            assert secret not in text.replace("\n", ""), text

    async def choose(self, job: str) -> None:
        """The job's row on the Jobs screen: servers of somebody else, which run on this machine, stand there too."""
        await press(self.pilot, "7")
        await until(self.pilot, self.app, lambda: isinstance(self.app.screen_stack[0].focused, Table))
        table = self.app.screen_stack[0].focused
        assert isinstance(table, Table)
        await until(self.pilot, self.app, lambda: job in {row.key for row in table.shown})
        table.move([row.key for row in table.shown].index(job))

    async def back(self) -> None:
        await press(self.pilot, "escape")
        await until(self.pilot, self.app, lambda: len(self.app.screen_stack) == 1)


@pytest.mark.fault(
    50, how="canaries as HF_TOKEN, as --api-key and in the environment; all screens, outputs, files and command lines read"
)
async def test_secrets_are_in_the_program_and_nowhere_else(
    desk: Desk, places: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    number = seeded("canaries").getrandbits(48)
    token, key, variable = f"hfcanary{number:x}", f"keycanary{number:x}", f"envcanary{number:x}"
    secrets = (token, key, variable)
    monkeypatch.setenv("HF_TOKEN", token)
    profile = fake("--workers", "1", "--api-key", key, secrets=("HF_TOKEN",), env={"MY_API_KEY": variable, "PLAIN": PLAIN})
    save_profile(profile, "local")
    app = EagleApp(desk.store, desk)
    async with app.run_test(size=(180, 60)) as pilot:
        eyes = Eyes(pilot, app, secrets)
        await eyes.look("7", "l", until_shown="this host")
        names = [row.key for row in app.screen._table.shown]  # type: ignore[attr-defined]
        await eyes.look(*["down"] * names.index("fake"), "enter", until_shown="fake_server.py")
        assert PLAIN in eyes.seen, "the form shows the environment"
        await eyes.look("ctrl+n", until_shown="preflight")
        await press(pilot, "escape")
        await until(pilot, app, lambda: "fake_server.py" in screen_text(app))
        await press(pilot, "ctrl+l")
        await until(pilot, app, lambda: app.page_name == "load")
        job = desk.store.selected
        assert job is not None
        await until(pilot, app, lambda: desk.store.jobs[job].health == "ready")
        pid = int(desk.store.jobs[job].pid or 0)
        for name, value in {"HF_TOKEN": token, "VLLM_API_KEY": key, "MY_API_KEY": variable}.items():
            assert procfs.environ_has(pid, name, value), name
        for action in SCREENS:
            await eyes.look(action.keys[0])
        await eyes.choose(job)
        await eyes.look("o", until_shown="startup complete")
        await eyes.look("i", until_shown=profile.model)
        await eyes.back()
        await eyes.look("question_mark")
        await eyes.back()
        await eyes.choose(job)
        await eyes.look("h", until_shown="fake")
        await eyes.back()
        await eyes.choose(job)
        await eyes.look("r", until_shown="fake_server.py")
        await eyes.back()
        await eyes.choose(job)
        await eyes.look("k", until_shown="processes end")
        assert "fake_server.py" in eyes.seen
        await eyes.back()

        # what programs read, while it runs
        capfd.readouterr()
        printed = ""
        for words in (["status", "local", "--json"], ["jobs", "local", "--json"], ["status", "local"], ["jobs", "local"]):
            await asyncio.to_thread(cli.main, words)
            printed += "".join(capfd.readouterr())
        said = [await desk.session.request(name, **params) for name, params in requests(job)]
        assert job in printed
        told = printed + json.dumps(said) + repr((desk.store.jobs, desk.store.alerts))
        lines = {procfs.argv(pid, 1 << 20).__repr__() for pid in procfs.pids() if pid != os.getpid()}
        assert any(job in line for line in lines), "the supervisor's command line was not looked at"
        for secret in secrets:
            assert secret not in told
            assert not [line for line in lines if secret in line]
        capfd.readouterr()

        await eyes.choose(job)
        await eyes.look("k", until_shown="processes end")
        await eyes.look("K", until_shown="✓ gone")
        await press(pilot, "escape")

    for words in (
        ["launch", "local", "fake", "--dry-run"],
        ["launch", "local", "fake", "--wait"],
        ["launch", "local", "fake", "--dry-run", "--json"],
    ):
        await asyncio.to_thread(cli.main, words)
        printed = "".join(capfd.readouterr())
        assert PLAIN in printed or "--wait" in words
        assert not [secret for secret in secrets if secret in printed]
    own = [places / "config"]  # the profile is the person's own file: there they have written their key
    kept = [path for path in places.rglob("*") if path.is_file() and not any(path.is_relative_to(folder) for folder in own)]
    assert any(path.name == "spec.json" for path in kept)
    for path in kept:
        data = path.read_bytes()
        assert not [secret for secret in secrets if secret.encode() in data], path


def requests(job: str) -> tuple[tuple[str, dict[str, object]], ...]:
    return (
        ("job", {"job": job}),
        ("jobs", {}),
        ("kill_plan", {"job": job}),
        ("debug", {}),
        ("processes", {"sort": "mem", "limit": 1000}),
        ("leftovers", {}),
        ("survival", {}),
    )
