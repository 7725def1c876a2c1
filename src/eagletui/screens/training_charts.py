"""What the four charts of the training screen show: loss, joint and conditional accuracy, predicted length. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from eagletui.records import JobState
from eagletui.runs import Course, Run
from eagletui.text import clean
from eagletui.views.training import (
    BreakEvenLine,
    Points,
    began,
    length_basis,
    lengths,
    means,
    numbered,
    positions,
    raw,
    smooth,
    xs,
)
from eagletui.widgets.chart import Curve
from eagletui.widgets.run_chart import Drawing, Legend

POSITION_STYLES = ("good", "work", "warn", "bad", "strong", "fill2", "fill", "dim")
OVERLAY_STYLES = ("strong", "fill2", "fill")
FAINT = "track"
MARK = "◆"


class Look(NamedTuple):
    """How a person wants to see the curves: over time instead of steps, the loss on a log axis, and of each draft step."""

    by_time: bool = False
    log: bool = False
    per_step: bool = False


class Shown(NamedTuple):
    """A run with the name it is drawn under."""

    name: str
    run: Run


def shown_runs(main: JobState, main_run: Run, others: Iterable[JobState], runs: dict[str, Run]) -> list[Shown]:
    """The run that is shown, then those beside it that have been read."""
    found = [Shown(clean(main.name, 30), main_run)]
    return found + [Shown(clean(job.name, 30), runs[job.id]) for job in others if job.id in runs]


def x_word(look: Look) -> str:
    return "hours" if look.by_time else "steps"


def _xs(course: Course, run: Run, look: Look) -> list[float]:
    return xs(course, look.by_time, began(run))


def _line(points: Points, style: str) -> Curve:
    return Curve(points.x, points.y, style)


def _marks(points: Points, style: str) -> Curve:
    return Curve(points.x, points.y, style, MARK)


def _pair(run: Run, name: str, look: Look, style: str, faint: bool) -> list[Curve]:
    """Raw under smoothed, and a mark for each validation."""
    x, at = _xs(run.train, run, look), _xs(run.val, run, look)
    out = [_line(raw(run.train, name, x), FAINT)] if faint else []
    return [*out, _line(smooth(means(run.train, name, x)), style), _marks(means(run.val, name, at), style)]


def _overlay(shown: Sequence[Shown], names: Sequence[str], look: Look) -> tuple[list[Curve], list[Legend]]:
    curves: list[Curve] = []
    legend: list[Legend] = []
    for one, style in zip(shown[1:], OVERLAY_STYLES, strict=False):
        for name in names:
            curves += _pair(one.run, name, look, style, faint=False)
        legend.append(Legend("█", style, one.name))
    return curves, legend


def loss_drawing(shown: Sequence[Shown], look: Look) -> Drawing:
    """The loss: its sum over the draft steps, or each one's."""
    run = shown[0].run
    names = numbered(run.train, "loss") if look.per_step else []
    curves: list[Curve] = []
    legend: list[Legend] = []
    if names:
        beside, named = _overlay(shown, names, look)
        raws = [_line(raw(run.train, name, _xs(run.train, run, look)), FAINT) for name in names]
        curves = [*raws, *beside]
        for number, name in enumerate(names):
            style = POSITION_STYLES[number % len(POSITION_STYLES)]
            curves += _pair(run, name, look, style, faint=False)
            legend.append(Legend("█", style, f"{number + 1}"))
        legend = [*legend, *named, Legend(MARK, "", "validation")]
        return Drawing("loss of each draft step", x_word(look), curves, legend, look.log)
    beside, named = _overlay(shown, ["loss"], look)
    own = _pair(run, "loss", look, "good", faint=True)
    curves = [own[0], *beside, *own[1:]]
    legend = [Legend("█", "good", shown[0].name if named else "smoothed"), *named, Legend("█", FAINT, "raw")]
    parts = len(numbered(run.train, "loss"))
    about = f"loss, sum of {parts} draft steps" if parts > 1 and not named else "loss"
    return Drawing(about, x_word(look), curves, [*legend, Legend(MARK, "good", "validation")], look.log)


def accuracy_drawing(shown: Sequence[Shown], look: Look, stem: str, about: str) -> Drawing:
    """The accuracy of each position, in percent: joint (``full_acc``) or conditional (``cond_acc``)."""
    run = shown[0].run
    names = numbered(run.train, stem) or numbered(run.val, stem)
    curves, named = _overlay(shown, names[:1], look)
    named = [one._replace(text=f"{one.text}, 1") for one in named]
    legend: list[Legend] = []
    for number, name in enumerate(names):
        style = POSITION_STYLES[number % len(POSITION_STYLES)]
        curves += _pair(run, name, look, style, faint=False)
        legend.append(Legend("█", style, f"{number + 1}"))
    percent = [curve._replace(values=[100.0 * value for value in curve.values]) for curve in curves]
    legend += [*named, Legend(MARK, "", "validation")]
    return Drawing(about, x_word(look), percent, legend, floor=0.0, ceiling=5.0, empty="the trainer logged none")


def length_drawing(shown: Sequence[Shown], look: Look, line: BreakEvenLine | None) -> Drawing:
    """The predicted acceptance length, with the line that it has to pass here."""
    curves: list[Curve] = []
    legend: list[Legend] = []
    k = line.k if line is not None else None
    for number, one in enumerate(shown):
        style = "good" if number == 0 else OVERLAY_STYLES[(number - 1) % len(OVERLAY_STYLES)]
        x, at = _xs(one.run.train, one.run, look), _xs(one.run.val, one.run, look)
        curves += [_line(smooth(lengths(one.run.train, x, k)), style), _marks(lengths(one.run.val, at, k), style)]
        legend.append(Legend("█", style, one.name if len(shown) > 1 else "training"))
    legend.append(Legend(MARK, "good", "validation"))
    if line is not None:
        legend.append(Legend("╌", "warn", f"break-even {line.length:.2f}"))
    else:
        legend.append(Legend("", "", "break-even not known here"))
    about = "predicted acceptance length" + (f", {length_basis(shown[0].run, line)}" if shown and positions(shown[0].run) else "")
    return Drawing(
        about,
        x_word(look),
        curves,
        legend,
        floor=1.0,
        ceiling=1.2,
        level=line.length if line is not None else None,
        empty="no accuracies logged",
    )
