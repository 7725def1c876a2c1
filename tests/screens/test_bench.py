"""The screen of benchmarks: the verdict on top, loads with their intervals, holes as holes, two results side by side, exports."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from eagletui.commands.exports import export_bench
from eagletui.hosts.base import HostError
from eagletui.records.bench import ArmFiles, BenchResult
from eagletui.screens.bench import Bench, crossover_drawing
from eagletui.screens.bench_words import difference_lines, gain_cell, heat_cell, matrix_lines
from eagletui.views.bench import Judged, arms_of, break_even_line, compared, current_verdict, load_at, measured
from eagletui.widgets.dialog import Reader
from eagletui.widgets.paint import plain
from eagletui.widgets.run_chart import laid_out
from tests.screens.bench_demo import BENCH_STORES, PLACES, bench_store, kept, only_results_store, result, two_verdicts_store
from tests.screens.conftest import Opener, app_of, screen_text
from tests.screens.demo import DeskDouble
from tests.screens.test_chart import dots
from tests.screens.test_training import until
from tests.screens.training_demo import train
from tests.test_text import is_safe

SIZES = ((160, 50), (20, 5))


@pytest.mark.parametrize("name", BENCH_STORES)
async def test_every_state_at_every_size(name: str, dashboard: Opener) -> None:
    async with dashboard(BENCH_STORES[name](), (80, 24)) as pilot:
        app = app_of(pilot)
        await pilot.press("8")
        for size in SIZES:
            for key in ("v", "v"):
                await pilot.pause()
                rows = screen_text(app).split("\n")
                assert "could not be drawn" not in "\n".join(rows)
                assert all(is_safe(row) for row in rows), rows
                await pilot.press(key)
            await pilot.resize_terminal(*size)


async def test_the_verdict_is_told_first_then_every_load_with_interval_and_sign(dashboard: Opener) -> None:
    async with dashboard(bench_store(), (160, 50)) as pilot:
        app = app_of(pilot)
        await pilot.press("8")
        await until(pilot, lambda: dots(screen_text(app)) > 30)
        text = screen_text(app)
        judged = current_verdict(app.store)
        assert judged is not None
        assert judged.verdict.headline[:60] in text
        assert "is suspect, not the training" in text.replace("\n   ", " ")
        assert "▼ 0.67x 0.66-0.68" in text
        assert "▲ 1.21x 1.19-1.23" in text
        assert "speed-up over concurrency" in text
        assert "pretrained: speed by context and concurrency" in text
        assert "c4, pass 2 of 3  120 / 440 requests  27 %" in text


async def test_the_cursor_chooses_arm_and_context(dashboard: Opener) -> None:
    async with dashboard(bench_store(), (160, 50)) as pilot:
        app = app_of(pilot)
        await pilot.press("8")
        await pilot.pause()
        await pilot.press("down")
        await until(pilot, lambda: "context 4096 tokens, 95 % interval" in screen_text(app))
        await pilot.press("end")
        await until(pilot, lambda: "trained: speed by context" in screen_text(app))
        assert "· not measured" in screen_text(app)


async def test_a_load_and_a_result_open(dashboard: Opener) -> None:
    async with dashboard(bench_store()) as pilot:
        app = app_of(pilot)
        await pilot.press("8")
        await pilot.pause()
        await pilot.press("enter")
        await until(pilot, lambda: "step cost C" in screen_text(app))
        assert "95 % interval 0.60-0.62" in screen_text(app)
        await pilot.press("escape", "v")
        await pilot.pause()
        await pilot.press("enter")
        await until(pilot, lambda: "hash 5f1c" in screen_text(app))
        assert "--tensor-parallel-size 8" in screen_text(app)


async def test_two_marked_results_are_put_side_by_side(dashboard: Opener) -> None:
    async with dashboard(bench_store()) as pilot:
        app = app_of(pilot)
        await pilot.press("8", "d")  # nothing is marked: the list to mark in
        await until(pilot, lambda: "tok/s at the least load" in screen_text(app))
        await pilot.press("m", "end", "m", "d")
        await until(pilot, lambda: isinstance(app.screen, Reader))
        await until(pilot, lambda: "--speculative-config" in screen_text(app))
        text = screen_text(app)
        assert "how they were launched" in text
        assert "▼ 0.67x" in text
        assert "not set" in text
        await pilot.press("escape", "m")
        await pilot.pause()
        page = app.page
        assert isinstance(page, Bench)
        assert page.results.marked == (measured(app.store)[0].job,)


async def test_from_verdict_to_verdict_and_to_the_break_even_curve(dashboard: Opener) -> None:
    async with dashboard(two_verdicts_store(), (160, 50)) as pilot:
        app = app_of(pilot)
        await pilot.press("8", "right_square_bracket")
        await until(pilot, lambda: "speed-up over acceptance length" in screen_text(app))
        assert "before any training: a drafter needs 40 % acceptance here" in screen_text(app)
        await pilot.press("left_square_bracket")
        await until(pilot, lambda: "speed-up over concurrency" in screen_text(app))


async def test_what_is_shown_is_exported_and_the_paths_are_told(dashboard: Opener) -> None:
    desk = DeskDouble()
    async with dashboard(bench_store(), desk=desk, toasts=True) as pilot:
        app = app_of(pilot)
        await pilot.press("8", "e")
        await until(pilot, lambda: "/home/me/exports/a.csv" in screen_text(app))
        ((_, name, verdict, names),) = [one for one in desk.deeds.done if one[0] == "export"]
        assert (name, names) == ("k25-plan", ["no drafter", "pretrained", "trained"])
        assert verdict is not None
        desk.deeds.refusal = HostError("export", "no space left", kind="config")
        await pilot.press("e")
        await until(pilot, lambda: "no space left" in screen_text(app))


async def test_a_verdict_is_opened_from_the_jobs_and_its_results_are_asked_for(dashboard: Opener) -> None:
    desk = DeskDouble()
    async with dashboard(two_verdicts_store(), desk=desk) as pilot:
        app = app_of(pilot)
        await app.open_job("v0")
        assert app.page_name == "bench"
        assert ("results", True) in desk.watch.looked
        judged = current_verdict(app.store)
        assert judged is not None
        assert judged.job == "v0"


# ------------------------------------------------------------------------------------------------------------ pure


def test_a_hole_is_a_hole() -> None:
    store = bench_store()
    judged = current_verdict(store)
    assert judged is not None
    trained = judged.verdict.comparisons[1]
    assert load_at(trained, 16, PLACES[1]) is None
    text = plain(matrix_lines(judged.verdict, PLACES[1], 100))
    assert text.count("· not measured") == 1
    bad = trained.loads[0]._replace(problems=("the answers are 6 % shorter",))
    assert plain([gain_cell(bad, True)]) == "✗ no number"
    assert plain([heat_cell(bad, 14)]) == "✗ no number"
    assert plain([heat_cell(None, 14)]) == "·"
    assert plain([heat_cell(trained.loads[0], 14)]) == "▓▓ 0.67x ▼"


def test_the_crossover_has_the_line_at_one_and_only_loads_with_a_number() -> None:
    judged = current_verdict(bench_store())
    assert judged is not None
    drawing = crossover_drawing(judged, PLACES[1])
    lines = [curve for curve in drawing.curves if not curve.mark and curve.style != "track"]
    assert [len(curve.times) for curve in lines] == [3, 2]
    curves, low, high, span, (x, _) = laid_out(drawing, 100, 20)
    assert low <= 1.0 <= high
    assert [label for _, label in x] == ["1", "4", "16"]
    assert span == (0.0, 4.0)
    assert curves[-1].values == [1.0, 1.0]


def test_the_one_without_a_drafter_is_the_base_whichever_is_older() -> None:
    store = only_results_store()
    assert compared(store, ("b0",)) is None
    found = compared(store, ("b2", "b0"))
    assert found is not None
    base, other, comparison = found
    assert (base.arm, other.arm) == ("no drafter", "trained")
    store.bench["b0"] = store.bench["b0"]._replace(wall=9e9)
    again = compared(store, ("b0", "b2"))
    assert again is not None
    assert again[0].arm == "no drafter"
    text = plain(difference_lines(base, other, comparison, 160))
    assert "no interval" in text
    assert "drafter" in text


def test_a_verdicts_arms_are_those_of_its_files_and_blocks_are_pooled() -> None:
    """Without a drafter first and last, and a later plan on this host that called its arms the same."""
    store = bench_store()
    last, files = store.jobs["b0"].started, []
    for id_, first in list(store.bench.items()):
        path = f"/out/{id_}/result.json"
        store.bench[id_] = first._replace(path=path)
        other = f"other-{id_}"
        store.jobs[other] = store.jobs[id_]._replace(id=other)
        store.bench[other] = first._replace(path=f"/other/{id_}/result.json", notes=("of the other plan",))
        # the same place again, after the verdict
        store.bench[f"again-{id_}"] = store.bench[id_]._replace(wall=9e12, notes=("after the verdict",))
        files.append(ArmFiles(first.arm, (path,)))
    block = store.bench["b0"]._replace(path="/out/b0-2/result.json")
    store.jobs["b0-2"] = store.jobs["b0"]._replace(id="b0-2", started=last + 9)
    store.bench["b0-2"] = block
    files[0] = ArmFiles(files[0].arm, (*files[0].paths, "/out/b0-2/result.json"))
    found = Judged("v", store.verdicts["v"]._replace(files=tuple(files)))
    arms = arms_of(store, found)
    assert [one.arm for one in arms] == ["no drafter", "pretrained", "trained"]
    assert [len(arm.cells[0].passes) for arm in arms] == [2 * len(block.cells[0].passes), 3, 3]
    assert [one.number for one in arms[0].cells[0].passes] == [1, 2, 3, 4, 5, 6]
    assert all(arm.notes == () for arm in arms)
    del store.bench["b0-2"]
    assert arms_of(store, found)[0].notes == ("1 of the 2 blocks of this arm are known here",)


def test_a_verdict_of_no_pipeline_that_names_no_files_has_no_known_arms() -> None:
    store = bench_store()
    found = Judged("v", store.verdicts["v"])
    assert [one.arm for one in arms_of(store, found)] == ["no drafter", "pretrained", "trained"]
    store.jobs["v"] = store.jobs["v"]._replace(parent=None)
    assert arms_of(store, found) == []


def test_the_break_even_is_of_the_same_target_and_of_the_least_load() -> None:
    store = bench_store()
    line = break_even_line(store, train())
    assert line is not None
    assert line.length == pytest.approx(2.16, abs=0.02)
    assert line.basis == "at c1, k25-plan"
    assert line.k == 3
    assert break_even_line(store, train(model="/shared/another")) is None
    assert break_even_line(only_results_store(), train()) is None


def test_a_load_with_problems_gives_no_break_even() -> None:
    """Below 1 a step cost is a wrong baseline, and no line to train towards."""
    store = bench_store()
    for job, verdict in list(store.verdicts.items()):
        broken = tuple(
            one._replace(loads=tuple(load._replace(problems=("the baseline is slow",)) for load in one.loads))
            for one in verdict.comparisons
        )
        store.verdicts[job] = verdict._replace(comparisons=broken, break_even=())
    assert break_even_line(store, train()) is None


def test_the_files_hold_what_was_measured(state_home: Path) -> None:
    store = bench_store()
    judged = current_verdict(store)
    assert judged is not None
    results: list[BenchResult] = [one.result for one in measured(store)]
    paths = [Path(path) for path in export_bench("../k25 plan", judged.verdict, results)]
    assert [path.suffix for path in paths] == [".json", ".csv", ".md"]
    assert all(path.parent == state_home / "eagletui" / "exports" for path in paths)
    doc = json.loads(paths[0].read_text())
    assert doc["verdict"]["headline"] == judged.verdict.headline
    assert len(list(csv.DictReader(paths[1].open()))) == 11
    assert judged.verdict.headline[:20] in paths[2].read_text()


def test_where_nothing_can_be_written_that_is_told(state_home: Path) -> None:
    (state_home / "eagletui").write_text("a file in the way")
    with pytest.raises(HostError, match="export"):
        export_bench("x", None, [kept(result("a", "none", {(1, "as given"): 90.0}, None))])
