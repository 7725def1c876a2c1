"""A benchmark for people and for other programs: tables, plots in plain characters, Markdown, CSV. Pure functions."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from typing import Any

from eagletui.records import to_doc
from eagletui.records.bench import BenchResult, BenchVerdict, BreakEven, Comparison, LoadVerdict
from eagletui.text import clean, number

PLOT_WIDTH, PLOT_HEIGHT = 76, 18
_MARKS = "*o+x#@"
_CSV = (
    "base", "arm", "role", "k", "concurrency", "context", "gain", "low", "high", "pays", "length", "acceptance", "cost",
    "predicted", "foreseen", "needed", "needed_length", "base_tokens_per_s", "tokens_per_s", "tpot_gain", "ttft_ratio",
    "same_outputs", "problems", "notes",
)  # fmt: skip
_CSV_CELLS = (
    "arm", "engine", "version", "model", "drafter", "k", "role", "concurrency", "context", "context_tokens", "prompts", "passes",
    "good", "tokens_per_s", "ttft_ms", "tpot_ms", "itl_ms", "length", "acceptance", "drift", "problems", "notes",
)  # fmt: skip


def as_json(verdict: BenchVerdict | None, results: Sequence[BenchResult]) -> dict[str, Any]:
    """Everything as one JSON object."""
    out: dict[str, Any] = {"results": [to_doc(result) for result in results]}
    if verdict is not None:
        out["verdict"] = to_doc(verdict)
    return out


def as_csv(verdict: BenchVerdict | None, results: Sequence[BenchResult]) -> str:
    """One row a load of each comparison; without a verdict, one row a cell of each arm."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if verdict is not None and verdict.comparisons:
        writer.writerow(_CSV)
        for one in verdict.comparisons:
            for load in one.loads:
                values = {**load._asdict(), "base": one.base, "arm": one.other, "role": one.role, "k": one.k}
                writer.writerow([_cell(values[name]) for name in _CSV])
        return out.getvalue()
    writer.writerow(_CSV_CELLS)
    for result in results:
        server = result.server
        for cell in result.cells:
            values = {
                **server._asdict(), **cell._asdict(), "arm": result.arm, "passes": len(cell.passes), "ttft_ms": cell.ttft,
                "tpot_ms": cell.tpot, "itl_ms": cell.itl,
            }  # fmt: skip
            writer.writerow([_cell(values[name]) for name in _CSV_CELLS])
    return out.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, tuple):
        return "; ".join(map(str, value))
    if isinstance(value, float):
        return f"{value:.6g}"
    return "" if value is None else value


# ---------------------------------------------------------------------------------------------------------------- tables


def load_rows(one: Comparison) -> list[list[str]]:
    """The head and a row a load, as texts: what a comparison says."""
    head = [
        "concurrency",
        "context",
        "without",
        "with",
        "gain",
        "95 %",
        "C",
        "length",
        "acceptance",
        "needs",
        "predicted",
        "same",
    ]
    return [head, *(_load_row(load) for load in one.loads)]


def _load_row(load: LoadVerdict) -> list[str]:
    interval = f"{load.low:.2f}-{load.high:.2f}" if load.low is not None and load.high is not None else "-"
    return [
        str(load.concurrency),
        load.context,
        number(load.base_tokens_per_s, 1),
        number(load.tokens_per_s, 1),
        number(load.gain, 2),
        interval,
        number(load.cost, 2),
        number(load.length, 2),
        _share(load.acceptance),
        _share(load.needed),
        number(load.predicted, 2),
        _share(load.same_outputs),
    ]


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def cell_rows(result: BenchResult) -> list[list[str]]:
    """The head and a row a cell, as texts: what an arm measured."""
    head = ["concurrency", "context", "tok/s", "TPOT ms", "ITL ms", "TTFT ms", "length", "acceptance", "passes", "drift"]
    rows = [head]
    for cell in result.cells:
        drift = "-" if cell.drift is None else f"{100 * cell.drift:+.0f} %"
        rows.append(
            [
                str(cell.concurrency),
                cell.context,
                number(cell.tokens_per_s, 1),
                number(cell.tpot, 2),
                number(cell.itl, 2),
                number(cell.ttft, 0),
                number(cell.length, 3),
                _share(cell.acceptance),
                f"{cell.good}/{len(cell.passes)}",
                drift,
            ]
        )
    return rows


def break_even_rows(curves: Sequence[BreakEven]) -> list[list[str]]:
    """The head and a row a load: what a drafter would need here."""
    head = ["concurrency", "context", "k", "C", "needs length", "needs acceptance", "at best"]
    rows = [head]
    for one in curves:
        rows.append(
            [
                str(one.concurrency), one.context, str(one.k or "-"), number(one.cost, 2), number(one.needed_length, 2),
                _share(one.needed) if one.possible else "impossible", number(one.best_gain, 2),
            ]
        )  # fmt: skip
    return rows


# ----------------------------------------------------------------------------------------------------------------- plots


def plot(series: Sequence[tuple[str, Sequence[tuple[float, float]]]], title: str, x: str, doubling: bool = False) -> str:
    """A plot in plain characters of several ``(name, points)``, with a line at 1; empty without points.

    ``doubling``: x is drawn by its logarithm.
    """
    drawn = [(name, sorted(points)) for name, points in series if points]
    if not drawn:
        return ""
    import plotext  # slow to import, and only wanted here

    def place(value: float) -> float:
        return math.log2(value) if doubling else value

    figure = plotext.figure
    figure.clear()
    figure.plot_size(PLOT_WIDTH, PLOT_HEIGHT)
    figure.theme("colorless")
    for at, (name, points) in enumerate(drawn):
        line = figure.signal([place(a) for a, _ in points], [b for _, b in points], marker=_MARKS[at % len(_MARKS)])
        figure.draw(line.lines().label(clean(name, 24)))
    figure.line(1.0)
    figure.title(title)
    figure.label(x)
    places = sorted({a for _, points in drawn for a, _ in points})
    places = places[:: 1 + (len(places) - 1) // 8]
    figure.ruler("x").ticks([place(a) for a in places], [f"{a:g}" for a in places])
    highest = max(b for _, points in drawn for _, b in points)
    figure.ruler("y").lim(0, max(1.2, 1.1 * highest))
    text: str = plotext.uncolorize(figure.build().string())
    figure.clear()
    return "\n".join(line.rstrip() for line in text.splitlines())


def plots(verdict: BenchVerdict) -> list[str]:
    """Gain over concurrency for each context, and gain over length where that was measured with synthetic acceptance."""
    out = []
    contexts = dict.fromkeys(load.context for one in verdict.comparisons for load in one.loads)
    for context in contexts:
        series = [
            (
                one.other,
                [
                    (float(load.concurrency), load.gain)
                    for load in one.loads
                    if load.context == context and load.gain is not None and not load.problems
                ],
            )
            for one in verdict.comparisons
        ]
        if any(len(points) > 1 for _, points in series):
            title = "speed with the drafter / without" + ("" if context == "as given" else f", context {context}")
            out.append(plot(series, title, "concurrency", doubling=True))
    curves = [(f"c{one.concurrency}", curve_points(one)) for one in verdict.break_even]
    if curves:
        out.append(plot(curves, "speed with a drafter / without", "acceptance length"))
    return [text for text in out if text]


def curve_points(one: BreakEven) -> list[tuple[float, float]]:
    """The curve length / C from 1 to k + 1 at one load."""
    if not one.cost or not one.k:
        return []
    return [(1 + at * one.k / 8, (1 + at * one.k / 8) / one.cost) for at in range(9)]


# -------------------------------------------------------------------------------------------------------------- Markdown


def as_markdown(verdict: BenchVerdict | None, results: Sequence[BenchResult]) -> str:
    """The whole report: the verdict first, then figures, plots, how the servers ran, and what was measured on."""
    lines: list[str] = [f"# Benchmark{f' {verdict.name}' if verdict is not None and verdict.name else ''}", ""]
    if verdict is not None:
        lines += [f"**{_md(verdict.headline)}**", ""]
        if verdict.suspects:
            lines += ["## Suspicion", "", *(f"- {_md(text)}" for text in verdict.suspects), ""]
        for one in verdict.comparisons:
            lines += _comparison(one)
        if verdict.break_even:
            lines += ["## Before any training", "", *(f"- {_md(one.sentence)}" for one in verdict.break_even), ""]
            lines += [*_table(break_even_rows(verdict.break_even)), ""]
        for text in plots(verdict):
            lines += ["```", text, "```", ""]
        if verdict.notes:
            lines += ["## Notes", "", *(f"- {_md(text)}" for text in verdict.notes), ""]
    for result in results:
        lines += _arm(result)
    lines += [
        "Gain: output tokens a second with over without, at the same concurrency. C: mean time between chunks with over without.",
        "Length: mean tokens a verify step, the bonus token included, pooled over all steps. Acceptance: accepted / proposed.",
    ]
    return "\n".join(lines) + "\n"


def _md(text: str) -> str:
    """Text that has no meaning of its own in Markdown, safe to print."""
    safe = clean(text, 4000)
    for char in "\\`*_<>|#[]":
        safe = safe.replace(char, "\\" + char)
    return safe


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    head, *rest = rows
    lines = ["| " + " | ".join(map(_md, head)) + " |", "|" + "---|" * len(head)]
    return [*lines, *("| " + " | ".join(map(_md, row)) + " |" for row in rest)]


def _comparison(one: Comparison) -> list[str]:
    lines = [f"## {_md(one.other)} against {_md(one.base)}", "", *(f"- {_md(load.sentence)}" for load in one.loads), ""]
    lines += [*_table(load_rows(one)), ""]
    for crossover in one.crossovers:
        where = "" if crossover.context == "as given" else f"context {crossover.context}: "
        lines.append(f"- {_md(where + crossover.words)}")
    if one.validation_length is not None:
        lines.append(f"- training's validation gives a length of {one.validation_length:.3f}")
    lines += [f"- {_md(note)}" for note in one.notes]
    for load in one.loads:
        lines += [f"- concurrency {load.concurrency}, {_md(load.context)}: {_md(note)}" for note in load.notes]
    lines.append("")
    if one.launch:
        lines += ["How the servers were launched differently:", ""]
        rows = [["what", one.base, one.other], *([d.what, _shown(d.base), _shown(d.other)] for d in one.launch)]
        lines += [*_table(rows), ""]
    return lines


def _shown(value: str | None) -> str:
    return "-" if value is None else value or "(set)"


def _arm(result: BenchResult) -> list[str]:
    server, settings = result.server, result.settings
    what = [f"{server.engine} {server.version or ''}".strip(), server.model]
    if server.drafter:
        what.append(f"drafter {server.drafter}, k = {server.k}")
    if server.prefix_cache:
        what.append(f"prefix cache {server.prefix_cache}")
    lines = [f"## Arm {_md(result.arm)}", "", _md("; ".join(what)), "", *_table(cell_rows(result)), ""]
    for cell in result.cells:
        lines += [f"- c{cell.concurrency}, {_md(cell.context)}: {_md(text)}" for text in (*cell.problems, *cell.notes)]
    lines += [f"- {_md(note)}" for note in result.notes]
    asked = f"- answers up to {settings.max_tokens} tokens, temperature {settings.temperature:g}, seed {settings.seed}"
    if settings.ignore_eos:
        asked += ", past the end of answers"
    lines.append(asked)
    if settings.prompts_file_hash:
        lines.append(f"- prompts {_md(settings.prompts_file or '')}, hash {settings.prompts_file_hash}")
    if result.versions:
        lines.append("- " + _md(", ".join(f"{name} {version}" for name, version in result.versions.items())))
    lines += [f"- {_md(text)}" for text in _machine(result)]
    tools = dict.fromkeys(one.tool for cell in result.cells for one in cell.passes if one.tool)
    if tools:
        lines.append(f"- measured by {_md(', '.join(tools))}")
    return [*lines, ""]


def _machine(result: BenchResult) -> Iterable[str]:
    machine = result.machine or {}
    if machine:
        load = machine.get("load") or ["-"]
        yield f"{machine.get('cpu')}, {machine.get('cores')} cores, kernel {machine.get('kernel')}, load {load[0]} before"
    for card in result.gpus:
        clocks = f"{card.get('clocks.sm')} MHz before and {card.get('clocks.sm.after', '-')} after"
        state = f"{clocks}, {card.get('power.draw')} W, {card.get('temperature.gpu')} C"
        yield f"GPU {card.get('index')}: {card.get('name')}, driver {card.get('driver_version')}, {state}"
