"""What would stop a launch: in short for the launch form, and whole in a page of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widget import Widget

from eagletui.commands.logs import HostError
from eagletui.screens.deeds import deeds_of
from eagletui.text import clean
from eagletui.views.preflight import blocked, headline, items
from eagletui.widgets.dialog import Lines
from eagletui.widgets.paint import Line, folded
from eagletui.widgets.sheet import Sheet, bindings

if TYPE_CHECKING:
    from eagletui.commands.jobs import LaunchPlan
    from eagletui.commands.preflight import Preflight

MOST_BRIEF = 6
INDENT = 9


def brief(looked: Preflight | None, problem: str, width: int, key: str) -> list[Line]:
    """The findings in a few lines: the verdict, and the titles of what blocks or warns."""
    if problem:
        return [[("! ", "warn"), (clean(f"preflight: {problem}", 300), "warn")]]
    if looked is None:
        return [[("~ ", "work"), ("preflight: looking", "work")]]
    words, style = headline(looked.report)
    out: list[Line] = [[("preflight ", "dim"), (words, style), (f"   {key} tells all", "dim")]]
    grave = [item for item in items(looked.report) if item.style != "dim"]
    for item in grave[:MOST_BRIEF]:
        pieces = folded(item.title, max(10, width - 2))
        out += [[(f"{item.sign} " if at == 0 else "  ", item.style), (piece, item.style)] for at, piece in enumerate(pieces)]
    if len(grave) > MOST_BRIEF:
        out.append([(f"  and {len(grave) - MOST_BRIEF} more", "dim")])
    return out


class PreflightSheet(Sheet[bool]):
    """Every finding with what was seen, why it matters and what to do. Returns True when it is to be launched all the same."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings("form_launch", "look_again"),
        Binding("pagedown", "scroll_findings(1)", show=False, priority=True),
        Binding("pageup", "scroll_findings(-1)", show=False, priority=True),
    ]
    hints = ("form_launch", "look_again")
    DEFAULT_CSS = "PreflightSheet .findings { height: auto; background: $surface; scrollbar-size-vertical: 1; }"

    def __init__(self, plan: LaunchPlan, looked: Preflight | None = None) -> None:
        super().__init__()
        self._plan = plan
        self.looked = looked

    def heading(self) -> str:
        return f"preflight of {self._plan.profile.name}"

    def body(self) -> Iterable[Widget]:
        yield Lines(self._verdict)
        self._found = Lines(self._findings)
        with VerticalScroll(classes="findings"):
            yield self._found

    def on_mount(self) -> None:
        self.query_one(".findings").focus()
        if self.looked is None:
            self.action_dialog_look_again()

    def on_resize(self) -> None:
        self.query_one(".findings").styles.max_height = max(4, self.app.size.height * 94 // 100 - 6)

    def _verdict(self, _width: int) -> list[Line]:
        if self.looked is None:
            return [[("~ ", "work"), ("looking", "work")]]
        words, style = headline(self.looked.report)
        seconds = self.looked.report.seconds
        took = [(f"   looked for {seconds:.1f} s on the host", "dim")] if seconds is not None else []
        launch = [("   ctrl+l launches all the same", "warn")] if blocked(self.looked.report) else []
        return [[(words, style), *took, *launch]]

    def _findings(self, width: int) -> list[Line]:
        if self.looked is None:
            return []
        out: list[Line] = []
        for item in items(self.looked.report):
            pieces = folded(item.title, max(10, width - 2))
            out += [[(f"{item.sign} " if at == 0 else "  ", item.style), (piece, item.style)] for at, piece in enumerate(pieces)]
            for label, words in item.details:
                for at, piece in enumerate(folded(words, max(10, width - INDENT))):
                    out.append([(f"    {label if at == 0 else '':<5}", "dim"), (piece, "")])
        return out or [[("nothing was found that would stop it", "good")]]

    def action_scroll_findings(self, way: int) -> None:
        """Scroll by a page."""
        place = self.query_one(".findings", VerticalScroll)
        place.scroll_relative(y=way * max(1, place.size.height - 1), animate=False)

    def action_dialog_look_again(self) -> None:
        self.run_worker(self._look(), group="preflight", exclusive=True)

    async def _look(self) -> None:
        self.looked = None
        self.say([])
        for panel in self.query(Lines):
            panel.redraw()
        try:
            self.looked = await deeds_of(self.app).preflight(self._plan)
        except HostError as error:
            self.fail(error)
        for panel in self.query(Lines):
            panel.redraw()

    def action_dialog_form_launch(self) -> None:
        self.dismiss(True)
