"""Screen 4: how much a server does, and how long its users wait, over a stated window."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.geometry import Size

from eagletui.records import JobState
from eagletui.screens.base import set_height
from eagletui.screens.details import folded_text
from eagletui.screens.serving import Head, ServerPart, WindowedPage, WindowHead
from eagletui.screens.serving_words import no_numbers, percentile_row, problem_lines, share, value
from eagletui.text import number, percent
from eagletui.views.serving import current
from eagletui.widgets.history import Drawn, SeriesChart
from eagletui.widgets.paint import Line, joined, wrapped

NOTE = "with a drafter ITL mixes gaps near zero with full steps: compare tok/s and means"


class Numbers(ServerPart):
    """Tokens and requests per second, the load now, and the latencies of the window."""

    def about(self, job: JobState, width: int) -> list[Line]:
        shown = self.shown(job)
        view = self.store.servers.get(job.id)
        out = problem_lines(view, job, width)
        if view is None:
            return out
        sample, window = view.sample, shown.window
        style = "dim" if shown.idle is not None else "strong"
        now: list[Line] = [
            [("running ", "dim"), *value(number(sample.running))],
            [("waiting ", "dim"), *value(number(sample.waiting), style="warn" if sample.waiting else "")],
            [("KV cache ", "dim"), *value(percent(share(sample.kv), 1))],
        ]
        if no_numbers(self.store, job, shown) or window is None:
            return [*out, [(" now      ", "dim"), *joined(now, width - 10)]]
        rates: list[Line] = [
            [("generation ", "dim"), *value(number(window.generated_per_s, 1), "tok/s", style)],
            [("prompt ", "dim"), *value(number(window.prompt_per_s, 1), "tok/s", style)],
            [("requests ", "dim"), *value(number(window.finished_per_s, 2), "/s done", "dim" if shown.idle is not None else "")],
            [
                ("prefix hits ", "dim"),
                *value(percent(share(window.prefix_hit_rate), 1), style="dim" if shown.idle is not None else ""),
            ],
        ]
        plain = "dim" if shown.idle is not None else ""
        for at, line in enumerate(wrapped(rates, width - 10)):
            out.append([(" window   " if at == 0 else " " * 10, "dim"), *line])
        out += [[(" now      ", "dim"), *joined(now, width - 10)], []]
        out += [percentile_row("TTFT", window.ttft, plain), percentile_row("ITL", window.itl, plain)]
        if job.drafter:
            out += folded_text(" " * 8, NOTE, width, "dim")
        return out


class Throughput(WindowedPage):
    """Numbers above, charts below: one beside the other on a wide screen, as many as there is room for."""

    DEFAULT_CSS = """
    Throughput Horizontal { height: auto; margin-top: 1; }
    Throughput SeriesChart { width: 1fr; margin: 0 2 0 0; }
    """

    def compose(self) -> ComposeResult:
        yield Head()
        yield WindowHead()
        yield Numbers(id="throughput-numbers")
        with Horizontal(id="speeds"):
            yield SeriesChart("tok/s", [Drawn("generated", "good", "generation")], least=1.0, id="speed-generated")
            yield SeriesChart("tok/s", [Drawn("prompt", "work", "prompt")], least=1.0, id="speed-prompt")
        with Horizontal(id="loads"):
            yield SeriesChart(
                "requests",
                [Drawn("running", "good", "running"), Drawn("waiting", "warn", "waiting")],
                least=4.0,
                id="load-requests",
            )
            yield SeriesChart("%", [Drawn("kv", "work", "KV cache", 100.0)], least=1.0, id="load-kv")

    def share_out(self, size: Size) -> None:
        job = current(self.store)
        numbers = self.query_one("#throughput-numbers", Numbers)
        drawn = job is not None and ("server", job.id, "generated") in self.store.series
        left = size.height - 5 - len(numbers.lines(size.width)) if drawn else 0
        rows = 2 if left >= 18 else 1 if left >= 7 else 0
        wide = size.width >= 110
        for name, number_ in (("#speeds", 1), ("#loads", 2)):
            row = self.query_one(name)
            row.display = rows >= number_
        each = min(18, left // max(1, rows)) - 1
        for name in ("#speed-generated", "#speed-prompt", "#load-requests", "#load-kv"):
            shown = rows and (wide or name in ("#speed-generated", "#load-requests"))
            set_height(self.query_one(name, SeriesChart), each if shown else 0)
