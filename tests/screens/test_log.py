"""The log screen: its end at once, followed, folded, searched, paged through; and a flood that does not hold the keys up."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual.pilot import Pilot

from eagletui.app import EagleApp
from eagletui.hosts.base import HostError
from eagletui.records import LogLine
from eagletui.widgets.dialog import Reader
from eagletui.widgets.log_view import MARK, highlighted, rows_of, short_stamp
from tests.screens.conftest import Opener, app_of, screen_text
from tests.screens.demo import HOSTILE, board_store
from tests.screens.test_acting import IN_LOG, ON_JOB, deeds, log, press, settle


def numbered(first: int, count: int) -> bytes:
    return b"".join(b"INFO 11-29 16:19:%02d [a.py:1] line %06d end\n" % (n % 60, n) for n in range(first, first + count))


async def opened(pilot: Pilot[int], path: Path) -> EagleApp:
    app = app_of(pilot)
    deeds(app).log = path
    await press(pilot, *IN_LOG)
    await settle(pilot, lambda: log(app).window is not None and log(app).window.opened)  # type: ignore[union-attr]
    return app


def line(offset: int, text: str, **more: object) -> LogLine:
    return LogLine(offset, offset + 10, text, **more)  # type: ignore[arg-type]


def test_folding_hides_noise_and_old_ticks_but_never_errors_or_the_newest_tick() -> None:
    lines = [
        line(0, "start"),
        line(10, "chatter", noise=True),
        line(20, "chatter", noise=True),
        line(30, "Loading: 1% Completed", progress=True, process="TP0"),
        line(40, "Loading: 1% Completed", progress=True, process="TP1"),
        line(50, "Loading: 2% Completed", progress=True, process="TP0"),
        line(60, "boom", severity="error"),
        line(70, "Loading: 3% Completed", progress=True, process="TP0"),
    ]
    rows = rows_of(lines, True)
    assert [(row.key, row.line.text, row.folded, row.ticks) for row in rows] == [
        (0, "start", 0, 0),
        (10, "chatter", 2, 0),
        (30, "Loading: 2% Completed", 0, 1),
        (40, "Loading: 1% Completed", 0, 0),
        (60, "boom", 0, 0),
        (70, "Loading: 3% Completed", 0, 0),
    ]
    assert [row.line for row in rows_of(lines, False)] == lines


def test_marks_and_stamps() -> None:
    assert highlighted("Boom boom", "bad", "boom") == [("", "bad"), ("Boom", MARK), (" ", "bad"), ("boom", MARK), ("", "bad")]
    assert highlighted("Boom boom", "bad", "Boom") == [("", "bad"), ("Boom", MARK), (" boom", "bad")]
    assert short_stamp("2026-11-29 16:19:18.123") == short_stamp("11-29 16:19:18") == "16:19:18"
    assert short_stamp(None) == ""


async def test_it_opens_at_the_end_and_shows_what_comes(dashboard: Opener, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(numbered(0, 5000))
    async with dashboard(board_store(seconds=3)) as pilot:
        app = await opened(pilot, path)
        await settle(pilot, lambda: "line 004999" in screen_text(app))
        with path.open("ab") as file:
            file.write(numbered(5000, 1))
        deeds(app).reader.poke()
        await settle(pilot, lambda: "line 005000" in screen_text(app))
        assert "following" in screen_text(app)
        await press(pilot, "pageup")
        assert "following" not in screen_text(app)
        with path.open("ab") as file:
            file.write(numbered(5001, 1))
        deeds(app).reader.poke()
        before = screen_text(app)
        await press(pilot, "down", "up")
        assert "005001" not in screen_text(app)
        assert [row for row in before.split("\n") if "line 00" in row] == [
            row for row in screen_text(app).split("\n") if "line 00" in row
        ]
        await press(pilot, "end")
        await settle(pilot, lambda: "line 005001" in screen_text(app))


async def test_paging_up_reads_back_to_the_start_without_a_jump(dashboard: Opener, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(numbered(0, 5000))
    async with dashboard(board_store(seconds=3), (80, 24)) as pilot:
        app = await opened(pilot, path)
        last = 5000
        for _ in range(400):
            await pilot.press("pageup")
            await settle(pilot, lambda: not log(app)._reading)
            shown = [int(row.split("line ")[1][:6]) for row in screen_text(app).split("\n") if "line 0" in row]
            assert shown == list(range(shown[0], shown[0] + len(shown)))
            assert shown[-1] >= last - 22
            last = shown[0]
            if last == 0:
                break
        assert last == 0
        await press(pilot, "end", "home")
        await settle(pilot, lambda: "line 000000" in screen_text(app))


async def test_search_both_ways_round_the_end_and_giving_up(dashboard: Opener, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(numbered(0, 9000) + b"Needle one\n" + numbered(9000, 9000) + b"needle two\n" + numbered(18000, 5))
    async with dashboard(board_store(seconds=3)) as pilot:
        app = await opened(pilot, path)

        async def at(text: str) -> None:
            def there() -> bool:
                found = log(app).view.current_line
                return found is not None and found.text == text and not log(app).busy

            await settle(pilot, there)

        await press(pilot, "slash", *"needle", "enter")
        await at("needle two")
        assert "found up" in screen_text(app)
        await press(pilot, "n")
        await at("Needle one")
        await press(pilot, "n")
        await at("needle two")
        assert "round the end" in screen_text(app)
        await press(pilot, "N")
        await at("Needle one")
        await press(pilot, "escape")
        assert log(app).view.find_text == ""
        await press(pilot, "slash", *"absent", "enter")
        await settle(pilot, lambda: "nothing holds 'absent'" in screen_text(app))
        await press(pilot, "escape", "escape")
        await settle(pilot, lambda: app.page_name == "jobs")


async def test_the_first_error_and_a_line_in_full(dashboard: Opener, tmp_path: Path) -> None:
    path = tmp_path / "log"
    boom = b"(EngineCore pid=1) ERROR 11-29 16:00:00 [core.py:1] boom " + b"x" * 300 + b"\n"
    path.write_bytes(numbered(0, 9000) + boom + numbered(9000, 9000))
    async with dashboard(board_store(seconds=3), (80, 24)) as pilot:
        app = await opened(pilot, path)
        await press(pilot, "e")
        await settle(pilot, lambda: "✗ 16:00:00" in screen_text(app))
        await press(pilot, "enter")
        assert isinstance(app.screen, Reader)
        assert screen_text(app).count("x") > 290
        await press(pilot, "escape", "y")
        assert "(EngineCore) boom xxx" in app.clipboard
        await press(pilot, "w")
        assert screen_text(app).count("x") > 290
        await press(pilot, "w", "right")
        assert log(app).view.sideways > 0
        deeds(app).log.write_bytes(numbered(0, 10))
        await press(pilot, "F", "e")
        await settle(pilot, lambda: "no error in this log" in screen_text(app))


async def test_noise_is_counted_and_shown_on_demand(dashboard: Opener, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"WARNING 11-29 16:19:18 [a.py:1] Triton is not installed. Using dummy decorators.\n" * 37 + numbered(0, 2))
    async with dashboard(board_store(seconds=3)) as pilot:
        app = await opened(pilot, path)
        await settle(pilot, lambda: "37 lines of noise folded - z shows them" in screen_text(app))
        await press(pilot, "z")
        assert screen_text(app).count("Triton is not installed") == 37
        await press(pilot, "z", "slash", *"Triton", "enter")
        await settle(pilot, lambda: "Triton is not installed" in screen_text(app))


async def test_a_log_that_cannot_be_read_says_why(dashboard: Opener) -> None:
    async with dashboard(board_store(seconds=3)) as pilot:
        app = app_of(pilot)
        deeds(app).reader.fail = HostError("read", "permission denied", kind="denied")
        await press(pilot, *IN_LOG)
        await settle(pilot, lambda: "permission denied" in screen_text(app))
        deeds(app).refusal = HostError("log", "this job has no log", kind="absent")
        await press(pilot, "7", "up", "o")
        await settle(pilot, lambda: "this job has no log" in screen_text(app))


async def test_another_jobs_log_is_opened_in_its_place_and_reading_stops_out_of_sight(dashboard: Opener, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(numbered(0, 50))
    async with dashboard(board_store(seconds=3)) as pilot:
        app = await opened(pilot, path)
        first = log(app).window
        following = lambda: [w for w in app.workers if w.group == "follow" and w.is_running]  # noqa: E731
        await settle(pilot, lambda: bool(following()))
        await press(pilot, "7")
        await settle(pilot, lambda: not following())
        await press(pilot, "up", "enter")
        await settle(pilot, lambda: app.page_name == "log" and log(app).window is not first)
        assert "synth-25k" in screen_text(app)


@pytest.mark.parametrize("size", [(80, 24), (160, 50), (20, 6)], ids=str)
async def test_hostile_lines_stay_lines(size: tuple[int, int], dashboard: Opener, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes((HOSTILE + "\n").encode("utf-8", "replace") * 50 + b"\xff\xfe\x00\x9b2J\n" * 20)
    async with dashboard(board_store(seconds=3), size) as pilot:
        app = await opened(pilot, path)
        for key in ("w", "z", "home", "right"):
            await press(pilot, key)
            shown = screen_text(app)
            assert all(ord(char) >= 32 or char == "\n" for char in shown)
            assert "could not be drawn" not in shown
        await press(pilot, "y")
        assert "\x1b" not in app.clipboard


async def test_a_flood_does_not_hold_the_keys_up(dashboard: Opener, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(numbered(0, 1000))
    async with dashboard(board_store(seconds=3)) as pilot:
        app = await opened(pilot, path)
        block, done = numbered(0, 20_000), asyncio.Event()

        async def flood() -> None:
            with path.open("ab", buffering=0) as file:
                while not done.is_set():
                    file.write(block)
                    deeds(app).reader.poke()
                    await asyncio.sleep(0.05)

        task = asyncio.create_task(flood())
        await settle(pilot, lambda: path.stat().st_size > 30 * len(block))
        window = log(app).window
        assert window is not None
        assert len(window.lines) < 5000
        assert window.size - window.end < 3 * len(block)
        await press(pilot, "pageup")
        assert not log(app).view.following
        done.set()
        await task
        await press(pilot, *ON_JOB)
