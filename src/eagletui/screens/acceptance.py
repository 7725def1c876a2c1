"""Screen 5: what becomes of the drafter's tokens over a stated window, and whether the drafter pays here."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.geometry import Size

from eagletui.records import JobState
from eagletui.screens.acceptance_words import (
    acceptance_parts,
    acceptance_problem,
    definition_lines,
    position_lines,
    verdict_lines,
)
from eagletui.screens.base import set_height
from eagletui.screens.serving import Head, ServerPart, WindowedPage, WindowHead
from eagletui.screens.serving_words import no_numbers, problem_lines
from eagletui.text import number
from eagletui.views.serving import current
from eagletui.widgets.history import Drawn, SeriesChart
from eagletui.widgets.paint import Line, wrapped


class Numbers(ServerPart):
    """Rate, length and tokens per second; per position; the verdict."""

    def about(self, job: JobState, width: int) -> list[Line]:
        shown = self.shown(job)
        out = problem_lines(self.store.servers.get(job.id), job, width)
        if no_numbers(self.store, job, shown) or shown.window is None:
            if job.ready_seconds is not None and not job.drafter:
                out.append([(" ", ""), *acceptance_problem(job, None)])
            return out
        gain = shown.window.acceptance
        why = acceptance_problem(job, gain)
        if why:
            return [*out, [(" ", ""), *why], *(definition_lines(gain, width) if gain is not None else [])]
        assert gain is not None
        dim = shown.idle is not None
        parts = acceptance_parts(gain, dim)
        view = self.store.servers.get(job.id)
        if view is not None and not dim:
            parts.append([("at ", "dim"), (number(view.sample.running), ""), (" running", "dim")])
        out += [[(" ", ""), *line] for line in wrapped(parts, width - 1)]
        out += [*definition_lines(gain, width), []]
        out += [*position_lines(gain, width, dim), []]
        return [*out, *verdict_lines(job, gain, width)]


class AcceptancePage(WindowedPage):
    """Numbers above, the length over time below where there is room."""

    def compose(self) -> ComposeResult:
        yield Head()
        yield WindowHead()
        yield Numbers(id="acceptance-numbers")
        yield SeriesChart(
            "tokens per verify step", [Drawn("length", "good", "acceptance length")], bottom=1.0, least=2.0, id="length"
        )
        yield SeriesChart(
            "tok/s", [Drawn("drafted", "work", "drafted"), Drawn("accepted", "good", "accepted")], least=1.0, id="drafted"
        )

    def share_out(self, size: Size) -> None:
        numbers = self.query_one("#acceptance-numbers", Numbers)
        job = current(self.store)
        drawn = job is not None and ("server", job.id, "length") in self.store.series and bool(job.drafter)
        left = size.height - 5 - len(numbers.lines(size.width)) if drawn else 0
        view = self.store.servers.get(job.id) if job is not None else None
        counted = view is not None and view.sample.acceptance_from != "gauge"
        both = left >= 20 and counted
        each = min(left // 2 if both else left, 18) - 1
        set_height(self.query_one("#length", SeriesChart), each if left >= 8 else 0)
        set_height(self.query_one("#drafted", SeriesChart), each if both else 0)
