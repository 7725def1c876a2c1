"""How a training is put into words: its head, its figures, what is wrong with it. Pure functions of store and records."""

from __future__ import annotations

from eagletui.records import JobState
from eagletui.runs import Run
from eagletui.screens.details import folded_text
from eagletui.screens.serving_words import warned
from eagletui.screens.words import job_state
from eagletui.screens.work_words import outcome_line
from eagletui.store import Store
from eagletui.text import MISSING, clean, duration, number, percent, plural
from eagletui.views.serving import elapsed
from eagletui.views.training import (
    LIVE,
    STARVED,
    BreakEvenLine,
    best,
    current_run,
    foreseen,
    length_basis,
    newest_lengths,
    positions,
    silent,
    too_silent,
    trainings,
)
from eagletui.views.work import done_words, figure, left_words
from eagletui.widgets.paint import Line, spread, width_of, wrapped

Fact = tuple[str, Line]


def no_training_lines(store: Store, key: str) -> list[Line]:
    """What to do where nothing was trained yet."""
    if store.jobs_seen is None and not store.jobs:
        return [[], [(" no word of the jobs on this host yet", "dim")]]
    out: list[Line] = [[], [(" No drafter has been trained on this host.", "")], []]
    out.append([(" It takes prepared data and the target's hidden states:", "dim")])
    for kind, what in (
        ("synthesise", "answers of the target to your prompts, by its server"),
        ("prepare", "the answers as token ids, with the mask of what is learned"),
        ("extract", "the target's hidden states of these tokens"),
        ("train", "a drafter from them; this screen shows it as it learns"),
    ):
        out.append([(f"   {kind:<12}", ""), (what, "dim")])
    if key:
        out += [[], [(" ", ""), (key, "key"), (" starts one of them, or a pipeline of all", "dim")]]
    return out


def head_lines(store: Store, job: JobState, width: int, now: float) -> list[Line]:
    """Name, state, how far it is and how long it still takes; which of how many trainings it is."""
    word, style = job_state(job)
    spent = elapsed(store, job, now)
    state: Line = [(word, style)]
    if spent is not None:
        state.append((f" {'after ' if job.ended is not None else ''}{duration(spent)}", ""))
    parts: list[Line] = [[(clean(job.name, 40), "strong")], state]
    work = job.work
    if job.state in LIVE and work is not None:
        if work.stage:
            parts.append([(clean(work.stage, 50), "work")])
        for words in (done_words(work), left_words(work)):
            if words:
                parts.append([(words, "")])
    order = [one.id for one in trainings(store.jobs.values())]
    place: Line = []
    if len(order) > 1:
        place = [(f"{order.index(job.id) + 1} of {len(order)} trainings  ", "dim"), ("[ ]", "key")]
    rows = wrapped(parts, width - 1 - (width_of(place) + 2 if place else 0))
    out: list[Line] = [[(" ", ""), *row] for row in rows]
    if place:
        out[0] = spread(out[0], place, width)
    ended = outcome_line(job)
    if ended:
        out += [[(" ", ""), *line] for line in _folded_line(ended, width - 2)]
    return out


def _folded_line(line: Line, width: int) -> list[Line]:
    sign, (text, style) = line[0], line[1]
    pieces = folded_text("", text, width, style)
    return [[sign if at == 0 else ("  ", ""), *piece] for at, piece in enumerate(pieces)][:3]


def trouble_lines(job: JobState, run: Run | None, quiet: float | None, width: int) -> list[Line]:
    """All that needs a person, loud: what the host says of a training that runs, silence, what could not be read."""
    out: list[Line] = []
    if job.ended is None:
        for trouble in job.troubles:
            out += warned(trouble, width)
    if run is not None and too_silent(run, quiet) and not any(t.startswith(("stall", "silent")) for t in job.troubles):
        out += warned(f"no step for {duration(quiet)}: it hangs, or saves or validates", width)
    if run is not None and run.problem:
        out += warned(run.problem, width)
    if job.first_error and job.ok is not True and job.ended is not None:
        out += warned(job.first_error, width)
    return out


def fact_list(store: Store, job: JobState, run: Run, line: BreakEvenLine | None, wall: float) -> list[Fact]:
    """The figures of a training, each with its name."""
    newest = run.newest
    values = newest.values if newest is not None else {}
    facts: list[Fact] = []
    if newest is not None:
        steps: Line = [] if job.work is not None else [(f"   {number(newest.step + 1)} steps", "dim")]
        facts.append(("epoch", [(f"{newest.epoch + 1}", ""), *steps]))
    facts.append(("loss", [(_value(values, "loss"), "strong"), *_sum_words(run)]))
    found = best(run)
    if found is None:
        facts.append(("best", [("no validation yet", "dim")]))
    else:
        facts.append(("best", [(f"epoch {found.epoch + 1}", "good"), (f"   loss {figure(found.loss)}", "")]))
    facts += length_facts(run, line)
    facts.append(("lr", [(_rate(values.get("lr")), "")]))
    facts.append(("tokens/s", [(_value(values, "tokens_per_s"), ""), *_of_what(job)]))
    waits = values.get("fetch_frac")
    starved = waits is not None and waits > STARVED
    share: Line = [(percent(None if waits is None else 100 * waits), "warn" if starved else "")]
    facts.append(("data share", [("! ", "warn"), *share, (" of a step waits", "warn")] if starved else share))
    facts.append(("step", _milliseconds(values.get("step_ms"))))
    if values.get("memory_mb"):
        facts.append(("card memory", [(f"{values['memory_mb'] / 1024:.1f}", ""), (" GiB", "dim")]))
    if values.get("error_records"):
        facts.append(("unreadable", [("! ", "warn"), (plural(int(values["error_records"]), "sample"), "warn")]))
    quiet = silent(store, job, run, wall)
    if quiet is not None:
        facts.append(("last step", [(f"{duration(quiet)} ago", "warn" if too_silent(run, quiet) else "dim")]))
    return facts


def length_facts(run: Run, line: BreakEvenLine | None) -> list[Fact]:
    """The predicted acceptance length against the break-even of this host."""
    val, steps = newest_lengths(run, line.k if line is not None else None)
    basis = length_basis(run, line)
    facts: list[Fact] = []
    if val is not None:
        facts.append(("length", [(f"~{val:.2f}", "strong"), (f" from validation, {basis}", "dim")]))
    elif steps is not None:
        facts.append(("length", [(f"~{steps:.2f}", ""), (f" from training, {basis}", "dim")]))
    if line is None:
        facts.append(("break-even", [("not known here", "dim")]))
        return facts
    facts.append(("break-even", [(f"{line.length:.2f}", ""), (f" {clean(line.basis, 60)}", "dim")]))
    ahead = foreseen(run, line)
    if ahead is not None:
        facts.append(("foreseen", [(f"~{ahead:.2f}x", "good" if ahead > 1 else "bad"), (" of no drafter", "dim")]))
    return facts


def _sum_words(run: Run) -> Line:
    count = positions(run)
    return [(f"   {count} draft steps", "dim")] if count > 1 else []


def _of_what(job: JobState) -> Line:
    """Whether a card's tokens are counted, or all."""
    counters = job.work.counters if job.work is not None else ()
    return [(" a card", "dim")] if any(one.name == "tokens" and one.unit.endswith("a card") for one in counters) else []


def _value(values: dict[str, float], name: str) -> str:
    value = values.get(name)
    return MISSING if value is None else figure(value)


def _milliseconds(value: float | None) -> Line:
    if value is not None and value >= 10_000:
        return [(f"{value / 1000:.1f}", ""), (" s", "dim")]
    return [(MISSING if value is None else number(value), "" if value is not None else "dim"), (" ms", "dim")]


def _rate(value: float | None) -> str:
    return MISSING if value is None else f"{value:.2e}"


def fact_lines(facts: list[Fact], width: int) -> list[Line]:
    """The figures on a few lines, in a row."""
    parts: list[Line] = [[(f"{name} ", "dim"), *value] for name, value in facts]
    return [[(" ", ""), *line] for line in wrapped(parts, width - 1, most=4)]


def fact_column(facts: list[Fact]) -> list[Line]:
    """The figures below each other."""
    return [[(f" {name:<13}", "dim"), *value] for name, value in facts]


def waiting_lines(store: Store, job: JobState, run: Run | None) -> list[Line]:
    """Why there is no curve yet."""
    if run is None:
        return [[], [(" reading what was recorded", "dim")]]
    if run.newest is None and not len(run.val):
        if job.state in LIVE:
            return [[], [(" no step recorded yet: the model and the data are loaded first", "dim")]]
        return [[], [(" it ended before it recorded a step", "dim"), ("   its log says why", "dim")]]
    return []


def shown_run(store: Store) -> tuple[JobState | None, Run | None]:
    """The training that is shown, and what has been read of it."""
    job = current_run(store)
    return job, store.runs.get(job.id) if job is not None else None
