"""How benchmarks are put into words: the verdict, the matrix of gains, the heat map, a load, a result, a difference. Pure."""

from __future__ import annotations

import time

from eagletui.records import JobState
from eagletui.records.bench import BenchResult, BenchVerdict, Comparison, LoadVerdict
from eagletui.screens.details import at_time, folded_text
from eagletui.screens.serving_words import ENGINES, warned
from eagletui.screens.words import job_state
from eagletui.screens.work_words import work_line
from eagletui.store import Store
from eagletui.text import MISSING, clean, known, number, percent, plural
from eagletui.views.bench import (
    Judged,
    concurrencies,
    contexts,
    current_verdict,
    is_hole,
    load_at,
    pairs,
    running,
    verdicts,
)
from eagletui.widgets.paint import Line, folded, joined, padded, spread, width_of

PAYS = {"yes": ("▲", "good"), "no": ("▼", "bad"), "unclear": ("~", "warn")}
_PAYS_WORDS = {"yes": "pays", "no": "does not pay", "unclear": "unclear: its interval holds 1"}
ARM = 16


def gain_sign(load: LoadVerdict) -> tuple[str, str]:
    """A sign and a style for whether a drafter pays at a load."""
    return PAYS.get(load.pays or "", ("·", ""))


def gain_cell(load: LoadVerdict | None, wide: bool) -> Line:
    """``▼ 0.67x 0.63-0.69``; a hole says that it is one."""
    if load is None:
        return [("·", "dim"), (" not measured" if wide else " -", "dim")]
    if is_hole(load):
        return [("✗", "warn"), (" no number" if wide else " -", "warn")]
    sign, style = gain_sign(load)
    line: Line = [(f"{sign} ", style), (f"{number(load.gain, 2)}x", style)]
    if wide and load.low is not None and load.high is not None:
        line.append((f" {load.low:.2f}-{load.high:.2f}", "dim"))
    return line


def matrix_lines(verdict: BenchVerdict, context: str, width: int) -> list[Line]:
    """Arms x concurrency: speed over that without a drafter, with its interval and sign."""
    if not verdict.comparisons:
        return []
    loads = concurrencies(verdict)
    room = (width - ARM - 6) // max(1, len(loads))
    wide = room >= 19
    cell = 19 if wide else max(8, min(room, 10))
    where = "" if context == "as given" and len(contexts(verdict)) == 1 else f", context {clean(context, 30)}"
    against = " and ".join(dict.fromkeys(clean(one.base, 30) for one in verdict.comparisons))
    about = f" speed over {against}{where}" + (", 95 % interval" if wide else "")
    head: Line = [(f" {'arm':<{ARM}}k   ", "head")]
    for load in loads:
        head += padded([(f"c{load}", "head")], cell)
    out: list[Line] = [[(about, "dim")], head]
    for one in verdict.comparisons:
        line: Line = [(f" {clean(one.other, ARM - 1):<{ARM}}", ""), (f"{one.k or MISSING!s:<4}", "dim")]
        for load in loads:
            line += padded(gain_cell(load_at(one, load, context), wide), cell)
        out.append(line)
    return out


_SHADES = ((0.05, "░"), (0.15, "▒"), (0.4, "▓"), (float("inf"), "█"))


def heat_cell(load: LoadVerdict | None, width: int) -> Line:
    """A cell of the heat map: the darker the further from 1, its colour and sign say to which side; holes are holes."""
    if load is None:
        return padded([("·", "dim")], width)
    if is_hole(load):
        return padded([("✗ ", "warn"), ("no number", "warn")], width)
    assert load.gain is not None
    off = abs(load.gain - 1.0)
    shade = next(glyph for bound, glyph in _SHADES if off < bound)
    style = "good" if load.gain >= 1 else "bad"
    sign, sure = gain_sign(load)
    return padded([(shade * 2, style), (f" {load.gain:.2f}x", style), (f" {sign}", sure)], width)


def heat_lines(one: Comparison, verdict: BenchVerdict, width: int) -> list[Line]:
    """Context x concurrency of one arm."""
    loads, rows = concurrencies(verdict), contexts(verdict)
    label = min(18, max(8, *(len(clean(row, 18)) + 1 for row in rows)))
    cell = max(9, min(14, (width - label - 1) // max(1, len(loads))))
    out: list[Line] = [[(f" {clean(one.other, 30)}: speed by context and concurrency", "dim")]]
    head: Line = [(f" {'context':<{label}}", "head")]
    for load in loads:
        head += padded([(f"c{load}", "head")], cell)
    out.append(head)
    for row in rows:
        line: Line = [(f" {clean(row, label - 1):<{label}}", "")]
        for load in loads:
            line += heat_cell(load_at(one, load, row), cell)
        out.append(line)
    return [*out, [(" ░▒▓█ further from 1   · not measured   ✗ no valid number", "dim")]]


def head_lines(store: Store, width: int) -> list[Line]:
    """Which verdict, its sentence first of all, whom to suspect; what runs; what cannot be read."""
    judged = current_verdict(store)
    out: list[Line] = []
    if judged is not None:
        out += _verdict_head(store, judged, width)
    for job in running(store):
        line: Line = [(" ", ""), job_state(job), ("  ", ""), (clean(job.name, 30), "strong"), ("  ", "")]
        out.append([*line, *(work_line(job.work) if job.work is not None else [("starts", "dim")])])
        for trouble in job.troubles:
            out += warned(trouble, width)
    for id_, why in list(store.result_problems.items())[:2]:
        named = store.jobs.get(id_)
        out += warned(f"{named.name if named is not None else id_}: {why}", width, 2)
    return out


def _verdict_head(store: Store, judged: Judged, width: int) -> list[Line]:
    verdict = judged.verdict
    job = store.jobs.get(judged.job)
    name = clean(verdict.name or (job.name if job is not None else "") or "verdict", 40)
    parts: list[Line] = [[(name, "strong")]]
    if verdict.wall is not None:
        parts.append([(time.strftime("%m-%d %H:%M", time.localtime(verdict.wall)), "dim")])
    if verdict.arms:
        parts.append([("arms ", "dim"), (clean(", ".join(verdict.arms), 80), "")])
    order = [one.job for one in verdicts(store)]
    place: Line = []
    if len(order) > 1:
        place = [(f"{order.index(judged.job) + 1} of {len(order)} verdicts  ", "dim"), ("[ ]", "key")]
    first: Line = [(" ", ""), *joined(parts, width - 2 - width_of(place))]
    out: list[Line] = [spread(first, place, width) if place else first]
    headline = clean(verdict.headline, 600)
    out += [[(" ", ""), (piece, "strong")] for piece in folded(headline, max(10, width - 2))[:4]] if headline else []
    for text in verdict.suspects[:3]:
        out += warned(text, width)
    for known_ in verdict.break_even[:2]:
        out += [[(" ", ""), (piece, "dim")] for piece in folded(clean(known_.sentence, 300), max(10, width - 2))[:2]]
    return out


def nothing_lines(store: Store, key: str, width: int) -> list[Line]:
    """What to do where nothing was measured yet."""
    if store.jobs_seen is None and not store.jobs:
        return [[], [(" no word of the jobs on this host yet", "dim")]]
    if running(store):
        return [[], [(" its results stand here once it has ended", "dim")]]
    out: list[Line] = [[], [(" Nothing was measured on this host yet.", "")], []]
    text = "A plan measures a server without a drafter and with each, under the same loads, and says what pays:"
    out += [[(" ", ""), (piece, "dim")] for piece in folded(text, max(20, width - 2))]
    out += [[("   eagletui bench run HOST PLAN", "")], []]
    if key:
        out.append([(" ", ""), (key, "key"), (" starts a benchmark of one server that runs", "dim")])
    return out


# ------------------------------------------------------------------------------------------------------------- details


def share(value: float | None) -> str:
    return percent(None if value is None else 100 * value)


def load_lines(one: Comparison, load: LoadVerdict, width: int) -> list[Line]:
    """All that is known of one load of one arm."""
    out = folded_text("", clean(load.sentence, 600), width, "strong") if load.sentence else []
    sign, style = gain_sign(load)
    if load.pays in _PAYS_WORDS:
        out += [[(f"{sign} ", style), (_PAYS_WORDS[load.pays], style)]]
    for problem in load.problems:
        out += folded_text("✗ ", clean(problem, 400), width, "warn")
    interval = f"   95 % interval {load.low:.2f}-{load.high:.2f}" if load.low is not None and load.high is not None else ""
    rows = (
        ("speed over the base", f"{number(load.gain, 3)}x{interval}" if load.gain is not None else MISSING),
        ("tok/s", f"{number(load.base_tokens_per_s, 1)} without, {number(load.tokens_per_s, 1)} with"),
        ("acceptance length", number(load.length, 3)),
        ("acceptance", f"{share(load.acceptance)}   needs {share(load.needed)}"),
        ("per position", "  ".join(percent(100 * value, 1) for value in load.per_position) or MISSING),
        ("step cost C", number(load.cost, 3)),
        ("length / C", f"{number(load.predicted, 3)}x" if load.predicted is not None else MISSING),
        ("foreseen", f"{number(load.foreseen, 3)}x, before it was served" if load.foreseen is not None else MISSING),
        ("time per token", f"{number(load.tpot_gain, 2)}x" if load.tpot_gain is not None else MISSING),
        ("time to first", f"{number(load.ttft_ratio, 2)} of the base's" if load.ttft_ratio is not None else MISSING),
        ("same answers", share(load.same_outputs)),
    )
    out.append([])
    out += [[(f"{name:<22}", "dim"), (value, "dim" if value == MISSING else "")] for name, value in rows]
    for note in (*load.notes, *one.notes):
        out += folded_text("  ", clean(note, 400), width, "dim")
    return out


def result_lines(result: BenchResult, job: JobState | None, width: int) -> list[Line]:
    """What was measured of one arm, and on what."""
    server, settings = result.server, result.settings
    out: list[Line] = []
    rows = (
        ("measured", at_time(result.wall)),
        ("engine", f"{ENGINES.get(server.engine, server.engine)} {server.version or ''}".strip()),
        ("model", server.model),
        ("drafter", f"{server.drafter}, k {server.k}" if server.drafter else "none"),
        ("prefix cache", server.prefix_cache or MISSING),
        ("answers", f"up to {settings.max_tokens} tokens, temperature {settings.temperature:g}, seed {settings.seed}"),
        ("prompts", f"{settings.prompts_file or MISSING}   hash {settings.prompts_file_hash or MISSING}"),
        ("command", " ".join(server.argv) or MISSING),
        ("job", job.name if job is not None else MISSING),
    )
    for name, text in rows:
        lines = folded_text("", clean(text, 2000), width - 14, "dim" if text == MISSING else "")
        out += [[(f"{name if at == 0 else '':<14}", "dim"), *line] for at, line in enumerate(lines)]
    out += [[], [(f"{'load':<22}{'tok/s':>10}{'ITL ms':>9}{'TTFT ms':>9}{'length':>8}{'accept':>8}{'passes':>9}", "head")]]
    for cell in result.cells:
        name = f"c{cell.concurrency} {clean(cell.context, 16)}"
        out.append(
            [
                (f"{name:<22}", ""),
                (f"{number(cell.tokens_per_s, 1):>10}", "strong" if known(cell.tokens_per_s) else "dim"),
                (f"{number(cell.itl, 1):>9}{number(cell.ttft, 0):>9}{number(cell.length, 2):>8}", ""),
                (f"{share(cell.acceptance):>8}", ""),
                (f"{cell.good}/{len(cell.passes)}".rjust(9), "" if cell.good == len(cell.passes) else "warn"),
            ]
        )
        for text in cell.problems:
            out += folded_text("  ✗ ", clean(text, 300), width, "warn")
        for text in cell.notes:
            out += folded_text("    ", clean(text, 300), width, "dim")
    if result.versions:
        words = ", ".join(f"{name} {version}" for name, version in result.versions.items())
        out += [[], *folded_text("", clean(words, 1000), width, "dim")]
    return out


def difference_lines(base: BenchResult, other: BenchResult, comparison: Comparison, width: int) -> list[Line]:
    """How two servers were launched differently, beside how their results differ."""
    out: list[Line] = [[(clean(base.arm, 40), "strong"), ("  against  ", "dim"), (clean(other.arm, 40), "strong")], []]
    left = _launch_lines(comparison)
    right = _result_diff(base, other, comparison)
    if width < 110:
        return [*out, *right, [], *left]
    half = width // 2
    for at in range(max(len(left), len(right))):
        one = left[at] if at < len(left) else []
        two = right[at] if at < len(right) else []
        out.append([*padded(one, half - 2), ("  ", ""), *two])
    return out


def _launch_lines(comparison: Comparison) -> list[Line]:
    out: list[Line] = [[("how they were launched", "head")]]
    for found in comparison.launch:
        out.append([(clean(found.what, 60), "")])
        out += [
            [("  − ", "dim"), (clean(_shown(found.base), 300), "dim")],
            [("  + ", "work"), (clean(_shown(found.other), 300), "")],
        ]
    return out if comparison.launch else [*out, [("no difference", "dim")]]


def _shown(value: str | None) -> str:
    return "not set" if value is None else value or "set"


def _result_diff(base: BenchResult, other: BenchResult, comparison: Comparison) -> list[Line]:
    out: list[Line] = [[(f"{'load':<18}{'tok/s':>9}{'tok/s':>10}{'ratio':>8}", "head")]]
    for pair in pairs(base, other):
        one = pair.one.tokens_per_s if pair.one is not None else None
        two = pair.other.tokens_per_s if pair.other is not None else None
        load = load_at(comparison, pair.concurrency, pair.context)
        name = f"c{pair.concurrency} {clean(pair.context, 12)}"
        line: Line = [(f"{name:<18}", ""), (f"{number(one, 1):>9}{number(two, 1):>10}", "")]
        if pair.ratio is None:
            line.append((f"{MISSING:>8}", "dim"))
        else:
            style = "good" if pair.ratio >= 1 else "bad"
            line.append((f"{'▲' if pair.ratio >= 1 else '▼'} {pair.ratio:.2f}x".rjust(8), style))
        if load is not None and load.low is not None and load.high is not None:
            line.append((f"  {load.low:.2f}-{load.high:.2f}", "dim"))
        out.append(line)
        for problem in load.problems if load is not None else ():
            out.append([("  ✗ ", "warn"), (clean(problem, 200), "warn")])
    if all(load.low is None for load in comparison.loads):
        out.append([("  no interval: single requests are in the job's output on the host", "dim")])
    out += [[("  ", ""), (clean(note, 200), "dim")] for note in comparison.notes]
    return out


def cells_word(result: BenchResult) -> Line:
    """``12 of 12 loads``: how many could be measured."""
    good = sum(1 for cell in result.cells if cell.good)
    style = "" if good == len(result.cells) else "warn"
    return [("! " if style else "", style), (f"{good} of {plural(len(result.cells), 'load')}", style)]
