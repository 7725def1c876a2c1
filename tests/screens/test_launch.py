"""The launch form: from a profile over its fields to the exact command and the launch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from eagletui.app import EagleApp
from eagletui.config import Notice
from eagletui.hosts.base import HostError
from eagletui.profiles import Profile
from eagletui.records import JobState
from eagletui.screens.launch import LaunchForm
from eagletui.views.launch_form import FIELDS
from eagletui.widgets.sheet import Field
from tests.screens.conftest import Opener, app_of, screen_text
from tests.screens.demo import board_store
from tests.screens.test_acting import JOB, ON_JOB, deeds, did, press, settle

PROFILE = Profile(
    "k25", "vllm", "/shared/kimi", drafter="/data/eagle3", k=3, tp=8, port=8001, gpus="all", args=("--seed", "0"),
    env={"NCCL_P2P_LEVEL": "SYS"}, secrets=("HF_TOKEN",), source="/home/me/.config/eagletui/profiles/k25.toml",
)  # fmt: skip


def form(app: EagleApp) -> LaunchForm:
    assert isinstance(app.screen, LaunchForm)
    return app.screen


async def opened(pilot: Pilot[int], **changes: object) -> EagleApp:
    app = app_of(pilot)
    deeds(app).stored = {"k25": replace(PROFILE, **changes)}  # type: ignore[arg-type]
    await press(pilot, *ON_JOB, "l", "enter")
    await settle(pilot, lambda: form(app).plan is not None)
    return app


async def put(pilot: Pilot[int], field: str, value: str) -> None:
    app = app_of(pilot)
    form(app).query_one(f"#field-{field}", Field).value = value
    await settle(pilot, lambda: form(app)._timer is None or form(app).plan is not None or bool(form(app).problems))


async def test_the_list_shows_profiles_and_what_is_wrong_with_others(dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3)) as pilot:
        app = app_of(pilot)
        deeds(app).stored = {"k25": PROFILE}
        deeds(app).notices = [Notice(Path("bad.toml"), 3, "'k' is 0", "expected a whole number, 1 to 64")]
        await press(pilot, *ON_JOB, "l")
        text = screen_text(app)
        assert "/shared/kimi + /data/eagle3" in text
        assert "yours" in text
        assert "bad.toml:3: 'k' is 0" in text
        assert f"{app.keys.shown('open')} chooses the profile under the cursor" in text


async def test_edit_then_launch_sends_what_stands_in_the_form(dashboard: Opener) -> None:
    store = board_store(seconds=3)
    async with dashboard(store) as pilot:
        app = await opened(pilot)
        assert "--tensor-parallel-size 8" in screen_text(app)
        form(app).query_one("#field-port", Field).focus()
        await press(pilot, "backspace", "7")
        await put(pilot, "args", "--seed 0 --note 'two words'")
        await settle(pilot, lambda: "8007" in screen_text(app) and "'two words'" in screen_text(app))
        await press(pilot, "ctrl+l")
        await settle(pilot, lambda: did(app, "launch"))
        sent = deeds(app).done[-1]
        assert sent[1] == replace(PROFILE, port=8007, args=("--seed", "0", "--note", "two words"))
        await settle(pilot, lambda: app.page_name == "load")
        assert store.selected == "job-1"
        assert len(app.screen_stack) == 1


async def test_mistakes_are_told_by_field_and_stop_the_launch(dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3)) as pilot:
        app = await opened(pilot)
        for field, value, words in (
            ("port", "99999", "1 to 65535"),
            ("k", "three", "'three' is not a whole number"),
            ("args", "--note 'open", "the quotes do not match"),
            ("env", "NOVALUE", "'NOVALUE' is not NAME=value"),
            ("model", "", "is needed"),
            ("gpus", "0 0", "each once"),
        ):
            before = form(app).query_one(f"#field-{field}", Field).value
            await put(pilot, field, value)
            await settle(pilot, lambda words=words: words in screen_text(app))  # type: ignore[misc]
            await press(pilot, "ctrl+l")
            await settle(pilot, lambda: "nothing was launched" in screen_text(app))
            await put(pilot, field, before)
            await settle(pilot, lambda: form(app).plan is not None)
        assert not did(app, "launch")


async def test_a_missing_secret_is_typed_masked_and_sent_beside(dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3)) as pilot:
        deeds(app_of(pilot)).missing = ("HF_TOKEN",)
        app = await opened(pilot)
        await press(pilot, "ctrl+l")
        await settle(pilot, lambda: "type a value for HF_TOKEN" in screen_text(app))
        await press(pilot, *"hf_x1")
        assert "hf_x1" not in screen_text(app)
        assert "HF_TOKEN='***'" in screen_text(app)
        await press(pilot, "ctrl+l")
        await settle(pilot, lambda: did(app, "launch"))
        assert deeds(app).done[-1][2] == {"HF_TOKEN": "hf_x1"}


@pytest.mark.parametrize("size", [(80, 24), (160, 50)], ids=str)
async def test_a_refusal_says_who_holds_it(size: tuple[int, int], dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3), size) as pilot:
        app = await opened(pilot)
        deeds(app).warnings = ("port 8001 is listened on by k25-eagle3 (k25)",)
        await put(pilot, "k", "4")
        await settle(pilot, lambda: "listened on by k25-eagle3" in screen_text(app))
        deeds(app).refusal = HostError(
            "launch", "port 8001 is leased by job k25 of anna", "end it, or take another", kind="taken"
        )
        await press(pilot, "ctrl+l")
        await settle(pilot, lambda: "leased by job k25 of anna" in screen_text(app))
        assert len(app.screen_stack) == 2


async def test_cards_that_others_use_want_a_second_yes(dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3)) as pilot:
        app = await opened(pilot)
        deeds(app).busy = ("card 0 is in use: 3.0 GiB by bob (pid 4711)",)
        await press(pilot, "ctrl+l")
        await settle(pilot, lambda: "once more launches all the same" in screen_text(app))
        assert "by bob (pid 4711)" in screen_text(app)
        assert not did(app, "launch")
        await press(pilot, "ctrl+l")
        await settle(pilot, lambda: did(app, "launch"))


async def test_a_container_is_shown_whole(dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3)) as pilot:
        app = await opened(pilot, container="docker", image="vllm/x:v1", mounts=("/shared:/shared:ro",), secrets=("HF_TOKEN",))
        await settle(pilot, lambda: "docker run" in screen_text(app))
        text = " ".join(screen_text(app).split())
        for part in ("--network host", "--ipc host", "--volume /shared:/shared:ro", "--env HF_TOKEN", "vllm/x:v1", "vllm serve"):
            assert part in text, part


async def test_a_program_that_cannot_start_is_told(dashboard: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    async with dashboard(board_store(seconds=3)) as pilot:
        app = await opened(pilot)

        async def launch(plan: object, secrets: object) -> JobState:
            return JobState("j", "serve", "k25", "failed_to_exec", 1.0, detail="/opt/vllm/bin/vllm: no such file")

        monkeypatch.setattr(deeds(app), "launch", launch)
        await press(pilot, "ctrl+l")
        await settle(pilot, lambda: "no such file" in screen_text(app))
        assert "job-1" not in app.store.jobs


async def test_it_starts_from_the_last_good_one_and_says_so(dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3)) as pilot:
        deeds(app_of(pilot)).good = replace(PROFILE, k=2)
        app = await opened(pilot)
        assert "last became ready" in screen_text(app)
        assert form(app).texts()["k"] == "2"
        await press(pilot, "ctrl+r")
        assert form(app).texts()["k"] == "3"
        assert "last became ready" not in screen_text(app)
        await press(pilot, "ctrl+r")
        assert form(app).texts()["k"] == "2"


async def test_saving_under_another_name(dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3)) as pilot:
        app = await opened(pilot)
        await put(pilot, "name", "k25-new")
        await press(pilot, "ctrl+o")
        await settle(pilot, lambda: "saved as" in screen_text(app))
        assert deeds(app).done[-1] == ("save", replace(PROFILE, name="k25-new"), False)
        deeds(app).refusal = HostError("save profile", "read-only file system", kind="config")
        await press(pilot, "ctrl+t")
        await settle(pilot, lambda: "read-only file system" in screen_text(app))


async def test_relaunch_is_prefilled_with_the_jobs_own_profile(dashboard: Opener) -> None:
    store = board_store(seconds=3)
    store.jobs["old"] = store.jobs["old"]._replace(profile="k25")
    async with dashboard(store, toasts=True) as pilot:
        app = app_of(pilot)
        deeds(app).stored = {"k25": PROFILE}
        await press(pilot, "7", "down", "down", "r")
        await settle(pilot, lambda: form(app).plan is not None)
        assert form(app).texts()["model"] == "/shared/kimi"
        await press(pilot, "escape", "up")
        deeds(app).launched[JOB] = replace(PROFILE, model="/as/launched")
        await press(pilot, "r")
        await settle(pilot, lambda: form(app).texts()["model"] == "/as/launched")
        await press(pilot, "escape", "end", "r")
        await settle(pilot, lambda: "was not launched from a profile" in screen_text(app))


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
async def test_the_whole_command_can_be_read_before_it_runs(size: tuple[int, int], dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3), size=size) as pilot:
        env = {f"NCCL_VARIABLE_{number}": "x" * 90 for number in range(20)}
        app = await opened(pilot, env=env, args=("--first", *(f"--flag-{number}=1" for number in range(30)), "--last"))
        assert "vllm serve" in screen_text(app)
        seen = screen_text(app)
        for _ in range(20):
            await press(pilot, "pagedown")
            seen += screen_text(app)
        assert "--last" in seen
        assert "NCCL_VARIABLE_19=" in seen
        assert form(app).query_one("#field-model", Field).has_focus
        await press(pilot, *["pageup"] * 20)
        assert "vllm serve" in screen_text(app)


async def test_a_larger_terminal_gives_the_form_more_room(dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3), size=(80, 24)) as pilot:
        app = await opened(pilot)
        assert not all(field.label in screen_text(app) for field in FIELDS)
        await pilot.resize_terminal(120, 60)
        await pilot.pause()
        assert all(field.label in screen_text(app) for field in FIELDS)


async def test_a_long_refusal_is_told_to_its_end(dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3), size=(80, 24)) as pilot:
        app = await opened(pilot)
        form(app).fail(
            HostError(
                "launch", "port 8131 is leased by job 20261129-193451-lab-plain-sf7x of root", "wait, kill it, or choose another"
            )
        )
        await pilot.pause()
        assert "choose another" in " ".join(screen_text(app).split())
        assert "esc back" in screen_text(app)


async def test_the_arrows_go_from_field_to_field_whatever_the_form_holds(dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3), (160, 50)) as pilot:
        app = app_of(pilot)
        await press(pilot, "l", "enter")
        await settle(pilot, lambda: isinstance(app.screen, LaunchForm))
        await settle(pilot, lambda: app.focused is not None and app.focused.id == "field-model")
        await press(pilot, "down", "down")
        assert app.focused is not None
        assert app.focused.id == "field-k"
        await press(pilot, "up")
        assert app.focused.id == "field-drafter"
