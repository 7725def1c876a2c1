"""The kill dialog: what it shows, that nothing ends without a clear yes, the ladder as it goes, and the proof."""

from __future__ import annotations

from textual.widgets import Button

from eagletui.hosts.base import HostError
from eagletui.records import KillReport
from eagletui.screens.kill import KillSheet
from tests.screens.conftest import Opener, app_of, screen_text
from tests.screens.demo import board_store
from tests.screens.test_acting import JOB, ON_JOB, deeds, did, press, settle


async def test_it_lists_what_dies_and_what_is_freed(dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3)) as pilot:
        app = app_of(pilot)
        await press(pilot, *ON_JOB, "k")
        text = screen_text(app)
        for part in (
            "end k25-eagle3?", "up 2 h 14 m", "22 m 02 s", "10 processes end", "41190", "main", "vllm serve", "python train.py",
            "0, 1, 2, 3, 4, 5, 6, 7", "731 GiB", "8000", "/dev/shm/psm_5f3a", "/tmp/torchinductor_root", "not its own", "anna",
            "SIGKILL",
        ):  # fmt: skip
            assert part in text, part


async def test_cancel_is_the_default(dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3), (80, 24)) as pilot:
        app = app_of(pilot)
        await press(pilot, *ON_JOB, "k")
        assert isinstance(app.focused, Button)
        assert app.focused.id == "cancel"
        assert "End it" in screen_text(app)
        await press(pilot, "enter")
        assert len(app.screen_stack) == 1
        await press(pilot, "k", "escape", "k", "y")
        assert not did(app, "kill")


async def test_the_button_confirms_after_a_deliberate_move(dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3)) as pilot:
        app = app_of(pilot)
        await press(pilot, *ON_JOB, "k", "right", "enter")
        await settle(pilot, lambda: did(app, "kill", "token-1"))
        await settle(pilot, lambda: "✓ gone after 12 s" in screen_text(app))
        text = screen_text(app)
        assert "✓ /dev/shm/psm_5f3a" in text
        assert "731 GiB came back" in text
        assert "Close" in text
        assert "End it" not in text


async def test_while_it_ends_the_ladder_shows_and_can_be_cut_short(dashboard: Opener) -> None:
    store = board_store(seconds=3)
    async with dashboard(store) as pilot:
        app = app_of(pilot)
        deeds(app).may_end.clear()
        await press(pilot, *ON_JOB, "k", "K")
        store.jobs[JOB] = store.jobs[JOB]._replace(
            state="stopping", detail="SIGTERM to the main process, 3 of 60 s; 10 processes left"
        )
        store.changed("jobs")
        await settle(pilot, lambda: "3 of 60 s" in screen_text(app))
        await press(pilot, "K")
        assert len([done for done in deeds(app).done if done[0] == "kill"]) == 1
        assert "Kill now" in screen_text(app)
        await press(pilot, "N")
        await settle(pilot, lambda: did(app, "hurry", JOB))
        deeds(app).report = KillReport(
            JOB, False, ("port 8000",), ("pid 41200 (python): uninterruptible, waiting on nvidia_close",), 80.0
        )
        deeds(app).may_end.set()
        await settle(pilot, lambda: "not all of it is gone" in screen_text(app))
        assert "waiting on nvidia_close" in screen_text(app)


async def test_it_goes_on_when_the_box_is_closed_and_tells_the_end(dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3), toasts=True) as pilot:
        app = app_of(pilot)
        deeds(app).may_end.clear()
        await press(pilot, *ON_JOB, "k", "K", "escape")
        assert len(app.screen_stack) == 1
        deeds(app).may_end.set()
        await settle(pilot, lambda: "k25-eagle3 is gone" in screen_text(app))


async def test_another_operators_job_wants_its_name(dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3)) as pilot:
        app = app_of(pilot)
        deeds(app).plan = deeds(app).plan._replace(operator="anna", confirm="k25-eagle3", because="anna launched it")
        await press(pilot, *ON_JOB, "k", "K")
        assert "anna launched it" in screen_text(app)
        assert "type its name" in screen_text(app)
        assert not did(app, "kill")
        await press(pilot, *"k25-eagle", "enter")
        assert not did(app, "kill")
        await press(pilot, "3", "enter")
        await settle(pilot, lambda: did(app, "kill", "token-1"))


async def test_what_was_only_found_says_its_lever_and_wants_its_name(dashboard: Opener) -> None:
    note = "the unit has Restart=always: stopped it stays down, after signals alone systemd would start it again"
    async with dashboard(board_store(seconds=3)) as pilot:
        app = app_of(pilot)
        deeds(app).plan = deeds(app).plan._replace(
            adopted="systemd", lever="systemctl stop vllm.service", note=note, confirm="vllm", because="eagletui did not start it"
        )
        await press(pilot, *ON_JOB, "k", "K")
        text = " ".join(screen_text(app).split())
        for part in ("eagletui did not start it; a systemd unit holds it", "how systemctl stop vllm.service", "Restart=always"):
            assert part in text, part
        assert "SIGTERM to the main process" not in text
        assert not did(app, "kill")
        await press(pilot, *"vllm", "enter")
        await settle(pilot, lambda: did(app, "kill", "token-1"))


async def test_a_process_on_a_card_is_ended_alone_and_by_its_number(dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3)) as pilot:
        app = app_of(pilot)
        victim = (
            deeds(app)
            .plan.processes[0]
            ._replace(pid=4711, command="python notebook.py", main=True, state="D", waiting_on="nvidia_close")
        )
        deeds(app).plan = deeds(app).plan._replace(
            job="pids-4711",
            name="process 4711",
            processes=(victim,),
            only=True,
            confirm="4711",
            because="eagletui did not start it",
        )
        await press(pilot, "2", "tab", "end", "k")
        asked = [what for what in deeds(app).done if what[0] == "kill_plan"]
        assert asked[-1][1].startswith("pids-")
        await press(pilot, "K")
        text = " ".join(screen_text(app).split())
        assert "type the number of each process, 4711" in text
        assert "uninterruptible, waiting on nvidia_close" in text
        assert "to these alone, not to their children" in text
        assert not did(app, "kill")
        await press(pilot, *"4712", "enter")
        assert not did(app, "kill")
        await press(pilot, "backspace", "1", "enter")
        await settle(pilot, lambda: did(app, "kill", "token-1"))


async def test_nothing_is_ended_while_the_link_is_down(dashboard: Opener) -> None:
    store = board_store(seconds=3)
    async with dashboard(store) as pilot:
        app = app_of(pilot)
        await press(pilot, *ON_JOB, "k")
        store.connection = store.connection._replace(state="stale")
        await press(pilot, "K")
        assert "the link is stale" in screen_text(app)
        await press(pilot, "escape", "k")
        assert "the link is stale" in screen_text(app)
        assert "End it" not in screen_text(app)
        assert not did(app, "kill")
        assert deeds(app).done == [("kill_plan", JOB)]


async def test_a_refusal_is_shown_and_one_may_look_again(dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3)) as pilot:
        app = app_of(pilot)
        await press(pilot, *ON_JOB, "k")
        deeds(app).refusal = HostError("kill", "the job's processes are not those that were shown", "look again", kind="replaced")
        await press(pilot, "K")
        await settle(pilot, lambda: "not those that were shown" in screen_text(app))
        assert isinstance(app.screen, KillSheet)
        assert not app.screen.ending
        deeds(app).refusal = None
        await press(pilot, "R")
        await settle(pilot, lambda: "10 processes end" in screen_text(app))
        assert "not those that were shown" not in screen_text(app)


async def test_removing_asks_and_tells_a_refusal(dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3), toasts=True) as pilot:
        app = app_of(pilot)
        await press(pilot, *ON_JOB, "x")
        await settle(pilot, lambda: "still runs" in screen_text(app))
        await press(pilot, "end", "x", "enter")
        assert not did(app, "remove")
        deeds(app).refusal = HostError("remove", "no space left on its disk")
        await press(pilot, "x", "right", "enter")
        await settle(pilot, lambda: "no space left" in screen_text(app))
        deeds(app).refusal = None
        await press(pilot, "K")
        await settle(pilot, lambda: len(app.screen_stack) == 1)
        assert deeds(app).done.count(("remove", "tr")) == 2
